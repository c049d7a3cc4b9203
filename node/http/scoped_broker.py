"""A broker as one key reaches it: every call is held against the key's prefixes.

Handlers ask this one in the broker's place, so it makes no difference where a request names a
topic: in its path, its query, its body, a receipt, a pattern, a schedule's or a job's id. What
lists things leaves out those beyond the prefixes. A method without a rule here can't be called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from goqueue.wire.errors import BadReceipt, Forbidden, GoQueueError, UnknownGroup
from node.http.broker import Broker, ClusterView, StatsView
from node.http.member_broker import Assignment, JoinRequest, LagView, MembershipView
from node.http.principal import OutOfScope, Principal, Role
from node.http.queue_broker import (
    NOBODY,
    Claim,
    GroupView,
    PartitionQueueStats,
    RedriveView,
    ScheduleView,
    SettleRequest,
    SettleView,
)
from node.http.search_broker import SearchFilter, SearchPage

T = TypeVar("T")


def broker_for(broker: Broker, principal: Principal | None) -> Broker:
    """The broker itself for nobody's calls, where the front lets those in, and for admins of every
    topic; else one that keeps to the key's prefixes."""
    if principal is None or (principal.role is Role.ADMIN and principal.is_everywhere):
        return broker
    return cast(Broker, ScopedBroker(broker, principal))


class ScopedBroker:
    """Has the methods of `Broker`, as `RULES` says for each. Raises OutOfScope (403) beyond the
    scope, whether there is something or not."""

    __slots__ = ("inner", "principal")

    def __init__(self, broker: Broker, principal: Principal) -> None:
        self.inner = broker
        self.principal = principal

    def __getattr__(self, name: str) -> Any:
        return RULES[name](self, getattr(self.inner, name))

    # asked several times for a publish, so without the detour

    def partition_count(self, topic: str) -> int:
        self.principal.require(topic)
        return self.inner.partition_count(topic)

    def max_message_bytes(self, topic: str) -> int:
        self.principal.require(topic)
        return self.inner.max_message_bytes(topic)

    def delay_ms_max(self, topic: str) -> int:
        self.principal.require(topic)
        return self.inner.delay_ms_max(topic)

    def is_compacted(self, topic: str) -> bool:
        self.principal.require(topic)
        return self.inner.is_compacted(topic)

    # for the rules

    def covered(self, names: Sequence[str]) -> list[str]:
        return list(filter(self.principal.covers, names))

    async def require_group(self, group: str) -> None:
        """All that the group's members subscribe to. Raises OutOfScope."""
        topics, patterns = self.inner.subscribed(group)
        principal = self.principal
        if not (
            all(map(principal.covers, topics)) and all(map(principal.covers_pattern, patterns))
        ):
            raise OutOfScope(principal, f"group {group[:249]}")

    async def require_whole_group(self, group: str) -> None:
        """All that the group has ever been in, as the leaders tell, who must all answer."""
        await self.require_group(group)
        if self.principal.is_everywhere:
            return
        try:
            rows = await self.inner.lag(group)
        except UnknownGroup:
            return
        if not all(self.principal.covers(row.topic) for row in rows):
            raise OutOfScope(self.principal, f"group {group[:249]}")


Rule = Callable[[ScopedBroker, Any], Any]


def _free(_scope: ScopedBroker, member: T) -> T:
    """Concerns no topic."""
    return member


def _own(_scope: ScopedBroker, _method: object) -> Any:
    """`ScopedBroker` has a method of its own, which is found first."""
    raise AssertionError("a method that ScopedBroker should have itself")


def _topic(scope: ScopedBroker, method: Callable[..., Awaitable[T]]) -> Any:
    """The first argument is a topic."""

    async def checked(topic: str, *rest: Any, **named: Any) -> T:
        scope.principal.require(topic)
        return await method(topic, *rest, **named)

    return checked


def _group_topic(scope: ScopedBroker, method: Callable[..., Awaitable[T]]) -> Any:
    """A group in one topic, whose state there concerns no other one."""

    async def checked(group: str, topic: str, *rest: Any, **named: Any) -> T:
        scope.principal.require(topic)
        return await method(group, topic, *rest, **named)

    return checked


def _group_topics(scope: ScopedBroker, method: Callable[..., Awaitable[T]]) -> Any:
    """A group in some topics, or some partitions of some: `receive`, `peek`."""

    async def checked(group: str, topics: Sequence[str], **named: Any) -> T:
        for topic in topics:
            scope.principal.require(topic)
        for topic, _partition in named.get("places") or ():
            scope.principal.require(topic)
        return await method(group, topics, **named)

    return checked


def _group(scope: ScopedBroker, method: Callable[..., Awaitable[T]]) -> Any:
    """A group's members: all that they subscribe to."""

    async def checked(group: str, *rest: Any, **named: Any) -> T:
        await scope.require_group(group)
        return await method(group, *rest, **named)

    return checked


def _whole_group(scope: ScopedBroker, method: Callable[..., Awaitable[T]]) -> Any:
    """A group wherever it is."""

    async def checked(group: str, *rest: Any, **named: Any) -> T:
        await scope.require_whole_group(group)
        return await method(group, *rest, **named)

    return checked


