"""What is done to topics from outside: more partitions, and how far they are archived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from goqueue.models.topics import ArchivedPartition
from goqueue.publish.metadata import KnownTopics
from goqueue.transport.calls import Calls, given
from goqueue.transport.http import join


class PartitionsAdded(msgspec.Struct, frozen=True):
    """How many partitions a topic had and has."""

    topic_name: str
    old_partition_count: int
    new_partition_count: int
    partitions_added: list[int] = []


class TopicAdmin:
    """The part of the admin that knows topics."""

    def __init__(self, calls: Calls, known: KnownTopics) -> None:
        self._calls = calls
        self._known = known

    async def add_partitions(
        self, topic: str, count: int, assignments: Sequence[Sequence[str]] | None = None
    ) -> PartitionsAdded:
        """Have `count` partitions in all; those there are keep their messages. `assignments` are
        the brokers of each new one.

        Keys are spread over all of them from then on: a key's later messages may go to another
        partition than its earlier ones. Publishers learn of it within 30 s.
        """
        self._known.forget(topic)
        body = {"count": count, "replica_assignments": assignments}
        path = join("admin", "topics", topic, "partitions")
        return await self._calls.send("POST", path, body, PartitionsAdded, repeatable=True)

    async def report_archived(
        self,
        topic: str,
        archive: str,
        positions: Mapping[int, int],
        *,
        topic_id: str | None = None,
        replace: bool = False,
    ) -> list[ArchivedPartition]:
        """All messages below these offsets, by partition, are in the archive, committed there.

        `archive` is its location. Where the topic has `require_archive`, such messages may go from
        now on. A position that was passed already changes nothing. `topic_id` guards against a
        topic of this name that is another one by now (`UnknownTopic`). With `replace` this archive
        takes another one's place. Raises OffsetOutOfRange beyond the end, OtherArchive.
        """
        body = given({"archive": archive, "topic_id": topic_id, "replace": replace or None})
        body["positions"] = {str(number): position for number, position in positions.items()}
        path = join("topics", topic, "archived")
        return (await self._calls.send("POST", path, body, _Archived, repeatable=True)).partitions


class _Archived(msgspec.Struct):
    partitions: list[ArchivedPartition]
