"""What expressions are made of: metrics, with the labels that they are asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from monitoring.alerts.catalogue import GROUPS
from monitoring.dashboards.catalogue import DASHBOARDS
from node.metrics import Metrics

ROOT = Path(__file__).resolve().parents[3]
RUNBOOKS = ROOT / "docs" / "operations" / "runbooks"
SUFFIXES = ("_bucket", "_count", "_sum")
SCRAPED = frozenset({"cluster", "namespace", "instance", "job", "le"})
"""Labels that come with scraping, and with buckets."""
_METRIC = re.compile(r"(?<![\w:$\"/.])((?:goqueue|process|python)_\w+)(?:\{([^}]*)\})?")
_RECORD = re.compile(r"(?<![\w\"])(goqueue:\w+:\w+)")


def panels() -> Iterator[tuple[str, str]]:
    """(where, expression) of every query of every dashboard."""
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            for query in panel.queries:
                yield f"{dashboard.name}: {panel.title}", query.promql


def rules() -> Iterator[tuple[str, str]]:
    """(name, expression) of every rule."""
    for group in GROUPS:
        yield from ((rule.name, rule.promql) for rule in group.rules)


def runbooks() -> Iterator[tuple[str, str]]:
    """(alert, expression) of every PromQL block of every runbook; one expression a line."""
    for path in sorted(RUNBOOKS.glob("GoQueue*.md")):
        for block in re.findall(r"```promql\n(.*?)```", path.read_text(), re.S):
            yield from ((path.stem, line) for line in block.splitlines() if line)


def everything() -> Iterator[tuple[str, str]]:
    yield from panels()
    yield from rules()
    yield from runbooks()


def records(expression: str) -> set[str]:
    """The recording rules that it is made from."""
    return set(_RECORD.findall(expression))


def metrics(expression: str) -> Iterator[tuple[str, set[str]]]:
    """(family, labels that its selector names): without the suffixes of histograms."""
    families = declared()
    for name, selector in _METRIC.findall(expression):
        short = next((name.removesuffix(s) for s in SUFFIXES if name.endswith(s)), name)
        family = short if short in families and name not in families else name
        yield family, set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)\s*\"", selector))


def declared() -> Mapping[str, Any]:
    """The families of a node, by name."""
    return _FAMILIES


_FAMILIES = Metrics().families
