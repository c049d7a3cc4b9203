"""A queue history, sorted by message: what `queuerules` judge."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.check.history import Event

Place = tuple[int, int]
"""(partition, offset)."""
EARLIEST = -math.inf
LATEST = math.inf


@dataclass(slots=True)
class Publish:
    """One publish with its outcome: published, refused, or in doubt."""

    op: int
    value: str
    partition: int | None
    lane: int
    key: str | None
    message_id: str | None
    delay_s: float
    ttl_s: float
    began: float
    ended: float = LATEST
    outcome: str = "in doubt"
    place: Place | None = None
    duplicate: bool = False
    deliver_at_ms: int | None = None


@dataclass(slots=True)
class Tried:
    """One settle of a receipt; `ended` is infinite where nobody was told."""

    action: str
    reason: str
    began: float
    ended: float = LATEST
    outcome: str = "unknown"
    code: str = ""

    @property
    def is_done(self) -> bool:
        return self.outcome not in ("unknown", "refused")

    @property
    def may_be_done(self) -> bool:
        return self.outcome != "refused"


@dataclass(slots=True)
class Grant:
    """One message in the hands of one consumer."""

    group: str
    place: Place
    value: str
    lane: int
    key: str | None
    attempt: int
    reason: str
    redrives: int
    receipt: str
    sent: float
    came: float
    log_ms: int | None = None
    settles: list[Tried] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.group} {self.place} attempt {self.attempt} ({self.receipt[:24]})"

    def tried(self, action: str) -> bool:
        """Whether it may have been settled so."""
        return any(t.action == action and t.may_be_done for t in self.settles)

    def done(self, action: str) -> Tried | None:
        """The settle of that kind that was answered OK."""
        return next((t for t in self.settles if t.action == action and t.is_done), None)

    def outcome(self, outcome: str) -> Tried | None:
        return next((t for t in self.settles if t.outcome == outcome), None)

    @property
    def stands_until(self) -> float:
        """Before this nothing that its holder did can have ended the lease."""
        return min((t.began for t in self.settles), default=LATEST)


@dataclass(slots=True)
class Cancel:
    place: Place
    began: float
    ended: float = LATEST
    outcome: str = "unknown"


@dataclass(slots=True)
class Dead:
    place: Place
    reason: str
    attempts: int
    redrives: int


@dataclass(frozen=True, slots=True)
class Lost:
    """A receive of which an answer was lost: what was granted to it in these partitions, None for
    all, may come again as the same attempt."""

    sent: float
    ended: float
    partitions: frozenset[int] | None = None

    def concerns(self, partition: int) -> bool:
        return self.partitions is None or partition in self.partitions


@dataclass
class Message:
    """What is known of one place in the log."""

    place: Place
    publishes: list[Publish] = field(default_factory=list)

    @property
    def began(self) -> float:
        """When its first publish began."""
        return min((p.began for p in self.publishes), default=EARLIEST)

    @property
    def acked(self) -> float:
        """From when on it was certainly there."""
        return min((p.ended for p in self.publishes if p.outcome == "published"), default=LATEST)

    @property
    def delay_s(self) -> float:
        return min((p.delay_s for p in self.publishes), default=0.0)

    @property
    def ttl_s(self) -> float:
        return max((p.ttl_s for p in self.publishes), default=0.0)

    @property
    def deliver_at_ms(self) -> int | None:
        told = [p.deliver_at_ms for p in self.publishes if p.deliver_at_ms is not None]
        return min(told) if told else None


class Case:
    """Everything of one history, by message and by group."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.publishes: dict[int, Publish] = {}
        self.messages: dict[Place, Message] = {}
        self.by_value: dict[str, list[Publish]] = defaultdict(list)
        self.settings: dict[str, dict[str, Any]] = {}
        self.grants: dict[str, dict[Place, list[Grant]]] = defaultdict(lambda: defaultdict(list))
        self.cancels: dict[Place, list[Cancel]] = defaultdict(list)
        self.dead: dict[str, list[Dead]] = defaultdict(list)
        self.redriven: set[str] = set()
        self.purged: dict[str, float] = {}
        """When the last purge of a group's dead letters began."""
        self.drained: set[str] = set()
        self.lost_receives: dict[str, list[Lost]] = defaultdict(list)
        self.fallen: set[tuple[str, Place]] = set()
        self.ended = EARLIEST
        self.troubles: list[float] = []
        self.strangers: list[Event] = []
        """Settles of receipts that nobody was given."""
        self._receipts: dict[tuple[str, str], Grant] = {}
        self._tried: dict[int, Tried] = {}
        self._cancels: dict[int, Cancel] = {}
        for event in events:
            self.ended = max(self.ended, event["time"])
            take = getattr(self, f"_take_{event['type']}", None)
            if take is not None:
                take(event)

    def message(self, place: Place) -> Message:
        return self.messages.setdefault(place, Message(place))

    def publish_of(self, grant: Grant) -> Publish | None:
        """The publish whose value was received."""
        return next(iter(self.by_value.get(grant.value, ())), None)

    def began(self, grant: Grant) -> float:
        """When its first publish began, answered or not."""
        return min((p.began for p in self.by_value.get(grant.value, ())), default=EARLIEST)

    def all_grants(self) -> Iterable[Grant]:
        return (
            grant
            for by_place in self.grants.values()
            for grants in by_place.values()
            for grant in grants
        )

    def _take_group(self, event: Event) -> None:
        self.settings[event["group"]] = event["settings"]

    def _take_publish(self, event: Event) -> None:
        publish = Publish(
            event["op"],
            event["value"],
            event["partition"],
            event["lane"],
            event["key"],
            event["message_id"],
            event["delay_ms"] / 1000,
            event["ttl_ms"] / 1000,
            event["time"],
        )
        self.publishes[publish.op] = publish
        self.by_value[publish.value].append(publish)

    def _take_published(self, event: Event) -> None:
        publish = self.publishes[event["op"]]
        publish.outcome = "published"
        publish.ended = event["time"]
        publish.place = (event["partition"], event["offset"])
        publish.duplicate = event["duplicate"]
        publish.deliver_at_ms = event["deliver_at_ms"]
        self.message(publish.place).publishes.append(publish)

    def _take_unpublished(self, event: Event) -> None:
        publish = self.publishes[event["op"]]
        publish.outcome = "in doubt" if event["in_doubt"] else "refused"
        publish.ended = event["time"]

    def _take_received(self, event: Event) -> None:
        place = (event["partition"], event["offset"])
        known = self._receipts.get((event["group"], event["receipt"]))
        if known is not None and known.place == place and known.attempt == event["attempt"]:
            return  # a repeated request is answered as the first time
        grant = Grant(
            event["group"],
            place,
            event["value"],
            event["lane"],
            event["key"],
            event["attempt"],
            event["reason"],
            event["redrives"],
            event["receipt"],
            event["sent"],
            event["time"],
            event.get("log_ms"),
        )
        self.message(place)
        self.grants[grant.group][place].append(grant)
        self._receipts[grant.group, grant.receipt] = grant

    def _take_unreceived(self, event: Event) -> None:
        partitions = event.get("partitions")
        lost = Lost(
            event["sent"], event["time"], None if partitions is None else frozenset(partitions)
        )
        self.lost_receives[event["group"]].append(lost)

    def _take_settle(self, event: Event) -> None:
        tried = Tried(event["action"], event["reason"], event["time"])
        self._tried[event["op"]] = tried
        grant = self._receipts.get((event["group"], event["receipt"]))
        if grant is None:
            self.strangers.append(event)
        else:
            grant.settles.append(tried)

    def _take_settled(self, event: Event) -> None:
        tried = self._tried[event["op"]]
        tried.ended = event["time"]
        tried.outcome = event["outcome"]
        tried.code = event["code"]

    def _take_cancel(self, event: Event) -> None:
        place = (event["partition"], event["offset"])
        self._cancels[event["op"]] = cancel = Cancel(place, event["time"])
        self.cancels[place].append(cancel)

    def _take_cancelled(self, event: Event) -> None:
        cancel = self._cancels[event["op"]]
        cancel.ended, cancel.outcome = event["time"], event["outcome"]

    def _take_redrive(self, event: Event) -> None:
        self.redriven.add(event["group"])

    def _take_purge(self, event: Event) -> None:
        self.purged[event["group"]] = event["time"]

    def _take_dead(self, event: Event) -> None:
        dead = Dead(
            (event["partition"], event["offset"]),
            event["reason"],
            event["attempts"],
            event["redrives"],
        )
        self.dead[event["group"]].append(dead)

    def _take_fallen(self, event: Event) -> None:
        self.fallen.add((event["group"], (event["partition"], event["offset"])))

    def _take_drained(self, event: Event) -> None:
        self.drained.add(event["group"])

    def _take_trouble(self, event: Event) -> None:
        self.troubles.append(event["time"])
