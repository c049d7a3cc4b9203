"""Topics as the HTTP front asks for them, from any node: a part of the broker."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping

from coordinator.cluster.state import Topic
from coordinator.commands.codec import AlterTopic, CreateTopic, DeleteTopic
from coordinator.topics.compression import split
from coordinator.topics.settings import alter_config
from goqueue.background import TaskSet
from goqueue.wire.errors import OutcomeUnknown, TopicExists, Unavailable, UnknownTopic
from goqueue.wire.ids import INTERNAL_PREFIX, validate_topic_name
from log.levels import Feature
from node.api.topics import TopicView
from node.broker.placement import NodePlacement
from node.cluster.host import ClusterHost
from node.cluster.topic_defaults import wanted_settings
from node.cluster.topic_finder import TopicFinder
from node.config.node import NodeConfig
from node.observe.status import NodeStatus
from node.replicas.local import Replicas
from node.replicas.offsets import OffsetsCollector

COMMAND_DEADLINE_S = 15.0
LED_DEADLINE_S = 10.0
LED_POLL_S = 0.01


class NodeTopics:
    """Implements `node.api.topics.Topics`. Loop thread only."""

    def __init__(
        self,
        config: NodeConfig,
        cluster: ClusterHost,
        replicas: Replicas,
        finder: TopicFinder,
        offsets_collector: OffsetsCollector,
        status: NodeStatus,
        placement: NodePlacement,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._replicas = replicas
        self._finder = finder
        self._offsets_collector = offsets_collector
        self._status = status
        self._placement = placement
        self._tasks = TaskSet(None)
        self._creating: dict[str, asyncio.Future[TopicView]] = {}

    async def create_topic(self, name: str, overrides: Mapping[str, object]) -> TopicView:
        validate_topic_name(name)
        if self._has(name) and await self._cluster.refresh() and self._has(name):
            raise TopicExists(name)
        wanted = await wanted_settings(self._config, self._cluster, overrides)
        others, codec = split(wanted)
        if codec is not None:
            self._cluster.levels.require(Feature.TOPIC_COMPRESSION)
        try:
            command = CreateTopic(name, wanted, self._cluster.absent())
            await self._cluster.command(command, COMMAND_DEADLINE_S)
        except TopicExists as error:
            if error.outcome == "none":  # else this very call may have created it, earlier
                raise
            await self._cluster.refresh()
            found = self._cluster.state.topics.get(name)
            if found is None or not found.has(others):
                raise
        created = self._cluster.state.topics.get(name)
        await until_led(self._cluster, self._replicas, name)
        try:
            return await self._view(created) if created is not None else await self.topic(name)
        except UnknownTopic as error:
            raise OutcomeUnknown(f"topic {name} was created, and is gone by now") from error

    def _has(self, name: str) -> bool:
        """As far as this node knows: others may have deleted it since."""
        return name in self._cluster.state.topics

    async def alter_topic(self, name: str, changes: Mapping[str, object]) -> TopicView:
        topic, settings = await self._current(name), dict(changes)
        factor = settings.pop("replication_factor", None)
        others, codec = split(settings)
        if codec is not None:
            self._cluster.levels.require(Feature.TOPIC_COMPRESSION)
        alter_config(topic.config, others)  # all of it, or nothing
        if isinstance(factor, int) and factor != topic.config.replication_factor:
            await self._placement.set_replication_factor(name, factor)
        if settings:
            command = AlterTopic(name, settings, str(topic.id))
            await self._cluster.command(command, COMMAND_DEADLINE_S)
        return await self._view(topic)

    async def delete_topic(self, name: str) -> None:
        topic = await self._current(name)
        command = DeleteTopic(name, str(topic.id))
        await self._cluster.command(command, COMMAND_DEADLINE_S)

    def list_topics(self) -> list[str]:
        self._cluster.check_outcast()
        topics = self._cluster.state.topics
        return sorted(name for name in topics if not name.startswith(INTERNAL_PREFIX))

    async def topic(self, name: str) -> TopicView:
        is_current = await self._cluster.refresh()
        view = await self._view(await self._finder.find(name))
        return dataclasses.replace(view, is_current=is_current)

    async def _view(self, topic: Topic) -> TopicView:
        """The topic as it is here by now; as it was, if somebody has deleted it since."""
        topic = self._cluster.state.topic_of(topic.id) or topic
        offsets, stale = await self._offsets_collector.known(topic)
        return self._status.topic_view(topic, offsets, stale)

    def partition_count(self, topic: str) -> int:
        return len(self._cluster.topic(topic).partitions)

    def max_message_bytes(self, topic: str) -> int:
        return self._cluster.topic(topic).config.max_message_bytes

    def delay_ms_max(self, topic: str) -> int:
        return self._cluster.topic(topic).config.delay_ms_max

    def is_compacted(self, topic: str) -> bool:
        return self._cluster.topic(topic).config.is_compacted

    def compression(self, topic: str) -> str:
        state = self._cluster.state
        return state.compressions.of(self._cluster.topic(topic).id)

    async def ensure_topic(self, name: str, partitions: int | None = None) -> None:
        if name in self._cluster.state.topics:
            return
        if not self._config.broker.auto_create_topics:
            await self._finder.find(name)
            return
        running = self._creating.get(name)
        if running is None:
            wanted = {} if partitions is None else {"partitions": partitions}
            running = self._tasks.begin(self.create_topic(name, wanted))
            self._creating[name] = running
            running.add_done_callback(lambda _done: self._creating.pop(name, None))
        try:
            await asyncio.shield(running)
        except TopicExists:  # another node was asked at the same time
            await until_led(self._cluster, self._replicas, name)

    async def _current(self, name: str) -> Topic:
        """The topic that has the name now, not one that was deleted before the call.

        Raises `UnknownTopic`, and `Unavailable` while nobody can say."""
        end = asyncio.get_running_loop().time() + COMMAND_DEADLINE_S
        while not await self._cluster.refresh():
            if asyncio.get_running_loop().time() >= end:
                raise Unavailable("the cluster group has no leader within reach", topic=name)
            await asyncio.sleep(LED_POLL_S)
        return await self._finder.find(name)


async def until_led(cluster: ClusterHost, replicas: Replicas, name: str) -> None:
    """Wait until every partition of a topic has had a leader known here, for a while. Those that
    have are not looked at again: of thousands, that would take the time that elections need."""
    loop = asyncio.get_running_loop()
    end, was_there, unled = loop.time() + LED_DEADLINE_S, False, 0
    while loop.time() < end:
        topic = cluster.state.topics.get(name)
        if topic is not None:
            found = replicas.first_unled(topic, unled)
            if found is None:
                return
            unled, was_there = found, True
        elif was_there:
            return  # somebody has deleted it
        await asyncio.sleep(LED_POLL_S)
