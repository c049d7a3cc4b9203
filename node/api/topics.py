"""What the HTTP front asks of the node about topics: `Topics`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from goqueue.wire.types import Offset
from node.api.archive import PartitionArchive
from node.api.rules.rule import known, scoped, topic
from node.api.rules.scope import Scope


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition as the cluster sees it; `next` is the offset the next message will get.

    `replicas` should hold it, `voters` and `learners` do; `isr` are the voters that are caught up.
    """

    partition: int
    leader: str | None
    replicas: tuple[str, ...]
    isr: tuple[str, ...]
    earliest: Offset
    next: Offset
    size_bytes: int = 0
    voters: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()
    archive: PartitionArchive | None = None
    """None where nothing waits for an archive, and none was told of."""
    stale: bool = False
    """Its leader did not confirm the figures in time: they are those of some replica, or 0."""

    @property
    def messages(self) -> int:
        return self.next - self.earliest


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic; `config` holds every field of its configuration under the field's own name."""

    name: str
    id: str
    config: Mapping[str, object]
    partitions: tuple[PartitionView, ...]
    warnings: tuple[str, ...] = ()
    is_current: bool = True
    """Whether it holds all that was acknowledged before it was asked for; not where the cluster
    group has no leader within reach."""

    @property
    def stale(self) -> bool:
        """Whether a change, or messages, may be missing."""
        return not self.is_current or any(one.stale for one in self.partitions)


def _created(scope: Scope, method: Any) -> Any:
    async def checked(name: str, overrides: Mapping[str, object]) -> TopicView:
        scope.principal.require(name)
        partitions = overrides.get("partitions")
        scope.broker.shares.topic(scope.principal.prefixes, name, partitions)
        return cast(TopicView, await method(name, overrides))

    return checked


def _ensured(scope: Scope, method: Any) -> Any:
    async def checked(name: str, partitions: int | None = None) -> None:
        scope.principal.require(name)
        scope.broker.shares.topic(scope.principal.prefixes, name, partitions)
        await method(name, partitions)

    return checked


def _covered(scope: Scope, method: Any) -> Any:
    return lambda: scope.covered(method())


class Topics(Protocol):
    """Topics, answered from, or replicated by, the cluster group."""

    @scoped(_created)
    async def create_topic(self, name: str, overrides: Mapping[str, object]) -> TopicView:
        """Create, and answer once the topic's partitions can be led. Raises `TopicExists`,
        `BadName`, `BadRequest` (a value out of range), `NoQuorum`."""
        ...

    @scoped(topic)
    async def alter_topic(self, name: str, changes: Mapping[str, object]) -> TopicView: ...

    @scoped(topic)
    async def delete_topic(self, name: str) -> None: ...

    @scoped(_covered)
    def list_topics(self) -> list[str]:
        """Names, sorted, from the applied cluster state of this node."""
        ...

    @scoped(topic)
    async def topic(self, name: str) -> TopicView: ...

    @scoped(known)
    def partition_count(self, topic: str) -> int:
        """From the cached cluster state; raises `UnknownTopic`. Called for every publish."""
        ...

    @scoped(known)
    def max_message_bytes(self, topic: str) -> int:
        """Bound on key + value + headers of one message; raises `UnknownTopic`."""
        ...

    @scoped(known)
    def delay_ms_max(self, topic: str) -> int:
        """Bound on how far ahead a message may be delayed; raises `UnknownTopic`."""
        ...

    @scoped(known)
    def is_compacted(self, topic: str) -> bool:
        """Whether the topic keeps the last value of each key; raises `UnknownTopic`."""
        ...

    @scoped(known)
    def compression(self, topic: str) -> str:
        """The codec that messages are stored with which came as JSON; raises `UnknownTopic`."""
        ...

    @scoped(_ensured)
    async def ensure_topic(self, name: str, partitions: int | None = None) -> None:
        """Create the topic with defaults where auto-creation is on and it is missing, with so many
        partitions where a number is given; concurrent calls agree. Raises `UnknownTopic` where
        auto-creation is off."""
        ...
