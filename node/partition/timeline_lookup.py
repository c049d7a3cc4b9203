"""One message's timeline out of its partition's log: finds the entries that tell of it, reads them,
and lets the projection judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from delivery.timeline.message import Projection, Timeline, encode_stories
from delivery.timeline.message_entry_index import COMMIT, SEEK, Wide
from delivery.timeline.story import StoryRecord, advances
from goqueue.wire.errors import GoQueueError, NotFound
from goqueue.wire.types import Index, NodeId, Offset
from log.entry import Entry
from log.errors import LogError
from node.partition.offset_lookup import entry_holding, time_at_hand
from node.runtime.gil_yield import GilYield
from node.runtime.logger import get_logger

if TYPE_CHECKING:  # it has its stories told here
    from node.partition.host import PartitionHost
    from node.partition.reading.message_entry_index import IndexedEntries

INDEX_S = 5.0
"""How long a look-up waits for the index to be made."""
STORIES_INDEX_S = 60.0
"""The same of stories that are to be carried on: those that can't be told by then go without."""
READ_ENTRIES = 64
"""Entries that are read at once."""
READ_BYTES = 512 << 10
ENTRY_BYTES = 4096
"""Of an entry that operations are in, seldom more: so much is read for it."""
NEAR = 4
"""Entries that lie no further apart are read in one go."""
FRAMES_A_STEP = 16
HOT_ENTRIES = 32
"""Entries from memory that are judged before others get their turn."""

_log = get_logger("timelines")


class TimelineOff(GoQueueError):
    """The node that leads the partition keeps no index of timelines."""

    code, http_status, text = "timeline_off", 409, "timelines are switched off (timelines.enabled)"


async def look_up(host: PartitionHost, offset: Offset) -> Timeline:
    """As of what is applied here. Raises NotFound, TimelineOff, IndexBehind, LogError, OSError."""
    if not host.has_timelines:
        raise TimelineOff(topic=host.topic, partition=host.id.partition)
    deadline_s = asyncio.get_running_loop().time() + INDEX_S
    while True:
        start, applied = host.log.first_index, host.applied_index
        outcome_notes = host.state.queue.outcome_notes
        known_from = outcome_notes.start_index
        try:
            projection = await begin(host, offset)
            await tell(host, projection, applied, deadline_s)
        except (LogError, OSError):
            if host.log.first_index == start:
                raise
            continue  # what was read has gone meanwhile: the message too, or it is carried
        found = projection.timeline(_holders(host, projection))
        if found.exact or outcome_notes.start_index == known_from:
            return found  # else the log's start went past what was told, as above


async def begin(host: PartitionHost, offset: Offset) -> Projection:
    """From the entry that holds the message. Raises NotFound, LogError, OSError."""
    queue = host.state.queue
    held = queue.held_in(offset)
    if held is not None:
        (entry,) = await _read(host, [held])
        return Projection(offset, queue.outcome_notes, entry)
    found = None
    if offset >= queue.log_start_offset:  # files may still have what has gone
        found = await entry_holding(host, offset)
    if found is None or not found.base_offset <= offset < found.base_offset + found.record_count:
        raise NotFound(
            f"no message at offset {offset}{_absence(host, offset)}",
            topic=host.topic,
            partition=host.id.partition,
        )
    return Projection(offset, queue.outcome_notes, found)


def _absence(host: PartitionHost, offset: Offset) -> str:
    """Whether it went, or has yet to come."""
    queue = host.state.queue
    if offset < queue.log_start_offset:
        return f" any more: the log begins at offset {queue.log_start_offset}"
    return f" yet: the log ends at offset {queue.next_offset}" * (offset >= queue.next_offset)


async def tell(
    host: PartitionHost, projection: Projection, applied: Index, deadline_s: float
) -> None:
    """All that is applied up to this entry; for the index there is time until the deadline (the
    loop's time). Raises IndexBehind, LogError, OSError."""
    await _tell_frames(host, projection, applied)
    since = Index(projection.since)
    found = await host.message_entries.find(Offset(projection.offset), since, deadline_s)
    told = _Telling(host, projection, applied, found)
    while (index := told.next_index()) is not None:
        await told.due_before(index)
        if host.log.is_cold(Index(index)):
            await asyncio.get_running_loop().run_in_executor(host.workers, told.judge_cold)
        else:
            told.judge_hot()
            await asyncio.sleep(0)
    await told.due_before(applied + 1)


async def stories_of(host: PartitionHost, offsets: Sequence[Offset]) -> bytes:
    """Of messages that are to outlive the log: as of what is applied when it begins. One that can't
    be told now goes without. Of a delayed message that is not due, and was never carried nor a
    group's, all stands in the message."""
    queue, applied = host.state.queue, host.applied_index
    deadline_s = asyncio.get_running_loop().time() + STORIES_INDEX_S
    stories: dict[int, StoryRecord] = {}
    for offset in offsets:
        try:
            projection = await begin(host, offset)
            is_carried, groups = projection.is_carried, queue.outcome_notes.groups
            if offset in queue.hidden and not (is_carried or groups):
                await _tell_frames(host, projection, applied)
            else:
                await tell(host, projection, applied, deadline_s)
            stories[offset] = projection.record(applied)
        except (GoQueueError, LogError, OSError) as error:
            _log.warning("story_not_carried", group=str(host.id), problem=str(error))
        await asyncio.sleep(0)
    return encode_stories(stories) if stories else b""


