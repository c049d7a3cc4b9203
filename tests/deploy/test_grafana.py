"""Dashboards are what Grafana's own types know: read by them and written again, nothing is lost."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.report import Report

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "grafana"
FILES = sorted(FOLDER.glob("*.json"))
UNKNOWN = ".definition"
"""Of a variable: Grafana's own pages write it beside `query`, and its schema does not have it."""


def read_and_written(dashboard: Any) -> Any:
    """By the types that Grafana Labs generate from the schema of 10.1; newer ones read it too."""
    models: Any = importlib.import_module("grafana_foundation_sdk.models.dashboard")
    encoder: Any = importlib.import_module("grafana_foundation_sdk.cog.encoder")
    plugins: Any = importlib.import_module("grafana_foundation_sdk.cog.plugins")
    plugins.register_default_plugins()
    found = models.Dashboard.from_json(dashboard)
    return json.loads(encoder.JSONEncoder(sort_keys=True).encode(found))


def lost(wanted: Any, found: Any, where: str = "") -> Iterator[str]:
    """Where what was written differs from what was read; defaults may be added."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for name, value in wanted.items():
            if name in found:
                yield from lost(value, found[name], f"{where}.{name}")
            else:
                yield f"{where}.{name}"
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from lost(one, other, f"{where}[{number}]")
    elif wanted != found:
        yield where


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_grafanas_types_know_all_of_a_dashboard(path: Path, report: Report) -> None:
    dashboard = json.loads(path.read_text())

    found = [one for one in lost(dashboard, read_and_written(dashboard)) if UNKNOWN not in one]

    assert found == []
    report.executed("Grafana dashboards", f"{path.name}: read and written by Grafana's types")
    report.not_executed(
        "Dashboards were not opened in Grafana, for which there is no package here."
    )


def test_what_grafana_does_not_know_is_found() -> None:
    dashboard = json.loads(FILES[0].read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    panels[0]["fieldConfig"]["defaults"]["tresholds"] = {"steps": []}

    found = list(lost(dashboard, read_and_written(dashboard)))

    assert [one for one in found if one.endswith(".defaults.tresholds")]
