"""What nodes ask each other about how far groups have come, as msgpack over the peer link."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from node.rpc.partitions import PartitionRequest
from node.rpc.queue import GroupRef

LAG = "group_lag"
WOULD_RESET = "group_would_reset"


class LagRequest(PartitionRequest, array_like=True, frozen=True):
    """How far a group has come in partitions of one leader; in `others` only where it is open.

    Where it is not, the answer is as if it had begun there when it was created.
    """

    group: GroupRef
    created_ms: int
    partitions: list[bytes]
    others: list[bytes]

    def packed_partitions(self) -> Sequence[bytes]:
        return [*self.partitions, *self.others]


class LagRow(msgspec.Struct, array_like=True, frozen=True):
    """One partition; see `node.api.members.LagView`."""

    partition: bytes
    is_open: bool
    committed: int
    end: int
    lag: int
    lag_ms: int
    in_flight: int
    delayed: int
    dead: int
    owner: str
    generation: int


class LagAnswer(msgspec.Struct, array_like=True, frozen=True):
    """Of the partitions led there; in those that are `closed` the group is not open."""

    rows: list[LagRow]
    closed: list[bytes]


class ResetRequest(PartitionRequest, array_like=True, frozen=True):
    """Where a reset would take a group; see `node.api.members.ResetTo`."""

    partition: bytes
    group: GroupRef
    created_ms: int
    at: str | None = None
    offset: int | None = None
    time_ms: int | None = None
    duration_ms: int | None = None
    shift: int | None = None

    def packed_partitions(self) -> Sequence[bytes]:
        return (self.partition,)


class ResetAnswer(msgspec.Struct, array_like=True, frozen=True):
    """The offset to seek to, and what that would do, see `delivery.group.lag.Move`; and whose the
    partition is."""

    target: int
    before: int
    after: int
    replayed: int
    skipped: int
    owner: str
    generation: int
