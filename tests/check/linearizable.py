"""Whether calls on one object could have happened one at a time, each while it was under way.

The search of Wing and Gong ("Testing and verifying concurrent objects", 1993) with Lowe's memory of
what was tried ("Testing for linearizability", 2017): a configuration is the set of calls that have
taken effect, and the state that this has led to; none is looked at twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

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


class _Entry:
    """The begin or the end of an operation, in a list from which both are taken and put back."""

    __slots__ = ("after", "before", "end", "number")

    def __init__(self, number: int, end: _Entry | None) -> None:
        self.number = number
        self.end = end
        """None in an end itself."""
        self.before: _Entry | None = None
        self.after: _Entry | None = None

    def lift(self) -> None:
        for one in (self, self.end):
            assert one is not None
            assert one.before is not None
            one.before.after = one.after
            if one.after is not None:
                one.after.before = one.before

    def put_back(self) -> None:
        for one in (self.end, self):
            assert one is not None
            assert one.before is not None
            one.before.after = one
            if one.after is not None:
                one.after.before = one


def contradiction(
    operations: Sequence[Operation], start: S, step: Callable[[S, Operation], S | None]
) -> list[Operation] | None:
    """None where some order explains every answer; else the operations that no order brought
    further than: the answer that can't be explained is the first to end among them.

    `step(state, operation)` is the state after the operation if its answer fits this state, else
    None. It must accept an open operation in any state.
    """
    head = _linked(operations)
    lifted: list[tuple[_Entry, S]] = []
    seen: set[tuple[int, S]] = set()
    done, state = 0, start
    stuck: list[Operation] = []
    furthest = -1
    entry = head.after
    closed = sum(1 << n for n, one in enumerate(operations) if not one.is_open)
    while done & closed != closed:
        assert entry is not None
        if entry.end is not None:
            after = step(state, operations[entry.number])
            tried = done | 1 << entry.number
            if after is not None and (tried, after) not in seen:
                seen.add((tried, after))
                lifted.append((entry, state))
                done, state = tried, after
                entry.lift()
                entry = head.after
            else:
                entry = entry.after
            continue
        if done.bit_count() > furthest:
            furthest = done.bit_count()
            stuck = _under_way(operations, done, operations[entry.number].ended)
        if not lifted:
            return stuck
        entry, state = lifted.pop()
        done &= ~(1 << entry.number)
        entry.put_back()
        entry = entry.after
    return None


def _linked(operations: Sequence[Operation]) -> _Entry:
    """The head of the list of all begins and ends, by time; at the same time begins come first."""
    points: list[tuple[float, bool, int, _Entry]] = []
    for number, one in enumerate(operations):
        end = _Entry(number, None)
        points.append((one.ended, True, number, end))
        points.append((one.began, False, number, _Entry(number, end)))
    points.sort(key=lambda point: point[:3])
    head = last = _Entry(-1, None)
    for *_, entry in points:
        last.after, entry.before = entry, last
        last = entry
    return head


def _under_way(operations: Sequence[Operation], done: int, until: float) -> list[Operation]:
    """What had begun and not taken effect when the search could not get past an end."""
    waiting = [
        one
        for number, one in enumerate(operations)
        if not done >> number & 1 and one.began <= until
    ]
    return sorted(waiting, key=lambda one: (one.ended, one.began))
