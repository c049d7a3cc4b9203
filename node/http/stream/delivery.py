"""What a stream is given: receives, one after the other, of what its credit has room for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from goqueue.signal import Signal
from goqueue.wire.errors import GoQueueError, GroupHalted, OverBudget, StaleGeneration, UnknownTopic
from node.api.queue import QueuedMessage, SettleRequest
from node.api.streams import Stream
from node.http.budget.memory import Held, Kind, Reserved
from node.http.budget.slices import SLICE_BYTES, pause
from node.http.messages.request_spans import traced_request
from node.http.queue.receive import room_for
from node.http.queue.views import bytes_of, held_bytes, queued_views
from node.http.request.answers import PAGE_BYTES_MIN
from node.http.request.call import Call
from node.http.request.troubles import FIRST_S, Troubles
from node.http.stream.batches import batch_frame
from node.http.stream.credit import Outstanding
from node.http.stream.frames import Messages, error_frame
from node.http.stream.source import Manner, Source
from node.http.stream.wire import Wire
from node.http.text.pieces import LongText, Pieces, encode

RECEIVE_MESSAGES_MAX = 1_000
RECEIVE_BYTES_MAX = 1 << 20
"""Of one receive: beside its credit, so much is held for a client that takes nothing. Room for it
is held while leaders are asked, also where they have nothing: so a stream begins with the least,
and asks for more while it gets much."""
WAIT_S = 300.0
"""How long a receive waits, so that a stream that waits costs next to nothing: whether topics or
partitions have come, `look` finds out meanwhile."""
STALE_PAUSE_S = 0.05
GIVEN_BYTES = 256
"""What one outstanding message takes to remember."""


class Delivery:
    """Of one stream; `run` goes on until it is cancelled or fails. Loop thread only."""

    def __init__(
        self,
        call: Call,
        stream: Stream,
        wire: Wire,
        source: Source,
        manner: Manner,
        outstanding: Outstanding,
        failed: Callable[[GoQueueError], None],
    ) -> None:
        """`failed` is told of what no repeat can mend."""
        self._call = call
        self._stream = stream
        self._wire = wire
        self._source = source
        self._manner = manner
        self._outstanding = outstanding
        self._failed = failed
        self._kept: Held = call.hold(Kind.POLLS)
        self._changed = Signal()
        self._receiving: asyncio.Timeout | None = None
        self._asked = 0
        self._extent: object = None
        self._page_bytes = PAGE_BYTES_MIN
        self._troubles = Troubles()
        self._now_s = asyncio.get_running_loop().time

    def wake(self) -> None:
        """There may be credit again."""
        self._changed.set()

    def restart(self) -> None:
        """What to receive from has changed, or there is less credit than a receive has asked for:
        it is broken off, which gives back what it was granted."""
        self._changed.set()
        if self._receiving is not None and not self._receiving.expired():
            self._receiving.reschedule(self._now_s())

    def look(self) -> None:
        """From time to time: topics or partitions that came are received from."""
        if self._source.extent() != self._extent:
            self.restart()

    def take_lanes(self, lowest: int) -> None:
        """Leave what is below this lane for others, from now on."""
        if lowest != self._manner.lowest_lane:
            self._manner = replace(self._manner, lowest_lane=lowest)
            self.restart()

    def credit_changed(self) -> None:
        """There are new totals."""
        if self._receiving is not None and self._outstanding.messages_left < self._asked:
            self.restart()
        self.wake()

    def settled(self) -> None:
        """Some were freed."""
        self._kept.resize(len(self._outstanding) * GIVEN_BYTES)
        self.wake()

    def close(self) -> None:
        """Nothing is remembered any more. Idempotent."""
        self._kept.release()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            following_s = self._outstanding.expire(self._now_s())
            limit = min(self._outstanding.messages_left, RECEIVE_MESSAGES_MAX)
            try:
                with room_for(self._call):
                    found = await self._received(limit) if limit else None
                    if found:
                        await self._give(found)
                if found is None:
                    await self._idle(following_s)
            except ConnectionError:
                return  # whoever reads from it finds out, too
            except GoQueueError as error:
                if not await self._is_lasting(error):
                    self._failed(error)
                    return

    # private

    async def _received(self, limit: int) -> list[QueuedMessage] | None:
        """None where there is nothing to ask. Empty where something changed meanwhile."""
        asked = self._source.places()
        self._extent = self._source.extent()
        if asked.is_empty:
            return None
        if self._call.shared.stopping.is_set():
            return None
        self._asked = limit
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._receiving = scope
                found = await self._stream.receive(
                    asked.topics,
                    claim=asked.claim,
                    limit=limit,
                    bytes_max=min(self._outstanding.bytes_left, self._page_bytes),
                    wait_s=WAIT_S,
                    visibility_ms=self._manner.visibility_ms,
                    partitions=asked.partitions,
                    places=asked.places,
                    lowest_lane=self._manner.lowest_lane,
                )
        except TimeoutError:
            if not scope.expired():
                raise
            return []
        finally:
            self._receiving = None
        self._troubles.passed()
        is_much = 2 * sum(len(message.value) for message in found) >= self._page_bytes
        self._page_bytes = (
            min(2 * self._page_bytes, RECEIVE_BYTES_MAX) if is_much else PAGE_BYTES_MIN
        )
        return found

    async def _give(self, found: Sequence[QueuedMessage]) -> None:
        """Sends what was leased; gives back what there is no room for, or what is no more to be
        delivered from. Raises OverBudget, ConnectionError."""
        kept = 0
        places = self._source.places().places
        if places is not None:
            allowed = set(places)
            wanted = [one for one in found if (one.topic, one.partition) in allowed]
            if len(wanted) < len(found):
                gone = [one for one in found if (one.topic, one.partition) not in allowed]
                await self._give_back(gone)
                found = wanted
        try:
            self._kept.resize((len(self._outstanding) + len(found)) * GIVEN_BYTES)
            with self._call.hold(Kind.ANSWERS, held_bytes(found)):
                kept = len(found)
                self._remember(found)
                async for frame in self._frames(found):
                    await self._wire.tell(frame, is_binary=self._manner.in_batches)
                await self._wire.taken()
        finally:
            if kept < len(found):
                await self._give_back(found[kept:])
        tracing = traced_request(self._call)
        if tracing is not None:
            tracing.received(self._call.params["group"], found)

    def _remember(self, found: Sequence[QueuedMessage]) -> None:
        visibility_ms = self._manner.visibility_ms
        until_s = None if visibility_ms is None else self._now_s() + visibility_ms / 1000
        counts: dict[str, int] = {}
        if not self._outstanding:
            self._outstanding.since_s = self._now_s()
        for message in found:
            place = (message.topic, message.partition)
            self._outstanding.give(message.receipt, bytes_of(message), until_s, place)
            counts[message.topic] = counts.get(message.topic, 0) + 1
        for topic, count in counts.items():
            self._call.shared.metrics.stream_sent(topic, count)

    async def _frames(self, found: Sequence[QueuedMessage]) -> AsyncIterator[bytes]:
        """About a slice of messages each, or one that is longer."""
        at = 0
        while at < len(found):
            first, size = at, 0
            while at < len(found) and (at == first or size < SLICE_BYTES):
                size += bytes_of(found[at]) + GIVEN_BYTES
                at += 1
            if self._manner.in_batches:
                yield batch_frame(found[first:at])
            else:
                yield await self._encoded(Messages(queued_views(found[first:at])), size)
            if at < len(found):
                await pause()

    async def _encoded(self, frame: Messages, weight: int) -> bytes:
        if weight <= SLICE_BYTES:
            return encode(frame)
        with Reserved(self._call.hold(Kind.ANSWERS)) as making:
            pieces = Pieces(making)
            await pieces.add(frame)
            parts = list[bytes | memoryview]()
            for part in pieces.finish():
                if isinstance(part, LongText):
                    for piece in part.slices():
                        parts.append(piece)
                        await pause()
                else:
                    parts.append(part)
            return b"".join(parts)

    async def _give_back(self, messages: Sequence[QueuedMessage]) -> None:
        """As if they had not been delivered."""
        await self._stream.settle([SettleRequest(one.receipt, "release") for one in messages])

    async def _idle(self, until_s: float | None) -> None:
        """Until something changes, or a lease has run out."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await self._changed.wait()

    async def _is_lasting(self, error: GoQueueError) -> bool:
        """Whether it may go on; the client is told what is in the way, once."""
        if isinstance(error, StaleGeneration):
            await asyncio.sleep(STALE_PAUSE_S)
            return True
        if isinstance(error, UnknownTopic) and self._source.places().places is not None:
            await asyncio.sleep(FIRST_S)  # this node is behind, or the member is told soon
            return True
        if not (error.retriable or isinstance(error, GroupHalted | OverBudget)):
            return False
        if self._troubles.is_new(error.code):
            with suppress(ConnectionError):
                await self._wire.tell(error_frame(error))
        await asyncio.sleep(self._troubles.next_pause_s())
        return True
