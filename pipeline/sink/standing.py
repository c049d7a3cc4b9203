"""What stands in the log under a task's identity, found out before the task writes anything.

A task that is repeated must look for its rows where its predecessor has put them. By key that
depends on how many partitions the topic had then, and it may have more by now. So the rows that
are stored already decide: the largest number of partitions under which each of them lies where it
would be put. Which number it is does not matter for the others, as nobody has stored them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from goqueue.errors import Forbidden, OffsetOutOfRange, ProducerFenced
from goqueue.publish.request import BATCH, decode_results
from goqueue.transport.http import join
from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import OutOfOrder
from goqueue.wire.layout import HEADER, UINT32_MAX, Buffer
from goqueue.wire.partitioner import partition_for
from pipeline.broker import Broker, TopicFacts
from pipeline.sink.errors import SinkError
from pipeline.sink.identity import Identity
from pipeline.sink.rows import Rows

PAUSE_S = 0.2
LOST_S = 5.0
"""What was on its way to the log and has not come in this time went down with its leader."""

_QUESTION = Rows([0], [b"?"], [b"?"])
"""A row that is never stored: its number is beyond any that a producer reaches."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Offsets of one partition that hold rows of an identity; rows of others lie between them."""

    partition: int
    first: int
    end: int


def standings(broker: Broker, facts: TopicFacts, identity: Identity) -> list[Standing]:
    """The partitions that hold rows of this identity's epoch: one small question to each.
    Raises SinkError where a later epoch has written, and GoQueueError."""
    found = (_standing(broker, facts, number, identity) for number in range(facts.partitions))
    return [one for one in found if one is not None]


def partitions_then(
    broker: Broker, facts: TopicFacts, identity: Identity, found: Sequence[Standing]
) -> int:
    """How many partitions rows without a partition of their own are spread over: as many as the
    topic has, or as earlier attempts at this task reckoned with, whose rows were found. Raises
    SinkError where no number explains where they are, and GoQueueError."""
    candidates: Sequence[int] = range(1, facts.partitions + 1)
    turn = identity.partition + identity.epoch
    seen = set[tuple[int, bytes | None]]()
    for standing in found:
        for key, message_id in _rows(broker, facts, standing, identity):
            name = message_id if key is None else key
            if (standing.partition, name) in seen:
                continue
            seen.add((standing.partition, name))
            candidates = _fitting(candidates, standing.partition, name, turn)
    if not candidates:
        raise SinkError(
            f"topic {facts.name}: rows that an earlier attempt at {identity.task} stored lie where "
            "these would not be put, whatever the number of partitions: start again with the rows, "
            "columns and options of that attempt"
        )
    return candidates[-1]


def _fitting(
    candidates: Sequence[int], partition: int, name: bytes | None, turn: int
) -> Sequence[int]:
    """Those numbers of partitions under which a row of this name belongs into this one."""
    if name is None:
        return [count for count in candidates if turn % count == partition]
    return [count for count in candidates if partition_for(name, count) == partition]


def _standing(
    broker: Broker, facts: TopicFacts, partition: int, identity: Identity
) -> Standing | None:
    try:
        answer = broker.request(
            "POST",
            join("topics", facts.name, "partitions", partition, "messages"),
            body=_QUESTION.encode(identity, UINT32_MAX - 1, 0, "none"),
            headers=BATCH,
            repeatable=True,
            leader=facts.leader(partition),
        )
        (result,) = decode_results(answer, 1)
        if result.failure is None:
            raise AssertionError(f"partition {partition} of topic {facts.name} took a question")
        raise result.failure
    except OutOfOrder as told:
        first, end = told.data.get("first_offset"), told.data.get("end_offset")
        if not isinstance(first, int) or not isinstance(end, int):
            return None
        return Standing(partition, first, end)
    except ProducerFenced:
        raise SinkError(
            f"partition {partition} of topic {facts.name}: a later run than {identity.task} has "
            "written: this one is over"
        ) from None
    except Forbidden as error:
        raise SinkError(
            f"rows of {identity.task}, partition {partition} of topic {facts.name}: {error.message}"
        ) from error


def _rows(
    broker: Broker, facts: TopicFacts, standing: Standing, identity: Identity
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Key and message id of each row; what is on its way is waited for, for a while."""
    at, since_s = standing.first, time.monotonic()
    leader = facts.leader(standing.partition)
    while at < standing.end and time.monotonic() < since_s + LOST_S:
        try:
            page = broker.read(facts.name, standing.partition, at, leader=leader)
        except OffsetOutOfRange:
            time.sleep(PAUSE_S)
            continue
        except Forbidden as error:
            raise SinkError(
                f"topic {facts.name}: an earlier attempt at {identity.task} has stored rows, and "
                f"the API key may not read them to find out which: {error.message}"
            ) from error
        for frame in page.frames():
            if _is_of(frame.batch, identity):
                batch = RecordBatch.parse(frame.batch)
                ids = batch.message_id_blobs() or [b""] * batch.count
                yield from zip(batch.keys(), [one or None for one in ids], strict=True)
        if page.next_offset > at:
            at, since_s = page.next_offset, time.monotonic()
        else:
            time.sleep(PAUSE_S)


def _is_of(batch: Buffer, identity: Identity) -> bool:
    _, _, _, _, _, producer_id, _, epoch, *_ = HEADER.unpack_from(batch)
    return (producer_id, epoch) == (identity.producer_id, identity.epoch)
