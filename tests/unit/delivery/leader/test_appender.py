"""The leader gives offsets in the order of admission, and stores nothing twice."""

from __future__ import annotations

import pytest

from delivery.dedup.producers import BATCHES_REMEMBERED
from delivery.leader.appender import NOT_PROPOSED, Admitted, Appender, Duplicate
from delivery.state.partition import PartitionState
from goqueue.wire.errors import OutOfOrder, PayloadTooLarge, ProducerFenced
from tests.unit.delivery.batches import Leader, batch


def test_offsets_follow_what_is_in_flight() -> None:
    leader = Leader()

    assert leader.admit(batch(3), 1) == 0
    leader.propose()
    assert leader.admit(batch(2), 2) == 3
    assert leader.admit(batch(1), 3) == 5

    leader.propose()
    assert [result.base_offset for result in leader.apply()] == [0, 3, 5]
    assert leader.state.next_offset == leader.appender.next_offset == 6


def test_a_new_leadership_starts_from_what_is_applied() -> None:
    leader = Leader()
    leader.store(batch(2), 1)
    leader.admit(batch(5), 2)
    leader.propose()

    successor = Appender(leader.state)

    assert successor.next_offset == 2
    assert successor.admit(batch(5), 2) == Admitted(2, 5)  # type: ignore[arg-type]


# request ids


def test_a_repeated_request_waits_for_its_original_and_gets_its_offset() -> None:
    leader = Leader()
    offset = leader.admit(batch(2), 77)

    assert leader.appender.admit(batch(2), 77) == Duplicate(offset, 2, NOT_PROPOSED)
    index = leader.propose()
    assert leader.appender.admit(batch(2), 77) == Duplicate(offset, 2, index)
    leader.apply()
    assert leader.appender.admit(batch(2), 77) == Duplicate(offset, 2, None)
    assert leader.state.next_offset == 2


def test_a_repeated_request_is_known_to_the_next_leader() -> None:
    leader = Leader()
    offset = leader.store(batch(2), 77)

    assert Leader(leader.state).appender.admit(batch(2), 77) == Duplicate(offset, 2, None)


def test_batches_without_any_identity_are_all_stored() -> None:
    leader = Leader()

    assert [leader.store(batch()), leader.store(batch())] == [0, 1]


# producers


def test_a_producer_may_pipeline() -> None:
    leader = Leader()

    offsets = [leader.admit(batch(2, producer=1, sequence=2 * at)) for at in range(3)]

    assert offsets == [0, 2, 4]


def test_a_repeated_sequence_waits_for_its_original_and_gets_its_offset() -> None:
    leader = Leader()
    first = batch(2, producer=1)
    leader.admit(first)

    assert leader.appender.admit(first) == Duplicate(0, 2, NOT_PROPOSED)  # type: ignore[arg-type]
    index = leader.propose()
    assert leader.appender.admit(first) == Duplicate(0, 2, index)  # type: ignore[arg-type]
    leader.apply()
    assert leader.appender.admit(first) == Duplicate(0, 2, None)  # type: ignore[arg-type]


def test_a_repeated_sequence_is_known_to_the_next_leader() -> None:
    leader = Leader()
    leader.store(batch(3, producer=1))
    leader.store(batch(2, producer=1, sequence=3))

    verdict = Leader(leader.state).appender.admit(batch(3, producer=1))

    assert verdict == Duplicate(0, 3, None)  # type: ignore[arg-type]


def test_a_gap_is_refused_with_what_is_expected() -> None:
    leader = Leader()
    leader.store(batch(3, producer=1))

    with pytest.raises(OutOfOrder) as refused:
        leader.appender.admit(batch(1, producer=1, sequence=5))

    assert refused.value.data == {"expected": 3, "got": 5, "first_offset": 0, "end_offset": 3}
    assert leader.admit(batch(1, producer=1, sequence=3)) == 3


def test_a_gap_after_what_is_in_flight_is_refused() -> None:
    leader = Leader()
    leader.admit(batch(3, producer=1))
    leader.propose()

    with pytest.raises(OutOfOrder):
        leader.appender.admit(batch(1, producer=1, sequence=4))


def test_an_unknown_producer_begins_at_zero() -> None:
    with pytest.raises(OutOfOrder) as refused:
        Leader().appender.admit(batch(1, producer=1, sequence=7))

    assert refused.value.data["expected"] == 0


def test_a_sequence_with_another_count_is_not_a_repeat() -> None:
    leader = Leader()
    leader.store(batch(3, producer=1))

    with pytest.raises(OutOfOrder):
        leader.appender.admit(batch(2, producer=1))


