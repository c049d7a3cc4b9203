"""GoQueue's routes for cooperative rebalances. All of ours are: these only name it otherwise."""

from __future__ import annotations

import msgspec
from aiohttp import web
from msgspec import Struct

from goqueue.wire.errors import BadRequest
from node.api.members import Assignment
from node.api.times import format_time
from node.http.groups.assignments import Place, shown_places
from node.http.groups.members import (
    PROTOCOL,
    HeartbeatBody,
    MemberAnswer,
    beat,
    heartbeat_answer,
    member_answers,
)
from node.http.groups.rebalances import RebalanceStats, rebalance_stats
from node.http.request.call import Call, answer

NONE, PENDING_REVOKE, PENDING_ASSIGN, COMPLETE = (
    "none",
    "pending_revoke",
    "pending_assign",
    "complete",
)


class RevokeAnswer(Struct):
    """What the member is still to let go of is `pending_count` partitions."""

    status: str
    pending_count: int
    rebalance_state: str
    group: str
    member_id: str
    generation: int
    revision: str


class CooperativeAnswer(Struct):
    """A group as GoQueue's cooperative coordinator shows it."""

    id: str
    group_id: str
    state: str
    generation: int
    protocol: str
    mode: str
    assignment_strategy: str
    rebalance_state: str
    leader_id: str
    topics: list[str]
    members: list[MemberAnswer]
    member_assignments: dict[str, list[Place]]
    rebalance_metrics: RebalanceStats
    created_at: str


_HEARTBEAT = msgspec.json.Decoder(HeartbeatBody)


async def heartbeat(call: Call) -> web.Response:
    """As the plain one; `state` says where the member stands in a rebalance."""
    group = call.group()
    wanted = await call.document(_HEARTBEAT)
    told = await beat(call, group, wanted)
    shown = heartbeat_answer(told, wanted)
    is_old = wanted.generation not in (None, told.generation)
    shown.rebalance_required = shown.rebalance_required or is_old or bool(told.revoking)
    shown.state = _state(told, is_new=shown.rebalance_required)
    return answer(shown)


async def revoke(call: Call) -> web.Response:
    """The member works on these partitions no longer."""
    group = call.group()
    wanted = await call.document(_HEARTBEAT)
    if wanted.revoked_partitions is None and wanted.let_go is None:
        raise BadRequest("revoked_partitions is required")
    told = await beat(call, group, wanted)
    return answer(
        RevokeAnswer(
            "acknowledged",
            len(told.revoking),
            _state(told, is_new=False),
            group,
            told.member,
            told.generation,
            told.revision,
        )
    )


async def describe(call: Call) -> web.Response:
    view = await call.broker.members.membership(call.group())
    revoking = any(member.revoking for member in view.members)
    moving = PENDING_ASSIGN if view.state == "rebalancing" else NONE
    return answer(
        CooperativeAnswer(
            id=view.group,
            group_id=view.group,
            state=view.state,
            generation=view.generation,
            protocol=PROTOCOL,
            mode=view.mode,
            assignment_strategy=view.assignor,
            rebalance_state=PENDING_REVOKE if revoking else moving,
            leader_id=view.leader,
            topics=list(view.topics),
            members=member_answers(view),
            member_assignments={one.id: shown_places(one.assigned) for one in view.members},
            rebalance_metrics=rebalance_stats([view]),
            created_at=format_time(view.created_ms),
        )
    )


def _state(told: Assignment, *, is_new: bool) -> str:
    if told.revoking:
        return PENDING_REVOKE
    if told.state == "rebalancing":
        return PENDING_ASSIGN
    return COMPLETE if is_new else NONE
