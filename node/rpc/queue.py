"""What nodes ask each other about the queue, as msgpack over the peer link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from delivery.config import LANES_COUNT, GroupConfig
from delivery.entries.ops import UNCLAIMED, Grant, Op, Result, StreamId
from goqueue.wire.batch import Headers
from goqueue.wire.errors import BadRequest
from goqueue.wire.ids import OFFSET_MAX
from goqueue.wire.types import Offset
from goqueue.wire.unreadable import UNREADABLE
from node.api.delays import DelayedView
from node.api.figures import PartitionQueueStats
from node.api.queue import QueuedMessage
from node.rpc.partitions import PartitionRequest

TAKE = "queue_take"
WAIT = "queue_wait"
LEAVE = "queue_leave"
OPS = "queue_ops"
PEEK = "queue_peek"
DEAD = "queue_dead"
PENDING = "queue_pending"
DELAYED = "queue_delayed"
FIGURES = "queue_figures"

HALTED = "halted"
FULL = "full"
STALE = "stale"


class GroupRef(msgspec.Struct, array_like=True, frozen=True):
    """A consumer group as the asking node knows it: enough to open it in a partition."""

    id: int
    name: str
    version: int
    config: GroupConfig


class MessageRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One stored message; its times are Unix milliseconds, resolved."""

    offset: int
    time_ms: int
    value: bytes
    key: bytes | None
    headers: Headers
    lane: int
    message_id: str | None
    deliver_at_ms: int | None
    expires_at_ms: int | None
    is_null: bool = False
    """The value is null, and empty here."""


class TakeRequest(PartitionRequest, array_like=True, frozen=True):
    """Lease up to `limit` messages from partitions of one leader: (partition, request id) each, in
    the order of preference. A request id that was granted before is answered again. `generation`
    and `lowest_lane` as in `delivery.leader.dispatcher.Want`.

    A `limit` of 0 recalls these ids: the answer tells what is left of what was granted under them,
    without messages, and nothing more is. One of which that is not known yet has moved to where it
    was asked.
    """

    group: GroupRef
    partitions: list[tuple[bytes, int]]
    member: str
    limit: int
    max_bytes: int
    visibility_ms: int
    generation: int = UNCLAIMED
    lowest_lane: int = LANES_COUNT - 1

    def packed_partitions(self) -> Sequence[bytes]:
        return [partition for partition, _request in self.partitions]


class StreamTakeRequest(TakeRequest, array_like=True, frozen=True):
    """As `TakeRequest`, for a stream. Sent only once `Feature.STREAMS` is finished; who receives
    either reads this."""

    stream: StreamId | None = None


class Taken(msgspec.Struct, array_like=True, frozen=True):
    """One partition's leases; `grants` and `messages` belong together, row by row. A `deadline_ms`
    of 0: they end with their stream."""

    partition: bytes
    delivery: int
    deadline_ms: int
    grants: list[Grant]
    messages: list[MessageRow]


class TakeAnswer(msgspec.Struct, array_like=True, frozen=True):
    """`blocked` is (partition, HALTED, FULL or STALE, why), `moved` (partition, who leads it).

    Why a partition is STALE is told as its owner's generation.

    A partition that was not asked, because others had enough, is in none of the lists.
    """

    taken: list[Taken]
    empty: list[bytes]
    blocked: list[tuple[bytes, str, str]]
    moved: list[tuple[bytes, str | None]]
    unread: list[bytes] = []
    """Partitions with messages of the group's that can't be read at their leader: they are set
    aside for a moment, and may come after later ones."""


class WaitRequest(PartitionRequest, array_like=True, frozen=True):
    """Answer once any of these partitions has something ready for the group; leases nothing.
    `ticket` is by which the caller may leave."""

    group: int
    partitions: list[bytes]
    wait_ms: int
    ticket: int
    lowest_lane: int = LANES_COUNT - 1

    def packed_partitions(self) -> Sequence[bytes]:
        return self.partitions


class WaitAnswer(msgspec.Struct, array_like=True, frozen=True):
    """Partitions with something ready, and those not led there; both empty when time was over."""

    ready: list[bytes]
    moved: list[tuple[bytes, str | None]]


class OpsRequest(PartitionRequest, array_like=True, frozen=True):
    """Operations for one partition, which its leader puts into its log; `opens` is the group that
    must be open there before; `again`: they may have been applied by an earlier attempt."""

    partition: bytes
    ops: list[Op]
    opens: GroupRef | None = None
    again: bool = False

    def packed_partitions(self) -> Sequence[bytes]:
        return (self.partition,)


class OpsAnswer(msgspec.Struct, array_like=True, frozen=True):
    """What each operation resulted in, and where the group that they are of stands after them."""

    results: list[Result]
    committed_offset: int = 0


