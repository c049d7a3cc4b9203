"""Finding messages in partitions led here: by id, trace id, key, header, time and state.

Candidates come from what narrows most: search hashes, hashes of keys, or sets of offsets by state.
Each is read and held against every condition, so nothing is answered that does not match; what
could not be searched in time is named, with the offset below which to go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from delivery.entries.columns import stored_batch, stored_header
from delivery.group.state import GroupState
from delivery.lookup.message_states import offsets_in, states_of, status_of, stored
from delivery.lookup.search_hashes import (
    HEADER,
    MESSAGE_ID,
    TRACE_ID,
    header_hash,
    message_id_hash,
    trace_id_hash,
    trace_id_of,
)
from delivery.offsets.bitmaps import BitMap64, span
from delivery.offsets.keys import key_hash
from goqueue.wire.batch import RecordBatch, resolve_ms
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import NodeId, Offset, PartitionId
from log.entry import Entry
from log.errors import LogError
from node.partition.host import PartitionHost
from node.partition.offset_lookup import entry_holding, time_at_hand
from node.partition.reading.message_reader import row_bytes
from node.partition.reading.reader import stored_batches
from node.partition.trace import trace_message
from node.peers.link import PeerLink
from node.replicas.partition_service import PartitionService
from node.rpc import partitions as rpc
from node.rpc import search as search_rpc
from node.rpc.queue import MessageRow
from node.rpc.search import FoundRow, PartitionFound, SearchAnswer, SearchRequest

OFF_LOOP_BYTES = 256 << 10
"""Values of a batch above this are decompressed in a thread: the loop must not stall."""
CANDIDATES_MAX = 5000
"""Messages read for one page of one partition: beyond, the next page goes on."""
STRETCHES_A_STEP = 16
"""Stretches of keys searched before the loop is given back: half a millisecond or so."""
WINDOW = 4096
ROW_BYTES = 100
"""What a found message takes in an answer beside the message."""


@dataclass(slots=True)
class Room:
    """Bytes that the partitions of one answer share; its first message is in it, however large."""

    left: int
    is_begun: bool = False

    def takes(self, size: int) -> bool:
        """Whether there was room for a message of this size, which has it now."""
        if self.is_begun and size > self.left:
            return False
        self.left -= size
        self.is_begun = True
        return True


class MessageSearch:
    """Answers for partitions led here; others are left out."""

    def __init__(self, partitions: PartitionService, link: PeerLink) -> None:
        self._partitions = partitions
        link.handle(search_rpc.SEARCH, self._serve)

    async def search(self, request: SearchRequest) -> SearchAnswer:
        """Of each partition a page of its own, newest first."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + request.deadline_ms / 1000
        bytes_max = max(1, request.max_bytes // max(1, len(request.partitions)))
        room = Room(2 * request.max_bytes)  # each may exceed its share by a message

        async def one(number: int, packed: bytes, below: int) -> PartitionFound | None:
            try:
                host = await self._partitions.confirmed(PartitionId.unpack(packed))
                search = _Search(host, request, below, bytes_max, deadline_s, room)
                return await search.run(request.only[number] if request.only else None)
            except LogError as error:
                return PartitionFound(packed, [], -1, [f"can't be read now: {error}"])
            except GoQueueError:
                return None

        parts = enumerate(request.partitions)
        found = await asyncio.gather(*(one(number, *part) for number, part in parts))
        return SearchAnswer([answer for answer in found if answer is not None])

    async def _serve(self, _peer: NodeId, payload: bytes) -> bytes:
        return rpc.encode(await self.search(rpc.decode_request(payload, SearchRequest)))


class RowReader:
    """Single messages of a replica, each without decoding its neighbours. Loop thread only."""

    def __init__(self, host: PartitionHost) -> None:
        self._host = host
        self._entry: Entry | None = None
        self._stored: list[tuple[Offset, int, memoryview]] = []
        self._base = Offset(0)
        self._batch: RecordBatch | None = None

    async def row(self, offset: Offset) -> MessageRow | None:
        """None where no such message is stored (any more). Raises LogError where it can't be
        read."""
        host = self._host
        if host.state.queue.held_in(offset) is not None:
            return host.messages.rows([offset], 1)[0]
        batch = self._batch
        if batch is None or not 0 <= offset - self._base < batch.count:
            batch = await self._find(offset)
        if batch is None or self._entry is None:
            return None
        time_ms = self._entry.time_ms
        if batch.header.values_plain_bytes <= OFF_LOOP_BYTES:
            found = batch.record(offset - self._base)
        else:
            found = await asyncio.to_thread(batch.record, offset - self._base)
        return MessageRow(
            offset,
            time_ms,
            found.value or b"",
            found.key,
            found.headers,
            found.lane,
            found.message_id,
            resolve_ms(found.deliver_at_ms, time_ms),
            resolve_ms(found.expires_at_ms, time_ms),
            found.value is None,
        )

    async def _find(self, offset: Offset) -> RecordBatch | None:
        entry = self._entry
        if entry is None or not 0 <= offset - entry.base_offset < entry.record_count:
            entry = self._entry = await self._stored_in(offset)
            self._stored = [] if entry is None else stored_batches(entry)
        self._batch = None
        for base, count, view in self._stored:
            if base <= offset < base + count:
                self._base = base
                self._batch = stored_batch(view, stored_header(view))
        return self._batch

    async def _stored_in(self, offset: Offset) -> Entry | None:
        host = self._host
        if not host.state.log_start_offset <= offset < host.end_offset:
            return None
        return await entry_holding(host, offset)


class _Search:
    """One page of one partition."""

    def __init__(
        self,
        host: PartitionHost,
        request: SearchRequest,
        below: int,
        bytes_max: int,
        deadline_s: float,
        room: Room,
    ) -> None:
        self._host = host
        self._request = request
        self._below = min(below, host.end_offset)
        self._bytes_left = bytes_max
        self._deadline_s = deadline_s
        self._room = room
        self._missing: list[str] = []
        self._rows: list[FoundRow] = []
        self._reader = RowReader(host)
        self._left = -1

    async def run(self, only: list[int] | None) -> PartitionFound:
        """Of these offsets only, if any are named."""
        request = self._request
        for time_ms in (request.from_ms, request.to_ms):
            if time_ms is not None:
                await time_at_hand(self._host.log, time_ms)
        wanted = self._wanted()
        looked_at = 0
        loop = asyncio.get_running_loop()
        async for offsets in _these(only) if only is not None else self._candidates(wanted):
            for offset in offsets:
                if wanted is not None and offset not in wanted:
                    continue
                is_late = loop.time() >= self._deadline_s
                full = len(self._rows) >= request.limit or self._bytes_left <= 0
                if full or is_late or looked_at >= CANDIDATES_MAX:
                    return self._page(offset + 1)
                looked_at += 1
                row = await self._reader.row(Offset(offset))
                if row is not None and self._matches(row) and not await self._take(row):
                    return self._page(offset + 1)
                await asyncio.sleep(0)
        return self._page(self._left)

    def _page(self, below: int) -> PartitionFound:
        return PartitionFound(self._host.id.pack(), self._rows, below, self._missing)

    def _wanted(self) -> BitMap64 | None:
        """Offsets that may be meant by state and time; None where those say nothing."""
        request, queue = self._request, self._host.state.queue
        if not request.states and request.from_ms is None and request.to_ms is None:
            return None
        wanted = stored(queue)
        if request.states:
            wanted = BitMap64()
            for state in request.states:
                wanted |= self._in_state(state)
        reader, end = self._host.reader, self._host.end_offset
        outside = BitMap64()
        if request.from_ms is not None:
            first = reader.offset_at(request.from_ms)
            outside |= span(0, end if first is None else first)
        if request.to_ms is not None and (last := reader.offset_at(request.to_ms)) is not None:
            outside |= span(last, end)
        if outside:  # what outlived the log stands out of its time: it is read
            outside -= BitMap64(queue.reappended) | queue.compacted
        return wanted - outside

    def _in_state(self, state: str) -> BitMap64:
        """A group that has not begun here has everything before it."""
        queue, id = self._host.state.queue, self._request.group
        group = queue.groups.get(id)
        if group is not None or not id or state in ("delayed", "cancelled", "expired"):
            return offsets_in(queue, state, group)
        if state == "ready":
            return stored(queue) - queue.hidden - queue.withdrawn
        return BitMap64()

    async def _candidates(self, wanted: BitMap64 | None) -> AsyncIterator[Sequence[int]]:
        """Newest first; each offset that matches is among them."""
        request = self._request
        if request.message_id is not None:
            source = self._hashed(MESSAGE_ID, message_id_hash(request.message_id))
        elif request.trace_id is not None:
            source = self._hashed(TRACE_ID, trace_id_hash(request.trace_id))
        elif request.key is not None and key_hash(request.key):
            source = self._keyed(key_hash(request.key))
        elif request.headers:
            source = self._hashed(HEADER, header_hash(*request.headers[0]))
        else:
            source = self._all(stored(self._host.state.queue) if wanted is None else wanted)
        async for offsets in source:
            yield offsets

    async def _hashed(self, kind: int, hash_: int) -> AsyncIterator[Sequence[int]]:
        below = self._below
        while True:
            limit = self._request.limit
            found = await self._host.hashes.find(kind, hash_, below, limit, self._deadline_s)
            self._missing = list(dict.fromkeys([*self._missing, *found.missing]))
            yield found.offsets
            below = found.below
            if below < 0:
                return
            if asyncio.get_running_loop().time() >= self._deadline_s:
                self._left = below
                return

    async def _keyed(self, hash_: int) -> AsyncIterator[Sequence[int]]:
        stretches = self._host.state.queue.keys.stretches(hash_, self._below)
        for step, offsets in enumerate(stretches, 1):
            if step % STRETCHES_A_STEP == 0:
                await asyncio.sleep(0)
            if offsets:
                yield offsets

    async def _all(self, offsets: BitMap64) -> AsyncIterator[Sequence[int]]:
        """Windows of which none has more than `WINDOW`; where there is nothing they leap."""
        high = self._below
        while high > 0 and offsets and high > offsets.min():
            low = max(0, high - WINDOW)
            part = list(offsets & span(low, high))
            part.reverse()
            high = low
            if part:
                yield part
            elif left := offsets & span(0, low):
                high = left.max() + 1

    def _matches(self, row: MessageRow) -> bool:
        request = self._request
        if request.message_id is not None and row.message_id != request.message_id:
            return False
        if request.trace_id is not None and trace_id_of(row.headers) != request.trace_id:
            return False
        if request.key is not None and row.key != request.key:
            return False
        if any(header not in row.headers for header in request.headers):
            return False
        if request.from_ms is not None and row.time_ms < request.from_ms:
            return False
        return request.to_ms is None or row.time_ms < request.to_ms

    async def _take(self, row: MessageRow) -> bool:
        """False where the answer has no room for it."""
        host, queue = self._host, self._host.state.queue
        group: GroupState | None = queue.groups.get(self._request.group)
        status = status_of(queue, row.offset, group)
        if self._request.status is not None and status != self._request.status:
            return True
        size = ROW_BYTES + row_bytes(row)
        if not self._room.takes(size):
            return False
        events = None
        if self._request.with_events:
            try:
                events = (await trace_message(host, Offset(row.offset))).events
            except GoQueueError as error:  # switched off, or the message has gone meanwhile
                self._missing = list(dict.fromkeys([*self._missing, f"events: {error.message}"]))
        self._bytes_left -= size
        self._rows.append(
            FoundRow(
                row,
                trace_id_of(row.headers),
                states_of(queue, row.offset),
                status,
                events,
            )
        )
        return True


async def _these(offsets: list[int]) -> AsyncIterator[Sequence[int]]:
    yield offsets
