"""Writes the tables of docs/operations/metrics.md from node/metrics/ and from what uses metrics.

`python scripts/metrics_doc.py` writes it; with --check it only says whether it would change.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "client")]

import yaml  # noqa: E402

from node.metrics import Metrics  # noqa: E402
from node.metrics.absent import ABSENT, LABELS_DIFFER  # noqa: E402

PAGE = ROOT / "docs" / "operations" / "metrics.md"
MARK = "<!-- what follows is made by scripts/metrics_doc.py -->"
AREAS = {
    "broker": "Messages in and out",
    "queue": "Queues",
    "consumer": "Groups",
    "cluster": "Nodes, replicas and Raft",
    "storage": "Disks",
    "archive": "Archives",
    "kubernetes": "Kubernetes",
    "http": "HTTP",
    "doors": "Doors",
    "tail": "Tails",
    "stream": "Streams",
    "listeners": "Other protocols",
    "process": "The process",
}
NAME = re.compile(r"\b(?:goqueue|process|python)_[a-z0-9_]+\b(?!:)")
SUFFIXES = ("_bucket", "_sum", "_count")


def page() -> str:
    """The whole page; what is above the mark stays as it is written."""
    metrics, uses = Metrics(), used_by()
    written = PAGE.read_text().partition(MARK)[0]
    parts = [written, MARK, "\n"]
    for area, title in AREAS.items():
        parts.append(f"\n## {title}\n\n{_TABLE_HEAD}\n")
        for family in _families(metrics, area):
            meaning = family.meaning
            text = (
                family.text
                if not meaning.alias
                else f"{family.text}: the same as `{meaning.alias}`"
            )
            cells = [
                f"`{family.name}`",
                family.kind,
                ", ".join(f"`{label}`" for label in family.label_names),
                text,
                meaning.moves.value,
                meaning.told.value,
                ", ".join(uses.get(family.name, [])),
            ]
            parts.append(f"| {' | '.join(cells)} |\n")
    parts.append("\n## Names of GoQueue that are not here\n\n| name | why |\n|---|---|\n")
    parts += [f"| `{name}` | {why} |\n" for name, why in ABSENT.items()]
    parts.append(
        "\nThese have other labels than GoQueue's:\n\n| name | in what, and why |\n|---|---|\n"
    )
    parts += [f"| `{name}` | {why} |\n" for name, why in LABELS_DIFFER.items()]
    return "".join(parts)


def used_by() -> dict[str, list[str]]:
    """Titles of the dashboards and names of the alerts that ask for a metric, by its name."""
    found: dict[str, list[str]] = {}
    for title, text in (*_dashboards(), *_rules()):
        for name in sorted(asked(text)):
            known = found.setdefault(name, [])
            if title not in known:
                known.append(title)
    return found


def asked(text: str) -> set[str]:
    """Metrics named in expressions, as they are declared."""
    names = Metrics().families
    found = set[str]()
    for name in NAME.findall(text):
        plain = next((name.removesuffix(s) for s in SUFFIXES if name.endswith(s)), name)
        found.add(name if name in names else plain)
    return found


def _dashboards() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "deploy" / "grafana").glob("*.json")):
        tree = json.loads(path.read_text())
        yield tree["title"], " ".join(_expressions(tree))


def _rules() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "deploy" / "prometheus" / "rules").glob("*.yaml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                yield rule.get("alert") or f"`{rule['record']}`", rule["expr"]


def _expressions(tree: Any) -> Iterator[str]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if key in ("expr", "query", "definition") and isinstance(value, str):
                yield value
            else:
                yield from _expressions(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _expressions(value)


def _families(metrics: Metrics, area: str) -> Iterator[Any]:
    own = {id(value) for value in vars(getattr(metrics, area)).values()}
    return (family for family in metrics.families.values() if id(family) in own)


_TABLE_HEAD = """\
| name | type | labels | what it says | when it moves | told by | used by |
|---|---|---|---|---|---|---|"""


def main() -> int:
    text = page()
    is_current = PAGE.read_text() == text
    if "--check" in sys.argv[1:]:
        print("current" if is_current else f"{PAGE} is to be made again")
        return 0 if is_current else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
