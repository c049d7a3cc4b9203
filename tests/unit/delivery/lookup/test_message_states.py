"""Sets of offsets by state say of each message what is said of it alone, and leave none out."""

from __future__ import annotations

import random

import pytest

from delivery.entries.ops import NACK
from delivery.lookup.message_states import (
    STATES,
    STATES_OF,
    offsets_in,
    state_of,
    states_of,
    status_of,
    stored,
)
from tests.steps import peak_bytes, steps
from tests.unit.delivery.desk import Desk, all_of

FOUND_STEPS_MAX = 2000
"""All states of a million messages; 445 today."""
FOUND_BYTES_MAX = 100_000
READY = {"g1": "ready"}


def in_state(desk: Desk, group: int = 1) -> dict[str, list[int]]:
    queue = desk.state.queue
    return {state: list(offsets_in(queue, state, queue.groups[group])) for state in STATES}


def test_each_state_is_found() -> None:
    desk = Desk()
    desk.open(1, max_attempts=1)
    desk.publish(9, deliver_at_ms=[None] * 7 + [60_000, 60_000])
    desk.publish(1, expires_at_ms=[1000])
    desk.cancel(8)
    acked, dead = desk.receive(1), desk.receive(1)
    desk.ack(acked)
    desk.reject(dead)
    desk.configure(1, max_attempts=5)
    desk.settle(NACK, all_of(desk.receive(1)), delay_ms=500)
    desk.receive(1)
    desk.wait(1000)

    found = in_state(desk)

    assert found == {
        "delayed": [7],
        "ready": [4, 5, 6],
        "in_flight": [3],
        "retrying": [2],
        "acked": [0],
        "dead": [1],
        "cancelled": [8],
        "expired": [9],
    }
    words = {offset: status_of(desk.state.queue, offset) for offset in range(10)}
    assert words == {
        0: "completed",
        1: "failed",
        2: "retrying",
        3: "in_progress",
        4: "in_progress",
        5: "in_progress",
        6: "in_progress",
        7: "delayed",
        8: "cancelled",
        9: "expired",
    }
    for offset, word in words.items():
        assert any(offset in found[state] for state in STATES_OF[word])


def test_without_a_group_every_message_is_ready_but_what_is_not_due() -> None:
    desk = Desk()
    desk.publish(2, deliver_at_ms=[None, 60_000])
    queue = desk.state.queue

    assert list(offsets_in(queue, "ready", None)) == [0]
    assert list(offsets_in(queue, "delayed", None)) == [1]
    assert list(offsets_in(queue, "acked", None)) == []
    assert (states_of(queue, 0), status_of(queue, 0)) == ({}, "in_progress")


def test_without_a_name_any_group_counts() -> None:
    desk = Desk()
    desk.open(1)
    desk.open(2)
    desk.publish(2)
    desk.ack(desk.receive(1, 1), 1)
    desk.reject(desk.receive(1, 2), group=2)
    queue = desk.state.queue

    assert list(offsets_in(queue, "acked", None)) == [0]
    assert list(offsets_in(queue, "dead", None)) == [0]
    assert states_of(queue, 0) == {"g1": "acked", "g2": "dead"}
    assert status_of(queue, 0) == "failed"
    assert status_of(queue, 0, queue.groups[1]) == "completed"


def test_what_a_group_never_had_has_no_state_for_it() -> None:
    desk = Desk()
    desk.publish(2, deliver_at_ms=[None, 60_000])
    desk.open(1, offset=2, start="latest")
    desk.publish(2)
    desk.commit(3)
    desk.restart()

    assert in_state(desk) == {**{state: [] for state in STATES}, "acked": [2], "ready": [3]}
    queue = desk.state.queue
    assert [states_of(queue, offset) for offset in range(4)] == [{}, {}, {"g1": "acked"}, READY]
    assert list(offsets_in(queue, "ready", None)) == [0, 3]
    words = [status_of(queue, offset) for offset in range(4)]
    assert words == ["in_progress", "delayed", "completed", "in_progress"]
    assert status_of(queue, 0, queue.groups[1]) == "in_progress"


