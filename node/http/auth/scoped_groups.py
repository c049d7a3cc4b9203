"""The rules of `node.http.auth.scoped_broker` about groups.

A group that has an owner is reached by keys of its owner's prefix, or of its name's, and by no
other; then it makes no difference which topics it is in. One that has none, because it is older
than owners are or was made without a key, is reached by whoever reaches its topics.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from goqueue.wire.errors import BadReceipt, GoQueueError
from node.api.auth.principal import OutOfScope
from node.api.broker import Broker
from node.api.members import Assignment, JoinRequest, LagView, MembershipView
from node.api.queue import (
    NOBODY,
    NOBODYS,
    Claim,
    GroupView,
    Maker,
    PartitionQueueStats,
    Received,
    RedriveView,
    SettleRequest,
    SettleView,
)
from node.http.auth.scope import Scope

T = TypeVar("T")


def in_topic(scope: Scope, method: Callable[..., Awaitable[T]]) -> Any:
    """A group in one topic, whose state there concerns no other one."""

    async def checked(group: str, topic: str, *rest: Any, **named: Any) -> T:
        scope.principal.require(topic)
        await scope.judge(group)
        return await method(group, topic, *rest, **named)

    return checked


def in_topics(scope: Scope, method: Callable[..., Awaitable[T]]) -> Any:
    """A group in some topics: `peek`."""

    async def checked(group: str, topics: Sequence[str], **named: Any) -> T:
        for topic in topics:
            scope.principal.require(topic)
        await scope.judge(group)
        return await method(group, topics, **named)

    return checked


def members(scope: Scope, method: Callable[..., Awaitable[T]]) -> Any:
    """A group's members."""

    async def checked(group: str, *rest: Any, **named: Any) -> T:
        await scope.require_group(group)
        return await method(group, *rest, **named)

    return checked


def poll(scope: Scope, method: Callable[..., Awaitable[T]]) -> Any:
    """Receives from whatever the member has: all that members subscribe to, whoever owns the
    group."""

    async def checked(group: str, *rest: Any, **named: Any) -> T:
        await scope.judge(group)
        scope.require_subscribed(group)
        return await method(group, *rest, **named)

    return checked


def whole(scope: Scope, method: Callable[..., Awaitable[T]]) -> Any:
    """A group wherever it is."""

    async def checked(group: str, *rest: Any, **named: Any) -> T:
        await scope.require_whole_group(group)
        return await method(group, *rest, **named)

    return checked


def in_topic_or_whole(scope: Scope, method: Callable[..., Awaitable[T]]) -> Any:
    """A group in one topic, or wherever it is where none is named."""

    async def checked(group: str, topic: str | None = None) -> T:
        if topic is None:
            await scope.require_whole_group(group)
        else:
            scope.principal.require(topic)
            await scope.judge(group)
        return await method(group, topic)

    return checked


def described(scope: Scope, method: Callable[..., Awaitable[GroupView]]) -> Any:
    """As `in_topic_or_whole`; topics beyond the key's are left out."""

    async def seen(group: str, topic: str | None = None) -> GroupView:
        view = cast(GroupView, await in_topic_or_whole(scope, method)(group, topic))
        mine = [one for one in view.partitions if scope.principal.covers(one.topic)]
        return replace(view, partitions=mine)

    return seen


# what may make a group


def put(scope: Scope, method: Any) -> Any:
    async def checked(
        group: str, settings: Mapping[str, object], maker: Maker = NOBODYS
    ) -> GroupView:
        maker = await scope.maker(group)
        await scope.require_whole_group(group)
        return cast(GroupView, await method(group, settings, maker))

    return checked


def receive(scope: Scope, method: Any) -> Any:
    """A group in some topics, or some partitions of some."""

    async def checked(
        group: str, topics: Sequence[str], *, claim: Claim = NOBODY, **named: Any
    ) -> Received:
        for topic in topics:
            scope.principal.require(topic)
        for topic, _partition in named.get("places") or ():
            scope.principal.require(topic)
        claim = replace(claim, maker=await scope.maker(group))
        return cast(Received, await method(group, topics, claim=claim, **named))

    return checked


def commit(scope: Scope, method: Any) -> Any:
    async def checked(
        group: str, topic: str, offsets: Mapping[int, int], claim: Claim = NOBODY
    ) -> dict[int, int]:
        scope.principal.require(topic)
        claim = replace(claim, maker=await scope.maker(group))
        return cast(dict[int, int], await method(group, topic, offsets, claim))

    return checked


