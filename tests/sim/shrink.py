"""Fewer faults, the same violation: a plan that a person can read."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.setup import Setup
from tests.sim.world import Verdict


def shrink(setup: Setup, seed: int) -> tuple[Setup, Verdict]:
    """The setup without the faults that the violation of this seed does not need, and how that run
    ends.

    Tries to leave out halves, quarters and so on, down to single faults, as long as that helps.
    """
    whole = setup.only or tuple(range(len(setup.world(seed).plan)))
    numbers, verdict = whole, setup.run(seed)
    size = len(numbers)
    while size:
        at = 0
        while at < len(numbers):
            fewer = numbers[:at] + numbers[at + size :]
            tried = replace(setup, only=fewer).run(seed)
            if tried.violations:
                numbers, verdict = fewer, tried
            else:
                at += size
        size //= 2
    return replace(setup, only=numbers), verdict