def test_a_group_has_from_a_seek_on_what_it_never_had() -> None:
    desk = Desk()
    desk.publish(4, deliver_at_ms=[None, None, 60_000, None])
    desk.open(1, offset=4, start="latest")

    desk.seek(1)
    desk.seek(3)

    queue = desk.state.queue
    told = [states_of(queue, offset) for offset in range(4)]
    assert told == [{}, {"g1": "acked"}, {"g1": "acked"}, READY]
    assert list(offsets_in(queue, "delayed", queue.groups[1])) == []
    assert list(offsets_in(queue, "delayed", None)) == [2]


def test_a_dead_letter_of_others_that_outlived_the_log_is_none_of_a_group_that_begins() -> None:
    desk = Desk()
    desk.open(1)
    desk.publish(3)
    desk.reject(desk.receive(1))
    desk.ack(desk.receive(1))
    desk.retain(2)

    desk.open(2)

    assert states_of(desk.state.queue, 0) == {"g1": "dead"}
    assert states_of(desk.state.queue, 2) == {"g1": "ready", "g2": "ready"}


@pytest.mark.parametrize("ordering", ["none", "key"])
@pytest.mark.parametrize("seed", range(15))
def test_whatever_has_happened_the_sets_agree_with_each_message(seed: int, ordering: str) -> None:
    rng = random.Random(seed)
    desk = Desk()
    for group in (1, 2):
        desk.open(group, ordering=ordering, max_attempts=2, backoff_ms=200)
    for number in range(60):
        step(desk, rng)
        if number == 20:
            desk.open(3, offset=desk.state.next_offset, start="latest", ordering=ordering)
        check(desk)


def step(desk: Desk, rng: random.Random) -> None:
    group, what = rng.choice((1, 2)), rng.randrange(9)
    if what < 3:
        count = rng.randrange(1, 6)
        keys = [rng.choice((None, b"a", b"b")) for _ in range(count)]
        later = [rng.choice((None, None, 300)) for _ in range(count)]
        over = [rng.choice((None, None, None, 900)) for _ in range(count)]
        desk.publish(count, keys=keys, deliver_at_ms=later, expires_at_ms=over)
    elif what < 6:
        granted = desk.receive(rng.randrange(1, 5), group, visibility_ms=400)
        if granted.grants and (action := rng.choice((desk.ack, desk.reject, None))) is not None:
            action(granted, group=group)
    elif what == 6:
        desk.wait(rng.choice((50, 250, 500)))
        desk.expire(group)
    elif what == 7 and desk.state.next_offset:
        desk.cancel(rng.randrange(desk.state.next_offset))
    elif what == 8 and rng.random() < 0.3:
        desk.retain(rng.randrange(desk.state.log_start_offset, desk.state.next_offset + 1))
    elif what == 8 and rng.random() < 0.3:
        move = rng.choice((desk.seek, desk.commit))
        move(rng.randrange(desk.state.next_offset + 1), rng.choice(list(desk.state.queue.groups)))


def check(desk: Desk) -> None:
    queue = desk.state.queue
    for offset in stored(queue):
        word = status_of(queue, offset)
        assert any(offset in offsets_in(queue, state, None) for state in STATES_OF[word]), word
    for group in queue.groups.values():
        sets = {state: offsets_in(queue, state, group) for state in STATES}
        told = [offset for found in sets.values() for offset in found]
        assert sorted(told) == sorted(set(told)), "in two states at once"
        assert set(stored(queue)) <= set(told) | set(group.never), "in no state"
        for state, found in sets.items():
            assert all(state_of(queue, group, offset) == state for offset in found), state


def test_a_million_messages_are_told_apart_without_a_look_at_each() -> None:
    desk = Desk()
    desk.open(1)
    for _ in range(20):
        desk.publish(50_000)
    for _ in range(5):
        desk.ack(desk.receive(1000))
    queue, group = desk.state.queue, desk.group()
    counts: dict[str, int] = {}

    def count() -> None:
        counts.update((state, len(offsets_in(queue, state, group))) for state in STATES)

    taken, had_bytes = steps(count), peak_bytes(count)

    assert (counts["acked"], counts["ready"]) == (5000, 995_000)
    assert taken < FOUND_STEPS_MAX
    assert had_bytes < FOUND_BYTES_MAX
