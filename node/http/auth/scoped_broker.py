"""A broker as one key reaches it: every call is held against the key's prefixes.

Handlers ask this one in the broker's place, so it makes no difference where a request names a
topic: in its path, its query, its body, a receipt, a pattern, a schedule's or a job's id. What
lists things leaves out those beyond the prefixes. A method without a rule here can't be called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

from goqueue.wire.errors import Forbidden, UnknownTopic
from node.api.auth.principal import OutOfScope, Principal, Role
from node.api.broker import Broker, ClusterView, StatsView, TopicView
from node.api.placement import GrownView
from node.api.queue import ScheduleView
from node.api.search import SearchFilter, SearchPage
from node.http.auth import scoped_groups
from node.http.auth.admins_broker import AdminsBroker
from node.http.auth.scope import Scope

T = TypeVar("T")


def broker_for(broker: Broker, principal: Principal | None) -> Broker:
    """The broker itself for nobody's calls, where the front lets those in; for admins of every
    topic, with the groups that they make for owners; else one that keeps to the key's prefixes."""
    if principal is None:
        return broker
    if principal.role is Role.ADMIN and principal.is_everywhere:
        return cast(Broker, AdminsBroker(broker))
    return cast(Broker, ScopedBroker(broker, principal))


class ScopedBroker:
    """Has the methods of `Broker`, as `RULES` says for each. Raises OutOfScope (403) beyond the
    scope, whether there is something or not."""

    __slots__ = ("inner", "principal", "scope")

    def __init__(self, broker: Broker, principal: Principal) -> None:
        self.inner = broker
        self.principal = principal
        self.scope = Scope(broker, principal)

    def __getattr__(self, name: str) -> Any:
        return RULES[name](self.scope, getattr(self.inner, name))

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

    def compression(self, topic: str) -> str:
        self.principal.require(topic)
        return self.inner.compression(topic)


Rule = Callable[[Scope, Any], Any]


def _free(_scope: Scope, member: T) -> T:
    """Concerns no topic."""
    return member


def _own(_scope: Scope, _method: object) -> Any:
    """`ScopedBroker` has a method of its own, which is found first."""
    raise AssertionError("a method that ScopedBroker should have itself")


def _topic(scope: Scope, method: Callable[..., Awaitable[T]]) -> Any:
    """The first argument is a topic."""

    async def checked(topic: str, *rest: Any, **named: Any) -> T:
        scope.principal.require(topic)
        return await method(topic, *rest, **named)

    return checked


def _create_topic(scope: Scope, method: Any) -> Any:
    async def checked(name: str, overrides: Mapping[str, object]) -> TopicView:
        scope.principal.require(name)
        partitions = overrides.get("partitions")
        scope.inner.shares.topic(scope.principal.prefixes, name, partitions)
        return cast(TopicView, await method(name, overrides))

    return checked


def _ensure_topic(scope: Scope, method: Any) -> Any:
    async def checked(name: str) -> None:
        scope.principal.require(name)
        scope.inner.shares.topic(scope.principal.prefixes, name, None)
        await method(name)

    return checked


def _add_partitions(scope: Scope, method: Any) -> Any:
    async def checked(topic: str, count: int, *rest: Any) -> GrownView:
        scope.principal.require(topic)
        with suppress(UnknownTopic):  # the broker looks further, and says so
            more = count - scope.inner.partition_count(topic)
            scope.inner.shares.partitions(scope.principal.prefixes, more)
        return cast(GrownView, await method(topic, count, *rest))

    return checked


def _everywhere(scope: Scope, method: Callable[..., T]) -> Callable[..., T]:
    """For keys of every topic."""
    scope.principal.require_everywhere(getattr(method, "__name__", "this"))
    return method


def _admins(scope: Scope, method: Callable[..., T]) -> Callable[..., T]:
    """Not through here: an admin of every topic has the broker itself."""
    raise Forbidden("this is for admins of every topic", missing="scope")


# lists, which leave out what is beyond


def _names(scope: Scope, method: Callable[[], list[str]]) -> Any:
    return lambda: scope.covered(method())


def _stats(scope: Scope, method: Callable[[], StatsView]) -> Any:
    def seen() -> StatsView:
        view = method()
        mine = {name: one for name, one in view.topics.items() if scope.principal.covers(name)}
        extra = view.extra if scope.principal.is_everywhere else dict[str, object]()
        return replace(view, topics=mine, extra=extra)

    return seen


