"""`python -m benchmarks [--quick]`: measure this machine and write docs/reference/benchmarks.md."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import traceback
from collections.abc import Sequence
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
    """What a run was told: seconds for each row, a scratch folder, whether to go for brevity,
    and whether peers are measured."""

    report: Report
    seconds: float
    folder: Path
    quick: bool
    with_peers: bool


def main() -> int:
    """The exit code: 0 when every row was measured, whatever its verdict; 1 where a part failed."""
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
    seconds, folder = QUICK_S if given.quick else FULL_S, given.data.resolve()
    run = Run(Report(), seconds, folder, given.quick, not given.no_peers)
    began = time.monotonic()
    failed = asyncio.run(measure(run, given.only or PARTS))
    took_s = time.monotonic() - began
    command = " ".join(["python -m benchmarks", *sys.argv[1:]])
    run.report.write(given.write, command, took_s)
    missed = len(run.report.misses())
    print(f"\n{missed} of the targets missed, {took_s:.0f} s, written to {given.write}")
    if failed:
        print(f"failed, so rows are missing: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


async def measure(run: Run, parts: Sequence[str]) -> list[str]:
    """The parts that failed, of which the report tells the reason; the others go on."""
    failed: list[str] = []
    for part in PARTS:
        if part not in parts:
            continue
        try:
            await _measure(run, part)
        except Exception as error:  # noqa: BLE001 - the other parts are measured all the same
            traceback.print_exc()
            why = str(error).partition("\n")[0] or type(error).__name__
            run.report.tell(f"**Rows of `{part}` are missing**: {why}")
            failed.append(part)
    return failed


async def _measure(run: Run, part: str) -> None:
    """Peers come before the rows that are held against them."""
    report, folder, seconds, quick = run.report, run.folder, run.seconds, run.quick
    with_peers = run.with_peers
    match part:
        case "bare":
            await measure_bare(run)
        case "peers":
            if with_peers:
                await peers.measure(report, folder, seconds)
        case "one":
            await one_node.measure(report, folder, seconds, quick=quick)
        case "three":
            await three_nodes.measure(report, folder, seconds, quick=quick)
        case "callers":
            await callers.measure(report, folder, seconds, quick=quick, with_peers=with_peers)
        case "queue":
            await queue_rows.measure(report, folder, seconds, quick=quick, with_peers=with_peers)
        case "lookups":
            await lookups.measure(report, folder, quick=quick)
        case "timeline":
            await timeline.measure(report, folder, quick=quick)
        case "groups":
            await groups.measure(report, folder / "groups", quick=quick)
        case "floods":
            await floods.measure(report, folder, quick=quick)
        case "rest":
            await at_rest.measure(report, folder, 1000 if quick else 5000)
        case "push":
            await push.measure(report, folder, seconds, quick=quick, with_peers=with_peers)
        case "protocols":
            await protocols.measure(report, folder, seconds, quick=quick, with_peers=with_peers)
        case "tests":
            await asyncio.to_thread(in_tests.measure, report)


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
