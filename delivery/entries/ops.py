"""What a queue entry does: operations of the leader's choosing, judged again when they apply.

An entry of kind `EntryKind.QUEUE` holds a list of operations; applying it results in one result
for each, in order. Groups are named by the id that the cluster group gave them, messages by their
offsets, a delivery by the index of the entry that made it. Offsets are listed one by one, in the
order that matters to the operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec

from delivery.config import LANES_COUNT, GroupConfig, QueueConfig
from log.levels import Feature

ACK, NACK, REJECT, EXTEND, RELEASE = range(5)
"""What a settle does. Release gives the message back as if it had not been delivered."""

OK = 0
NOT_FOUND = 1
"""No such delivery, or it was settled before (404 `not_in_flight`)."""
LEASE_EXPIRED = 2
"""The lease is over, and the message was or will be delivered again (409 `receipt_expired`)."""
TOO_LATE = 3
"""A message that is due can't be cancelled any more (409 `already_due`)."""
STALE = 5
"""The partition has another owner since (409 `stale_generation`)."""

UNCLAIMED = 0
"""The generation of those who are no members: they pass where nobody owns the partition."""
FORCED = -1
"""Instead of a generation: whoever owns the partition."""

KEPT_REASON_CHARACTERS = 256


class StreamId(msgspec.Struct, array_like=True, frozen=True, order=True):
    """A stream of messages to one consumer: the run of the node that serves it, 8 bytes that its
    process drew when it started, and the number that this run has given out once."""

    run: int
    number: int

    def __str__(self) -> str:
        return f"{self.run:016x}-{self.number}"


NO_STREAM = StreamId(0, 0)
"""The default of a field that is always set."""


