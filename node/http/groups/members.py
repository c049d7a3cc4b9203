"""Members of groups: join, heartbeat, leave, and who is there.

Every rebalance is cooperative, whichever route a member takes: it keeps what stays with it, and a
heartbeat tells what it is to let go of. Answers hold what GoQueue's server answers and what its
published clients read.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.wire.errors import BadRequest, GoQueueError, OverBudget, UnknownMember
from goqueue.wire.ids import validate_topic_name
from node.api.members import Assignment, JoinRequest, MembershipView, MemberView
from node.api.times import Duration, duration_ms, format_time
from node.http.groups.assignments import (
    PLACE_WORK_BYTES,
    Place,
    named_places,
    place_texts,
    shown_places,
)
from node.http.groups.consumer_identity import Generation, check_not_newer, required_member
from node.http.groups.settings import parse_settings
from node.http.request.body import off_loop
from node.http.request.call import Call, answer, either
from node.http.request.long_poll import has_hung_up, long_poll
from node.http.text.errors import RequestTimeout
from node.http.text.known_fields import Body

JOIN_WAIT_MS = 2000
JOIN_WAIT_MS_MAX = 10_000
SUBSCRIPTIONS_MAX = 100
PLACES_MAX = 100_000
PROTOCOL = "cooperative"

_Names = Annotated[list[str], Meta(max_length=SUBSCRIPTIONS_MAX)]
_Places = Annotated[list[Place], Meta(max_length=PLACES_MAX)]


class JoinBody(Body):
    """Join as `client_id`, for `topics` and for what matches `patterns` (globs, as `orders.*`).

    `member_id` is given to subscribe anew, `instance_id` to take the place of the member that has
    it. One that `lets_go` confirms itself what it was asked to let go of. `wait` is for the
    partitions: at most 10 s. `mode` and `assignor` are for a group that is created by this.
    `protocol`, which GoQueue's clients send, is accepted and says nothing.
    """

    client_id: str | None = None
    topics: _Names | None = None
    topic: str | None = None
    patterns: _Names | None = None
    member_id: str | None = None
    instance_id: str | None = None
    session_timeout: Duration | None = None
    session_timeout_ms: Duration | None = None
    rebalance_timeout: Duration | None = None
    rebalance_timeout_ms: Duration | None = None
    lets_go: bool | None = None
    mode: str | None = None
    assignor: str | None = None
    wait: Duration | None = None
    protocol: str | None = None


class JoinAnswer(Struct):
    """The member and its partitions by now: `assignment` names them in full, the others as GoQueue
    does. `leader` is the member's own id if it leads, else empty; leading means nothing."""

    group: str
    group_id: str
    member_id: str
    generation: int
    leader_id: str
    leader: str
    partitions: list[int]
    assigned_partitions: list[str]
    partitions_assigned: list[Place]
    assignment: list[Place]
    members: list[str]
    rebalance_required: bool
    protocol: str
    state: str
    mode: str
    revision: str
    session_timeout_ms: int
    heartbeat_interval_ms: int


class HeartbeatBody(Body):
    """With the `revision` of an earlier answer it waits for anything new, a third of the session
    at most.

    `let_go` (or `revoked_partitions`) are partitions that the member works on no longer.
    """

    member_id: str | None = None
    generation: Generation | None = None
    revision: Annotated[str, Meta(max_length=100)] | None = None
    wait: Duration | None = None
    let_go: _Places | None = None
    revoked_partitions: _Places | None = None


class HeartbeatAnswer(Struct):
    """What the member has (`assignment`), and what it is to let go of (`revoking`) by when.

    `rebalance_required`: something is new since the revision that was sent, or the member itself is
    to let go of something. Whoever does neither has nothing to do: clients of GoQueue's, which know
    no revision, would join again.
    """

    status: str
    group: str
    member_id: str
    rebalance_required: bool
    state: str
    protocol: str
    mode: str
    generation: int
    revision: str
    assignment: list[Place]
    assigned_partitions: list[str]
    partitions: list[int]
    partitions_assigned: list[Place]
    revoking: list[Place]
    partitions_to_revoke: list[Place]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    revocation_deadline: str | UnsetType = UNSET


class LeaveBody(Body):
    member_id: str | None = None


class LeaveAnswer(Struct):
    status: str
    left: bool
    success: bool
    group: str
    member_id: str


