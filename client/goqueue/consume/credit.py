"""How much a consumer lets come over a stream, and when it says so anew.

What its buffer wants is said as the server counts it: as the most that was delivered and has no
confirmed settle, so what is worked on counts too. A buffer that is half empty lets anything come.
One that holds more lets come what settles free of that, of which the server gives the highest lane
first; once nothing was freed for a moment, only what goes ahead of the lowest lane that it holds.
To say it for every message would double what goes up, so it is said when it is off by a share of
the buffer, and never more of all lanes than would fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.consume.prefetch import LOWEST, Want

FULL_S = 0.05
"""A buffer that had no room for so long asks for higher lanes: where handlers are quick, there is
room sooner, and each change of lanes ends what the server waits for."""
SLACK = 8
"""The totals of a buffer may be too low by a quarter of it: by two parts of so many."""


@dataclass(frozen=True, slots=True)
class Room:
    """A buffer of `bound` messages has `waiting` ones and wants `want`; `unsettled` are these, and
    all that were taken from it and have no confirmed settle."""

    bound: int
    waiting: int
    unsettled: int
    want: Want | None


class Credit:
    """What a server was told last."""

    def __init__(self) -> None:
        self.messages = 0
        self.lowest = LOWEST
        self.full_s: float | None = None
        """Since when there is no room; to be looked at again `FULL_S` later."""

    def due(self, room: Room, now_s: float) -> bool:
        """Whether something else is to be told, which `messages` and `lowest` are then."""
        slack = room.bound // SLACK
        fits = room.unsettled - room.waiting + room.bound
        if room.want is None:
            return self._tell(room.unsettled, self.lowest, self.messages > room.unsettled)
        if room.want.lowest == LOWEST:
            self.full_s = None
            if self.lowest != LOWEST or not self.messages:
                return self._tell(fits, LOWEST, True)
            is_off = not fits - 2 * slack <= self.messages <= fits
            return self._tell(fits - slack, LOWEST, is_off)
        if self.lowest == LOWEST and self.messages > room.unsettled:
            self.full_s = None
            if self.messages <= fits:
                return False  # there is room for any lane
            if fits - slack > room.unsettled:
                return self._tell(fits - slack, LOWEST, True)
        if self.lowest == LOWEST:
            self.full_s = now_s if self.full_s is None else self.full_s
            if now_s - self.full_s < FULL_S:
                return self._tell(room.unsettled, LOWEST, self.messages > room.unsettled)
        total = room.unsettled + room.want.limit
        most = total + room.bound  # what is too much takes the place of lower lanes, which go back
        is_off = self.lowest != room.want.lowest or not room.unsettled < self.messages <= most
        return self._tell(total, room.want.lowest, is_off)

    def _tell(self, messages: int, lowest: int, is_due: bool) -> bool:
        if is_due:
            self.messages, self.lowest = messages, lowest
        return is_due