def _group_or_topic(scope: ScopedBroker, method: Callable[..., Awaitable[T]]) -> Any:
    """A group in one topic, or wherever it is where none is named."""

    async def checked(group: str, topic: str | None = None) -> T:
        if topic is None:
            await scope.require_whole_group(group)
        else:
            scope.principal.require(topic)
        return await method(group, topic)

    return checked


def _everywhere(scope: ScopedBroker, method: Callable[..., T]) -> Callable[..., T]:
    """For keys of every topic."""
    scope.principal.require_everywhere(getattr(method, "__name__", "this"))
    return method


def _admins(scope: ScopedBroker, method: Callable[..., T]) -> Callable[..., T]:
    """Not through here: an admin of every topic has the broker itself."""
    raise Forbidden("this is for admins of every topic", missing="scope")


# lists, which leave out what is beyond


def _names(scope: ScopedBroker, method: Callable[[], list[str]]) -> Any:
    return lambda: scope.covered(method())


def _list_groups(scope: ScopedBroker, method: Callable[[], Awaitable[list[GroupView]]]) -> Any:
    async def seen() -> list[GroupView]:
        views = await method()
        if scope.principal.is_everywhere:
            return views
        topics = await _topics_of_groups(scope.inner)
        mine = scope.principal.covers
        return [view for view in views if all(map(mine, topics.get(view.name, ())))]

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


def _memberships(scope: ScopedBroker, method: Callable[[], Awaitable[list[MembershipView]]]) -> Any:
    async def seen() -> list[MembershipView]:
        found = []
        for view in await method():
            try:
                await scope.require_group(view.group)
            except Forbidden:
                continue
            found.append(view)
        return found

    return seen


def _queue_stats(scope: ScopedBroker, method: Any) -> Any:
    async def seen(topic: str | None = None) -> list[PartitionQueueStats]:
        if topic is not None:
            scope.principal.require(topic)
        return [one for one in await method(topic) if scope.principal.covers(one.topic)]

    return seen


def _stats(scope: ScopedBroker, method: Callable[[], StatsView]) -> Any:
    def seen() -> StatsView:
        view = method()
        mine = {name: one for name, one in view.topics.items() if scope.principal.covers(name)}
        extra = view.extra if scope.principal.is_everywhere else dict[str, object]()
        return replace(view, topics=mine, extra=extra)

    return seen


def _confirmed_stats(scope: ScopedBroker, method: Callable[[], Awaitable[StatsView]]) -> Any:
    async def seen() -> StatsView:
        view = await method()
        return cast(StatsView, _stats(scope, lambda: view)())

    return seen


def _cluster_view(scope: ScopedBroker, method: Callable[[], ClusterView]) -> Any:
    """Its problems name partitions."""

    def seen() -> ClusterView:
        view = method()
        return view if scope.principal.is_everywhere else replace(view, problems=())

    return seen


def _search(scope: ScopedBroker, method: Any) -> Any:
    async def seen(topics: Sequence[str] | None, which: SearchFilter, **named: Any) -> SearchPage:
        for topic in topics or ():
            scope.principal.require(topic)
        if topics is None and not scope.principal.is_everywhere:
            topics = scope.covered(scope.inner.list_topics())
            if not topics:
                return SearchPage(())
        return cast(SearchPage, await method(topics, which, **named))

    return seen


# what names its topic in ways of its own


def _init_producer(scope: ScopedBroker, method: Any) -> Any:
    """Whoever takes a transactional id fences who had it: it begins with a prefix of the key."""

    async def checked(transactional_id: str | None) -> tuple[int, int]:
        if transactional_id is not None and not transactional_id.startswith(
            scope.principal.prefixes
        ):
            raise OutOfScope(scope.principal, f"transactional id {transactional_id[:249]}")
        return cast(tuple[int, int], await method(transactional_id))

    return checked


def _settle(scope: ScopedBroker, method: Any) -> Any:
    """Each receipt by the topic that it names."""

    async def checked(
        requests: Sequence[SettleRequest], group: str | None = None, claim: Claim = NOBODY
    ) -> list[SettleView | GoQueueError]:
        if scope.principal.is_everywhere:
            return cast(list[SettleView | GoQueueError], await method(requests, group, claim))
        topics = await scope.inner.receipt_topics([one.receipt for one in requests])
        results: list[SettleView | GoQueueError] = [BadReceipt()] * len(requests)
        mine: list[int] = []
        for row, topic in enumerate(topics):
            if topic is None or scope.principal.covers(topic):
                mine.append(row)
            else:
                results[row] = OutOfScope(scope.principal, "the receipt's topic")
        allowed = [requests[row] for row in mine if topics[row] is not None]
        ends = iter(await method(allowed, group, claim) if allowed else ())
        for row in mine:
            results[row] = BadReceipt() if topics[row] is None else next(ends)
        return results

    return checked


