"""docs/operations/metrics.md says what is declared; dashboards and alerts ask for what there is."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from node.metrics import Metrics
from node.metrics.absent import ABSENT, LABELS_DIFFER

ROOT = Path(__file__).resolve().parents[3]
GOQUEUES = [
    line.split()
    for line in (ROOT / "tests/unit/node/metrics/goqueue_metrics.txt").read_text().splitlines()
]
"""Name, type and labels of each metric that GoQueue registers."""


@pytest.fixture(scope="module")
def doc() -> ModuleType:
    spec = importlib.util.spec_from_file_location("metrics_doc", ROOT / "scripts/metrics_doc.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_made_from_the_declarations(doc: ModuleType) -> None:
    assert doc.PAGE.read_text() == doc.page(), "run python scripts/metrics_doc.py"


def test_every_metric_is_in_the_page_once(doc: ModuleType) -> None:
    rows = [line for line in doc.page().splitlines() if line.startswith("| `")]

    for name in Metrics().families:
        assert sum(row.startswith(f"| `{name}` |") for row in rows) == 1 + (name in LABELS_DIFFER)


def test_dashboards_and_rules_ask_for_metrics_that_there_are(doc: ModuleType) -> None:
    names = Metrics().families
    others = {"goqueue_cluster"}  # a variable of dashboards

    assert {n for n in doc.used_by() if n.startswith("goqueue_")} - names.keys() - others == set()


@pytest.mark.parametrize("row", GOQUEUES, ids=lambda row: row[0])
def test_a_metric_of_goqueues_is_here_with_its_labels_or_the_reason_is_told(row: list[str]) -> None:
    name, kind, *labels = row
    family = Metrics().families.get(name)

    if name in ABSENT:
        assert family is None
        return
    assert family is not None, name
    assert family.kind == kind
    assert set(family.label_names) == set(labels) or name in LABELS_DIFFER