def _confirmed_stats(scope: Scope, method: Callable[[], Awaitable[StatsView]]) -> Any:
    async def seen() -> StatsView:
        view = await method()
        return cast(StatsView, _stats(scope, lambda: view)())

    return seen


def _cluster_view(scope: Scope, method: Callable[[], ClusterView]) -> Any:
    """Its problems name partitions, its warnings say how the node could be attacked."""

    def seen() -> ClusterView:
        view = method()
        if scope.principal.is_everywhere:
            return view
        return replace(view, problems=(), warnings=())

    return seen


def _search(scope: Scope, method: Any) -> Any:
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


def _init_producer(scope: Scope, method: Any) -> Any:
    """Whoever takes a transactional id fences who had it: it begins with a prefix of the key."""

    async def checked(transactional_id: str | None) -> tuple[int, int]:
        if transactional_id is not None and not transactional_id.startswith(
            scope.principal.prefixes
        ):
            raise OutOfScope(scope.principal, f"transactional id {transactional_id[:249]}")
        if transactional_id is not None:
            scope.inner.shares.transactional_id(scope.principal.prefixes, transactional_id)
        return cast(tuple[int, int], await method(transactional_id))

    return checked


def _put_schedule(scope: Scope, method: Any) -> Any:
    """Also what it takes the place of must be within the prefixes."""

    async def checked(schedule: Mapping[str, object]) -> ScheduleView:
        scope.principal.require(str(schedule.get("topic")))
        for one in await scope.inner.schedules():
            if one.name == schedule.get("name"):
                _require_schedule(scope, one)
        scope.inner.shares.schedule(scope.principal.prefixes, schedule)
        return cast(ScheduleView, await method(schedule))

    return checked


def _schedules(scope: Scope, method: Any) -> Any:
    async def seen() -> list[ScheduleView]:
        return [one for one in await method() if scope.principal.covers(one.topic)]

    return seen


def _schedule(scope: Scope, method: Any) -> Any:
    async def checked(name: str, **named: Any) -> Any:
        _require_schedule(scope, await scope.inner.schedule(name))
        return await method(name, **named)

    return checked


def _require_schedule(scope: Scope, schedule: ScheduleView) -> None:
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
    "receipt_places": _admins,
    "owners": _admins,
    "shares": _admins,
    "cluster_view": _cluster_view,
    "stats": _stats,
    "confirmed_stats": _confirmed_stats,
    "list_topics": _names,
    "create_topic": _create_topic,
    "alter_topic": _topic,
    "delete_topic": _topic,
    "topic": _topic,
    "partition_count": _own,
    "max_message_bytes": _own,
    "delay_ms_max": _own,
    "is_compacted": _own,
    "compression": _own,
    "ensure_topic": _ensure_topic,
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
    "add_partitions": _add_partitions,
    "scaling": _topic,
    "init_producer": _init_producer,
    "search": _search,
    "search_stats": _everywhere,
    "put_group": scoped_groups.put,
    "list_groups": scoped_groups.listed,
    "group": scoped_groups.described,
    "delete_group": scoped_groups.whole,
    "receive": scoped_groups.receive,
    "peek": scoped_groups.in_topics,
    "settle": scoped_groups.settle,
    "commit": scoped_groups.commit,
    "seek": scoped_groups.in_topic,
    "resume": scoped_groups.in_topic_or_whole,
    "park": scoped_groups.in_topic,
    "dead_letters": scoped_groups.in_topic,
    "dead_groups": scoped_groups.dead_groups,
    "redrive": scoped_groups.in_topic,
    "redrives": scoped_groups.redrives,
    "stop_redrive": scoped_groups.stop_redrive,
    "purge": scoped_groups.in_topic,
    "delayed": _topic,
    "find_delayed": _topic,
    "cancel_delayed": _topic,
    "put_schedule": _put_schedule,
    "schedules": _schedules,
    "schedule": _schedule,
    "pause_schedule": _schedule,
    "delete_schedule": _schedule,
    "queue_stats": scoped_groups.queue_stats,
    "join": scoped_groups.join,
    "heartbeat": scoped_groups.members,
    "leave": scoped_groups.members,
    "membership": scoped_groups.members,
    "memberships": scoped_groups.memberships,
    "poll": scoped_groups.poll,
    "lag": scoped_groups.lag,
    "reset": scoped_groups.in_topic,
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