def _join(scope: ScopedBroker, method: Any) -> Any:
    async def checked(group: str, request: JoinRequest, *, wait_s: float) -> Assignment:
        for topic in request.topics:
            scope.principal.require(topic)
        for pattern in request.patterns:
            scope.principal.require_pattern(pattern)
        await scope.require_group(group)
        return cast(Assignment, await method(group, request, wait_s=wait_s))

    return checked


def _lag(scope: ScopedBroker, method: Any) -> Any:
    async def checked(group: str, topics: Sequence[str] | None = None) -> list[LagView]:
        for topic in topics or ():
            scope.principal.require(topic)
        rows = cast(list[LagView], await method(group, topics))
        if not all(scope.principal.covers(row.topic) for row in rows):
            raise OutOfScope(scope.principal, f"group {group[:249]}")
        return rows

    return checked


def _redrives(scope: ScopedBroker, method: Any) -> Any:
    async def seen(group: str) -> list[RedriveView]:
        return [job for job in await method(group) if scope.principal.covers(job.topic)]

    return seen


def _stop_redrive(scope: ScopedBroker, method: Any) -> Any:
    async def checked(group: str, job: int) -> RedriveView:
        for one in await scope.inner.redrives(group):
            if one.id == job:
                scope.principal.require(one.topic)
                return cast(RedriveView, await method(group, job))
        raise OutOfScope(scope.principal, f"redrive job {job}")

    return checked


def _put_schedule(scope: ScopedBroker, method: Any) -> Any:
    """Also what it takes the place of must be within the prefixes."""

    async def checked(schedule: Mapping[str, object]) -> ScheduleView:
        scope.principal.require(str(schedule.get("topic")))
        for one in await scope.inner.schedules():
            if one.name == schedule.get("name"):
                _require_schedule(scope, one)
        return cast(ScheduleView, await method(schedule))

    return checked


def _schedules(scope: ScopedBroker, method: Any) -> Any:
    async def seen() -> list[ScheduleView]:
        return [one for one in await method() if scope.principal.covers(one.topic)]

    return seen


def _schedule(scope: ScopedBroker, method: Any) -> Any:
    async def checked(name: str, **named: Any) -> Any:
        _require_schedule(scope, await scope.inner.schedule(name))
        return await method(name, **named)

    return checked


def _require_schedule(scope: ScopedBroker, schedule: ScheduleView) -> None:
    """Not told by its topic: the key knows the schedule's name only."""
    if not scope.principal.covers(schedule.topic):
        raise OutOfScope(scope.principal, f"schedule {schedule.name[:200]}")


RULES: dict[str, Rule] = {
    "node_id": _free,
    "alive": _free,
    "ready": _free,
    "version": _free,
    "levels": _everywhere,
    "finish_level": _admins,
    "check_producer": _free,
    "subscribed": _admins,
    "receipt_topics": _admins,
    "cluster_view": _cluster_view,
    "stats": _stats,
    "confirmed_stats": _confirmed_stats,
    "list_topics": _names,
    "create_topic": _topic,
    "alter_topic": _topic,
    "delete_topic": _topic,
    "topic": _topic,
    "partition_count": _own,
    "max_message_bytes": _own,
    "delay_ms_max": _own,
    "is_compacted": _own,
    "ensure_topic": _topic,
    "append": _topic,
    "read": _topic,
    "offset_at": _topic,
    "end_offsets": _topic,
    "flush": _topic,
    "message_trace": _topic,
    "message_why": _topic,
    "events": _topic,
    "compaction": _topic,
    "compact": _topic,
    "archived": _topic,
    "add_partitions": _topic,
    "scaling": _topic,
    "init_producer": _init_producer,
    "search": _search,
    "search_stats": _everywhere,
    "put_group": _whole_group,
    "list_groups": _list_groups,
    "group": _group_or_topic,
    "delete_group": _whole_group,
    "receive": _group_topics,
    "peek": _group_topics,
    "settle": _settle,
    "commit": _group_topic,
    "seek": _group_topic,
    "resume": _group_or_topic,
    "park": _group_topic,
    "dead_letters": _group_topic,
    "dead_groups": _topic,
    "redrive": _group_topic,
    "redrives": _redrives,
    "stop_redrive": _stop_redrive,
    "purge": _group_topic,
    "delayed": _topic,
    "find_delayed": _topic,
    "cancel_delayed": _topic,
    "put_schedule": _put_schedule,
    "schedules": _schedules,
    "schedule": _schedule,
    "pause_schedule": _schedule,
    "delete_schedule": _schedule,
    "queue_stats": _queue_stats,
    "join": _join,
    "heartbeat": _group,
    "leave": _group,
    "membership": _group,
    "memberships": _memberships,
    "poll": _group,
    "lag": _lag,
    "reset": _group_topic,
    "scrub": _everywhere,
    "brokers": _everywhere,
    "broker": _everywhere,
    "reassignments": _everywhere,
    "reassignment": _everywhere,
    "plan_moves": _admins,
    "reassign": _admins,
    "plan_rebalance": _admins,
    "rebalance": _admins,
    "cancel_reassignment": _admins,
    "plan_drain": _admins,
    "drain": _admins,
    "undrain": _admins,
    "remove_broker": _admins,
}
"""By the method's name."""
