"""Timelines are judged: sound ones pass, and each planted fault is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.check.timelinecheck import Delivery, Event, Past, violations

ACK, NACK, RELEASE = 0, 1, 4
GIVEN_BACK = Delivery(10, "g", "a", 1)
FAILED = Delivery(20, "g", "b", 1)
DONE = Delivery(30, "g", "a", 2)
AGAIN = Delivery(50, "g", "a", 1)
PAST = Past(
    [GIVEN_BACK, FAILED, DONE, AGAIN],
    [(GIVEN_BACK, RELEASE), (FAILED, NACK), (DONE, ACK), (AGAIN, ACK)],
)


def event(time_ms: int, type_: str, **what: Any) -> Event:
    return time_ms, type_, {"group": "g", **what}


def delivered(time_ms: int, consumer: str, attempt: int) -> Event:
    return event(time_ms, "DELIVERED", consumer=consumer, attempt=attempt)


def sound() -> list[Event]:
    return [
        (1, "PUBLISHED", {}),
        (2, "REPLICATED", {"nodes": ["n1"]}),
        delivered(10, "a", 1),
        event(15, "RELEASED"),
        delivered(20, "b", 1),
        event(25, "NACKED"),
        delivered(30, "a", 2),
        event(35, "ACKNOWLEDGED"),
        event(40, "REPLAYED"),
        delivered(50, "a", 1),
        event(55, "ACKNOWLEDGED"),
        (55, "RETAINED", {}),
    ]


def told(events: list[Event]) -> str:
    return "; ".join(violations(events, PAST))


def test_a_sound_timeline_passes() -> None:
    assert told(sound()) == ""


@pytest.mark.parametrize("at", [0, 2, 3, 4, 5, 6, 7, 8, 9, 10])
def test_an_event_that_is_lost_is_told(at: int) -> None:
    events = sound()
    del events[at]

    assert told(events)


FAULTS: dict[str, tuple[Callable[[list[Event]], object], str]] = {
    "another attempt": (lambda e: e.__setitem__(6, delivered(30, "a", 3)), "attempt 2"),
    "another consumer": (lambda e: e.__setitem__(4, delivered(20, "a", 1)), "told of b"),
    "another time": (lambda e: e.__setitem__(6, delivered(29, "a", 2)), "no DELIVERED at [30]"),
    "another group": (
        lambda e: e.__setitem__(2, (10, "DELIVERED", {"group": "h"})),
        "h: DELIVERED at [10], and it was not",
    ),
    "twice": (lambda e: e.insert(10, delivered(50, "a", 1)), "and it was not"),
    "after its end": (lambda e: e.insert(11, event(55, "NACKED")), "NACKED after ACKNOWLEDGED"),
    "back in time": (lambda e: e.__setitem__(5, event(19, "NACKED")), "times go back"),
    "published twice": (lambda e: e.insert(1, (1, "PUBLISHED", {})), "begin"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_event_is_told(fault: str) -> None:
    events = sound()
    plant, expected = FAULTS[fault]
    plant(events)

    assert expected in told(events)


def test_what_was_carried_on_without_its_story_is_judged_from_there_on() -> None:
    events = [*sound()[:2], (40, "KEPT", {}), *sound()[9:]]

    assert told(events) == ""
    assert "no DELIVERED at [50]" in told([e for e in events if e[1] != "DELIVERED"])
