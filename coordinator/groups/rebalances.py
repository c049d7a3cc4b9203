"""Receipts of rebalances: why each happened, what it moved, and how long each partition paused."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec

REBALANCES_MAX = 100
"""Of each group; the newest are remembered."""
MOVES_MAX = 1024
"""Listed of one rebalance; all are counted."""
MOVES_TOTAL_MAX = 2048
"""Listed of one group's rebalances; beyond it the oldest list none."""
MOVES_ALL_MAX = 200_000
"""Listed of all groups, of some 100 bytes each in a snapshot; beyond it those groups list none
whose last rebalance is longest ago."""
MEMBERS_MAX = 100
"""Named of those who caused a rebalance."""

JOIN, LEAVE, EXPIRY, SUBSCRIPTION, TOPIC, PARTITIONS = (
    "join",
    "leave",
    "expiry",
    "subscription",
    "topic",
    "partition_count",
)
"""Causes. `topic`: one that members subscribe to was created or deleted."""


class Move(msgspec.Struct, array_like=True, frozen=True):
    """A partition that went from one member to another; either may be nobody, as "".

    `pause_ms` is from when the former owner was asked to let go, or was last heard of, to when the
    new one was named in the partition's log; `in_flight` counts messages that were taken back.
    """

    topic: str
    partition: int
    former: str
    member: str
    pause_ms: int
    in_flight: int
    fenced: bool


class Rebalance(msgspec.Struct, array_like=True):
    """One rebalance, named by the generation that it began; `ended_ms` is 0 while it runs."""

    id: int
    cause: str
    members: list[str]
    """Who caused it; nobody where it was a topic."""
    started_ms: int
    ended_ms: int = 0
    moved: int = 0
    moves: list[Move] = []

    @property
    def is_running(self) -> bool:
        return not self.ended_ms


@dataclass(slots=True)
class RebalanceTotals:
    """Counted since the group was created."""

    by_cause: dict[str, int] = field(default_factory=dict[str, int])
    moved: int = 0
    fenced: int = 0
    """Partitions that were taken from a member which did not let go."""
    pause_ms_sum: int = 0
    pause_ms_max: int = 0


class Rebalances:
    """The rebalances of one group."""

    def __init__(self, known: list[Rebalance], totals: RebalanceTotals) -> None:
        self.known = known
        """Oldest first."""
        self.totals = totals
        self.listed = sum(len(rebalance.moves) for rebalance in known)
        """Moves of all that are known."""

    def begin(self, id: int, cause: str, members: list[str], now_ms: int) -> None:
        """A new one; those that still run go on with what is not overtaken by it."""
        causes = Counter(self.totals.by_cause)
        causes[cause] += 1
        self.totals.by_cause = dict(causes)
        self.known.append(Rebalance(id, cause, members[:MEMBERS_MAX], now_ms))
        while len(self.known) > REBALANCES_MAX:
            self.listed -= len(self.known.pop(0).moves)

    def moved(self, id: int, move: Move) -> None:
        """A partition was handed over; by no rebalance where the id is 0."""
        if not id:
            return
        totals = self.totals
        totals.moved += 1
        totals.fenced += move.fenced
        totals.pause_ms_sum += move.pause_ms
        totals.pause_ms_max = max(totals.pause_ms_max, move.pause_ms)
        for rebalance in reversed(self.known):
            if rebalance.id == id:
                rebalance.moved += 1
                if len(rebalance.moves) < MOVES_MAX:
                    rebalance.moves.append(move)
                    self.listed += 1
                    self._forget_oldest_moves()
                return

    def end_all_but(self, running: set[int], now_ms: int) -> None:
        """Those that nothing is left to do of are over."""
        for rebalance in self.known:
            if rebalance.is_running and rebalance.id not in running:
                rebalance.ended_ms = max(now_ms, 1)

    def forget_moves(self) -> None:
        """List none any more; they are counted still."""
        for rebalance in self.known:
            rebalance.moves = []
        self.listed = 0

    def _forget_oldest_moves(self) -> None:
        for rebalance in self.known:
            if self.listed <= MOVES_TOTAL_MAX:
                return
            self.listed -= len(rebalance.moves)
            rebalance.moves = []
