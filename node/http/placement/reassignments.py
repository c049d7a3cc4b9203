"""Moving partitions: by a plan of one's own, or by one that evens out the brokers' load."""

from __future__ import annotations

from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from coordinator.commands.placement import ROWS_MAX
from node.api.placement import WantedMove
from node.http.placement.plans import (
    BrokerNames,
    PlanAnswer,
    ReassignedPartition,
    ReassignmentAnswer,
    ReassignmentDetail,
    Throttle,
    plan_answer,
    reassignment_answer,
    reassignment_detail,
)
from node.http.request.call import Call, answer
from node.http.text.known_fields import Body

_Number = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Limit = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class WantedPartition(Body):
    """Who should hold a partition, the preferred leader first. Where `old_replicas` are given and
    are not what it has, nothing is done."""

    topic: str
    partition: _Number
    new_replicas: BrokerNames
    old_replicas: BrokerNames | None = None


class ReassignBody(Body):
    """At most 2000 partitions, moved all or none. `timeout_per_partition_sec` is taken and says
    nothing: what waits goes on when it can, or is cancelled."""

    partitions: list[WantedPartition]
    throttle_bytes_per_sec: Throttle | None = None
    timeout_per_partition_sec: Annotated[float, Meta(ge=0)] | None = None
    dry_run: bool | None = None


class ReassignmentStarted(ReassignmentAnswer, kw_only=True):
    """A reassignment that has begun; it goes on by itself."""

    success: bool
    message: str
    partitions: list[ReassignedPartition]


class ReassignmentsAnswer(Struct):
    """Newest first: those that run, and the last hundred that ended."""

    count: int
    reassignments: list[ReassignmentAnswer]


class RebalanceBody(Body):
    """`limit` bounds the partitions that move now. With `leaders_only` no replica moves, only
    preferred leaders change."""

    dry_run: bool | None = None
    leaders_only: bool | None = None
    throttle_bytes_per_sec: Throttle | None = None
    limit: _Limit | None = None


_REASSIGN = msgspec.json.Decoder(ReassignBody)
_REBALANCE = msgspec.json.Decoder(RebalanceBody)


async def create(call: Call) -> web.Response:
    wanted = await call.document(_REASSIGN)
    moves = [
        WantedMove(one.topic, one.partition, tuple(one.new_replicas), tuple(one.old_replicas or ()))
        for one in wanted.partitions
    ]
    throttle = wanted.throttle_bytes_per_sec or 0
    if wanted.dry_run:
        plan = await call.broker.placement.plan_moves(moves, throttle_bytes_s=throttle)
        return answer(plan_answer(plan))
    view = await call.broker.placement.reassign(moves, throttle_bytes_s=throttle)
    return _started(reassignment_detail(view))


async def list_all(call: Call) -> web.Response:
    views = await call.broker.placement.reassignments(running_only=call.query_flag("running"))
    return answer(ReassignmentsAnswer(len(views), list(map(reassignment_answer, views))))


async def describe(call: Call) -> web.Response:
    view = await call.broker.placement.reassignment(call.number("reassignment"))
    return answer(reassignment_detail(view))


async def cancel(call: Call) -> web.Response:
    view = await call.broker.placement.cancel_reassignment(call.number("reassignment"))
    return answer(reassignment_detail(view))


async def rebalance(call: Call) -> web.Response:
    """202 and the reassignment; 200 and the plan of a dry run, or where there is nothing to do."""
    wanted = await call.document(_REBALANCE, empty=b"{}")
    leaders_only, limit = bool(wanted.leaders_only), wanted.limit or ROWS_MAX
    if not wanted.dry_run:
        view = await call.broker.placement.rebalance(
            leaders_only=leaders_only,
            limit=limit,
            throttle_bytes_s=wanted.throttle_bytes_per_sec or 0,
        )
        if view is not None:
            return _started(reassignment_detail(view))
        return answer(PlanAnswer(False, [], 0, 0, 0, complete=True))
    plan = await call.broker.placement.plan_rebalance(leaders_only=leaders_only, limit=limit)
    return answer(plan_answer(plan))


def _started(begun: ReassignmentDetail) -> web.Response:
    count = begun.partitions_total
    text = f"{count} partition{'s' if count != 1 else ''} to move"
    started = ReassignmentStarted(
        **msgspec.structs.asdict(begun), success=True, message=f"reassignment {begun.id}: {text}"
    )
    return answer(started, 202)
