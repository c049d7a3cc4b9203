"""Fewer faults, the same violation: a plan that a person can read."""

from __future__ import annotations

from tests.sim.faults import Fault
from tests.sim.mutants import Mutant
from tests.sim.world import Verdict, World


def shrink(
    seed: int, plan: list[Fault], mutant: Mutant | None, members: bool | None = None
) -> tuple[list[Fault], Verdict]:
    """The plan without the faults that the violation does not need, and how that run ends.

    Tries to leave out halves, quarters and so on, down to single faults, as long as that helps.
    """
    verdict = World(seed, mutant=mutant, plan=plan, members=members).run()
    size = len(plan)
    while size:
        at = 0
        while at < len(plan):
            fewer = plan[:at] + plan[at + size :]
            tried = World(seed, mutant=mutant, plan=fewer, members=members).run()
            if tried.violations:
                plan, verdict = fewer, tried
            else:
                at += size
        size //= 2
    return plan, verdict