class _Telling:
    """Entries on their way into a projection, with those that time needs between them."""

    def __init__(
        self, host: PartitionHost, projection: Projection, applied: Index, found: IndexedEntries
    ) -> None:
        self._host = host
        self._projection = projection
        self._applied = applied
        self._named = set(found.named)
        self._wide: dict[int, list[Wide]] = {}
        for one in found.wide:
            self._wide.setdefault(one.entry, []).append(one)
        self._order = sorted(i for i in {*self._named, *self._wide} if i <= applied)
        self._at = 0
        self._last = int(projection.since)
        self._due: tuple[int, int] = (0, 0)
        """(a time, the entry by which it has come)."""

    def next_index(self) -> int | None:
        """The next entry that tells something; None where all is told."""
        while self._at < len(self._order):
            index = self._order[self._at]
            if self._may_tell(index):
                return index
            self._at += 1
        return None

    def judge_cold(self) -> None:
        """Entries from the disk, until time brings something about. By a thread."""
        log = self._host.log
        self._judge(log.cold_entries, 1 << 62, log.is_cold, GilYield().end)

    def judge_hot(self) -> None:
        """Entries from memory, for a moment."""
        self._judge(self._host.log.entries, HOT_ENTRIES, lambda _index: True, _no_turns)

    def _judge(
        self,
        read: Callable[..., list[Entry]],
        count: int,
        among: Callable[[Index], bool],
        end_turn: Callable[[], None],
    ) -> None:
        """The first entry was asked for what is due before it."""
        is_first = True
        while count > 0 and (index := self.next_index()) is not None and among(Index(index)):
            ahead = self._order[self._at : self._at + min(count, READ_ENTRIES)]
            known = _read_runs(read, [i for i in ahead if i in self._named or i == index])
            count -= len(known)
            end_turn()
            for entry in known:
                index = entry.index
                while self._at < len(self._order) and self._order[self._at] < index:
                    if self._may_tell(self._order[self._at]):
                        break  # one that stands apart is read by itself
                    self._at += 1
                if self._at >= len(self._order) or self._order[self._at] != index:
                    break
                due_ms = self._projection.story.next_due_ms()
                if not is_first and due_ms is not None and due_ms <= entry.time_ms:
                    return
                is_first = False
                self._take(entry)
                self._at += 1
                end_turn()

    def _may_tell(self, index: int) -> bool:
        if index in self._named:
            return True
        return any(self._may_concern(one) for one in self._wide.get(index, ()))

    def _may_concern(self, one: Wide) -> bool:
        """The story hears of a group that began after it with the next entry that it is told: until
        then it can't say that the group has nothing to do with the message."""
        story = self._projection.story
        if one.what in (COMMIT, SEEK) and one.group not in story.groups:
            return one.low <= story.offset < one.high
        return one.concerns(self._projection)

    def _take(self, entry: Entry) -> None:
        self._projection.tell(entry)
        self._last = max(self._last, entry.index)

    async def due_before(self, index: int) -> None:
        """What time brings about before this entry is told by the first one that has the time."""
        while (due_ms := self._projection.story.next_due_ms()) is not None:
            if due_ms > self._host.state.time_ms:
                return
            entry = await self._at_time(due_ms, index)
            if entry is None:
                return
            self._take(entry)

    async def _at_time(self, due_ms: int, index: int) -> Entry | None:
        """The first entry of this time that brings anything about, if it comes before the index."""
        if self._due[0] != due_ms:
            await time_at_hand(self._host.log, due_ms)
            found = self._host.log.locate_time(due_ms)
            self._due = due_ms, self._applied + 1 if found is None else found
        at = max(self._due[1], self._last + 1)
        while at < index and at <= self._applied:
            for entry in await _read(self._host, range(at, min(at + FRAMES_A_STEP, index))):
                if advances(entry):
                    return entry if entry.index <= self._applied else None
                at = entry.index + 1
        return None


def _no_turns() -> None:
    """On the loop's thread a bound on entries ends them."""


async def _tell_frames(host: PartitionHost, projection: Projection, applied: Index) -> None:
    at = projection.index + 1
    while projection.wants_frames and at <= applied:
        for entry in await _read(host, range(at, min(at + FRAMES_A_STEP, applied + 1))):
            projection.frame(entry)
            at = entry.index + 1


def _holders(host: PartitionHost, projection: Projection) -> list[str]:
    """Of the voters of that time, who has the message, as far as this node knows."""
    voters = host.state.queue.outcome_notes.voters_at(projection.index)
    voters = voters or [voter.node for voter in host.voters]
    if not host.is_leader:
        return voters
    matches = host.matches()
    return [node for node in voters if matches.get(NodeId(node), 0) >= projection.index] or voters


async def _read(host: PartitionHost, indexes: Sequence[int]) -> list[Entry]:
    """These entries, in order; the first few of them where they are large. From memory where they
    are there, else by a thread. Raises LogError, OSError."""
    log = host.log
    cold = [index for index in indexes if log.is_cold(Index(index))]
    if cold:
        read = partial(_read_runs, log.cold_entries, cold)
        return await asyncio.get_running_loop().run_in_executor(host.workers, read)
    return _read_runs(log.entries, indexes)


def _read_runs(read: Callable[..., list[Entry]], indexes: Sequence[int]) -> list[Entry]:
    """Entries, those that lie near each other in one go; at least the first one."""
    found: list[Entry] = []
    size = at = 0
    while at < len(indexes) and size < READ_BYTES:
        end = at + 1
        while end < len(indexes) and indexes[end] - indexes[end - 1] <= NEAR:
            end += 1
        wanted = set(indexes[at:end])
        count = indexes[end - 1] - indexes[at] + 1
        room = min(READ_BYTES, count * ENTRY_BYTES)
        entries = read(Index(indexes[at]), max_bytes=room, max_count=count)
        size += sum(len(entry.frame) for entry in entries)
        found += [entry for entry in entries if entry.index in wanted]
        if len(entries) < count:
            break
        at = end
    return found
