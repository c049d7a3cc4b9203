"""Rows that are measured by a command of their own, too, and written as their section."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Protocol

from benchmarks.processes import ROOT
from benchmarks.report import Report

DOCUMENT = "docs/reference/benchmarks.md"


class Measure(Protocol):
    """As `python -m benchmarks` calls it, with every peer that there is. It adds its intro."""

    def __call__(
        self, report: Report, folder: Path, seconds: float, *, quick: bool, with_peers: bool
    ) -> Awaitable[None]: ...


def run(module: str, told: str | None, quick: str, section: str, do: Measure) -> None:
    """`python -m benchmarks.MODULE [--quick] [--write]`; `told` and `quick` are for its help."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{module}", description=told)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--write", action="store_true", help=f"into {DOCUMENT}, as its section")
    given = parser.parse_args()
    report, began = Report(), time.monotonic()
    seconds = 1.0 if given.quick else 4.0
    asyncio.run(do(report, ROOT / ".benchmarks", seconds, quick=given.quick, with_peers=True))
    if given.write:
        command, took_s = f"{parser.prog} --write", time.monotonic() - began
        report.write_section(section, report.intros[section], ROOT / DOCUMENT, command, took_s)
