"""What nodes say to each other about replicas that move, as msgpack over the peer link.

Who leads the cluster group asks partitions' leaders how their replicas are, and has them take
single steps; leaders tell it unasked of what it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from coordinator.placement.steps import Seen, Step
from coordinator.topics.partitions import Configuration
from goqueue.wire.errors import BadRequest
from goqueue.wire.types import Incarnation, Index, NodeId, PartitionId, Voter
from goqueue.wire.unreadable import UNREADABLE
from node.rpc.partitions import PartitionRequest

SEEN = "move_seen"
STEP = "move_step"
TOLD = "move_told"
PARTITIONS_TOLD_MAX = 256
"""In one request."""

Replica = tuple[str, int]


class SeenRow(PartitionRequest, array_like=True, frozen=True):
    """`Seen` on the wire."""

    partition: bytes
    index: int
    voters: list[Replica]
    learners: list[Replica]
    leader: str
    in_sync: list[str]
    caught_up: list[str]
    busy: bool
    behind_bytes: int
    full: list[str]
    term: int = 0
    epoch: int = 0

    def packed_partitions(self) -> Sequence[bytes]:
        return (self.partition,)


class SeenRequest(PartitionRequest, array_like=True, frozen=True):
    """How the replicas of a partition are, of its leader."""

    partition: bytes

    def packed_partitions(self) -> Sequence[bytes]:
        return (self.partition,)


class StepRequest(PartitionRequest, array_like=True, frozen=True):
    """`Step` on the wire, answered as the partition is after it, taken or refused."""

    partition: bytes
    kind: str
    voter: Replica
    index: int
    factor: int
    throttle_bytes_s: int
    lost: bool
    epoch: int = 0

    def packed_partitions(self) -> Sequence[bytes]:
        return (self.partition,)


class ToldRequest(PartitionRequest, array_like=True, frozen=True):
    """Partitions with other replicas than the cluster group knows of."""

    rows: list[SeenRow]

    def packed_partitions(self) -> Sequence[bytes]:
        return [row.partition for row in self.rows]


class ProgressRow(msgspec.Struct, array_like=True, frozen=True):
    """One partition that is being moved."""

    partition: bytes
    waiting: str
    bytes_left: int
    rate_bytes_s: int


class ProgressAnswer(msgspec.Struct, array_like=True, frozen=True):
    """All partitions that are being moved; and plans that can't be made, by cause, and why."""

    rows: list[ProgressRow]
    problems: dict[str, str]


def seen_row(partition_id: PartitionId, seen: Seen) -> SeenRow:
    now = seen.configuration
    return SeenRow(
        partition_id.pack(),
        now.index,
        _pairs(now.voters),
        _pairs(now.learners),
        seen.leader,
        sorted(seen.in_sync),
        sorted(seen.caught_up),
        seen.busy,
        seen.behind_bytes,
        sorted(seen.full),
        seen.term,
        now.epoch,
    )


def seen_of(row: SeenRow) -> Seen:
    return Seen(
        Configuration(Index(row.index), _voters(row.voters), _voters(row.learners), row.epoch),
        NodeId(row.leader),
        frozenset(map(NodeId, row.in_sync)),
        frozenset(map(NodeId, row.caught_up)),
        row.busy,
        row.behind_bytes,
        frozenset(map(NodeId, row.full)),
        row.term,
    )


def decode_seen(payload: bytes) -> Seen:
    """A leader's answer. Raises `BadRequest` where it is of another version."""
    try:
        return seen_of(msgspec.msgpack.decode(payload, type=SeenRow))
    except UNREADABLE as error:
        raise BadRequest(f"a peer's answer is not understood: {error}") from error


def decode_progress(payload: bytes) -> ProgressAnswer:
    """Raises `BadRequest` where it is of another version."""
    try:
        return msgspec.msgpack.decode(payload, type=ProgressAnswer)
    except UNREADABLE as error:
        raise BadRequest(f"a peer's answer is not understood: {error}") from error


def step_request(step: Step) -> StepRequest:
    return StepRequest(
        step.partition_id.pack(),
        step.kind,
        (step.voter.node, step.voter.incarnation),
        step.index,
        step.factor,
        step.throttle_bytes_s,
        step.lost,
        step.epoch,
    )


def step_of(request: StepRequest) -> Step:
    (voter,) = _voters([request.voter])
    return Step(
        PartitionId.unpack(request.partition),
        request.kind,
        voter,
        Index(request.index),
        request.factor,
        request.throttle_bytes_s,
        request.lost,
        request.epoch,
    )


def _pairs(voters: Iterable[Voter]) -> list[Replica]:
    return [(voter.node, voter.incarnation) for voter in voters]


def _voters(pairs: Iterable[Replica]) -> tuple[Voter, ...]:
    return tuple(Voter(NodeId(node), Incarnation(incarnation)) for node, incarnation in pairs)
