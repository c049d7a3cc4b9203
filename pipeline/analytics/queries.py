"""The SQL of the analytics: one query a file, with a header that says what it computes.

A query reads views by name: `messages` and `events` as their sources give them, `rebalances`,
`groups` and `bounds` as `pipeline.analytics.inputs` does, and the views of `sql/views`, which are
made of these in the order of `VIEWS`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

VIEWS = ("subjects", "deliveries", "outcomes", "waits", "lag_spans", "findings", "restored")
"""Each may read those before it."""
TABLES = (
    "summary",
    "latency",
    "lag_slo",
    "lag_series",
    "attempts",
    "redeliveries",
    "dead_letters",
    "lane_waits",
    "delay_accuracy",
    "rebalance_pauses",
    "hot_keys",
    "key_spread",
    "partition_skew",
    "audit",
    "audit_findings",
    "replays",
    "replay_changes",
)
"""In the order of the report."""

_FIELD = re.compile(r"^-- (Computes|Reads|Columns): (.*)$")
_MORE = re.compile(r"^-- +(.*)$")


@dataclass(frozen=True, slots=True)
class Query:
    """One query: its text, and what its header says."""

    name: str
    text: str
    computes: str
    reads: tuple[str, ...]
    columns: str


@cache
def query(name: str) -> Query:
    """The query of this name. Raises KeyError for one that is not among VIEWS and TABLES."""
    if name not in VIEWS and name not in TABLES:
        raise KeyError(name)
    folder = resources.files(__package__).joinpath("sql")
    if name in VIEWS:
        folder = folder.joinpath("views")
    text = folder.joinpath(f"{name}.sql").read_text(encoding="utf-8")
    told = _header(text)
    reads = tuple(word.strip() for word in told["Reads"].split(","))
    return Query(name, text, told["Computes"], reads, told["Columns"])


def _header(text: str) -> dict[str, str]:
    """The fields of the comment that a query begins with, each in one line."""
    found: dict[str, str] = {}
    field = ""
    for line in text.splitlines():
        begun, more = _FIELD.match(line), _MORE.match(line)
        if begun:
            field = begun[1]
            found[field] = begun[2]
        elif more and field:
            found[field] += " " + more[1]
        else:
            break
    return found
