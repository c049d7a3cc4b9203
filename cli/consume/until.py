"""The end of `consume --group --to-time`: messages before a time, and none of those after it.

A partition's messages have times that never go back, so that a time is an offset in each. A group
does not deliver in the order of offsets: what comes early is put aside, held, and given back in the
end as if it had not been delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from cli.output.formats import count_text
from cli.output.terminal import warn
from cli.run.session import Json, Session
from goqueue.models.settles import Settle, Settled, SettleResult
from goqueue.transport.http import join

ASIDE_MAX = 1000
HOLD = "10m"
HOLD_AGAIN_S = 300.0


class Holder(Protocol):
    """Who has the messages that are in hand."""

    async def settle(self, settles: list[Settle]) -> list[SettleResult]:
        """What became of each, in order."""
        ...

    async def skip(self, partition: int) -> None:
        """Nothing of this partition is wanted any more."""
        ...


class Until:
    """Knows each partition's end, and how far the group has come in it."""

    def __init__(
        self, time_text: str, ends: dict[int, int | None], committed_offsets: dict[int, int]
    ) -> None:
        """`ends`: the first offset that is not wanted, None where there is none yet;
        `committed_offsets`: all below is settled."""
        self._time_text = time_text
        self._open = dict(ends)
        self._committed_offsets = committed_offsets
        self._aside: dict[str, Json] = {}
        self._held_s = 0.0

    @property
    def is_reached(self) -> bool:
        """Everything before the end is settled; or too much came that is behind it."""
        return not self._open or len(self._aside) > ASIDE_MAX

    @classmethod
    async def find(
        cls, session: Session, group: str, topic: str, time_text: str, partitions: Iterable[Json]
    ) -> Until:
        """Asks where each partition has this time, and where the group is."""
        lag = await session.get(join("groups", group, "lag"), topic=topic)
        committed_offsets = {
            int(one["partition"]): int(one["committed_offset"]) for one in lag["partitions"]
        }
        details = {int(one["partition"]): one for one in partitions}
        found = await asyncio.gather(
            *(_first_at(session, topic, number, time_text) for number in details)
        )
        ends = dict(zip(details, found, strict=True))
        for number, one in details.items():
            committed_offsets[number] = max(committed_offsets.get(number, 0), int(one["earliest"]))
        return cls(time_text, ends, committed_offsets)

    async def look(self, holder: Holder) -> None:
        """Skip the partitions that have nothing left."""
        for partition, end in list(self._open.items()):
            if end is not None and self._committed_offsets[partition] >= end:
                del self._open[partition]
                await holder.skip(partition)

    def parted(self, messages: list[Json]) -> tuple[list[Json], list[Json]]:
        """Those before the end, and the others."""
        wanted = [message for message in messages if message["timestamp"] < self._time_text]
        return wanted, [message for message in messages if message["timestamp"] >= self._time_text]

    async def put_aside(self, holder: Holder, late: list[Json]) -> None:
        """Keep these from coming again before the end, at the cost of no attempt."""
        loop = asyncio.get_running_loop()
        if loop.time() > self._held_s + HOLD_AGAIN_S:
            late, self._held_s = [*self._aside.values(), *late], loop.time()
        if late:
            self._aside.update({message["id"]: message for message in late})
            await holder.settle(
                [Settle(message["receipt"], "extend", visibility=HOLD) for message in late]
            )
        if len(self._aside) > ASIDE_MAX:
            warn(
                f"stopped: {count_text(len(self._aside), 'message')} of --to-time or later came "
                "first, and earlier ones may be left"
            )

    async def settled(self, holder: Holder, results: list[SettleResult]) -> None:
        """What an ack's answer tells of the partitions."""
        for result in results:
            if isinstance(result, Settled):
                committed_offset = max(
                    self._committed_offsets[result.partition], result.committed_offset
                )
                self._committed_offsets[result.partition] = committed_offset
        await self.look(holder)

    async def give_back(self, holder: Holder) -> None:
        """Release what was put aside."""
        aside, self._aside = list(self._aside.values()), {}
        if aside:
            await holder.settle([Settle(message["receipt"], "release") for message in aside])


async def _first_at(session: Session, topic: str, partition: int, time_text: str) -> int | None:
    """The first offset of this time or later, None where there is none yet."""
    page = await session.get_confirmed(
        join("topics", topic, "partitions", partition, "messages"),
        f"{topic}:{partition}",
        from_time=time_text,
        limit=1,
    )
    messages: list[Json] = page["messages"]
    return int(messages[0]["offset"]) if messages else None
