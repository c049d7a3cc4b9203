"""A group whose members come, leave and are killed: who waits, and for how long."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

from benchmarks.processes import ROOT, environment
from benchmarks.report import Report, Row, Target
from tests.chaos import group_run
from tests.chaos.group_windows import (
    HEALTHY_MS_MAX,
    KILLED_OVER_SESSION_MS,
    MEDIAN_MS_MAX,
    P_MIN,
    Figures,
)

CHANGES, CHANGES_QUICK = 100, 20
MEASURED = (0, 3)
"""Exit codes of a run whose promises held: in time, or too late."""


async def measure(report: Report, folder: Path, *, quick: bool) -> None:
    """As `make chaos-groups` does it. Raises RuntimeError where a promise was broken."""
    changes = CHANGES_QUICK if quick else CHANGES
    figures = _emptied(folder) / "figures.json"
    command = ["-m", "tests.chaos", "--groups", "--changes", str(changes)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command, "--folder", str(folder), "--figures", str(figures)),
        cwd=ROOT,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    if process.returncode not in MEASURED:
        raise RuntimeError(
            f"exit {process.returncode}; it is in {folder}:\n{said.decode()[-4000:]}"
        )
    add(report, Figures.read(figures))
    shutil.rmtree(folder, ignore_errors=True)


def add(report: Report, found: Figures) -> None:
    """Its rows."""
    section = (
        f"Three nodes, a group of {group_run.MEMBERS} consumers of {group_run.PARTITIONS} "
        f"partitions at {group_run.RATE:.0f} msg/s"
    )
    report.tell(
        f"The group's rows: `python -m tests.chaos --groups --changes {found.changes}` "
        f"({found.joins} joins, {found.leaves} leaves, {found.kills} kill -9; session timeout "
        f"{found.session_ms / 1e3:g} s). A gap is the longest time without a delivery in a window "
        "after a change, and in one of the same length before it; a pause is from the last "
        "delivery at the former owner to the first at the next."
    )
    rows = (
        Row(
            "partitions that stay: gap with a change above one without, median",
            found.median_ms,
            "ms",
            Target.at_most(MEDIAN_MS_MAX, "ms"),
            note=f"p50 {found.gap_p50_ms:.0f} ms against {found.control_p50_ms:.0f} ms",
        ),
        Row(
            "partitions that stay: permutation test over the pairs, p",
            found.p,
            "",
            Target(f"> {P_MIN}", lambda p: p > P_MIN),
            note=f"{found.pairs} pairs; p99 {found.gap_p99_ms:.0f} ms against "
            f"{found.control_p99_ms:.0f} ms",
        ),
        Row(
            "partitions that move from a healthy owner: pause, p99",
            found.healthy_p99_ms,
            "ms",
            Target.at_most(HEALTHY_MS_MAX, "ms"),
            note=f"p50 {found.healthy_p50_ms:.0f} ms over {found.healthy}",
        ),
        Row(
            "partitions that move from a killed owner: pause, p99",
            found.killed_p99_ms,
            "ms",
            Target.at_most(found.session_ms + KILLED_OVER_SESSION_MS, "ms"),
            note=f"p50 {found.killed_p50_ms:.0f} ms over {found.killed}",
        ),
    )
    for row in rows:
        report.add(section, row)


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