class MemberAnswer(Struct):
    """A member; `silent_ms` is for how long it was not heard of, null where nobody knows now."""

    id: str
    member_id: str
    client_id: str
    instance_id: str
    host: str
    topics: list[str]
    patterns: list[str]
    joined_at: str
    last_heartbeat: str | None
    silent_ms: int | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assigned_partitions: list[str]
    partitions: list[str]
    assignment: list[Place]
    revoking: list[Place]


class MembersAnswer(Struct):
    group: str
    generation: int
    state: str
    mode: str
    leader_id: str
    members: list[MemberAnswer]


class MemberAssignment(Struct):
    """What one member has."""

    group: str
    member_id: str
    generation: int
    partitions: list[Place]
    assigned_partitions: list[str]
    revoking: list[Place]


_JOIN = msgspec.json.Decoder(JoinBody)
_HEARTBEAT = msgspec.json.Decoder(HeartbeatBody)
_LEAVE = msgspec.json.Decoder(LeaveBody)


async def join(call: Call) -> web.Response:
    """A client that hung up meanwhile never learns its id: a new member of its leaves again."""
    group = call.group()
    wanted = await call.document(_JOIN)
    request = join_request(wanted, call.request.remote or "")
    wait_ms = duration_ms(wanted.wait, "wait")
    wait_s = min(JOIN_WAIT_MS if wait_ms is None else wait_ms, JOIN_WAIT_MS_MAX) / 1000
    wait_s = 0.0 if call.shared.stopping.is_set() else wait_s
    told = await call.broker.members.join(group, request, wait_s=wait_s)
    if has_hung_up(call) and not request.member and not request.instance_id:
        await call.broker.members.leave(group, told.member)
    return answer(_joined(told))


async def heartbeat(call: Call) -> web.Response:
    group = call.group()
    wanted = await call.document(_HEARTBEAT)
    told = await beat(call, group, wanted)
    return answer(heartbeat_answer(told, wanted))


async def leave(call: Call) -> web.Response:
    group = call.group()
    member = required_member((await call.document(_LEAVE)).member_id)
    await call.broker.members.leave(group, member)
    return answer(LeaveAnswer("left", True, True, group, member))


async def list_members(call: Call) -> web.Response:
    view = await call.broker.members.membership(call.group())
    return answer(
        MembersAnswer(
            view.group,
            view.generation,
            view.state,
            view.mode,
            view.leader,
            member_answers(view),
        )
    )


async def assignment(call: Call) -> web.Response:
    """Of one member; asking is no sign of life."""
    group = call.group()
    id = required_member(call.query.get("member_id"))
    view = await call.broker.members.membership(group)
    member = find_member(view, id)
    return answer(
        MemberAssignment(
            group,
            id,
            view.generation,
            shown_places(member.assigned),
            place_texts(member.assigned),
            shown_places(member.revoking),
        )
    )


def join_request(wanted: JoinBody, host: str) -> JoinRequest:
    """What the broker is asked for. Raises BadRequest with every problem."""
    problems: list[str] = []
    topics = wanted.topics or []
    if not wanted.client_id:
        problems.append("client_id is required")
    if wanted.topic is not None:
        if topics and topics != [wanted.topic]:
            problems.append("give topic or topics, not both")
        topics = [wanted.topic]
    if not topics and not wanted.patterns:
        problems.append("topics is required: at least one topic or pattern")
    timeouts_ms: dict[str, int] = {}
    settings: dict[str, object] = {}
    try:
        for topic in topics:
            validate_topic_name(topic)
        for name, short, long in (
            ("session_timeout", wanted.session_timeout, wanted.session_timeout_ms),
            ("rebalance_timeout", wanted.rebalance_timeout, wanted.rebalance_timeout_ms),
        ):
            given = either(
                duration_ms(_given(short), name),
                duration_ms(long, f"{name}_ms"),
                name,
                f"{name}_ms",
            )
            timeouts_ms[name] = int(given or 0)
        settings = parse_settings({"mode": wanted.mode, "assignor": wanted.assignor})
    except GoQueueError as error:
        problems.append(error.message)
    if problems:
        raise BadRequest("; ".join(problems), problems=problems)
    return JoinRequest(
        wanted.client_id or "",
        tuple(dict.fromkeys(topics)),
        tuple(dict.fromkeys(wanted.patterns or ())),
        wanted.member_id or "",
        wanted.instance_id or "",
        host,
        timeouts_ms["session_timeout"],
        timeouts_ms["rebalance_timeout"],
        bool(wanted.lets_go),
        settings,
    )


