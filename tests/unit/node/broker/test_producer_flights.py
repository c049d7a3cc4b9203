"""A producer's batch that overtakes an earlier one is told from a gap."""

from __future__ import annotations

from goqueue.wire.batch import Record, encode_batch
from goqueue.wire.types import PartitionId, TopicId
from node.broker.producer_flights import ProducersInFlight

GROUP = PartitionId(TopicId(1, 1), 0)


def batch(producer: int, sequence: int, epoch: int = 0) -> bytes:
    return encode_batch(
        [Record(b"v", None)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def test_a_later_batch_follows_an_earlier_one_that_is_on_its_way() -> None:
    flights = ProducersInFlight()

    with flights.entered(GROUP, batch(1, 5)) as first:
        with flights.entered(GROUP, batch(1, 6)) as second:
            assert second.follows_another
            assert not first.follows_another
        assert not first.follows_another
    assert flights.sequences == {}


def test_other_producers_epochs_and_partitions_are_apart() -> None:
    flights = ProducersInFlight()
    other = PartitionId(TopicId(1, 1), 1)

    with (
        flights.entered(GROUP, batch(1, 0)),
        flights.entered(GROUP, batch(2, 6)) as producer,
        flights.entered(GROUP, batch(1, 6, epoch=1)) as epoch,
        flights.entered(other, batch(1, 6)) as partition,
    ):
        assert not any(f.follows_another for f in (producer, epoch, partition))


def test_batches_without_identity_and_what_is_no_batch_take_no_part() -> None:
    flights = ProducersInFlight()

    with flights.entered(GROUP, batch(0, 0)) as plain, flights.entered(GROUP, b"x") as junk:
        assert not plain.follows_another
        assert not junk.follows_another
        assert flights.sequences == {}
