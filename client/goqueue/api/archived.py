"""Telling a cluster how far its topics are archived."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from goqueue.models.topics import ArchivedPartition
from goqueue.transport.calls import Calls, given
from goqueue.transport.http import join


class Archiving(Calls):
    """The part of the client that reports for archives."""

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
        return (await self._send("POST", path, body, _Archived, repeatable=True)).partitions


class _Archived(msgspec.Struct):
    partitions: list[ArchivedPartition]
