"""Whether calls on one object could have happened one at a time, each while it was under way.

The search of Wing and Gong ("Testing and verifying concurrent objects", 1993) with Lowe's memory of
what was tried ("Testing for linearizability", 2017): a configuration is the set of calls that have
taken effect, and the state that this has led to; none is looked at twice.

Calls of which nobody learned how they ended would make that exponential, as each may have taken
effect at any time or never. So they are tried last; of those that ask for the same the one that
began first goes first; and a configuration that has used up more of them than another one, and got
no further by it, is not looked at either.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Operation:
    """A call: from `began` to `ended`, infinite where nobody learned how it ended. Such a call may
    take effect at any time after it began, or never."""

    client: str
    action: str
    argument: Any
    answer: Any
    began: float
    ended: float = math.inf

    @property
    def is_open(self) -> bool:
        return self.ended == math.inf


Used = tuple[int, ...]
"""Of each kind of open operations, how many have taken effect."""
Choice = tuple[Operation, int, Used]


def contradiction(
    operations: Sequence[Operation], start: S, step: Callable[[S, Operation], S | None]
) -> list[Operation] | None:
    """None where some order explains every answer; else the operations that no order brought
    further than: the answer that can't be explained is the first to end among them.

    `step(state, operation)` is the state after the operation if its answer fits this state, else
    None. It must accept an open operation in any state. Arguments are hashable.
    """
    calls = _Calls(operations)
    done, used, state = 0, calls.nothing_used, start
    tried = _Tried[S]()
    tried.add(done, used, state)
    path: list[tuple[int, Used, S, Iterator[Choice]]] = []
    furthest, stuck = -1, list[Operation]()
    choices = calls.choices(done, used)
    while done != calls.all_done:
        for one, done_then, used_then in choices:
            after = step(state, one)
            if after is not None and tried.add(done_then, used_then, after):
                path.append((done, used, state, choices))
                done, used, state = done_then, used_then, after
                choices = calls.choices(done, used)
                break
        else:
            if done.bit_count() > furthest:
                furthest, stuck = done.bit_count(), calls.under_way(done, used)
            if not path:
                return stuck
            done, used, state, choices = path.pop()
    return None


class _Calls:
    """The operations: those that ended by when they began, the others by what they ask for."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._closed = sorted(
            (one for one in operations if not one.is_open), key=lambda one: one.began
        )
        kinds: dict[Hashable, list[Operation]] = {}
        for one in sorted(operations, key=lambda one: one.began):
            if one.is_open:
                kinds.setdefault((one.action, one.argument), []).append(one)
        self._open = list(kinds.values())
        self.nothing_used: Used = (0,) * len(self._open)
        self.all_done = (1 << len(self._closed)) - 1

    def choices(self, done: int, used: Used) -> Iterator[Choice]:
        """What may take effect next: what began before the first of the others ended. With it,
        what is done and used then."""
        numbers, until = self._waiting(done)
        for number in sorted(numbers, key=lambda number: self._closed[number].ended):
            yield self._closed[number], done | 1 << number, used
        for kind, count in enumerate(used):
            ones = self._open[kind]
            if count < len(ones) and ones[count].began <= until:
                yield ones[count], done, (*used[:kind], count + 1, *used[kind + 1 :])

    def under_way(self, done: int, used: Used) -> list[Operation]:
        """What had begun and not taken effect when the search could not get past an end."""
        numbers, until = self._waiting(done)
        waiting = [self._closed[number] for number in numbers]
        for ones, count in zip(self._open, used, strict=True):
            waiting += [one for one in ones[count:] if one.began <= until]
        return sorted(waiting, key=lambda one: (one.ended, one.began))

    def _waiting(self, done: int) -> tuple[list[int], float]:
        """Which that ended may take effect next, and when the first of them ended."""
        first = (~done & (done + 1)).bit_length() - 1
        numbers, until = list[int](), math.inf
        for number in range(first, len(self._closed)):
            one = self._closed[number]
            if one.began > until:
                break
            if not done >> number & 1:
                numbers.append(number)
                until = min(until, one.ended)
        return [number for number in numbers if self._closed[number].began <= until], until


class _Tried(Generic[S]):
    """The configurations that were looked at."""

    def __init__(self) -> None:
        self._used: dict[tuple[int, S], list[Used]] = {}

    def add(self, done: int, used: Used, state: S) -> bool:
        """Whether this one is worth a look: none that has used up no more led to the same."""
        known = self._used.setdefault((done, state), [])
        if any(all(map(operator.le, one, used)) for one in known):
            return False
        known[:] = [one for one in known if not all(map(operator.le, used, one))]
        known.append(used)
        return True
