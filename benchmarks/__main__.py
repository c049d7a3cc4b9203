"""`python -m benchmarks [--quick]`: measure this machine and write docs/reference/benchmarks.md."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import (
    at_rest,
    bare,
    callers,
    floods,
    groups,
    in_tests,
    lookups,
    one_node,
    peers,
    protocols,
    push,
    queue_rows,
    three_nodes,
    timeline,
)
from benchmarks.processes import ROOT
from benchmarks.publish import percentile
from benchmarks.report import Report, Row

FULL_S, QUICK_S = 4.0, 1.0
PARTS = (
    "bare",
    "peers",
    "one",
    "three",
    "callers",
    "queue",
    "lookups",
    "timeline",
    "groups",
    "floods",
    "rest",
    "push",
    "protocols",
    "tests",
)


@dataclass(frozen=True, slots=True)
class Run:
    """What a run was told: seconds for each row, a scratch folder, whether to go for brevity."""

    report: Report
    seconds: float
    folder: Path
    quick: bool


def main() -> int:
    """The exit code: 0 when every row was measured, whatever its verdict."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one second a row, fewer messages")
    parser.add_argument(
        "--no-peers", action="store_true", help="leave out RabbitMQ, NATS and Redis"
    )
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--data", type=Path, default=ROOT / ".benchmarks", help="scratch folder")
    parser.add_argument("--write", type=Path, default=ROOT / "docs/reference/benchmarks.md")
    given = parser.parse_args()
    if sys.platform != "linux":
        parser.error("the CPU and memory of processes are read from /proc, which only Linux has")
    parts = given.only or list(PARTS)
    run = Run(Report(), QUICK_S if given.quick else FULL_S, given.data.resolve(), given.quick)
    began = time.monotonic()
    asyncio.run(measure(run, parts, with_peers=not given.no_peers))
    seconds = time.monotonic() - began
    command = " ".join(["python -m benchmarks", *sys.argv[1:]])
    run.report.write(given.write, command, seconds)
    missed = len(run.report.misses())
    print(f"\n{missed} of the targets missed, {seconds:.0f} s, written to {given.write}")
    return 0


async def measure(run: Run, parts: list[str], *, with_peers: bool) -> None:
    """Peers come before the rows that are held against them."""
    if "bare" in parts:
        await measure_bare(run)
    if "peers" in parts and with_peers:
        await peers.measure(run.report, run.folder, run.seconds)
    if "one" in parts:
        await one_node.measure(run.report, run.folder, run.seconds, quick=run.quick)
    if "three" in parts:
        await three_nodes.measure(run.report, run.folder, run.seconds, quick=run.quick)
    if "callers" in parts:
        await callers.measure(
            run.report, run.folder, run.seconds, quick=run.quick, with_peers=with_peers
        )
    if "queue" in parts:
        await queue_rows.measure(
            run.report, run.folder, run.seconds, quick=run.quick, with_peers=with_peers
        )
    if "lookups" in parts:
        await lookups.measure(run.report, run.folder, quick=run.quick)
    if "timeline" in parts:
        await timeline.measure(run.report, run.folder, quick=run.quick)
    if "groups" in parts:
        await groups.measure(run.report, run.folder / "groups", quick=run.quick)
    if "floods" in parts:
        await floods.measure(run.report, run.folder, quick=run.quick)
    if "rest" in parts:
        await at_rest.measure(run.report, run.folder, 1000 if run.quick else 5000)
    if "push" in parts:
        await push.measure(
            run.report, run.folder, run.seconds, quick=run.quick, with_peers=with_peers
        )
    if "protocols" in parts:
        await protocols.measure(
            run.report, run.folder, run.seconds, quick=run.quick, with_peers=with_peers
        )
    if "tests" in parts:
        await asyncio.to_thread(in_tests.measure, run.report)


async def measure_bare(run: Run) -> None:
    section = bare.MACHINE
    times = bare.fdatasync(run.folder, min(2.0, run.seconds))
    middle = f"p50 {percentile(times, 0.5) * 1e6:.0f} µs"
    run.report.add(
        section,
        Row("write 4 KiB + fdatasync", len(times) / sum(times), "/s", note=middle),
    )
    for connections in (1, 64):
        load = await bare.aiohttp_rate(connections, run.seconds)
        name = bare.aiohttp_row(connections)
        run.report.add(section, Row(name, load.rate, "req/s", cpu_us=load.cpu_us))


if __name__ == "__main__":
    sys.exit(main())
