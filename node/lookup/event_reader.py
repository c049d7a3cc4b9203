"""Events of a partition read in bulk from this node's replica, as far as that has applied.

The feed of events takes the log's entries one after the other, on a thread, in turns of a
millisecond; a reader who goes on where it stopped reads each entry once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from delivery.events.feed import EventFeed, changes_of
from goqueue.wire.errors import Unavailable
from goqueue.wire.events import EventColumns
from goqueue.wire.types import Index
from log.entry import Entry
from log.errors import LogError
from node.api.traces import EventsView, EventsWanted
from node.lookup.event_cursors import EventCursor, EventCursors
from node.lookup.event_page import EventPage
from node.partition.host import PartitionHost
from node.runtime.gil_yield import GilYield
from node.runtime.uncancellable import run_uncancellable

STEP_BYTES = 1 << 20
STEP_ENTRIES = 512
"""Entries that are read and told at once."""
READ_S = 4.0
"""How long one answer may take; what was told by then is the answer."""
WAITERS_MAX = 256
LOOK_S = 0.05
"""How often who waits looks whether anything was applied."""
_NO_EVENTS = msgspec.msgpack.encode(EventColumns())


class EventsBehind(Unavailable):
    """Events from there on are being read up to; `entries` says how many entries are left."""

    code, text = "events_behind", "the log is being read up to there: try again in a moment"


class EventReader:
    """Of this node's replicas; loop thread only, but for the work that it sends to others."""

    def __init__(self) -> None:
        self.cursors = EventCursors()
        self._waiting = 0

    async def read(self, host: PartitionHost, wanted: EventsWanted) -> EventsView:
        """Raises EventsBehind, LogError, OSError."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + wanted.wait_s
        while True:
            start = host.log.first_index
            try:
                found = await self._read(host, wanted)
            except (LogError, OSError):
                if host.log.first_index == start:
                    raise
                continue  # what was read has gone meanwhile
            if found is None:
                continue
            left_s = end_s - loop.time()
            if found.count or found.next >= wanted.until or left_s <= 0:
                return found
            if not await self._wait(host, found.next, left_s):
                return found
            wanted = msgspec.structs.replace(wanted, after=found.next, offset=found.next_offset)

    async def _wait(self, host: PartitionHost, index: int, timeout_s: float) -> bool:
        """Until something after this entry is applied; False once the time is over."""
        if self._waiting >= WAITERS_MAX:
            return False
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        self._waiting += 1
        try:
            while host.applied_index <= index:
                if loop.time() >= end_s:
                    return False
                await asyncio.sleep(LOOK_S)
        finally:
            self._waiting -= 1
        return True

    async def _read(self, host: PartitionHost, wanted: EventsWanted) -> EventsView | None:
        """None where the log's start has overtaken it."""
        state, applied = host.state, int(host.applied_index)
        first = int(state.log_start_index)
        after, offset = wanted.after, wanted.offset
        if after < first - 1:
            after, offset = first - 1, None
        until = min(wanted.until, applied)
        if after >= until:
            return EventsView(first, applied, after, offset, True, 0, _NO_EVENTS)
        outcome_notes = state.queue.outcome_notes
        changes = changes_of(outcome_notes)
        cursor = self.cursors.take(host, after, offset)
        if cursor is None:
            feed = EventFeed(outcome_notes, first, int(state.log_start_offset), changes)
            await self._foresee(host, feed)
            cursor = EventCursor(host, feed)
        cursor.feed.know(outcome_notes, changes)
        page = EventPage(cursor, after, offset, until, wanted.limit)
        deadline_s = asyncio.get_running_loop().time() + READ_S
        is_late = False
        while not (page.is_over or is_late):
            at = cursor.feed.index + 1
            await self._step(host, page)
            if state is not host.state or state.log_start_index > at:
                return None
            is_late = asyncio.get_running_loop().time() >= deadline_s
        columns = b""
        if cursor.index >= after:
            columns = await run_uncancellable(host.workers, page.encode)
        self.cursors.give(cursor)  # not where anything has failed
        if cursor.index < after:
            raise EventsBehind(entries=after - cursor.index)
        return EventsView(first, applied, *page.next, page.is_exact, page.count, columns)

    async def _foresee(self, host: PartitionHost, feed: EventFeed) -> None:
        """Messages whose own entries are gone come with the stories that entries carry."""
        carriers: dict[int, list[int]] = {}
        for offset, index in host.state.queue.reappended.items():
            if offset < feed.messages.start_offset:
                carriers.setdefault(index, []).append(offset)
        log = host.log
        hot = {i: log.entry(Index(i)) for i in carriers if not log.is_cold(Index(i))}

        def read() -> None:
            gil_yield = GilYield()
            for index, offsets in sorted(carriers.items()):
                entry = hot.get(index) or log.cold_entries(Index(index), max_count=1)[0]
                feed.messages.foresee(entry, offsets)
                gil_yield.end()

        if carriers:
            await run_uncancellable(host.workers, read)

    async def _step(self, host: PartitionHost, page: EventPage) -> None:
        """Takes the next few entries."""
        log, at = host.log, Index(page.cursor.feed.index + 1)
        count = min(STEP_ENTRIES, page.until + 1 - at)
        entries: Sequence[Entry] = ()
        if page.cursor.rest is None and count > 0 and not log.is_cold(at):
            entries = log.entries(at, max_bytes=STEP_BYTES, max_count=count)

        def work() -> None:
            cold = page.cursor.rest is None and count > 0 and not entries
            page.take(
                log.cold_entries(at, max_bytes=STEP_BYTES, max_count=count) if cold else entries
            )

        await run_uncancellable(host.workers, work)