def join(scope: Scope, method: Any) -> Any:
    async def checked(group: str, request: JoinRequest, *, wait_s: float) -> Assignment:
        for topic in request.topics:
            scope.principal.require(topic)
        for pattern in request.patterns:
            scope.principal.require_pattern(pattern)
        maker = await scope.maker(group)
        await scope.require_group(group)
        if not request.member:
            groups = scope.principal.groups
            scope.inner.shares.member(groups, group, request.instance_id)
        request = replace(request, maker=maker)
        return cast(Assignment, await method(group, request, wait_s=wait_s))

    return checked


# lists, which leave out what is beyond


def listed(scope: Scope, method: Callable[[], Awaitable[list[GroupView]]]) -> Any:
    async def seen() -> list[GroupView]:
        views = [view for view in await method() if scope.sees(view.name)]
        if scope.principal.is_everywhere or all(view.owner is not None for view in views):
            return views
        topics = await _topics_of_groups(scope.inner)
        mine = scope.principal.covers
        return [
            view
            for view in views
            if view.owner is not None or all(map(mine, topics.get(view.name, ())))
        ]

    return seen


async def _topics_of_groups(broker: Broker) -> dict[str, set[str]]:
    """Where each group has been, and what its members subscribe to."""
    found: dict[str, set[str]] = {}
    for one in await broker.queue_stats():
        for group in one.groups:
            found.setdefault(group, set()).add(one.topic)
    for view in await broker.memberships():
        found.setdefault(view.group, set()).update(broker.subscribed(view.group)[0])
    return found


def memberships(scope: Scope, method: Callable[[], Awaitable[list[MembershipView]]]) -> Any:
    async def seen() -> list[MembershipView]:
        found = []
        for view in await method():
            try:
                await scope.require_group(view.group)
            except OutOfScope:
                continue
            found.append(view)
        return found

    return seen


def queue_stats(scope: Scope, method: Any) -> Any:
    async def seen(topic: str | None = None) -> list[PartitionQueueStats]:
        if topic is not None:
            scope.principal.require(topic)
        known: dict[str, bool] = {}
        found = []
        for one in await method(topic):
            if not scope.principal.covers(one.topic):
                continue
            for group in one.groups.keys() - known.keys():
                known[group] = scope.sees(group)
            mine = {group: view for group, view in one.groups.items() if known[group]}
            found.append(replace(one, groups=mine))
        return found

    return seen


def lag(scope: Scope, method: Any) -> Any:
    async def checked(group: str, topics: Sequence[str] | None = None) -> list[LagView]:
        for topic in topics or ():
            scope.principal.require(topic)
        known = await scope.judge(group)
        rows = cast(list[LagView], await method(group, topics))
        mine = [row for row in rows if scope.principal.covers(row.topic)]
        if len(mine) < len(rows) and (known is None or known.owner is None):
            raise scope.beyond(group)
        return mine

    return checked


def dead_groups(scope: Scope, method: Any) -> Any:
    async def seen(topic: str) -> dict[str, dict[str, int]]:
        scope.principal.require(topic)
        return {group: one for group, one in (await method(topic)).items() if scope.sees(group)}

    return seen


# what names its topic in ways of its own


def redrives(scope: Scope, method: Any) -> Any:
    async def seen(group: str) -> list[RedriveView]:
        await scope.judge(group)
        return [job for job in await method(group) if scope.principal.covers(job.topic)]

    return seen


def stop_redrive(scope: Scope, method: Any) -> Any:
    async def checked(group: str, job: int) -> RedriveView:
        await scope.judge(group)
        for one in await scope.inner.redrives(group):
            if one.id == job:
                scope.principal.require(one.topic)
                return cast(RedriveView, await method(group, job))
        raise OutOfScope(scope.principal, f"redrive job {job}")

    return checked


def settle(scope: Scope, method: Any) -> Any:
    """Each receipt by the topic and the group that it names."""

    async def checked(
        requests: Sequence[SettleRequest], group: str | None = None, claim: Claim = NOBODY
    ) -> list[SettleView | GoQueueError]:
        if group is not None:
            await scope.judge(group)
        if scope.is_everywhere:
            return cast(list[SettleView | GoQueueError], await method(requests, group, claim))
        places = await scope.inner.receipt_places([one.receipt for one in requests])
        results: list[SettleView | GoQueueError] = [BadReceipt()] * len(requests)
        mine: list[int] = []
        for row, place in enumerate(places):
            if place is None:
                continue
            if scope.principal.covers(place[0]) and scope.sees(place[1]):
                mine.append(row)
            else:
                results[row] = OutOfScope(scope.principal, "the receipt's topic or group")
        allowed = [requests[row] for row in mine]
        ends = await method(allowed, group, claim) if allowed else ()
        for row, end in zip(mine, ends, strict=True):
            results[row] = end
        return results

    return checked