class PeekRequest(PartitionRequest, array_like=True, frozen=True):
    """What the group would be given next by one partition."""

    partition: bytes
    group: GroupRef
    limit: int
    max_bytes: int

    def packed_partitions(self) -> Sequence[bytes]:
        return (self.partition,)


class PeekAnswer(msgspec.Struct, array_like=True, frozen=True):
    """Messages in the order of delivery; each with its attempt to come."""

    attempts: list[int]
    messages: list[MessageRow]


class DeadRequest(PartitionRequest, array_like=True, frozen=True):
    """A group's dead letters in one partition from offset `start` on; see `DeadFilter`.

    Without `whole` only offsets are wanted, and up to as many as the bound of a page.
    """

    partition: bytes
    group: int
    start: int
    limit: int
    max_bytes: int
    whole: bool
    reason: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    key: bytes | None = None
    headers: Mapping[str, str] = {}
    offsets: list[int] | None = None

    def packed_partitions(self) -> Sequence[bytes]:
        return (self.partition,)


class DeadRow(msgspec.Struct, array_like=True, frozen=True):
    """One dead letter; `message` is None where only offsets were asked for, or where what it was
    can't be read any more."""

    offset: int
    died_ms: int
    attempts: int
    reason: str
    history: list[tuple[int, str]]
    redrives: int
    message: MessageRow | None


class DeadAnswer(msgspec.Struct, array_like=True, frozen=True):
    """`following` is the offset that the next page begins at, -1 at the end; `total` and
    `by_reason` count all of the group's in this partition, whatever the filter."""

    rows: list[DeadRow]
    following: int
    total: int
    by_reason: Mapping[str, int]


class PendingRequest(PartitionRequest, array_like=True, frozen=True):
    """What of a group is in flight in one partition, from offset `start` up to `end`, of one member
    where it is named; `offsets` are asked for instead of a range where they are given. Of no more
    than `limit`, 0 for none: then it is only counted. Sent once `Feature.PENDING` is finished."""

    partition: bytes
    group: int
    start: int = 0
    end: int = OFFSET_MAX
    limit: int = 0
    member: str | None = None
    idle_ms_min: int = 0
    offsets: list[int] | None = None
    max_bytes: int = 0

    def packed_partitions(self) -> Sequence[bytes]:
        return (self.partition,)


class PendingRow(msgspec.Struct, array_like=True, frozen=True):
    """One message in flight, the `attempt`th time; `deadline_ms` is 0 of a stream's. `message` is
    None where it can't be read any more."""

    offset: int
    delivery: int
    member: str
    deadline_ms: int
    attempt: int
    idle_ms: int
    message: MessageRow | None


class PendingAnswer(msgspec.Struct, array_like=True, frozen=True):
    """`following` is the offset from which on there may be more, -1 at the end. `by_member` counts
    all that is in flight, whatever was asked for; `first` and `last` of it are -1 for none."""

    rows: list[PendingRow]
    following: int
    by_member: Mapping[str, int]
    first: int
    last: int


class DelayedRequest(PartitionRequest, array_like=True, frozen=True):
    """The first `limit` delayed messages of a partition, soonest first; or the one at `offset`."""

    partition: bytes
    limit: int = 0
    offset: int = -1

    def packed_partitions(self) -> Sequence[bytes]:
        return (self.partition,)


class DelayedAnswer(msgspec.Struct, array_like=True, frozen=True):
    views: list[DelayedView]
    count: int


class FiguresAnswer(msgspec.Struct, array_like=True, frozen=True):
    """Of the partitions asked for, those led there."""

    partitions: list[PartitionQueueStats]
    dead: list[tuple[bytes, dict[str, dict[str, int]]]]
    """(partition, group -> reason -> dead letters)."""


A = TypeVar("A")


def decode_answer(payload: bytes, type_: type[A]) -> A:
    """A peer's answer. Raises `BadRequest` where it is of another version."""
    try:
        return msgspec.msgpack.decode(payload, type=type_)
    except UNREADABLE as error:
        raise BadRequest(f"a peer's answer is not understood: {error}") from error


def queued(
    topic: str,
    partition: int,
    row: MessageRow,
    *,
    receipt: str = "",
    attempt: int = 0,
    reason: str = "",
    redrives: int = 0,
    deadline_ms: int = 0,
) -> QueuedMessage:
    """A message as the front shows it."""
    return QueuedMessage(
        topic,
        partition,
        Offset(row.offset),
        row.time_ms,
        row.value,
        row.key,
        row.headers,
        row.lane,
        row.message_id,
        row.deliver_at_ms,
        row.expires_at_ms,
        receipt,
        attempt,
        reason,
        redrives,
        deadline_ms,
        row.is_null,
    )
