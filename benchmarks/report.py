"""Rows of figures with their targets, on the terminal and in docs/reference/benchmarks.md."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.processes import ROOT

BUSY_LOAD = 0.5
OTHERS = "\n<!-- measured by commands of their own -->\n"

INTRO = """# Benchmarks

Written by `make bench` (`python -m benchmarks`); every figure below is from one run on one
machine. One asyncio process asks whole clusters, started by `goqueue-cli dev`, over loopback;
servers, harness and peers share the same cores, so figures are what is left for each. Values are
ASCII text. What a row published is read back afterwards, and its count and content must equal
what was acknowledged; an answer that isn't a success fails its part of the run, whose rows are
missing then, which is told below.

- **CPU**: user and system time of all server processes, for each message.
- **Majority** is the default durability: an ack means fsynced on a majority. **Relaxed** acks
  after write(2) and syncs within 50 ms.
- Topics have the default 6 partitions; connections are spread over the nodes.
- Peers are measured where they are installed (`apt install rabbitmq-server nats-server
  redis-server`), and their own clients by the Python that `PEERS_PYTHON` names, in which
  `pip install nats-py aio-pika redis` was done.
- Targets without a peer are absolute figures for a quiet machine with 2 cores.
"""


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure is held against."""

    text: str
    holds: Callable[[float], bool]

    @classmethod
    def at_least(cls, figure: float, unit: str) -> Target:
        return cls(f"≥ {number(figure)} {unit}", lambda value: value >= figure)

    @classmethod
    def at_most(cls, figure: float, unit: str) -> Target:
        return cls(f"≤ {number(figure)} {unit}", lambda value: value <= figure)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure; `cpu_us` is the servers' CPU for each message."""

    name: str
    figure: float
    unit: str
    target: Target | None = None
    cpu_us: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.target is None:
            return "–"
        return "pass" if self.target.holds(self.figure) else "**miss**"

    def cells(self) -> list[str]:
        return [
            self.name,
            f"{number(self.figure)} {self.unit}",
            self.target.text if self.target else "–",
            self.verdict,
            f"{self.cpu_us:.1f} µs" if self.cpu_us is not None else "–",
            self.note,
        ]


@dataclass(slots=True)
class Report:
    """Sections of rows, printed as they come. Make it before the first row: it notes what else
    the machine is doing."""

    load: float = field(default_factory=lambda: os.getloadavg()[0])
    sections: dict[str, list[Row]] = field(default_factory=dict[str, list[Row]])
    notes: list[str] = field(default_factory=list[str])
    intros: dict[str, str] = field(default_factory=dict[str, str])
    """What is to be known of a section's rows."""

    def add(self, section: str, row: Row) -> Row:
        if section not in self.sections:
            self.sections[section] = []
            print(f"\n{section}")
        self.sections[section].append(row)
        name, figure, target, verdict, cpu, note = row.cells()
        verdict = verdict.strip("*")
        print(f"  {name:<54} {figure:>18}  {target:<20} {verdict:<5} {cpu:>9}  {note}", flush=True)
        return row

    def tell(self, text: str) -> None:
        """A line that isn't a figure, here and in the file."""
        self.notes.append(text)
        print(f"  {text}", flush=True)

    def figure(self, section: str, name: str) -> float | None:
        return next(
            (row.figure for row in self.sections.get(section, ()) if row.name == name), None
        )

    def misses(self) -> list[Row]:
        rows = [row for rows in self.sections.values() for row in rows]
        return [row for row in rows if row.target is not None and row.verdict != "pass"]

    def write(self, path: Path, command: str, seconds: float) -> None:
        parts = [INTRO, f"\nMeasured {machine()}, in {seconds:.0f} s by `{command}`.\n"]
        if self.load > BUSY_LOAD:
            parts.append(f"\n> The machine was busy with other work: load {self.load:.1f}.\n")
        parts += [f"\n> {note}\n" for note in self.notes]
        for section, rows in self.sections.items():
            intro = self.intros.get(section)
            parts += [f"\n## {section}\n\n", f"{intro}\n\n" if intro else "", _table(rows)]
        missed = [f"{row.name} ({row.target.text if row.target else ''})" for row in self.misses()]
        parts.append("\n## Missed targets\n\n")
        parts.append("".join(f"- {text}\n" for text in missed) or "None.\n")
        _, mark, others = _halves(path)
        others = _without(others, self.sections)
        path.write_text("".join(parts) + mark + others, encoding="utf-8")

    def write_section(
        self, section: str, intro: str, path: Path, command: str, seconds: float
    ) -> None:
        """One section behind those of `write`, which leaves it there unless it has measured it, as
        it leaves others of its kind: for what is measured by a command of its own."""
        busy = f" The machine was busy with other work: load {self.load:.1f}."
        told = f"Measured {machine()}, in {seconds:.0f} s by `{command}`."
        told += busy if self.load > BUSY_LOAD else ""
        before, _, others = _halves(path)
        own = f"{section}\n\n{intro}\n\n{told}\n\n{_table(self.sections[section])}".strip()
        text = f"{_without(others, [section])}\n## {own}\n"
        path.write_text(f"{before}{OTHERS}{text}", encoding="utf-8")


def _table(rows: list[Row]) -> str:
    lines = ["| | figure | target | | CPU | |", "|---|---:|---:|---|---:|---|"]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _halves(path: Path) -> tuple[str, str, str]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return text.partition(OTHERS)


def _without(others: str, names: Container[str]) -> str:
    """The sections of commands of their own, but for these."""
    parts = [part.strip("\n") for part in f"\n{others}".split("\n## ")[1:]]
    kept = [part for part in parts if part.partition("\n")[0] not in names]
    return "".join(f"\n## {part}\n" for part in kept)


def number(value: float) -> str:
    """Digits that mean something: 1,234 or 12.3 or 0.123."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def machine() -> str:
    """The day, the commit and the machine."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    commit = described.stdout.strip() or "no commit"
    model = "unknown CPU"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(": ")[2] if names else model
    return (
        f"{datetime.now(UTC):%Y-%m-%d} at {commit} on {os.cpu_count()} × {model}, "
        f"{platform.system()} {platform.release()}, Python {sys.version.split()[0]}"
    )
