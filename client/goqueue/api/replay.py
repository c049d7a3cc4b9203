"""Replay past retention: what the client offers of `goqueue.archive.replay`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING

from goqueue.models.messages import Message
from goqueue.models.times import Time, time_ms
from goqueue.transport.pages import each

if TYPE_CHECKING:
    from goqueue.archive.replay import Cluster
    from goqueue.archive.seam import OnMissing


class Replaying:
    """The part of the client that reads archives, and the log behind them through `cluster`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def replay(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | Mapping[int, int] = 0,
        *,
        archive: str | None = None,
        from_time: Time | None = None,
        to_time: Time | None = None,
        follow: bool = False,
        topic_id: str | None = None,
        on_missing: OnMissing | None = None,
    ) -> AsyncGenerator[Message, None]:
        """Iterate over a partition, or a whole topic in the order of the log's times, as `messages`
        does, but with what retention and compaction have deleted: that is read from the archive at
        this URL (a path, file://, s3://, ...), else where the topic's archive is known to be.

        Offsets, ids, times and bytes are the log's, and each message comes once. Ends where the
        topic ended when iteration began; `follow` goes on from there. `offset` may be one for each
        partition. `topic_id` tells topics of one name apart; one that the cluster does not have
        any more is read from the archive alone.

        Raises `MessagesMissing` where messages are in neither, unless `on_missing` is there to be
        told of each such range. Archives need `pip install 'goqueue[archive]'`.
        """
        runs = self.replay_runs(
            topic,
            partition,
            offset,
            archive=archive,
            from_time=from_time,
            to_time=to_time,
            follow=follow,
            topic_id=topic_id,
            on_missing=on_missing,
        )
        return each(runs)

    async def replay_runs(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | Mapping[int, int] = 0,
        *,
        archive: str | None = None,
        from_time: Time | None = None,
        to_time: Time | None = None,
        follow: bool = False,
        topic_id: str | None = None,
        on_missing: OnMissing | None = None,
    ) -> AsyncGenerator[list[Message], None]:
        """As `replay`, a list at a time."""
        from goqueue.archive.replay import TopicReplay, Wanted
        from goqueue.archive.seam import refuse

        wanted = Wanted(
            topic,
            partition,
            offset,
            None if from_time is None else time_ms(from_time),
            None if to_time is None else time_ms(to_time),
            topic_id,
        )
        replay = await TopicReplay.open(
            self._cluster, wanted, archive=archive, on_missing=on_missing or refuse
        )
        runs = replay.runs(follow=follow)
        async with aclosing(runs):
            async for run in runs:
                yield run
