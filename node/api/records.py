"""What the HTTP front asks of the node about the records of partitions: `Records`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from goqueue.wire.types import Offset, TopicId
from node.api.auth.principal import OutOfScope
from node.api.rules.rule import free, known, scoped, topic
from node.api.rules.scope import Scope

MAJORITY, RELAXED = "majority", "relaxed"
"""How durable what was appended is; as a topic's `durability`."""


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where a batch stands in its partition's log.

    It is durable there as `durability` says: `majority` (fsynced by a majority) or `relaxed`
    (written by a majority), whatever the topic is set to by the time of the answer. A
    duplicate carries the offset of the original. `time_ms` is the log time of the entry, which is
    the `timestamp` of its messages. `duplicate` says that nothing was stored: all of it was there.
    `rows` is given where message ids decided: (offset, duplicate) of each message in turn. Where it
    is None they follow each other from `base_offset` on.
    """

    base_offset: Offset
    count: int
    duplicate: bool
    time_ms: int
    durability: str
    rows: tuple[tuple[Offset, bool], ...] | None = None


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """An encoded record batch as stored: its rows are `base_offset`, `base_offset + 1`, ..."""

    base_offset: Offset
    time_ms: int
    batch: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Visibility:
    """What a reader who wants visible messages only must know beside the stored batches."""

    time_ms: int
    """Log time at the replica that answers, by which messages are due or have expired."""
    ttl_ms: int = 0
    """How long messages live that say nothing of it; 0 for ever."""
    withdrawn: Sequence[int] = ()
    """Offsets in the slice that were cancelled or have expired."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Whole stored batches, in order, that cover what was asked for.

    The first batch may begin below the asked offset and the last may reach past `max_records`: the
    front cuts rows. `next_offset` is the offset after the last batch, or the first offset from
    which reading goes on when there are none. Only applied (committed) entries are ever here.
    `visibility` is given where it was asked for. `topic_id` is of the topic that was read, which
    need not be the one that has the name by now.

    `end_offset` is no older than the question where `next_offset` has reached it, or where that
    was asked for (`current`); unless the slice is `stale`. Else there is more, and the end is as
    far as the replica that answered has come.
    """

    batches: Sequence[StoredBatch]
    next_offset: Offset
    log_start: Offset
    end_offset: Offset
    visibility: Visibility | None = None
    topic_id: TopicId | None = None
    stale: bool = False
    """No leader has confirmed in time that there is no more: what was acknowledged may be missing
    behind `next_offset`."""

    @property
    def is_at_end(self) -> bool:
        """Whether reading goes on where the log ends, as far as this slice tells."""
        return self.next_offset >= self.end_offset


def _producer(scope: Scope, method: Any) -> Any:
    """Whoever takes a transactional id fences who had it: it begins with a prefix of the key."""

    async def checked(transactional_id: str | None) -> tuple[int, int]:
        if transactional_id is not None and not transactional_id.startswith(
            scope.principal.prefixes
        ):
            raise OutOfScope(scope.principal, f"transactional id {transactional_id[:249]}")
        if transactional_id is not None:
            scope.broker.shares.transactional_id(scope.principal.prefixes, transactional_id)
        return cast(tuple[int, int], await method(transactional_id))

    return checked


class Records(Protocol):
    """Publishing to partitions and reading them, and the identities of producers."""

    @scoped(topic)
    async def append(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        *,
        deadline_s: float,
        validated: bool = False,
    ) -> AppendResult:
        """Append one encoded record batch and answer when it is as durable as the topic promises.

        `validated`: every column of this batch was checked, or the batch was encoded, by this
        process. Batches of one caller to one partition are appended in the order of the calls.
        Raises `UnknownTopic`, `UnknownPartition`, `OutOfOrder`, `ProducerFenced`, `NoQuorum`,
        `DiskFull`, `Busy`, `PayloadTooLarge`, `DelayTooLong`, `TooManyDelayed`; `Timeout` and
        `OutcomeUnknown` when it may or may not have happened.
        """
        ...

    @scoped(known)
    def pick_partition(self, topic: str, messages: int) -> int:
        """The partition for so many messages that may go to any: the same one for some
        milliseconds, then the one that has had the fewest of those that come through this node.
        Raises `UnknownTopic`."""
        ...

    @scoped(known)
    def leader_elsewhere(self, topic: str, partition: int) -> str | None:
        """The node that leads the partition, as this one last heard; None where it is this one, or
        nobody knows of any."""
        ...

    @scoped(topic)
    async def read(
        self,
        topic: str,
        partition: int,
        offset: Offset,
        *,
        max_records: int,
        max_bytes: int,
        wait_s: float,
        to_time_ms: int | None = None,
        visible: bool = False,
        current: bool = False,
    ) -> Slice:
        """Stored batches from `offset` on; at least one batch if any is there, however large.

        With nothing at `offset` yet, waits up to `wait_s` for an append. An offset below the log
        start is served from the log start on. One beyond the end raises `OffsetOutOfRange`.
        `to_time_ms`: only entries with log time below it; a batch at or after it ends the wait.
        `visible` asks for the slice's `visibility`; the batches are the same. With `current` the
        slice's end is no older than the call, also where the slice does not reach it. Where no
        leader confirms an end in time, it is what this node has, and the slice is `stale`.
        """
        ...

    @scoped(topic)
    async def offset_at(self, topic: str, partition: int, time_ms: int) -> Offset:
        """First offset with log time >= `time_ms`; the log's end, as its leader confirms it, if
        there is none. Raises `NoQuorum`, `Timeout` where no leader tells."""
        ...

    @scoped(topic)
    async def end_offsets(self, topic: str) -> dict[int, tuple[Offset, Offset]]:
        """(earliest, next) of each partition, linearizable; a partition that can't answer is
        missing."""
        ...

    @scoped(topic)
    async def flush(self, topic: str) -> None:
        """Answer once everything acked so far on the topic is synced on a majority."""
        ...

    @scoped(_producer)
    async def init_producer(self, transactional_id: str | None) -> tuple[int, int]:
        """A producer id and epoch from the cluster group; the same transactional id gets the same
        producer id with the next epoch."""
        ...

    @scoped(free)
    async def check_producer(self, producer_id: int, epoch: int) -> None:
        """Raises `NotFound` for an id never given out, `ProducerFenced` for an epoch that a newer
        `init_producer` has replaced; from the applied cluster state of this node."""
        ...
