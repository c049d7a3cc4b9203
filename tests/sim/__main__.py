"""`python -m tests.sim --seeds 0:2000`: simulate seeds, and judge every one of them.

Exits with 1 where a seed violated something, or where rare paths were walked too rarely in 2,000
seeds or more of all kinds; shrinks its plan, and prints the command that replays
it. With `--mutant` it plants a bug, and exits with 1 where no seed has found it. A run that was
interrupted says with which seeds to go on.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from tests.sim.faults import chosen
from tests.sim.hunt import hunt
from tests.sim.mutants import MUTANTS
from tests.sim.pool import Pool
from tests.sim.rare import FLOORS, missing
from tests.sim.setup import Setup
from tests.sim.shape import KINDS
from tests.sim.shrink import shrink
from tests.sim.world import FAULTS, Verdict

SHOWN_MAX, SHRUNK_MAX = 10, 3
EACH_MAX = 20
"""So few seeds are told of one by one."""
PROGRESS_S = 15.0


@dataclass
class Totals:
    """What all seeds did."""

    seeds: int = 0
    acks: int = 0
    duplicates: int = 0
    faults: int = 0
    elections: int = 0
    steps: int = 0
    deliveries: int = 0
    settles: int = 0
    trace: int = 0
    rare: Counter[str] = field(default_factory=Counter[str])
    bad: list[Verdict] = field(default_factory=list[Verdict])

    def add(self, verdict: Verdict) -> None:
        self.seeds += 1
        self.acks += verdict.acks
        self.duplicates += verdict.duplicates
        self.faults += verdict.faults
        self.elections += verdict.elections
        self.steps += verdict.steps
        self.deliveries += verdict.deliveries
        self.settles += verdict.settles
        self.rare.update(verdict.rare)
        self.trace = zlib.crc32(verdict.trace.encode(), self.trace)
        if verdict.violations:
            self.bad.append(verdict)

    def rare_line(self) -> str:
        return "rare paths: " + ", ".join(f"{path} {self.rare[path]}" for path in FLOORS)

    def line(self, took_s: float) -> str:
        return (
            f"seeds {self.seeds}  acked {self.acks}  duplicates answered {self.duplicates}"
            f"  faults {self.faults}  elections {self.elections}  steps {self.steps}"
            f"  delivered {self.deliveries}  settled {self.settles}"
            f"  violating seeds {len(self.bad)}  traces {self.trace:08x}"
            f"  {took_s:.1f} s, {60 * self.seeds / took_s:.0f} seeds/min"
        )


def main() -> int:
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim", *sys.argv[1:]])
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    seeds = range(*options.seeds)
    if options.mutants is not None:
        return hunt(options.mutants or list(MUTANTS), seeds, options.jobs)
    setup = Setup(
        options.mutant or "",
        options.faults,
        options.kind,
        tuple(options.nemesis),
        options.only,
    )
    if options.mutant and options.kind is None and not options.nemesis:
        setup = Setup.hunting(options.mutant, faults=options.faults)
    if options.trace:
        return _trace(setup, seeds)
    totals = _run(setup, seeds, options.jobs)
    for number, verdict in enumerate(totals.bad[:SHOWN_MAX]):
        if len(seeds) > EACH_MAX:
            _tell(setup, verdict)
        if number < SHRUNK_MAX and setup.only is None and not options.mutant:
            _shrink(setup, verdict.seed)
    if options.mutant:
        return int(not totals.bad)
    missed = missing(totals.rare, totals.seeds) if setup == Setup() else []
    for path in missed:
        print("walked too rarely:", path, flush=True)
    return int(bool(totals.bad or missed))


def _run(setup: Setup, seeds: Sequence[int], jobs: int) -> Totals:
    began = told = time.monotonic()
    totals = Totals()
    with Pool(min(jobs, len(seeds))) as pool:
        try:
            for verdict in pool.verdicts(setup, seeds):
                totals.add(verdict)
                if len(seeds) <= EACH_MAX:
                    _tell(setup, verdict)
                if time.monotonic() > told + PROGRESS_S:
                    told = time.monotonic()
                    _progress(totals, seeds, told - began)
        except KeyboardInterrupt:
            print(f"to go on: --seeds {seeds[0] + totals.seeds}:{seeds[-1] + 1}", flush=True)
    print(totals.line(max(time.monotonic() - began, 0.001)), flush=True)
    print(totals.rare_line(), flush=True)
    return totals


def _progress(totals: Totals, seeds: Sequence[int], took_s: float) -> None:
    bad = " ".join(str(verdict.seed) for verdict in totals.bad[:SHOWN_MAX])
    print(
        f"{totals.seeds} of {len(seeds)} seeds, {60 * totals.seeds / took_s:.0f} a minute,"
        f" {len(totals.bad)} violating{': ' if bad else ''}{bad}"
        f" (the rest: --seeds {seeds[0] + totals.seeds}:{seeds[-1] + 1})",
        file=sys.stderr,
        flush=True,
    )


def _trace(setup: Setup, seeds: Sequence[int]) -> int:
    bad = False
    for seed in seeds:
        verdict = setup.world(seed, keep_trace=True).run()
        bad = bad or bool(verdict.violations)
        print(*verdict.lines, sep="\n")
        _tell(setup, verdict)
    return int(bad)


def _tell(setup: Setup, verdict: Verdict) -> None:
    told = f"seed {verdict.seed}  trace {verdict.trace}  acked {verdict.acks}"
    print(f"{told}  replay: {setup.command(verdict.seed)}")
    print("  plan:", " ".join(f"{at}@{fault}" for at, fault in enumerate(verdict.plan)))
    for violation in verdict.violations:
        print("  VIOLATION", violation)


def _shrink(setup: Setup, seed: int) -> None:
    shorter, verdict = shrink(setup, seed)
    print("  shortest plan found:", *verdict.plan)
    print("  replay:", shorter.command(seed), "--trace")
    for violation in verdict.violations[:3]:
        print("   ", violation, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=_span, default=(0, 200), metavar="A:B")
    parser.add_argument("--faults", type=int, default=FAULTS, metavar="N", help="in each run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="J")
    parser.add_argument("--kind", choices=KINDS, help="of cluster; else each seed draws one")
    parser.add_argument(
        "--nemesis",
        type=_nemesis,
        default=[],
        metavar="NAME,...",
        help="faults that strike, by their names or those of their groups",
    )
    parser.add_argument("--mutant", choices=sorted(MUTANTS), metavar="NAME", help="plant this bug")
    parser.add_argument(
        "--mutants",
        nargs="*",
        choices=sorted(MUTANTS),
        metavar="NAME",
        help="seeds needed to find each of these bugs, or of all",
    )
    parser.add_argument("--trace", action="store_true", help="print all that happens")
    parser.add_argument(
        "--only",
        type=_numbers,
        metavar="N,...",
        help="faults of the plan, by their numbers; or none",
    )
    return parser.parse_args()


def _span(text: str) -> tuple[int, int]:
    """`A:B`, or `B` for all from 0."""
    first, colon, last = text.partition(":")
    return (int(first), int(last)) if colon else (0, int(first))


def _nemesis(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    try:
        chosen(names)
    except KeyError as error:
        raise argparse.ArgumentTypeError(f"no such fault or group of faults: {error}") from error
    return names


def _numbers(text: str) -> tuple[int, ...]:
    return () if text == "none" else tuple(map(int, text.split(",")))


if __name__ == "__main__":
    sys.exit(main())
