"""No operation stops a replica, whatever it asks: entries are applied by all, again and again."""

from __future__ import annotations

import random
from typing import Any

import pytest

from delivery.config import GroupConfig, QueueConfig
from delivery.entries.ops import (
    ACK,
    EXTEND,
    NACK,
    NOT_FOUND,
    RELEASE,
    Archived,
    Cancelled,
    Committed,
    Configure,
    Delivered,
    Expired,
    Halted,
    OpenGroup,
    Own,
    Parked,
    Purged,
    Redriven,
    RequireArchive,
    Resumed,
    Settled,
    Sought,
    Unparked,
)
from tests.unit.delivery.desk import Desk

NUMBERS = [-(2**63), -1, 0, 1, 2, 3, 7, 2**31, 2**32, 2**33, 2**53, 2**63 - 1, 2**63, 2**64 - 1]


def any_op(choice: random.Random) -> Any:
    def number() -> int:
        return choice.choice(NUMBERS)

    def numbers() -> list[int]:
        return [number() for _ in range(choice.randrange(4))] * choice.randrange(1, 3)

    def receipts() -> list[tuple[int, list[int]]]:
        return [(number(), numbers()) for _ in range(choice.randrange(3))]

    def claim() -> tuple[str, int]:
        return choice.choice([("", 0), ("", -1), (choice.choice(["m", "n", ""]), number())])

    group = choice.choice([1, 2, 2, 3])
    return choice.choice(
        [
            lambda: Delivered(group, "m", number(), numbers(), number()),
            lambda: Delivered(group, "m", number(), numbers(), number(), number(), number()),
            lambda: Own(group, choice.choice(["m", "n", ""]), choice.randrange(-1, 50)),
            lambda: Own(group, choice.choice(["m", ""]), number() % 99, choice.random() < 0.5),
            lambda: Settled(
                group,
                choice.choice([ACK, NACK, EXTEND, RELEASE, 2, 77]),
                receipts(),
                "r",
                number(),
                choice.random() < 0.5,
                number(),
                number(),
                *claim(),
            ),
            lambda: Expired(group, receipts()),
            lambda: Committed(group, number(), *claim()),
            lambda: Sought(group, number(), 0, *claim()),
            lambda: Cancelled(numbers()),
            lambda: Purged(group, numbers()),
            lambda: Redriven(group, numbers(), number(), choice.random() < 0.5),
            lambda: Parked(group, choice.choice([b"", b"k"])),
            lambda: Unparked(group, choice.choice([b"", b"k"])),
            lambda: Halted(group, "why"),
            lambda: Resumed(group),
            lambda: RequireArchive(choice.random() < 0.5),
            lambda: Archived(
                choice.choice(["", "/a", "x" * 5000]), number(), choice.random() < 0.5
            ),
            lambda: OpenGroup(
                group,
                choice.choice(["g", "h"]),
                number(),
                GroupConfig(
                    visibility_ms=number(),
                    max_attempts=number(),
                    ordering=choice.choice(["key", "none", "odd"]),
                    lane_max_wait_ms=number(),
                    lane_share=number(),
                    backoff_ms=number(),
                    backoff_ms_max=number(),
                    on_poison=choice.choice(["dead", "park", "odd"]),
                    halt_percent=number(),
                    halt_window=choice.choice([-1, 0, 1, 3, 2**40]),
                    redrives_max=number(),
                    in_flight_max=number(),
                    dead_max=number(),
                ),
                number(),
            ),
            lambda: Configure(
                QueueConfig(
                    lanes=number(),
                    retention_ms=number(),
                    ttl_ms=number(),
                    delay_ms_max=number(),
                    dead_retention_ms=number(),
                )
            ),
        ]
    )()


@pytest.mark.parametrize("seed", range(40))
def test_no_operation_stops_a_replica_whatever_its_numbers(seed: int) -> None:
    choice = random.Random(seed)
    desk = Desk()
    desk.open(1, ordering=choice.choice(["none", "key"]))
    desk.open(2)
    desk.do(Own(1, "m", 3))

    for step in range(60):
        desk.now_ms += choice.choice([0, 1, 1000])
        if step % 7 == 0:
            desk.publish(2, keys=[b"k", None], deliver_at_ms=[None, choice.choice([None, 500])])
        desk.do(*(any_op(choice) for _ in range(choice.randrange(1, 4))))
        for group in desk.state.queue.groups.values():
            group.select(3, desk.now_ms)
        if step % 20 == 19:
            desk.restart()


def test_offsets_that_are_not_stored_are_not_found() -> None:
    desk = Desk()
    desk.open()
    desk.publish(2)

    assert desk.cancel(-1, 2, 2**64 - 1, 0) == [NOT_FOUND] * 4
    assert desk.deliver([-1, 2**64 - 1, 5, 1, 1]).grants[0].offset == 1
    assert desk.redrive(-1, 2**64 - 1).count == 0
