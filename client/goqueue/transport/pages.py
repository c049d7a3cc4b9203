"""Reading: a page from an answer, a partition page by page, a whole topic in order of time."""

from __future__ import annotations

import asyncio
import heapq
from bisect import bisect_right
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter

from goqueue.background import TaskSet
from goqueue.models.messages import Message, Page
from goqueue.models.times import Time, time_text
from goqueue.transport.channel import Answer
from goqueue.transport.patience import Patience
from goqueue.wire.batch import BATCH_MEDIA_TYPE, RecordBatch, resolve_ms
from goqueue.wire.errors import GoQueueError, ServerError
from goqueue.wire.stream import (
    END_OFFSET_HEADER,
    LOG_START_HEADER,
    NEXT_OFFSET_HEADER,
    STALE_HEADER,
    TOPIC_ID_HEADER,
    BatchFrame,
    decode_frames,
)

FOLLOW_WAIT_S = 5.0
"""How long one long poll waits for more."""
PAGE_LIMIT = 1000
FOLLOWING = "goqueue-following"
"""The name of the tasks that fetch what follows."""

ReadPage = Callable[[int, float, bool], Awaitable[Page]]
"""Reads a page from an offset, waiting up to some seconds for one; whether the end is asked for."""

_timestamp_ms = attrgetter("timestamp_ms")


@dataclass(frozen=True, slots=True)
class FramePage:
    """Stored batches, whole: the first may begin below the offset that was asked for.

    Reading goes on at `next_offset`. `log_start` is the first offset still kept and `end_offset`
    the one after the last committed message, both as of this answer, and `topic_id` that of the
    topic it comes from: another one of the same name has another; empty where a node told none.
    `stale` as of `goqueue.Page`.
    """

    body: bytes
    next_offset: int
    log_start: int
    end_offset: int
    topic_id: str = ""
    stale: bool = False

    def frames(self) -> Iterator[BatchFrame]:
        """Without copying; not parsed. Raises BatchError where one is cut short."""
        return decode_frames(self.body)


def read_params(
    offset: int,
    limit: int,
    wait_s: float,
    from_time: Time | None,
    to_time: Time | None,
    *,
    current: bool,
) -> dict[str, str]:
    """What is asked: see `AsyncClient.read`."""
    params = {"offset": str(offset), "limit": str(limit)}
    if wait_s > 0:
        params["wait"] = f"{round(wait_s * 1000)}ms"
    if from_time is not None:
        params["from_time"] = time_text(from_time)
    if to_time is not None:
        params["to_time"] = time_text(to_time)
    if current:
        params["current"] = "true"
    return params


def frame_page(answer: Answer) -> FramePage:
    """A binary answer, not decoded. Raises ServerError where it is no such thing."""
    if answer.media_type != BATCH_MEDIA_TYPE:
        raise ServerError(f"the server answered {answer.media_type or 'nothing'}, not batches")
    try:
        following, start, end = (
            int(answer.headers[name])
            for name in (NEXT_OFFSET_HEADER, LOG_START_HEADER, END_OFFSET_HEADER)
        )
    except (KeyError, ValueError):
        raise ServerError("the server did not say where reading goes on") from None
    topic_id = answer.headers.get(TOPIC_ID_HEADER, "")
    is_stale = answer.headers.get(STALE_HEADER, "") == "true"
    return FramePage(answer.body, following, start, end, topic_id, is_stale)


def decode_page(answer: Answer, topic: str, partition: int, offset: int, limit: int) -> Page:
    """The page in a binary answer: rows from `offset` on, at most `limit`.

    Raises ServerError where the answer is no such thing, BatchError where a batch is damaged.
    """
    page = frame_page(answer)
    following = page.next_offset
    messages: list[Message] = []
    for frame in page.frames():
        messages += _messages(frame, topic, partition, offset, limit - len(messages))
        if len(messages) >= limit:
            following = min(following, messages[-1].offset + 1)
            break
    return Page(
        topic,
        partition,
        messages,
        following,
        page.log_start,
        page.end_offset,
        page.topic_id,
        page.stale,
    )


