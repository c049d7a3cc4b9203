"""What the HTTP front asks of the node about one message's delivery: `WhyBroker`."""

from __future__ import annotations

from typing import Protocol

import msgspec

from delivery.lookup.verdict import Verdict
from goqueue.wire.types import Offset


class GroupWhy(msgspec.Struct, array_like=True, frozen=True):
    """What holds for one group."""

    group: str
    verdict: Verdict


class WhyView(msgspec.Struct, array_like=True):
    """Why a message is not delivered, or not settled, as of the log time `time_ms`.

    `message` is what holds whatever the group; `groups` those that have the topic, or the one that
    was asked about, and `more` how many are left out. `leader` has answered; where it is empty,
    nobody leads: then a replica tells what it has applied, if there is one here.
    """

    time_ms: int
    message_id: str | None
    message: Verdict
    groups: list[GroupWhy]
    leader: str = ""
    more: int = 0


class WhyBroker(Protocol):
    """Any message of the cluster, asked of any node."""

    async def message_why(
        self, topic: str, partition: int, offset: Offset, group: str | None
    ) -> WhyView:
        """Raises `UnknownTopic`, `UnknownPartition`, `UnknownGroup`. A partition that no majority
        serves is told as such, not raised."""
        ...
