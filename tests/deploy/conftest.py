"""The report of a run, written when it ends."""

from __future__ import annotations

import pytest

from tests.deploy.report import REPORT, Report


@pytest.fixture(scope="session")
def report() -> Report:
    return REPORT


def pytest_sessionfinish(exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK:
        REPORT.write()
