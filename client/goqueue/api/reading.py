"""Reading by offset and by time: a page, a partition, a whole topic."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from goqueue.api.topics import Topics
from goqueue.models.messages import Message, Page
from goqueue.models.times import Time, time_ms
from goqueue.transport.http import Transport, join
from goqueue.transport.pages import (
    PAGE_LIMIT,
    decode_page,
    each,
    interleaved,
    merged,
    partition_pages,
    read_params,
)
from goqueue.transport.patience import Patience
from goqueue.wire.batch import BATCH_MEDIA_TYPE


class Reading:
    """The part of the client that reads."""

    def __init__(self, transport: Transport, topics: Topics) -> None:
        self._transport = transport
        self._topics = topics

    async def read(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        *,
        limit: int = 100,
        wait_s: float = 0.0,
        from_time: Time | None = None,
        to_time: Time | None = None,
        current: bool = False,
    ) -> Page:
        """Messages of one partition from an offset on, or within times (`to_time` is exclusive).

        With nothing there yet, waits up to `wait_s` for something. An offset below the log's start
        reads from there. With `current` the page's end is as the leader knows it, also where the
        page does not reach it. One page that is `stale` may end too early: `pages` asks again by
        itself. Raises `OffsetOutOfRange` beyond the end.
        """
        answer = await self._transport.request(
            "GET",
            join("topics", topic, "partitions", partition, "messages"),
            params=read_params(offset, limit, wait_s, from_time, to_time, current=current),
            headers={"Accept": BATCH_MEDIA_TYPE},
            repeatable=True,
            wait_s=wait_s,
        )
        return decode_page(answer, topic, partition, offset, limit)

    def pages(
        self,
        topic: str,
        partition: int,
        offset: int = 0,
        *,
        limit: int = PAGE_LIMIT,
        follow: bool = False,
        from_time: Time | None = None,
        to_time: Time | None = None,
    ) -> AsyncIterator[Page]:
        """One partition page by page, to its end as it was at the start; `follow` goes on for ever,
        or until `to_time`.

        It never ends before all that had been acknowledged by then: where no leader confirms the
        end, it asks again, for the client's `timeout_s`, and raises `Unavailable` then."""

        async def read(offset: int, wait_s: float, current: bool) -> Page:
            within: dict[str, Any] = {"from_time": from_time, "to_time": to_time}
            more: dict[str, Any] = {"limit": limit, "wait_s": wait_s, "current": current}
            return await self.read(topic, partition, offset, **more, **within)

        def is_over() -> bool:
            return to_time is not None and _now_ms() > time_ms(to_time)

        return partition_pages(
            read,
            offset,
            follow=follow,
            is_over=is_over,
            patience=Patience(self._transport),
            name=f"{topic}:{partition}",
        )

    def messages(
        self,
        topic: str,
        partition: int | None = None,
        offset: int = 0,
        *,
        from_time: Time | None = None,
        to_time: Time | None = None,
        follow: bool = False,
    ) -> AsyncGenerator[Message, None]:
        """Iterate over a partition, or over a whole topic in the order of the log's times.

        Ends where the partition ended when iteration began. `follow` goes on for ever, or until
        `to_time`; over a whole topic messages then come as they arrive, in order only within each
        partition.
        """
        runs = self.runs(
            topic, partition, offset, from_time=from_time, to_time=to_time, follow=follow
        )
        return each(runs)

    async def runs(
        self,
        topic: str,
        partition: int | None = None,
        offset: int = 0,
        *,
        from_time: Time | None = None,
        to_time: Time | None = None,
        follow: bool = False,
    ) -> AsyncGenerator[list[Message], None]:
        """As `messages`, a list at a time."""
        count = (await self._topics.facts(topic)).partitions if partition is None else 0
        readers = [
            self.pages(topic, number, offset, from_time=from_time, to_time=to_time, follow=follow)
            for number in (range(count) if partition is None else [partition])
        ]
        if len(readers) == 1:
            async for page in readers[0]:
                yield page.messages
            return
        runs = interleaved(readers) if follow else merged(readers)
        async with aclosing(runs):
            async for run in runs:
                yield run


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
