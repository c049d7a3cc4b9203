"""Plans and moves as answers show them, and the fields of requests that ask for them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from node.api.placement import MoveView, PlannedMove, PlanView, ReassignmentView
from node.api.times import format_time

Throttle = Annotated[int, Meta(ge=0, le=1 << 50)]
"""Bytes a second that each new replica is sent; 0 leaves that to the nodes."""


BrokerNames = Annotated[list[Annotated[str, Meta(max_length=249)]], Meta(max_length=16)]
"""Of one partition; more than a topic may ask for."""


class MoveAnswer(Struct, rename={"from_": "from"}):
    """One partition of a plan. `bytes` are those to be copied, null where nobody tells."""

    topic: str
    partition: int
    from_: list[str]
    to: list[str]
    bytes: int | None


class PlanAnswer(Struct):
    """What would be done. `bytes` adds up what is known, and `bytes_unknown` counts the partitions
    of which it is not; `complete`: nothing is left for a further plan."""

    dry_run: bool
    moves: list[MoveAnswer]
    replicas_moved: int
    bytes: int
    bytes_unknown: int
    complete: bool


class ReassignedPartition(Struct):
    """One partition of a reassignment: state is moving, arrived, returning, returned, overtaken
    or deleted."""

    topic: str
    partition: int
    old_replicas: list[str]
    new_replicas: list[str]
    state: str
    waiting: str | None
    bytes_left: int | None
    bytes_per_sec: int


class ReassignmentAnswer(Struct):
    """A plan that is carried out, or was. `bytes_left` are those of partitions that are being
    copied now, null where nobody tells."""

    id: str
    reassignment_id: str
    state: str
    cause: str
    brokers: list[str]
    throttle_bytes_per_sec: int
    started_at: str
    ended_at: str | None
    partitions_total: int
    partitions_left: int
    progress: float
    bytes_left: int | None
    bytes_per_sec: int
    waiting: list[str]


class ReassignmentDetail(ReassignmentAnswer, kw_only=True):
    """A reassignment with its partitions; of one that is over, the first hundred."""

    partitions: list[ReassignedPartition]


def plan_answer(view: PlanView) -> PlanAnswer:
    known = [move.copied_bytes for move in view.moves if move.copied_bytes is not None]
    return PlanAnswer(
        dry_run=True,
        moves=list(map(_move, view.moves)),
        replicas_moved=sum(move.new_replicas for move in view.moves),
        bytes=sum(known),
        bytes_unknown=len(view.moves) - len(known),
        complete=view.is_whole,
    )


def reassignment_answer(view: ReassignmentView) -> ReassignmentAnswer:
    return ReassignmentAnswer(**_fields(view))


def reassignment_detail(view: ReassignmentView) -> ReassignmentDetail:
    return ReassignmentDetail(**_fields(view), partitions=list(map(_partition, view.moves)))


def _move(move: PlannedMove) -> MoveAnswer:
    return MoveAnswer(
        move.topic, move.partition, list(move.before), list(move.after), move.copied_bytes
    )


def _fields(view: ReassignmentView) -> dict[str, Any]:
    return {
        "id": str(view.id),
        "reassignment_id": str(view.id),
        "state": view.state,
        "cause": view.cause,
        "brokers": list(view.brokers),
        "throttle_bytes_per_sec": view.throttle_bytes_s,
        "started_at": format_time(view.started_ms),
        "ended_at": format_time(view.ended_ms) if view.ended_ms else None,
        "partitions_total": view.total,
        "partitions_left": view.left,
        "progress": round(view.progress, 4),
        "bytes_left": view.bytes_left,
        "bytes_per_sec": view.rate_bytes_s,
        "waiting": list(view.waiting),
    }


def _partition(move: MoveView) -> ReassignedPartition:
    return ReassignedPartition(
        topic=move.topic,
        partition=move.partition,
        old_replicas=list(move.before),
        new_replicas=list(move.after),
        state=move.state,
        waiting=move.waiting or None,
        bytes_left=move.bytes_left,
        bytes_per_sec=move.rate_bytes_s,
    )
