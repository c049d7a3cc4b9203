"""A history of a group of consumers, sorted by partition: what `groupcheck` judges.

    published   a publish was acked: `value`, `partition`, `offset`
    doubtful    a publish may have been stored: `value`
    received    a member began to work on a message: `member`, `partition`, `offset`, `value`,
                `attempt`, `reason`, `receipt`
    settling    it asks for an ack: `member`, `receipt`
    settled     how that ended: `member`, `receipt`, `outcome` (acked, refused or unknown), `code`
    lost        a `member` was told that it is out of the group
    died        a `member` was killed
    moved       by the group's own receipts: `partition` went from `former` to `member` (either may
                be "") in `generation`
    trouble     a broker was stopped or killed
    drained     the group has nothing left, by its own account

`time` is of a clock that all processes share and that never steps. An ack without an end counts as
unknown: whoever asked for it has died.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tests.check.history import Event

Place = tuple[int, int]
"""(partition, offset)."""


@dataclass(slots=True)
class Delivery:
    """One message in a member's hands, and what became of its ack."""

    member: str
    partition: int
    offset: int
    value: str
    attempt: int
    reason: str
    receipt: str
    came: float
    began: float = math.inf
    ended: float = math.inf
    outcome: str = ""
    """"" where no ack was asked for."""
    turn: int = -1
    """Which of the partition's owners took it, counted from 0; -1: nobody knows."""

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset} attempt {self.attempt} at {self.member}"


class GroupCase:
    """Everything of one history. Deliveries are in the order in which they came."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.published: dict[Place, str] = {}
        self.doubtful: set[str] = set()
        self.deliveries: dict[int, list[Delivery]] = defaultdict(list)
        self.by_place: dict[Place, list[Delivery]] = defaultdict(list)
        self.owners: dict[int, list[str]] = {}
        """Of each partition, one after the other."""
        self.ends: dict[str, float] = {}
        """When a member died, or was told that it is out."""
        self.troubles: list[float] = []
        self.is_drained = False
        self._by_receipt: dict[tuple[str, str], Delivery] = {}
        moves: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for event in sorted(events, key=lambda event: event["time"]):
            if event["type"] == "moved":
                moves[event["partition"]].append((event["generation"], event["member"]))
            else:
                self._take(event)
        for partition, found in moves.items():
            self.owners[partition] = [
                member for _, member in sorted(found, key=lambda move: move[0]) if member
            ]
        for partition in self.deliveries:
            self._find_turns(partition)

    def deaths_before(self, partition: int, time: float) -> int:
        """How many of the partition's owners had died by then."""
        owners = self.owners.get(partition, [])
        return sum(self.ends.get(owner, math.inf) < time for owner in owners)

    def troubles_before(self, time: float) -> int:
        return bisect_left(self.troubles, time)

    def _take(self, event: Event) -> None:
        match event["type"]:
            case "published":
                self.published[event["partition"], event["offset"]] = event["value"]
            case "doubtful":
                self.doubtful.add(event["value"])
            case "received":
                self._take_received(event)
            case "settling":
                self._by_receipt[event["member"], event["receipt"]].outcome = "unknown"
                self._by_receipt[event["member"], event["receipt"]].began = event["time"]
            case "settled":
                delivery = self._by_receipt[event["member"], event["receipt"]]
                delivery.ended, delivery.outcome = event["time"], event["outcome"]
            case "lost" | "died":
                self.ends.setdefault(event["member"], event["time"])
            case "trouble":
                self.troubles.append(event["time"])
            case "drained":
                self.is_drained = True
            case _:
                pass

    def _take_received(self, event: Event) -> None:
        delivery = Delivery(
            event["member"],
            event["partition"],
            event["offset"],
            event["value"],
            event["attempt"],
            event["reason"],
            event["receipt"],
            event["time"],
        )
        self.deliveries[delivery.partition].append(delivery)
        self.by_place[delivery.partition, delivery.offset].append(delivery)
        self._by_receipt[delivery.member, delivery.receipt] = delivery

    def _find_turns(self, partition: int) -> None:
        """Owners take turns: each delivery is of the same turn as the one before, or a later."""
        owners = self.owners.get(partition, [])
        turn = 0
        for delivery in self.deliveries[partition]:
            later = (at for at in range(turn, len(owners)) if owners[at] == delivery.member)
            found = next(later, None)
            if found is not None:
                turn = delivery.turn = found
