"""The model of lanes: what the queue may do is clean, and a lane that is skipped is named."""

from __future__ import annotations

import pytest
from msgspec import structs

from delivery.config import GroupConfig
from delivery.entries import ops
from tests.check.queuedesk import Judged
from tests.check.queuelog import STORE_STEP_MS

CRITICAL, BACKGROUND = 0, 4
MAX_WAIT_MS = 30_000
LIVES_MS = MAX_WAIT_MS + STORE_STEP_MS + 100
"""Messages that live so long have waited too long shortly before they expire."""
VISIBILITY_MS = 60_000


@pytest.fixture
def desk() -> Judged:
    desk = Judged()
    desk.begin(1, GroupConfig(visibility_ms=VISIBILITY_MS, lane_max_wait_ms=MAX_WAIT_MS))
    return desk


def two_of_a_low_lane(desk: Judged) -> tuple[int, int]:
    """One that has waited too long and is about to expire, and a new one; a critical one is ready.
    The next entry's leader has seen all this."""
    old = desk.store(BACKGROUND, desk.now_ms + LIVES_MS)
    desk.now_ms += LIVES_MS - 10
    new = desk.store(BACKGROUND)
    desk.store(CRITICAL)
    return old, new


def test_one_that_expired_while_it_was_chosen_had_given_its_lane_a_turn(desk: Judged) -> None:
    old, new = two_of_a_low_lane(desk)
    desk.now_ms += 10

    assert desk.lease([old, new]) == [new]

    assert desk.broken == []


def test_a_lane_is_skipped_where_the_one_that_expired_was_not_ready_any_more(desk: Judged) -> None:
    """Acked by this group long before, it has given its lane no turn."""
    old = desk.store(BACKGROUND, desk.now_ms + LIVES_MS)
    assert desk.lease([old]) == [old]
    desk.tell(ops.Settled(1, ops.ACK, [(int(desk.state.applied_index), [old])]))
    desk.now_ms += LIVES_MS - 10
    new = desk.store(BACKGROUND)
    desk.store(CRITICAL)
    desk.now_ms += 10

    assert desk.lease([new]) == [new]

    assert [told[:2] for told in desk.broken] == ["Q4"]


def test_a_lane_is_skipped_where_the_other_expired_before_anything_was_chosen(
    desk: Judged,
) -> None:
    _old, new = two_of_a_low_lane(desk)
    desk.now_ms += 10
    desk.store(CRITICAL)
    desk.now_ms += 1

    assert desk.lease([new]) == [new]

    assert [told[:2] for told in desk.broken] == ["Q4"]


def test_a_lane_is_skipped_where_nothing_has_waited(desk: Judged) -> None:
    new = desk.store(BACKGROUND)
    desk.store(CRITICAL)

    assert desk.lease([new]) == [new]

    assert [told[:2] for told in desk.broken] == ["Q4"]


def test_what_is_chosen_for_a_request_that_had_its_answer_is_out_of_others_reach(
    desk: Judged,
) -> None:
    first, second = desk.store(BACKGROUND), desk.store(BACKGROUND)
    asked = ops.Delivered(1, "", VISIBILITY_MS, [first], 77)
    desk.tell(asked)
    desk.tell(structs.replace(asked, offsets=[]))
    assert desk.broken == []

    desk.tell(structs.replace(asked, offsets=[second]))

    assert [told[:2] for told in desk.broken] == ["Q4"]


@pytest.mark.parametrize("moved", [ops.Sought(1, 0), ops.Committed(1, 0)])
def test_lanes_are_judged_where_the_leader_knew_of_the_last_seek_or_commit(
    desk: Judged, moved: ops.Op
) -> None:
    new = desk.store(BACKGROUND)
    desk.store(CRITICAL)
    desk.tell(moved)

    assert desk.lease([new]) == [new]

    assert [told[:2] for told in desk.broken] == ["Q4"]


def test_what_was_chosen_before_a_seek_is_not_judged_by_what_that_brings_back(
    desk: Judged,
) -> None:
    first, new = desk.store(CRITICAL), desk.store(BACKGROUND)
    assert desk.lease([first]) == [first]
    seen = int(desk.state.applied_index)
    desk.tell(ops.Sought(1, 0))
    delivered = ops.Delivered(1, "", VISIBILITY_MS, [new])

    results = desk.do(delivered)
    desk.log.apply(seen + 2, desk.now_ms, seen, [delivered], results)

    assert isinstance(results[0], ops.Granted) and len(results[0].grants) == 1
    assert desk.broken == []


def test_a_commit_passes_over_what_is_delayed(desk: Judged) -> None:
    desk.store(CRITICAL, due_ms=desk.now_ms + 1000)
    desk.tell(ops.Committed(1, 1))
    desk.now_ms += 2000

    new = desk.store(BACKGROUND)

    assert desk.lease([new]) == [new]
    assert desk.broken == []


# -- streams


def test_what_streams_have_in_flight_ends_as_the_model_has_it(desk: Judged) -> None:
    first, second = desk.store(), desk.store()
    one, other = ops.StreamId(7, 1), ops.StreamId(7, 2)
    desk.tell(
        ops.DeliveredToStream(1, "m", 0, [first], stream=one),
        ops.DeliveredToStream(1, "m", 100, [second], stream=other),
    )

    desk.tell(ops.StreamsEnded(1, 7, [1]))
    desk.tell(ops.StreamsEnded(1, 7, [], lost=True))

    assert desk.log.ended == {"returned": 1, "lost with its run": 1}
    assert desk.lease([first, second]) == [first, second]
    assert (desk.broken, desk.differences()) == ([], [])


def test_a_lease_that_outlives_its_stream_is_named(desk: Judged) -> None:
    offset = desk.store()
    desk.tell(ops.DeliveredToStream(1, "m", 0, [offset], stream=ops.StreamId(7, 1)))

    ended = ops.StreamsEnded(1, 7, [1])
    desk.log.apply(desk.state.applied_index + 1, desk.now_ms, 0, [ended], [ops.CountResult(0)])

    assert [told[:2] for told in desk.broken] == ["Q1"]
