"""Q6: a message's timeline is complete and in order, and agrees with what the queue did.

`Past` is what is known of a message without its timeline: its deliveries and accepted settles as
the model of the partition's log has them, and what clients were told of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = tuple[int, str, dict[str, Any]]
"""(log time in ms, type, attributes)."""

READY, LEASED, DONE, DEAD = "ready", "leased", "done", "dead"
AFTER: dict[str, tuple[tuple[str, ...], str]] = {
    "DELIVERED": ((READY,), LEASED),
    "EXTENDED": ((LEASED,), LEASED),
    "NACKED": ((LEASED,), READY),
    "REDELIVERED": ((LEASED,), READY),
    "RELEASED": ((LEASED,), READY),
    "REJECTED": ((LEASED,), READY),
    "ACKNOWLEDGED": ((READY, LEASED), DONE),
    "SKIPPED": ((READY, LEASED), DONE),
    "PARKED": ((LEASED, READY), READY),
    "HALTED": ((LEASED, READY), READY),
    "DEAD_LETTERED": ((LEASED, READY), DEAD),
    "REDRIVEN": ((DEAD,), READY),
    "PURGED": ((DEAD,), DONE),
    "REPLAYED": ((READY, LEASED, DONE), READY),
}
"""What each event of a group may follow, and where the message is then. Beside it a message that
was acknowledged is only replayed."""
SETTLES = {0: "ACKNOWLEDGED", 1: "NACKED", 2: "REJECTED", 3: "EXTENDED", 4: "RELEASED"}


@dataclass(frozen=True, slots=True)
class Delivery:
    """Of the message to a group; who got it as which attempt, where a client told."""

    time_ms: int
    group: str
    consumer: str | None = None
    attempt: int | None = None


@dataclass(slots=True)
class Past:
    """What happened to one message."""

    deliveries: list[Delivery] = field(default_factory=list[Delivery])
    settles: list[tuple[Delivery, int]] = field(default_factory=list[tuple[Delivery, int]])
    """Accepted ones: of which delivery, and what it did."""


def violations(events: Sequence[Event], past: Past) -> Iterator[str]:
    """What is wrong with a timeline, in words."""
    times = [event[0] for event in events]
    if times != sorted(times):
        yield f"times go back: {times}"
    kinds = [event[1] for event in events]
    if kinds[:1] != ["PUBLISHED"] or kinds.count("PUBLISHED") > 1:
        yield f"it does not begin with its being published: {kinds}"
    told_from = _told_from(events)
    groups = {what["group"] for _time, _type, what in events if "group" in what}
    groups |= {delivery.group for delivery in past.deliveries}
    for group in sorted(groups):
        mine = [event for event in events if event[2].get("group") == group]
        deliveries = [d for d in past.deliveries if d.group == group and (d.time_ms, 1) > told_from]
        yield from _wrong_deliveries(group, mine, deliveries)
        for delivery, action in past.settles:
            if delivery in deliveries and not _is_settled(mine, delivery, SETTLES[action]):
                yield f"{group}: no {SETTLES[action]} of the delivery at {delivery.time_ms}"
        if told_from == (0, 0):
            yield from _wrong_order(group, mine)


def _told_from(events: Sequence[Event]) -> tuple[int, int]:
    """What was carried on without its story is told of from there on."""
    bare = [time for time, type_, what in events if type_ == "KEPT" and "log_start" not in what]
    omitted = any("events_omitted" in what for _time, _type, what in events)
    if omitted:
        return max(time for time, _type, _what in events[:2]), 1
    return (bare[-1], 1) if bare else (0, 0)


def _wrong_deliveries(
    group: str, events: Sequence[Event], deliveries: Sequence[Delivery]
) -> Iterator[str]:
    told = Counter(time for time, type_, _what in events if type_ == "DELIVERED")
    known = Counter(delivery.time_ms for delivery in deliveries)
    missing, phantoms = known - told, told - known
    if missing:
        yield f"{group}: no DELIVERED at {sorted(missing)}"
    if phantoms:
        yield f"{group}: DELIVERED at {sorted(phantoms)}, and it was not"
    for delivery in deliveries:
        if delivery.attempt is None:
            continue
        found = [
            (what.get("consumer"), what.get("attempt"))
            for time, type_, what in events
            if type_ == "DELIVERED" and time == delivery.time_ms
        ]
        if found and (delivery.consumer, delivery.attempt) not in found:
            yield (
                f"{group}: DELIVERED at {delivery.time_ms} to {found}, and a client told of"
                f" {delivery.consumer}, attempt {delivery.attempt}"
            )


def _is_settled(events: Sequence[Event], delivery: Delivery, type_: str) -> bool:
    """Whether the event follows the delivery, before the next one."""
    within = False
    for time, what, _attributes in events:
        if what == "DELIVERED":
            within = time == delivery.time_ms
        elif within and what == type_:
            return True
    return False


def _wrong_order(group: str, events: Sequence[Event]) -> Iterator[str]:
    place, before = READY, "nothing"
    for _time, type_, _what in events:
        allowed, after = AFTER.get(type_, ((), place))
        if place not in allowed:
            yield f"{group}: {type_} after {before}"
            return
        place, before = after, type_
