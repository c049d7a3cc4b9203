"""Rules about groups.

A group that has an owner is reached by keys of its owner's prefix, or of its name's, and by no
other; then it makes no difference which topics it is in. One that has none, because it is older
than owners are or was made without a key, is reached by whoever reaches its topics.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from node.api.claims import Maker
from node.api.rules.scope import Scope

T = TypeVar("T")

EVERY_GROUPS = Maker("")
"""For whom admins of every topic make groups: they belong to all keys of every group, and of their
name's prefix."""


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
