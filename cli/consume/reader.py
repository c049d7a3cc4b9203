"""Reads partitions a page at a time, one by one or merged into one stream.

The order of a merged stream: by timestamp, then partition, then offset. A partition's timestamps
never go back, so every partition's own order is kept. What a bounded read returns ends where
each partition ended when it began, as its leader confirms it: who reads waits for that, and is told
where it takes too long. A followed stream has no end: each partition's messages come
in their order, different partitions' as they arrive.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.output.errors import explain
from cli.output.terminal import note
from cli.run.session import Json, Session
from goqueue.errors import GoQueueError
from goqueue.transport.http import join

if TYPE_CHECKING:
    from goqueue.transport.patience import Patience

PAGE_MESSAGES_MAX = 1000
BUFFERED_MESSAGES_MAX = 16_000
FOLLOW_WAIT_S = 20.0
RETRY_FIRST_S = 0.2
RETRY_MAX_S = 5.0


@dataclass(slots=True)
class Span:
    """What to read of one partition: from `offset`, or from `from_time`, to before `end`. Where
    that is not known yet, the first answer that is not stale tells it."""

    partition: int
    offset: int | None
    end: int
    from_time: str | None = None
    to_time: str | None = None
    is_end_known: bool = True


class Reader:
    """Reads one topic through a session."""

    def __init__(self, session: Session, topic: str, limit: int | None, count: int) -> None:
        """`limit`: how many messages are wanted at most; `count`: partitions read at once."""
        self._session = session
        self._topic = topic
        fair = max(1, BUFFERED_MESSAGES_MAX // max(1, count))
        self._troubled: set[int] = set()
        self._patience: dict[int, Patience] = {}
        self._page = min(PAGE_MESSAGES_MAX, fair, limit or PAGE_MESSAGES_MAX)

    async def pages(self, span: Span) -> AsyncGenerator[list[Json], None]:
        """Pages of a partition up to its span's end; the next one is fetched meanwhile."""
        following = asyncio.ensure_future(self._fetch(span, wait_s=0))
        try:
            while True:
                page, more = await following
                if more:
                    following = asyncio.ensure_future(self._fetch(span, wait_s=0))
                if page:
                    yield page
                if not more:
                    return
        finally:
            following.cancel()

    async def merged(self, spans: Sequence[Span]) -> AsyncGenerator[list[Json], None]:
        """All spans as one ordered stream, in pieces."""
        sources = [self.pages(span) for span in spans]
        heads: list[tuple[str, int, int, int]] = []
        pages = list(await asyncio.gather(*(_next_page(source) for source in sources)))
        for number, page in enumerate(pages):
            if page:
                heads.append(_key(page[0], number, 0))
        heapq.heapify(heads)
        piece: list[Json] = []
        while heads:
            _, _, number, at = heads[0]
            page = pages[number]
            piece.append(page[at])
            at += 1
            if at == len(page):
                if len(piece) >= self._page:
                    yield piece
                    piece = []
                try:
                    pages[number] = page = await _next_page(sources[number])
                except GoQueueError:
                    if piece:  # what came until now is sound, and in order
                        yield piece
                    raise
                at = 0
            if page:
                heapq.heapreplace(heads, _key(page[at], number, at))
            else:
                heapq.heappop(heads)
        if piece:
            yield piece

    async def followed(self, spans: Sequence[Span]) -> AsyncGenerator[list[Json], None]:
        """New messages of all spans as they come, for ever; an outage is told, and waited out."""
        queue: asyncio.Queue[list[Json]] = asyncio.Queue(maxsize=max(2, len(spans)))
        async with asyncio.TaskGroup() as task_group:
            tasks = [task_group.create_task(self._follow(span, queue)) for span in spans]
            try:
                while True:
                    yield await queue.get()
            finally:
                for task in tasks:
                    task.cancel()

    async def _follow(self, span: Span, queue: asyncio.Queue[list[Json]]) -> None:
        pause_s = 0.0
        while True:
            try:
                page, _ = await self._fetch(span, wait_s=FOLLOW_WAIT_S)
            except (GoQueueError, OSError, TimeoutError) as error:
                if isinstance(error, GoQueueError) and not error.retriable:
                    raise
                if not self._troubled:
                    report = explain(error)
                    note(f"{report.message if report else error}; trying again")
                self._troubled.add(span.partition)
                pause_s = min(RETRY_MAX_S, pause_s * 2 or RETRY_FIRST_S)
                await asyncio.sleep(pause_s)
                continue
            self._troubled.discard(span.partition)
            pause_s = 0.0
            if page:
                await queue.put(page)

    async def _fetch(self, span: Span, wait_s: float) -> tuple[list[Json], bool]:
        """The next page, and whether the span goes on after it; moves the span's offset."""
        answer = await self._session.get(
            join("topics", self._topic, "partitions", span.partition, "messages"),
            wait_s=wait_s,
            offset=span.offset,
            from_time=span.from_time if span.offset is None else None,
            to_time=span.to_time,
            limit=self._page,
            timeout=f"{wait_s:g}s" if wait_s else None,
            current=None if span.is_end_known else "true",
        )
        is_stale = bool(answer.get("stale"))
        if not span.is_end_known and not is_stale:
            span.end, span.is_end_known = int(answer["end_offset"]), True
        before, span.offset = span.offset, int(answer["next_offset"])
        messages: list[Json] = answer["messages"]
        while messages and messages[-1]["offset"] >= span.end >= 0:
            messages.pop()
        page = [
            {"topic": self._topic, "partition": span.partition, **message} for message in messages
        ]
        moved = before is None or span.offset > before
        await self._wait_for_leader(span, is_needed=is_stale and not moved)
        return page, (moved or is_stale) and not 0 <= span.end <= span.offset

    async def _wait_for_leader(self, span: Span, *, is_needed: bool) -> None:
        """Before it is asked again what no leader has confirmed. Raises `Unavailable`."""
        from goqueue.transport.patience import Patience

        if not is_needed:
            self._patience.pop(span.partition, None)
            return
        patience = self._patience.get(span.partition)
        if patience is None:
            patience = self._patience[span.partition] = Patience(self._session.client.transport)
        await patience.pause(f"{self._topic}:{span.partition} from offset {span.offset} on")


async def _next_page(pages: AsyncGenerator[list[Json], None]) -> list[Json]:
    """The next page, or an empty one after the last."""
    async for page in pages:
        return page
    return []


def _key(message: Json, number: int, at: int) -> tuple[str, int, int, int]:
    return (message["timestamp"], int(message["partition"]), number, at)