async def beat(call: Call, group: str, wanted: HeartbeatBody) -> Assignment:
    """Send the heartbeat on, and wait with it for as long as the client listens: hanging up is no
    sign of life."""
    member = required_member(wanted.member_id)
    given = [*(wanted.let_go or ()), *(wanted.revoked_partitions or ())]
    let_go = await off_loop(PLACE_WORK_BYTES * len(given), named_places, given)
    wait_ms = duration_ms(wanted.wait, "wait") or 0
    stopping = call.shared.stopping.is_set()
    wait_s = 0.0 if stopping else min(wait_ms / 1000, call.limits.long_poll_s_max)
    revision = wanted.revision or None
    told: Assignment | None = None
    if wait_s and revision is not None:
        with suppress(OverBudget):  # a member is not lost for want of room to wait
            told = await long_poll(
                call,
                call.broker.members.heartbeat(
                    group, member, revision=revision, wait_s=wait_s, let_go=let_go
                ),
            )
    if told is None:
        if has_hung_up(call):
            raise RequestTimeout("the client hung up")
        told = await call.broker.members.heartbeat(group, member, let_go=let_go)
    if wanted.generation is not None and wanted.generation > told.generation:
        await call.broker.members.membership(group)  # this node may be behind the one that told it
        told = await call.broker.members.heartbeat(group, member)
    check_not_newer(group, wanted.generation, told.generation)
    return told


def heartbeat_answer(told: Assignment, wanted: HeartbeatBody) -> HeartbeatAnswer:
    is_new = bool(wanted.revision) and wanted.revision != told.revision
    assigned, revoking = shown_places(told.assigned), shown_places(told.revoking)
    return HeartbeatAnswer(
        status="ok",
        group=told.group,
        member_id=told.member,
        rebalance_required=is_new or (told.lets_go and bool(revoking)),
        state=told.state,
        protocol=PROTOCOL,
        mode=told.mode,
        generation=told.generation,
        revision=told.revision,
        assignment=assigned,
        assigned_partitions=place_texts(told.assigned),
        partitions=[partition for _, partition in told.assigned],
        partitions_assigned=assigned,
        revoking=revoking,
        partitions_to_revoke=revoking,
        session_timeout_ms=told.session_timeout_ms,
        heartbeat_interval_ms=told.heartbeat_ms,
        revocation_deadline=format_time(told.deadline_ms) if told.deadline_ms else UNSET,
    )


def find_member(view: MembershipView, id: str) -> MemberView:
    """Raises UnknownMember."""
    for member in view.members:
        if member.id == id:
            return member
    raise UnknownMember(view.group, id)


def member_answers(view: MembershipView) -> list[MemberAnswer]:
    now_ms = int(time.time() * 1000)
    return [_member_answer(member, len(view.topics), now_ms) for member in view.members]


def _member_answer(member: MemberView, topics: int, now_ms: int) -> MemberAnswer:
    known = member.silent_ms >= 0
    texts = place_texts(member.assigned, topics=topics)
    return MemberAnswer(
        id=member.id,
        member_id=member.id,
        client_id=member.client_id,
        instance_id=member.instance_id,
        host=member.host,
        topics=list(member.topics),
        patterns=list(member.patterns),
        joined_at=format_time(member.joined_ms),
        last_heartbeat=format_time(now_ms - member.silent_ms) if known else None,
        silent_ms=member.silent_ms if known else None,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        assigned_partitions=texts,
        partitions=texts,
        assignment=shown_places(member.assigned),
        revoking=shown_places(member.revoking),
    )


def _joined(told: Assignment) -> JoinAnswer:
    assigned = shown_places(told.assigned)
    return JoinAnswer(
        group=told.group,
        group_id=told.group,
        member_id=told.member,
        generation=told.generation,
        leader_id=told.leader,
        leader=told.member if told.leader == told.member else "",
        partitions=[partition for _, partition in told.assigned],
        assigned_partitions=place_texts(told.assigned),
        partitions_assigned=assigned,
        assignment=assigned,
        members=list(told.members),
        rebalance_required=False,
        protocol=PROTOCOL,
        state=told.state,
        mode=told.mode,
        revision=told.revision,
        session_timeout_ms=told.session_timeout_ms,
        heartbeat_interval_ms=told.heartbeat_ms,
    )


def _given(text: Duration | None) -> Duration | None:
    return None if text == "" else text
