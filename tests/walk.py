"""Long random walks over a state machine of hypothesis, several times as fast as its own engine.

The engine records and compares every draw so that it can shrink; that is most of its time. A walk
draws from a seeded `random.Random`, enables a random subset of rules a run (as the engine does),
and shrinks what fails by leaving steps out.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

SHRINK_S = 60.0
ENABLED_LEAST = 0.4


@dataclass(frozen=True, slots=True)
class Step:
    rule: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.rule}({', '.join(f'{k}={v!r}' for k, v in self.arguments.items())})"


def walk(machine: type[RuleBasedStateMachine], *, runs: int, steps: int, seed: int = 0) -> int:
    """Goes `runs` times `steps` steps from the beginning; returns the number of steps.

    `WALK_SEED` moves the seed. An AssertionError or any other error of a run is raised again
    with the shortest list of steps found that still ends so.
    """
    first = int(os.environ.get("WALK_SEED", seed))
    total = 0
    for run in range(runs):
        walker = _Walker(machine, random.Random(f"{first}:{run}"), steps)
        try:
            walker.go()
        except Exception as error:
            shortest = _shrink(machine, walker.taken, error)
            told = "\n".join(f"    {step}" for step in shortest)
            error.add_note(f"WALK_SEED={first}, run {run}, {len(shortest)} steps:\n{told}")
            raise
        total += len(walker.taken)
    return total


class _Walker:
    def __init__(
        self, machine: type[RuleBasedStateMachine], rng: random.Random, steps: int
    ) -> None:
        self._machine, self._rng, self._steps = machine, rng, steps
        self.taken: list[Step] = []

    def go(self) -> None:
        rng = self._rng
        running = _Running(self._machine)
        for rule in running.starts:
            self._take(running, rule)
        likely = rng.uniform(ENABLED_LEAST, 1.0)
        enabled = [rule for rule in running.rules if rng.random() < likely]
        while len(self.taken) < self._steps:
            able = [rule for rule in enabled if running.may(rule)]
            if not able:
                able = [rule for rule in running.rules if running.may(rule)]
            self._take(running, rng.choice(able))
        running.machine.teardown()

    def _take(self, running: _Running, rule: Any) -> None:
        arguments = {name: _drawn(what, self._rng) for name, what in rule.arguments.items()}
        step = Step(rule.function.__name__, arguments)
        self.taken.append(step)
        running.take(step)


class _Running:
    """One machine under way, with its rules by name."""

    def __init__(self, machine: type[RuleBasedStateMachine]) -> None:
        self.machine = machine()
        self.rules: list[Any] = list(self.machine.rules)
        self.starts: list[Any] = list(machine.setup_state().initializers)
        self._by_name = {rule.function.__name__: rule for rule in (*self.rules, *self.starts)}

    def may(self, rule: Any) -> bool:
        return all(condition(self.machine) for condition in rule.preconditions)

    def take(self, step: Step) -> None:
        """Takes a step, or does nothing where its rule does not apply."""
        rule = self._by_name[step.rule]
        if not self.may(rule):
            return
        rule.function(self.machine, **step.arguments)
        for invariant in self.machine.invariants:
            if self.may(invariant):
                invariant.function(self.machine)


_DRAWS: dict[int, tuple[st.SearchStrategy[Any], Callable[[random.Random], Any]]] = {}
"""By the strategy's id; the strategy is kept, so that no other gets its id."""


def _drawn(strategy: st.SearchStrategy[Any], rng: random.Random) -> Any:
    found = _DRAWS.get(id(strategy))
    if found is None:
        found = _DRAWS[id(strategy)] = (strategy, _made(strategy))
    return found[1](rng)


def _made(strategy: Any) -> Callable[[random.Random], Any]:
    plain = getattr(strategy, "wrapped_strategy", strategy)
    kind = type(plain).__name__
    if kind == "IntegersStrategy" and plain.start is not None and plain.end is not None:
        first, last = plain.start, plain.end
        return lambda rng: rng.randint(first, last)
    if kind == "BooleansStrategy":
        return lambda rng: rng.random() < 0.5
    if kind == "SampledFromStrategy":
        elements = list(plain.elements)
        return lambda rng: rng.choice(elements)
    raise TypeError(f"a walk can't draw from {strategy!r}")


def _shrink(
    machine: type[RuleBasedStateMachine], steps: list[Step], error: Exception
) -> list[Step]:
    """Leaves out halves, quarters, ... single steps while the same kind of error comes."""
    until_s = time.monotonic() + SHRINK_S
    size = len(steps) // 2
    while size and time.monotonic() < until_s:
        start = 0
        while start < len(steps) and time.monotonic() < until_s:
            fewer = steps[:start] + steps[start + size :]
            if _ends_so(machine, fewer, error):
                steps = fewer
            else:
                start += size
        size //= 2
    return steps


def _ends_so(machine: type[RuleBasedStateMachine], steps: list[Step], error: Exception) -> bool:
    running = _Running(machine)
    starts = [rule.function.__name__ for rule in running.starts]
    if [step.rule for step in steps[: len(starts)]] != starts:
        return False
    try:
        for step in steps:
            running.take(step)
        running.machine.teardown()
    except Exception as found:  # noqa: BLE001 - whatever ended the walk
        return type(found) is type(error)
    return False
