"""The rows of a group's run say what was measured, and are held against what is promised."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.groups import add
from benchmarks.report import Report
from tests.chaos.test_group_windows import GOOD


def test_a_good_run_misses_nothing_and_names_its_command(tmp_path: Path) -> None:
    report = Report()

    add(report, GOOD)
    report.write(tmp_path / "benchmarks.md", "a command", 1.0)

    assert report.misses() == []
    written = (tmp_path / "benchmarks.md").read_text()
    assert "`python -m tests.chaos --groups --changes 100`" in written
    assert "| 2,900 ms | ≤ 3,000 ms | pass |" in written


def test_a_run_that_waits_too_long_is_shown_as_it_is() -> None:
    report = Report()

    add(report, replace(GOOD, p=0.01, median_ms=11.0, healthy_p99_ms=501, killed_p99_ms=3001))

    assert len(report.misses()) == 4
