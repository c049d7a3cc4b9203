"""`python -m tests.sim --seeds 0:2000 --jobs 2`: simulate seeds, and judge every one of them.

Exits with 1 where a seed violated something; prints the command that replays it. With `--mutant` it
plants a bug, and exits with 1 where no seed has found it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from tests.sim.mutants import MEMBER_MUTANTS, MUTANTS
from tests.sim.shrink import shrink
from tests.sim.world import FAULTS, Verdict, World

CHUNK = 10
"""Seeds that a worker runs at once."""
SHOWN_MAX = 10


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
        if verdict.violations:
            self.bad.append(verdict)


def run_seed(
    seed: int, *, mutant: str | None = None, faults: int = FAULTS, members: bool = False
) -> Verdict:
    """Simulate one seed; bugs of members are looked for where groups have members."""
    planted = MUTANTS.get(mutant or "")
    has_members = True if members or planted in MEMBER_MUTANTS else None
    return World(seed, mutant=planted, faults=faults, members=has_members).run()


def run_chunk(seeds: list[int], mutant: str | None, faults: int, members: bool) -> list[Verdict]:
    """Simulate some seeds, in a process of its own."""
    return [run_seed(seed, mutant=mutant, faults=faults, members=members) for seed in seeds]


def main() -> int:
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim", *sys.argv[1:]])
    seeds = list(range(*options.seeds))
    if options.trace or options.shrink:
        return _show(seeds, options)
    if options.mutants is not None:
        return _hunt(seeds, options)
    began = time.monotonic()
    totals = Totals()
    for verdict in _verdicts(seeds, options.mutant, options):
        totals.add(verdict)
    took = time.monotonic() - began
    print(
        f"seeds {totals.seeds}  acked {totals.acks}  duplicates answered {totals.duplicates}"
        f"  faults {totals.faults}  elections {totals.elections}  steps {totals.steps}"
        f"  delivered {totals.deliveries}  settled {totals.settles}"
        f"  violating seeds {len(totals.bad)}"
        f"  {took:.1f} s, {60 * totals.seeds / took:.0f} seeds/min"
    )
    for verdict in totals.bad[:SHOWN_MAX]:
        _tell(verdict, options)
    return int(not totals.bad) if options.mutant else int(bool(totals.bad))


def _verdicts(
    seeds: list[int], mutant: str | None, options: argparse.Namespace
) -> Iterator[Verdict]:
    """In the order of the seeds."""
    how = {"mutant": mutant, "faults": options.faults, "members": options.members}
    if options.jobs == 1:
        yield from (run_seed(seed, **how) for seed in seeds)
        return
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(options.jobs) as workers:
        for found in workers.map(partial(run_chunk, **how), chunks):
            yield from found


def _hunt(seeds: list[int], options: argparse.Namespace) -> int:
    """For every mutant, the first seed that finds it."""
    missed = []
    for name in options.mutants or MUTANTS:
        began = time.monotonic()
        found = None
        tried = 0
        for verdict in _verdicts_until_bad(seeds, name, options):
            tried += 1
            if verdict.violations:
                found = verdict
        took = time.monotonic() - began
        if found is None:
            missed.append(name)
            print(f"{name:26} NOT found in {tried} seeds  {took:.1f} s", flush=True)
        else:
            print(
                f"{name:26} {tried:5} seeds  {took:5.1f} s  {found.violations[0][:120]}", flush=True
            )
    return int(bool(missed))


def _verdicts_until_bad(
    seeds: list[int], mutant: str, options: argparse.Namespace
) -> Iterator[Verdict]:
    size = CHUNK * options.jobs
    for at in range(0, len(seeds), size):
        for verdict in _verdicts(seeds[at : at + size], mutant, options):
            yield verdict
            if verdict.violations:
                return


def _show(seeds: list[int], options: argparse.Namespace) -> int:
    bad = False
    for seed in seeds:
        mutant = MUTANTS.get(options.mutant or "")
        members = True if options.members or mutant in MEMBER_MUTANTS else None
        verdict = World(
            seed, mutant=mutant, faults=options.faults, keep_trace=options.trace, members=members
        ).run()
        bad = bad or bool(verdict.violations)
        for line in verdict.lines:
            print(line)
        _tell(verdict, options)
        if options.shrink and verdict.violations:
            plan, world = shrink(seed, verdict.plan, mutant, members)
            print("  shortest plan found:", " ".join(map(str, plan)))
            for violation in world.violations[:5]:
                print("   ", violation)
    return int(bad)


def _tell(verdict: Verdict, options: argparse.Namespace) -> None:
    again = f"python -m tests.sim --seeds {verdict.seed}:{verdict.seed + 1} --trace"
    if options.faults != FAULTS:
        again += f" --faults {options.faults}"
    if options.mutant:
        again += f" --mutant {options.mutant}"
    if options.members:
        again += " --members"
    print(f"seed {verdict.seed}  trace {verdict.trace}  acked {verdict.acks}  replay: {again}")
    print("  plan:", " ".join(map(str, verdict.plan)))
    for violation in verdict.violations:
        print("  VIOLATION", violation)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=_span, default=(0, 200), metavar="A:B")
    parser.add_argument("--faults", type=int, default=FAULTS, metavar="N", help="in each run")
    parser.add_argument("--jobs", type=int, default=1, metavar="J")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="plant this bug")
    parser.add_argument(
        "--mutants",
        nargs="*",
        choices=sorted(MUTANTS),
        metavar="NAME",
        help="seeds needed to find each of these bugs, or of all",
    )
    parser.add_argument("--members", action="store_true", help="groups have members in all seeds")
    parser.add_argument("--trace", action="store_true", help="print all that happens")
    parser.add_argument("--shrink", action="store_true", help="delete faults that don't matter")
    return parser.parse_args()


def _span(text: str) -> tuple[int, int]:
    first, _, last = text.partition(":")
    return int(first), int(last) if last else int(first) + 1


if __name__ == "__main__":
    sys.exit(main())
