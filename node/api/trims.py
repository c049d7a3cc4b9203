"""What the HTTP front asks of the node about trims that are asked for: `Trims`."""

from __future__ import annotations

from typing import Protocol

import msgspec

from node.api.rules.rule import scoped, topic


class PartitionTrim(msgspec.Struct, array_like=True, frozen=True):
    """What went of a partition: messages from the log's start on, and bytes of files at its leader.
    Its log begins at the offset `earliest` now, a message that the group `kept_for` has to do yet;
    "" where there is none."""

    messages: int
    bytes: int
    earliest: int
    kept_for: str = ""


class Trims(Protocol):
    """Trims of topics, from any node."""

    @scoped(topic)
    async def trim_settled(self, topic: str) -> dict[int, PartitionTrim]:
        """Let all go, of each partition from its beginning, that every group has settled which
        takes part in the topic. Nothing goes where none does.

        Dead letters, delayed messages and what was redriven stay, for their groups. Raises
        Conflict where the topic is compacted by key, NotFinished below level 2, and of partitions
        that don't answer the first one's error: some may be trimmed then."""
        ...