def test_a_batch_older_than_what_is_remembered_is_refused_not_stored() -> None:
    leader = Leader()
    for at in range(BATCHES_REMEMBERED + 1):
        leader.store(batch(producer=1, sequence=at))

    assert isinstance(leader.appender.admit(batch(producer=1, sequence=1)), Duplicate)
    with pytest.raises(OutOfOrder):
        leader.appender.admit(batch(producer=1, sequence=0))


def test_whose_place_is_taken_is_told_where_all_of_the_producer_lies() -> None:
    leader = Leader()
    leader.store(batch(2))
    for at in range(BATCHES_REMEMBERED + 1):
        leader.store(batch(producer=1, epoch=3, sequence=at))
    leader.admit(batch(4))
    state = PartitionState()
    state.restore(leader.state.snapshot())
    successor = Leader(state)

    for one, end in ((leader, 71), (successor, 67)):
        with pytest.raises(OutOfOrder) as refused:
            one.appender.admit(batch(producer=1, epoch=3))

        expected = BATCHES_REMEMBERED + 1
        within = {"first_offset": 2, "end_offset": end}
        assert refused.value.data == {"expected": expected, "got": 0, **within}


def test_what_is_in_flight_lies_within_what_is_told() -> None:
    leader = Leader()
    leader.admit(batch(3, producer=1, epoch=7))

    with pytest.raises(OutOfOrder) as refused:
        leader.appender.admit(batch(1, producer=1, epoch=7))

    within = {"first_offset": 0, "end_offset": 3}
    assert refused.value.data == {"expected": 3, "got": 0, **within}


def test_an_older_epoch_is_fenced_by_stored_and_by_flying_batches() -> None:
    leader = Leader()
    leader.store(batch(producer=1, epoch=1))
    with pytest.raises(ProducerFenced):
        leader.appender.admit(batch(producer=1, epoch=0, sequence=1))

    leader.admit(batch(producer=1, epoch=2))
    with pytest.raises(ProducerFenced) as refused:
        leader.appender.admit(batch(producer=1, epoch=1, sequence=1))

    assert refused.value.data == {"producer_id": 1, "epoch": 2}


def test_a_newer_epoch_begins_at_zero_again() -> None:
    leader = Leader()
    leader.store(batch(4, producer=1))

    with pytest.raises(OutOfOrder):
        leader.appender.admit(batch(producer=1, epoch=1, sequence=4))
    assert leader.store(batch(producer=1, epoch=1)) == 4


def test_epochs_have_sequences_of_their_own() -> None:
    leader = Leader()
    leader.store(batch(producer=1))
    leader.admit(batch(producer=1, epoch=1))
    leader.propose()

    verdict = leader.appender.admit(batch(producer=1, epoch=1))

    assert isinstance(verdict, Duplicate)
    assert verdict.base_offset == 1


def test_producers_do_not_meet() -> None:
    leader = Leader()
    leader.store(batch(producer=1))

    assert leader.admit(batch(producer=2)) == 1
    assert leader.admit(batch(producer=1, sequence=1)) == 2


# size


def test_a_message_beyond_the_topics_size_is_refused() -> None:
    leader = Leader()
    appender = Appender(leader.state, max_message_bytes=100)

    with pytest.raises(PayloadTooLarge, match="101 bytes"):
        appender.admit(batch(size=101))

    assert isinstance(appender.admit(batch(count=5, size=100)), Admitted)


def test_what_has_applied_is_no_longer_held_in_flight() -> None:
    leader = Leader()
    for at in range(50):
        leader.admit(batch(producer=1, sequence=at), 0)
        leader.admit(batch(), 1000 + at)
        leader.propose()
    leader.apply()

    leader.admit(batch(), 1)

    assert leader.appender.in_flight == 0


# refused proposals


def test_what_is_withdrawn_was_never_admitted() -> None:
    leader = Leader()
    leader.admit(batch(2, producer=1))
    leader.admit(batch(1), 7)
    leader.propose()
    appender = leader.appender
    appender.admit(batch(3, producer=1, sequence=2))
    appender.admit(batch(1), 8)
    appender.admit(batch(1, producer=2))

    appender.withdraw()

    assert appender.next_offset == 3
    assert appender.admit(batch(1), 8) == Admitted(3, 1)  # type: ignore[arg-type]
    assert isinstance(appender.admit(batch(1, producer=1, sequence=2)), Admitted)
    assert isinstance(appender.admit(batch(1, producer=2)), Admitted)
    assert isinstance(appender.admit(batch(1), 7), Duplicate)


def test_an_epoch_that_is_withdrawn_fences_nobody() -> None:
    leader = Leader()
    leader.store(batch(producer=1))
    leader.appender.admit(batch(producer=1, epoch=1))

    leader.appender.withdraw()

    assert leader.store(batch(producer=1, sequence=1)) == 1
