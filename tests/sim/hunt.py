"""How many seeds it takes to find each planted bug; one that violates without it does not count."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.sim.mutants import MUTANTS
from tests.sim.pool import Pool
from tests.sim.setup import Setup
from tests.sim.world import Verdict

FOUND_SHARE = 0.95
"""So many of the bugs must be found."""


def hunt(names: Sequence[str], seeds: Sequence[int], jobs: int) -> int:
    """Prints a row for each bug; 1 where too few were found."""
    print(f"| {'bug':28} | {'floor':11} | {'seeds':>5} | {'s':>6} | found by |", flush=True)
    print(f"|{'-' * 30}|{'-' * 13}|{'-' * 6}:|{'-' * 7}:|----------|", flush=True)
    missed: list[str] = []
    with Pool(jobs) as pool:
        for name in names:
            began = time.monotonic()
            found = _found(pool, Setup.hunting(name), seeds)
            took_s = time.monotonic() - began
            number = "-" if found is None else str(found.seed - seeds[0] + 1)
            told = "not found" if found is None else _checker(found.violations[0])
            if found is None:
                missed.append(name)
            floor = MUTANTS[name].floor
            print(f"| {name:28} | {floor:11} | {number:>5} | {took_s:6.1f} | {told} |", flush=True)
    share = 1 - len(missed) / len(names)
    print(f"found {len(names) - len(missed)} of {len(names)} ({share:.1%}) in {len(seeds)} seeds")
    if missed:
        print("not found:", *missed)
    return int(share < FOUND_SHARE)


def _found(pool: Pool, setup: Setup, seeds: Sequence[int]) -> Verdict | None:
    """The first seed that violates something because of the bug."""
    at = 0
    while at < len(seeds):
        verdict = pool.first_bad(setup, seeds[at:])
        if verdict is None or setup.shows_the_bug(verdict):
            return verdict
        replay = setup.sound().command(verdict.seed)
        print(f"seed {verdict.seed} violates without the bug, too: {replay}", flush=True)
        at = seeds.index(verdict.seed) + 1
    return None


def _checker(violation: str) -> str:
    """`3.141 s: one value: n1 applies...`, without its time."""
    told = violation.partition(" s: ")[2]
    return told[:72].replace("|", "/")