def _messages(
    frame: BatchFrame, topic: str, partition: int, offset: int, limit: int
) -> Sequence[Message]:
    batch = RecordBatch.parse(frame.batch)
    first = max(0, offset - frame.base_offset)
    rows = slice(first, first + limit)
    nulls = batch.nulls()
    return list(
        map(
            Message,
            repeat(topic),
            repeat(partition),
            range(frame.base_offset + first, frame.base_offset + batch.count),
            repeat(frame.time_ms),
            batch.values()[rows],
            batch.keys()[rows],
            batch.headers()[rows],
            batch.lanes()[rows],
            batch.timestamps_ms()[rows],
            batch.message_ids()[rows],
            _moments(batch.deliver_at()[rows], frame.time_ms),
            _moments(batch.expires_at()[rows], frame.time_ms),
            map(nulls.__contains__, range(first, batch.count)) if nulls else repeat(False),
        )
    )


def _moments(cells: Sequence[int | None], log_time_ms: int) -> Iterable[int | None]:
    return map(resolve_ms, cells, repeat(log_time_ms)) if any(cells) else cells


async def partition_pages(
    read: ReadPage,
    offset: int,
    *,
    follow: bool,
    is_over: Callable[[], bool],
    patience: Patience,
    name: str,
) -> AsyncIterator[Page]:
    """Pages with messages, from `offset` to the end as its leader tells it first; or, with
    `follow`, for ever, or until `is_over()` says that nothing asked for can come any more.

    An answer that is stale ends nothing: it is asked for again. Raises `Unavailable` where no
    leader tells for too long.
    """
    end: int | None = None
    while True:
        page = await read(offset, FOLLOW_WAIT_S if follow else 0.0, end is None and not follow)
        if end is None and not page.stale:
            end = page.end_offset
        if page.messages:
            yield page
        is_stuck, offset = page.next_offset <= offset, page.next_offset
        if not is_stuck:
            patience.renew()
        if not follow and end is not None and offset >= end:
            return
        if page.stale:
            if is_stuck:
                await patience.pause(f"{name} from offset {offset} on")
        elif follow:
            patience.renew()
            if not page.messages and is_over():
                return
        elif is_stuck:
            return


async def each(runs: AsyncGenerator[list[Message], None]) -> AsyncGenerator[Message, None]:
    """The messages of lists, one by one; the lists' source ends with it."""
    async with aclosing(runs):
        async for run in runs:
            for message in run:
                yield message


async def merged(readers: Sequence[AsyncIterator[Page]]) -> AsyncGenerator[list[Message], None]:
    """The messages of several partitions in the order of their log times, in runs.

    Within a partition the order is that of offsets.
    """
    heads: list[tuple[int, int, list[Message]]] = []
    for number, reader in enumerate(readers):
        await _refill(heads, number, reader)
    while heads:
        _, number, messages = heapq.heappop(heads)
        run = len(messages)
        if heads:  # as far as no other partition has anything older
            run = max(1, bisect_right(messages, heads[0][0], key=_timestamp_ms))
        yield messages[:run]
        if run < len(messages):
            heapq.heappush(heads, (messages[run].timestamp_ms, number, messages[run:]))
        else:
            await _refill(heads, number, readers[number])


async def _refill(
    heads: list[tuple[int, int, list[Message]]], number: int, reader: AsyncIterator[Page]
) -> None:
    async for page in reader:
        heapq.heappush(heads, (page.messages[0].timestamp_ms, number, page.messages))
        return


async def interleaved(
    readers: Sequence[AsyncIterator[Page]],
) -> AsyncGenerator[list[Message], None]:
    """The messages of several partitions as they come, in runs; the order holds within each
    partition only. At most a page of each waits to be taken."""
    arrived: asyncio.Queue[list[Message] | GoQueueError | None] = asyncio.Queue(len(readers))

    async def pump(reader: AsyncIterator[Page]) -> None:
        try:
            async for page in reader:
                await arrived.put(page.messages)
            await arrived.put(None)
        except GoQueueError as error:
            await arrived.put(error)

    pumps = TaskSet(__name__, "following_failed")
    for reader in readers:
        pumps.begin(pump(reader), FOLLOWING)
    try:
        running = len(readers)
        while running:
            run = await arrived.get()
            if isinstance(run, GoQueueError):
                raise run
            if run is None:
                running -= 1
            else:
                yield run
    finally:
        await pumps.stop()