class _Op(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The base of operations. One with a field that is not known here is refused, not misread."""

    request_id: ClassVar[int] = 0


class Configure(_Op, array_like=True, frozen=True, tag=1):
    """The partition's settings are these from now on."""

    config: QueueConfig


class OpenGroup(_Op, array_like=True, frozen=True, tag=2):
    """A group begins here, or its settings have changed (`version` is newer).

    A new group begins at `offset`: everything below it is settled for it. Results in how many
    groups began: 0 where it was open, or its name belongs to a later one.
    """

    group: int
    name: str
    version: int
    config: GroupConfig
    offset: int = 0


class DropGroup(_Op, array_like=True, frozen=True, tag=3):
    """The group was deleted: nothing of it is left."""

    group: int


class Tick(_Op, array_like=True, frozen=True, tag=4):
    """Time has come to something: whatever is due by the entry's time happens now."""


class Delivered(_Op, array_like=True, frozen=True, tag=5):
    """Messages are leased to a member, as far as each may be when this applies.

    Results in `Granted`, or `StaleResult` where the partition is not the member's in this
    generation. A request id that is known results in what was granted first. Messages of lanes
    below `lowest_lane` were not wanted.
    """

    group: int
    member: str
    visibility_ms: int
    offsets: list[int]
    request: int = 0
    generation: int = UNCLAIMED
    lowest_lane: int = LANES_COUNT - 1


class Settled(_Op, array_like=True, frozen=True, tag=6):
    """Leases end, or are extended. `deliveries` is (delivery, its offsets).

    NACK: `delay_ms` -1 means the group's backoff (for a RELEASE, none); `to_back` puts the message
    behind what is ready now, else it comes first in its lane. EXTEND: the lease ends
    `visibility_ms` after the entry's time. Results in `SettledResult`; receipts of a former owner
    are `STALE`, and all are where a generation is given that is not the owner's.
    """

    group: int
    action: int
    deliveries: list[tuple[int, list[int]]]
    reason: str = ""
    delay_ms: int = -1
    to_back: bool = False
    visibility_ms: int = 0
    request: int = 0
    member: str = ""
    generation: int = UNCLAIMED


class Expired(_Op, array_like=True, frozen=True, tag=7):
    """Leases whose deadline has passed end: each message is redelivered, or dead."""

    group: int
    deliveries: list[tuple[int, list[int]]]


class Committed(_Op, array_like=True, frozen=True, tag=8):
    """All below the offset is settled for the group, leased or not. A request id that is known
    changes nothing: the group may have been sought since. Results in `CountResult`, or
    `StaleResult` for whom the partition is not."""

    group: int
    offset: int
    member: str = ""
    generation: int = UNCLAIMED
    request: int = 0


class Sought(_Op, array_like=True, frozen=True, tag=9):
    """The group begins anew at the offset: what it has settled at and above it comes again.

    Leases end, attempts are forgotten; dead letters stay. A request id that is known changes
    nothing: what was settled since the first time stays so. Results in `SoughtResult`, or
    `StaleResult` as `Committed`.
    """

    group: int
    offset: int
    request: int = 0
    member: str = ""
    generation: int = UNCLAIMED


class Cancelled(_Op, array_like=True, frozen=True, tag=10):
    """Delayed messages that are not due are never delivered. Results in a code for each offset."""

    offsets: list[int]


class Purged(_Op, array_like=True, frozen=True, tag=11):
    """Dead letters of the group are forgotten: settled. Results in how many there were."""

    group: int
    offsets: list[int]
    request: int = 0


class Redriven(_Op, array_like=True, frozen=True, tag=12):
    """Dead letters of the group become ready again, with no attempts. Results in how many did."""

    group: int
    offsets: list[int]
    job: int = 0
    force: bool = False
    request: int = 0


class Parked(_Op, array_like=True, frozen=True, tag=13):
    """Messages of this key are withheld from the group until it is released. A request id that is
    known changes nothing."""

    group: int
    key: bytes
    request: int = 0


class Unparked(_Op, array_like=True, frozen=True, tag=14):
    """The key's messages flow again, from its first one. A request id as in `Parked`."""

    group: int
    key: bytes
    request: int = 0


class Halted(_Op, array_like=True, frozen=True, tag=15):
    """Nothing is delivered to the group until it is resumed."""

    group: int
    reason: str


class Resumed(_Op, array_like=True, frozen=True, tag=16):
    """Deliveries go on; the window of outcomes begins anew. A request id as in `Parked`."""

    group: int
    request: int = 0


class Own(_Op, array_like=True, frozen=True, tag=17):
    """The partition is this member's from now on, nobody's where it is empty.

    Ignored unless the generation is newer than the owner's. What is leased to others ends: with
    `fence` as a failed attempt, else as if it had not been delivered. Results in `OwnedResult`;
    repeated by the same owner in the same generation it changes nothing.
    """

    group: int
    member: str
    generation: int
    fence: bool = False


class RequireArchive(_Op, array_like=True, frozen=True, tag=18):
    """Messages go only once they are archived, or need not be from now on."""

    required: bool


class Archived(_Op, array_like=True, frozen=True, tag=19):
    """All below `position` is in the archive there. Results in `ArchivedResult`.

    A position that was passed already changes nothing, nor does one in another archive than the one
    known: unless `anew`, with which that one counts from here on, however far it is.
    """

    location: str
    position: int
    anew: bool = False


class DeliveredToStream(Delivered, array_like=True, frozen=True, tag=20):
    """As `Delivered`, to a stream: its leases are over when it ends. With a visibility of 0 they
    have no deadline."""

    stream: StreamId = NO_STREAM


class StreamsEnded(_Op, array_like=True, frozen=True, tag=21):
    """These streams of a run are over, or the whole run where none is named: what they have in
    flight in this group is ready again at once, in front of its lanes. With `lost` it is a failed
    attempt, and may have been the last one; else as if it had not been delivered.

    Results in `CountResult`. Repeated it changes nothing, as a stream without leases is none.
    """

    group: int
    run: int
    streams: list[int]
    lost: bool = False


Op = (
    Configure
    | OpenGroup
    | DropGroup
    | Tick
    | Delivered
    | Settled
    | Expired
    | Committed
    | Sought
    | Cancelled
    | Purged
    | Redriven
    | Parked
    | Unparked
    | Halted
    | Resumed
    | Own
    | RequireArchive
    | Archived
    | DeliveredToStream
    | StreamsEnded
)

REPEATED = (
    Delivered,
    DeliveredToStream,
    Settled,
    Committed,
    Sought,
    Purged,
    Redriven,
    Parked,
    Unparked,
    Resumed,
)
"""Operations that would do something else the second time: those with a request id."""


class Grant(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One message delivered: this is its `attempt`, `reason` why the one before failed."""

    offset: int
    attempt: int
    reason: str = ""
    redrives: int = 0


class Granted(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """What a `Delivered` came to; `delivery` names it in receipts. A `deadline_ms` of 0: none."""

    delivery: int
    deadline_ms: int
    grants: list[Grant]


class Settle(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What became of one receipt: a code, and for OK what came of it.

    `outcome` is acked, requeued, dead, parked, halted, expired, extended or released. `attempts` is
    how often the message has been delivered; `visible_at_ms` when it may be delivered again, or an
    extended lease ends.
    """

    code: int
    outcome: str = ""
    attempts: int = 0
    visible_at_ms: int = 0


class SettledResult(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Of a `Settled`: each receipt's, in order; the group's floor after, whether it advanced."""

    settles: list[Settle]
    committed_offset: int
    advanced: bool
    in_flight: int


class CodesResult(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """Of a `Cancelled`."""

    codes: list[int]


class CountResult(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """Of a `Committed`, `Purged`, `Redriven`, `Parked`, `Unparked` or `StreamsEnded`: how many
    messages it changed; of an `OpenGroup` how many groups began.
    `refused` counts dead letters that would go in a loop."""

    count: int
    refused: int = 0


class UnknownGroup(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """The group is not open in this partition: nothing happened."""

    group: int


class StaleResult(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """The partition is not whose it was said to be: nothing happened. It is `member`'s, nobody's
    where that is empty, since this generation."""

    group: int
    member: str
    generation: int


class OwnedResult(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """Of an `Own`: who owns the partition now, and how many leases of others ended by it."""

    member: str
    generation: int
    ended: int = 0


class SoughtResult(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """Of a `Sought`: the group's floor before and after, how many messages come that would not have
    come without it, and how many that would have come don't any more."""

    before: int
    after: int
    replayed: int
    skipped: int


class ArchivedResult(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """Of an `Archived`: the archive that counts now, up to where, and the log time since which.
    `is_same`: it is the one that was told of."""

    location: str
    position: int
    time_ms: int
    is_same: bool


Result = (
    Granted
    | SettledResult
    | CodesResult
    | CountResult
    | UnknownGroup
    | StaleResult
    | OwnedResult
    | SoughtResult
    | ArchivedResult
    | None
)
"""None for operations that answer nothing."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[list[Op]] = msgspec.msgpack.Decoder(list[Op])


FEATURES: Mapping[type, Feature] = {
    DeliveredToStream: Feature.STREAMS,
    StreamsEnded: Feature.STREAMS,
}
"""What came after level 1, and with which feature: all other operations are part of level 1."""


def feature_of(ops: Iterable[Op]) -> Feature:
    """What must be finished before an entry with these operations is written."""
    return max((FEATURES.get(type(op), Feature.BASE) for op in ops), default=Feature.BASE)


def encode_ops(ops: Sequence[Op]) -> bytes:
    """The body of a queue entry."""
    return _encoder.encode(ops)


def decode_ops(body: bytes | memoryview) -> list[Op]:
    """Raises msgspec.DecodeError on an operation, or a field of one, of a newer version."""
    return _decoder.decode(body)
