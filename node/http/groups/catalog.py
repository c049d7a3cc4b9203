"""Groups: create, change, list, describe and delete them.

The first receive of a group makes it, or its first member.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Struct

from goqueue.wire.errors import BadRequest
from goqueue.wire.ids import validate_topic_name
from node.api.auth.principal import EVERY
from node.api.figures import GroupPartitionView
from node.api.groups import GroupView
from node.api.members import MembershipView
from node.api.times import format_time
from node.http.groups.members import PROTOCOL, MemberAnswer, member_answers
from node.http.groups.settings import parse_settings, shown_settings
from node.http.messages.render import text_or_base64
from node.http.request.call import Call, answer
from node.http.text.known_fields import Body


class ParkedView(Struct, omit_defaults=True):
    """A parked key and how many messages wait behind it."""

    key: str
    waiting: int
    key_encoding: str | None = None


class GroupPartition(Struct):
    """The group in one partition, where it may not have begun yet. Everything below
    `committed_offset` is settled; `lag` counts what is due and not settled: ready, in flight or
    waiting; `halted` says why, empty while it is not. Lists are by lane, critical first. `stale`:
    the partition's leader did not tell in time."""

    topic: str
    partition: int
    committed_offset: int
    end_offset: int
    lag: int
    ready: int
    in_flight: int
    waiting: int
    dead: int
    delivered: int
    redelivered: int
    acked: int
    nacked: int
    rejected: int
    expired: int
    fallen: int
    halted: str
    lane_pending: list[int]
    lane_wait_ms: list[int]
    lane_wait_ms_max: list[int]
    parked: list[ParkedView]
    stale: bool


class GroupDetail(Struct):
    """A group in a list; `members` counts them. `state` is empty, stable or rebalancing. `owner` is
    the prefix that it belongs to, `*` for keys of all groups, null for nobody."""

    id: str
    group_id: str
    name: str
    state: str
    members: int
    generation: int
    mode: str
    topics: list[str]
    settings: dict[str, Any]
    created_at: str
    owner: str | None = None


class GroupsAnswer(Struct):
    groups: list[str]
    details: list[GroupDetail]


class GroupAnswer(Struct):
    """One group: its members, and its place in every partition of the topics that it takes part in.

    `state` is empty, stable or rebalancing; `topics` are those seen or subscribed to. `stale`: some
    leaders did not tell in time, so that partitions are missing, or stale themselves. `owner` as in
    lists.
    """

    id: str
    group_id: str
    name: str
    state: str
    generation: int
    protocol: str
    leader_id: str
    mode: str
    assignor: str
    members: list[MemberAnswer]
    topics: list[str]
    settings: dict[str, Any]
    created_at: str
    partitions: list[GroupPartition]
    stale: bool
    owner: str | None = None


class AssignBody(Body):
    """`owner` is how the group prefixes of keys may begin that will reach it; `*`: of keys of all
    groups only."""

    owner: str


class AssignAnswer(Struct):
    group: str
    owner: str


class GroupDeleted(Struct):
    deleted: bool
    group: str
    group_id: str


SETTINGS_BYTES_MAX = 64 * 1024
"""Of a body that holds settings: it is decoded at once, whatever is in it."""

_ASSIGN = msgspec.json.Decoder(AssignBody)
_BODY = msgspec.json.Decoder(dict[str, Any])


async def list_groups(call: Call) -> web.Response:
    only_unowned = call.query_flag("unowned")
    views, memberships = await asyncio.gather(
        call.broker.groups.list_groups(), call.broker.members.memberships()
    )
    by_id = {membership.group_id: membership for membership in memberships}
    known = [
        (view, by_id[view.id])
        for view in views
        if view.id in by_id and not (only_unowned and view.owner is not None)
    ]
    details = [
        GroupDetail(
            view.name,
            view.name,
            view.name,
            membership.state,
            len(membership.members),
            membership.generation,
            membership.mode,
            list(membership.topics),
            shown_settings(view.settings),
            format_time(view.created_ms),
            _owner(view.owner),
        )
        for view, membership in known
    ]
    return answer(GroupsAnswer([view.name for view, _ in known], details))


async def describe(call: Call) -> web.Response:
    group = call.group()
    topic = call.query.get("topic") or None
    if topic is not None:
        validate_topic_name(topic)
    view, membership = await asyncio.gather(
        call.broker.groups.group(group, topic), call.broker.members.membership(group)
    )
    return answer(_group_answer(view, membership))


async def put(call: Call) -> web.Response:
    """Create the group, or change the settings that are given."""
    group = call.group()
    given = await call.document(_BODY, b"{}", SETTINGS_BYTES_MAX)
    settings = parse_settings(given)
    view = await call.broker.groups.put_group(group, settings)
    return answer(_group_answer(view, await call.broker.members.membership(group)))


async def change(call: Call) -> web.Response:
    """As `put`, of a group that is there."""
    group = call.group()
    given = await call.document(_BODY, b"{}", SETTINGS_BYTES_MAX)
    settings = parse_settings(given)
    if not settings:
        raise BadRequest("nothing to change")
    await call.broker.members.membership(group)  # raises UnknownGroup
    view = await call.broker.groups.put_group(group, settings)
    return answer(_group_answer(view, await call.broker.members.membership(group)))


async def assign(call: Call) -> web.Response:
    """PUT /groups/{group}/owner"""
    group = call.group()
    owner = (await call.document(_ASSIGN)).owner
    if not owner:
        raise BadRequest('owner: "" is no prefix; * is for keys of all groups')
    view = await call.broker.owners.assign_group(group, owner.removesuffix(EVERY))
    return answer(AssignAnswer(view.name, view.owner or EVERY))


async def delete(call: Call) -> web.Response:
    """While it has members, only with `force=true`."""
    group = call.group()
    await call.broker.groups.delete_group(group, force=call.query_flag("force"))
    return answer(GroupDeleted(True, group, group))


def _group_answer(view: GroupView, membership: MembershipView) -> GroupAnswer:
    return GroupAnswer(
        id=view.name,
        group_id=view.name,
        name=view.name,
        state=membership.state,
        generation=membership.generation,
        protocol=PROTOCOL,
        leader_id=membership.leader,
        mode=membership.mode,
        assignor=membership.assignor,
        members=member_answers(membership),
        topics=sorted({*membership.topics, *(place.topic for place in view.partitions)}),
        settings=shown_settings(view.settings),
        created_at=format_time(view.created_ms),
        partitions=list(map(_partition, view.partitions)),
        stale=view.stale,
        owner=_owner(view.owner),
    )


def _owner(owner: str | None) -> str | None:
    """As keys write their prefixes."""
    return EVERY if owner == "" else owner


def _partition(place: GroupPartitionView) -> GroupPartition:
    return GroupPartition(
        topic=place.topic,
        partition=place.partition,
        committed_offset=place.committed_offset,
        end_offset=place.end,
        lag=place.lag,
        ready=place.ready,
        in_flight=place.in_flight,
        waiting=place.waiting,
        dead=place.dead,
        delivered=place.delivered,
        redelivered=place.redelivered,
        acked=place.acked,
        nacked=place.nacked,
        rejected=place.rejected,
        expired=place.expired,
        fallen=place.fallen,
        halted=place.halted,
        lane_pending=list(place.lane_pending),
        lane_wait_ms=list(place.lane_wait_ms),
        lane_wait_ms_max=list(place.lane_wait_ms_max),
        parked=[
            ParkedView(text, waiting, encoding)
            for key, waiting in place.parked
            for text, encoding in [text_or_base64(key)]
        ],
        stale=place.stale,
    )
