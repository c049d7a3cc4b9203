"""What the HTTP front asks of the node about archives of topics: `Archives`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from goqueue.wire.types import Offset
from node.api.rules.rule import scoped, topic


class PartitionArchive(msgspec.Struct, array_like=True, frozen=True):
    """How far one partition is archived, as its leader sees it.

    Everything below `position` is in the archive at `location` (empty where none was ever told of),
    since `reported_ms` (0 for never). `required`: messages stay until they are. `lag` messages are
    not, and `lag_ms` ago the first of them was stored.
    """

    location: str = ""
    position: int = 0
    reported_ms: int = 0
    required: bool = False
    lag: int = 0
    lag_ms: int = 0


class Archives(Protocol):
    """Reports of archives, to any node."""

    @scoped(topic)
    async def archived(
        self,
        topic: str,
        location: str,
        positions: Mapping[int, Offset],
        *,
        topic_id: str | None,
        anew: bool,
    ) -> dict[int, PartitionArchive]:
        """Note that all below these offsets is in the archive there; how each of these partitions
        stands now. A position that was passed already is no error.

        Raises `UnknownTopic`, also where the topic has another id than this; `UnknownPartition`,
        `OffsetOutOfRange` for a position beyond the end, `OtherArchive` unless `anew`. What other
        partitions were told of stays, then.
        """
        ...
