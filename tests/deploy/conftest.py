"""The report of a run, written when it ends; and what can't be run on this machine."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.deploy.report import REPORT, Report

HAS_HELM = importlib.util.find_spec("helm_python") is not None
NO_HELM = "the chart is not rendered: no wheel of helm-python-sdk for this machine"
collect_ignore = [
    path.name
    for path in Path(__file__).parent.glob("test_*.py")
    if not HAS_HELM and "tests.deploy.rendering" in path.read_text()
]


@pytest.fixture(scope="session")
def report() -> Report:
    return REPORT


def pytest_report_header() -> list[str]:
    return [] if HAS_HELM else [f"SKIPPED: {NO_HELM}"]


def pytest_sessionfinish(exitstatus: int) -> None:
    if not HAS_HELM:
        REPORT.not_executed(NO_HELM)
    if exitstatus == pytest.ExitCode.OK:
        REPORT.write()
