"""Topics: making them, changing their settings, looking at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import msgspec

from goqueue.models.options import TopicSettings, check_options
from goqueue.models.times import duration_text
from goqueue.models.topics import Partition, Topic, TopicTrim
from goqueue.publish.metadata import KnownTopics, TopicFacts
from goqueue.transport.calls import Calls, decode, given
from goqueue.transport.http import join
from goqueue.transport.patience import confirmed
from goqueue.wire.errors import UnknownTopic

_SPANS = (
    "ttl",
    "delay_max",
    "dedup_window",
    "dead_retention",
    "delete_retention",
    "min_compaction_lag",
)


class Topics:
    """The part of the client that knows topics; `known` is what publishing remembers of each."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.known = KnownTopics(self.facts)

    async def create_topic(self, name: str, **settings: Unpack[TopicSettings]) -> Topic:
        """Create a topic; what is not given has the cluster's default. Raises `TopicExists`, and
        TypeError for a setting that there is none of.

        `durability` is `majority` (an ack means fsynced on a majority) or `relaxed`. `ttl` is for
        messages that state none; message ids are known again for `dedup_window`. `cleanup` keeps
        each key's last value: `"compact"`, or `"compact,delete"`. With `require_archive` no message
        goes before it is archived. `compression` (zstd, lz4, gzip): of what comes as JSON."""
        check_options("create_topic()", settings, TopicSettings)
        body = {"name": name, **_topic_settings(settings)}
        try:
            return await self._calls.send("POST", join("topics"), body, Topic)
        finally:
            self.known.forget(name)

    async def list_topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return (await self._calls.get(join("topics"), _TopicNames)).topics

    async def topic(self, name: str, *, current: bool = False) -> Topic:
        """A topic with its totals and configuration. With `current` it is asked for again until
        nothing of it is `stale`. Raises `UnknownTopic`, and `Unavailable` where that takes longer
        than the client's `timeout_s`."""

        async def ask() -> tuple[Topic, bool]:
            found = await self._calls.get(join("topics", name), Topic)
            return found, current and found.stale

        return await confirmed(self._calls.transport, f"topic {name}", ask)

    async def alter_topic(self, name: str, **changes: Unpack[TopicSettings]) -> Topic:
        """Change settings, by the names that `create_topic` has; None leaves one as it is.
        Raises TypeError for another name."""
        check_options("alter_topic()", changes, TopicSettings)
        self.known.forget(name)
        return await self._calls.send(
            "PATCH", join("topics", name), _topic_settings(changes), Topic
        )

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages. Raises `UnknownTopic`."""
        self.known.forget(name)
        await self._calls.transport.request("DELETE", join("topics", name), repeatable=False)

    async def partitions(self, topic: str) -> list[Partition]:
        """Where each partition lives and what it holds, in their order; what a leader did not
        confirm in time is `stale`."""
        return (await self._calls.get(join("topics", topic, "partitions"), _Partitions)).partitions

    async def flush_topic(self, topic: str) -> None:
        """Return once all that was acked so far is fsynced on a majority; for relaxed topics."""
        await self._calls.transport.request("POST", join("topics", topic, "flush"), repeatable=True)

    async def trim_topic(self, topic: str) -> TopicTrim:
        """Let go of what every group has settled that takes part in the topic, from each
        partition's beginning, and give its space back; how much that was. Nothing goes where no
        group takes part. Delayed messages and dead letters stay, for their groups; `read` does not
        find them any more. Raises `UnknownTopic`, and Conflict for a topic compacted by key."""
        path = join("topics", topic, "trim")
        answer = await self._calls.transport.request("POST", path, repeatable=True)
        return decode(answer.body, TopicTrim)

    async def facts(self, topic: str) -> TopicFacts:
        """What publishing has to know of a topic, asked now. Raises `UnknownTopic`."""
        found = await self.topic(topic)
        if found.partitions < 1:
            raise UnknownTopic(topic)
        kept_ms = found.config.get("dedup_window_ms")
        return TopicFacts(found.partitions, kept_ms / 1000 if isinstance(kept_ms, int) else 0.0)


class _TopicNames(msgspec.Struct):
    topics: list[str]


class _Partitions(msgspec.Struct):
    partitions: list[Partition]


def _topic_settings(named: Mapping[str, Any]) -> dict[str, object]:
    """Those that are not None; a span that is a number or a timedelta becomes its text."""
    found = given(named)
    spans = {name: duration_text(found[name], name) for name in _SPANS if name in found}
    return {**found, **spans}
