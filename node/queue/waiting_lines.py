"""Receives of this node that wait for messages: those that wait for the same stand in one line.

Thousands of consumers of a group wait for the same partitions. If each asked their leaders, that
would be a request and a wait at each leader for each of them, and one message would wake them all.
A line asks a leader once for all who stand in it. What is ready wakes the first few of them, who
take what they can; then the line asks again, which is answered at once while there is more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from goqueue.background import TaskSet
from goqueue.wire.types import NodeId, PartitionId

WOKEN_MAX = 16
"""Of one line at once: more than a node's consumers can take from one leader in the time of one
entry, and few enough that those who find nothing any more cost little."""
ASK_S_MIN = 0.001
"""Whoever waits for less is told nothing any more, and leaves; until then a leader need not answer
at once, again and again."""
BACK_S = 0.25
"""Who was woken and is not back after so long is not waited for."""


class Wanted(NamedTuple):
    """What a line waits for: messages of these partitions, all led by that node."""

    group: int
    node: NodeId
    partitions: frozenset[PartitionId]
    lowest_lane: int


class Told(NamedTuple):
    """Partitions to take from now; `everyone` has to look at them again, as leaders are others or
    nobody knows."""

    partitions: list[PartitionId]
    everyone: bool = False


Ask = Callable[[Wanted, float], Awaitable[Told]]
"""Asks the leader, and returns after so many seconds at the latest: with nothing, if it is so."""


class Place:
    """One receive in one line. `told` is done when it is woken: it must `leave` in any case."""

    __slots__ = ("_line", "_round", "told", "until_s")

    def __init__(self, line: _Line, until_s: float) -> None:
        self.told: asyncio.Future[list[PartitionId]] = asyncio.get_running_loop().create_future()
        self.until_s = until_s
        self._line = line
        self._round: int | None = None
        """Of the line, when it was woken."""

    def wake(self, partitions: list[PartitionId], round_: int) -> None:
        self._round = round_
        self.told.set_result(partitions)

    def leave(self) -> None:
        """It waits no longer; where it was woken, it has taken what it could. Idempotent."""
        line_round, self._round = self._round, None
        if not self.told.done():
            self.told.cancel()
            self._line.left(self)
        elif line_round is not None:
            self._line.back(line_round)


class WaitingLines:
    """All lines of a node. Loop thread only."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._tasks = TaskSet(None)
        """Each is told to who stands in its line, errors too."""
        self._lines: dict[Wanted, _Line] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def join(self, wanted: Wanted, until_s: float) -> Place:
        """A place at the end of the line, for the time of the loop until then."""
        line = self._lines.get(wanted)
        if line is None:
            line = self._lines[wanted] = _Line(wanted, self._ask, self._tasks, self._lines)
        return line.join(until_s)


class _Line:
    """It is in `lines` as long as anybody stands in it, or was woken and is not back."""

    def __init__(
        self, wanted: Wanted, ask: Ask, tasks: TaskSet, lines: dict[Wanted, _Line]
    ) -> None:
        self._wanted = wanted
        self._ask = ask
        self._tasks = tasks
        self._lines = lines
        self._places: dict[Place, None] = {}
        self._asking: asyncio.Task[None] | None = None
        self._woken = 0
        self._round = 0
        self._late: asyncio.TimerHandle | None = None

    def join(self, until_s: float) -> Place:
        place = Place(self, until_s)
        self._places[place] = None
        self._go_on()
        return place

    def left(self, place: Place) -> None:
        del self._places[place]
        if not self._places and self._asking is not None:
            self._asking.cancel()
            self._asking = None
        self._go_on()

    def back(self, round_: int) -> None:
        if round_ == self._round and self._woken:
            self._woken -= 1
            if not self._woken:
                self._go_on()

    # private

    def _go_on(self) -> None:
        if self._woken or self._asking is not None:
            return
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if self._places:
            self._asking = self._tasks.begin(self._asked())
        else:
            self._lines.pop(self._wanted, None)

    async def _asked(self) -> None:
        """Wakes who is told something."""
        now_s = asyncio.get_running_loop().time()
        until_s = max(place.until_s for place in self._places)
        try:
            told = await self._ask(self._wanted, max(ASK_S_MIN, until_s - now_s))
        except Exception as error:  # noqa: BLE001 - told to who waits
            places, self._places = self._places, {}
            for place in places:
                place.told.set_exception(error)
        else:
            self._wake(told)
        self._asking = None
        self._go_on()

    def _wake(self, told: Told) -> None:
        if not told.partitions:
            return
        self._round += 1
        loop = asyncio.get_running_loop()
        most = len(self._places) if told.everyone else WOKEN_MAX
        for place in list(self._places)[:most]:
            del self._places[place]
            place.wake(told.partitions, self._round)
            self._woken += 1
        if self._woken:
            self._late = loop.call_later(BACK_S, self._not_back)

    def _not_back(self) -> None:
        self._late, self._woken = None, 0
        self._round += 1
        self._go_on()
