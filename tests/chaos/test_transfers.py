"""What is told of planned stops: what the old leader acked on its way out hides no handover."""

from __future__ import annotations

import math

import pytest

from tests.chaos.transfers import STOPPED, Gap, gaps
from tests.check.history import Event


def acks(partition: int, *times: float) -> list[Event]:
    return [{"type": "ok", "partition": partition, "time": at, "sent": at} for at in times]


def stopped(at: float, until: float, *partitions: int) -> Event:
    return {"type": STOPPED, "node": "n", "partitions": list(partitions), "at": at, "until": until}


def test_the_longest_time_without_an_ack_counts_not_the_first_one() -> None:
    """The old leader answers 10 ms after the request, hands over, and the new one is slow."""
    events = [*acks(0, 9.9, 9.95, 10.01, 10.31, 10.33, 10.60), stopped(10.0, 10.5, 0)]

    (gap,) = gaps(events)

    assert (gap.node, gap.partition) == ("n", 0)
    assert gap.seconds == pytest.approx(0.3)
    assert gap.before_s == pytest.approx(0.05)


def test_what_comes_after_the_first_ack_of_the_time_after_does_not_count() -> None:
    events = [*acks(0, 10.1, 10.2, 10.55, 19.0), stopped(10.0, 10.5, 0)]

    assert [gap.seconds for gap in gaps(events)] == [pytest.approx(0.35)]


def test_a_partition_that_nobody_acks_any_more_is_without_an_ack_for_ever() -> None:
    events = [*acks(0, 10.1), *acks(1, 10.1, 11.0), stopped(10.0, 10.5, 0, 1)]

    assert list(gaps(events)) == [
        Gap("n", 0, math.inf, 0.0),
        Gap("n", 1, pytest.approx(0.9), 0.0),  # type: ignore[arg-type]
    ]
