"""Which entries of a partition may go, and what of them must be carried on before they do.

A leader's retention is a trim in the log. Messages that must outlive the log before it, delayed
ones and dead letters, are appended once more with their offsets; only then is the trim proposed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from coordinator.topics.settings import TopicConfig
from delivery.entries.reappended import ReappendedBatch, decode_reappended, encode_reappended
from delivery.entries.records import encode_trim
from delivery.state.partition import PartitionState
from delivery.timeline.message import stories_end
from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import GoQueueError, NotLeader
from goqueue.wire.types import Index, Offset
from log.entry import EntryKind
from log.errors import LogError
from log.partition.log import PartitionLog
from node.partition.reading.reader import PartitionReader, stored_batches
from node.partition.retention.archiving import Archiving
from node.partition.retention.reappended import ReappendedRows
from node.rpc.queue import MessageRow
from node.runtime.logger import get_logger
from raft.errors import Outcome
from raft.group import RaftGroup

WAITED_FOR_BYTES = 1 << 30
"""Beyond its quota a partition keeps this much, or as much again as the quota if that is more, for
a replica that is away: what is trimmed before it has come back, it can't get any more."""
CARRIED_BYTES = 1 << 20
"""Of one carrying entry, where its messages are not larger by themselves."""
CARRIED_A_ROUND = 64
"""Entries of one round; a trim that needs more waits for the next ones."""

EARLY = 10_000
"""Entries after the log's start in which a carrier's stories may end before it: those that were on
their way when it was made."""

_log = get_logger("partition")
Stories = Callable[[Sequence[Offset]], Awaitable[bytes]]


class Retention:
    """The upkeep of one partition's log. Loop thread only."""

    def __init__(
        self,
        *,
        log: PartitionLog,
        state: PartitionState,
        reader: PartitionReader,
        raft_group: Callable[[], RaftGroup],
        config: Callable[[], TopicConfig],
        stories: Stories | None = None,
    ) -> None:
        """`stories` tells the timelines of messages so far, for the entry that carries them."""
        self._stories = stories
        self._log = log
        self._state = state
        self._reader = reader
        self._raft_group = raft_group
        self._config = config
        self.archiving = Archiving(log, state, reader, config)
        self.in_flight = False
        """Whether the log's start is being moved, by retention or by compaction."""

    async def run(self) -> None:
        """As leader: carry on what must be kept, then move the log start, through the log. At most
        one at a time. Raises nothing that leadership or damage explains."""
        raft_group = self._raft_group()
        if self.in_flight or not raft_group.is_ready_leader:
            return
        self.in_flight = True
        try:
            trim = self._due(raft_group.log_time.now_ms())
            if trim is not None and await self.carry(*trim):
                await self.propose(EntryKind.TRIM, encode_trim(*trim))
        except NotLeader:
            return
        except (LogError, OSError) as error:  # who heals the log knows of it
            _log.warning("not_trimmed", group=str(self._log.id), problem=str(error))
        finally:
            self.in_flight = False

    def reappended_rows(self, index: Index) -> Mapping[Offset, MessageRow]:
        """The messages of a carrying entry. Raises LogError where it can't be read."""
        return ReappendedRows(self._log.entry(index).body)

    async def propose(
        self, kind: EntryKind, body: bytes, *, begins_segment: bool = False
    ) -> Index | None:
        """The entry's index once it was applied; None where it may not have been. Raises
        NotLeader."""
        done: asyncio.Future[Index | None] = asyncio.get_running_loop().create_future()

        def ended(outcome: Outcome, _result: object, index: Index) -> None:
            if not done.done():
                done.set_result(index if outcome is Outcome.APPLIED else None)

        self._raft_group().propose(kind, body, begins_segment=begins_segment, callback=ended)
        return await done

    # private

    def _due(self, now_ms: int) -> tuple[Index, Offset] | None:
        """The first entry to keep and the offset it begins with; None to keep all."""
        config, log, state, raft_group = self._config(), self._log, self._state, self._raft_group()
        if not config.is_deleted:
            return None
        index = state.log_start_index
        if config.retention_ms >= 0:
            kept = log.locate_time(now_ms - config.retention_ms)
            index = max(index, Index(state.applied_index + 1) if kept is None else kept)
        aged = index
        floor = raft_group.replication.trim_limit
        if config.retention_bytes >= 0 and not config.is_compacted:
            segments = [s for s in log.segments() if s.last_index >= state.log_start_index]
            spare = sum(segment.size_bytes for segment in segments) - config.retention_bytes
            for segment in segments[:-1]:
                if spare <= 0:
                    break
                spare -= segment.size_bytes
                index = max(index, Index(segment.last_index + 1))
                if spare > max(config.retention_bytes, WAITED_FOR_BYTES):  # nobody is waited for
                    floor = max(floor, Index(segment.last_index))
        index = Index(min(index, floor + 1, self.archiving.end_index()))
        if index <= state.log_start_index:
            return None
        offset = max(self.offset_from(index), state.log_start_offset)
        if not self.archiving.may_drop(offset):
            return None
        carried = state.queue.reappended.values()
        if offset == state.log_start_offset and min(carried, default=aged) >= aged:
            return None  # no message goes, and none is carried that is older than retention
        return index, offset

    def offset_from(self, index: Index) -> Offset:
        """The offset that the entries before this index end at."""
        found = self._reader.offset_from(index)
        return self._state.next_offset if found is None else found

    async def carry(self, index: Index, offset: Offset, also: Iterable[int] = ()) -> bool:
        """Whether all that must be kept, and these messages, stand at or after the index now."""
        left = self.left(index, offset, also)
        for _ in range(CARRIED_A_ROUND):
            if not left:
                return True
            try:
                count, body = await self._body(left)
            except (LogError, GoQueueError, ValueError) as error:
                _log.warning("not_carried", group=str(self._log.id), problem=str(error))
                return False
            if not await self.propose(EntryKind.CARRIED, body):
                return False
            del left[:count]
            await asyncio.sleep(0)
        return not left

    def left(self, index: Index, offset: Offset, also: Iterable[int] = ()) -> list[Offset]:
        """What is to be carried before the log begins at this entry, in order: what must be kept,
        and these messages, where they stand before it; and all that stays carried, needed or not,
        whose story would be cut."""
        queue = self._state.queue
        carried, early = queue.reappended, self._early(index)
        left = {o for o in {*queue.needed_below(offset), *also} if carried.get(o, 0) < index}
        left.update(o for o, at in carried.items() if at in early)
        return [Offset(o) for o in sorted(left)]

    def _early(self, index: Index) -> set[int]:
        """Carriers from this entry on whose stories end before it: what came between would go."""
        carriers = {
            at for at in self._state.queue.reappended.values() if index <= at < index + EARLY
        }
        found: set[int] = set()
        for at in carriers if self._stories is not None else ():
            with suppress(LogError):
                cut = stories_end(self._log.entry(Index(at)).body)
                if cut is not None and cut + 1 < index:
                    found.add(at)
        return found

    async def _body(self, offsets: list[Offset]) -> tuple[int, bytes]:
        """How many of the messages fit into one entry, and its body, with their stories so far."""
        batches: list[ReappendedBatch] = []
        count = size = 0
        for reappended in self._rows(offsets):
            if batches and size + len(reappended.batch) > CARRIED_BYTES:
                break
            batches.append(reappended)
            count += len(reappended.offsets)
            size += len(reappended.batch) + 8 * len(reappended.offsets)
        told = b"" if self._stories is None else await self._stories(offsets[:count])
        return count, encode_reappended(batches, told)

    def _rows(self, offsets: list[Offset]) -> Iterator[ReappendedBatch]:
        """The messages as rows of the batches they are stored in. Raises LogError."""
        at = 0
        while at < len(offsets):
            time_ms, places, stored = self._find(offsets[at])
            rows = _leading(islice(offsets, at, None), places)
            kept = offsets[at : at + len(rows)]
            batch = RecordBatch.parse(stored).select(rows)
            yield ReappendedBatch(time_ms, kept, batch.buffer)
            at += len(rows)

    def _find(self, offset: Offset) -> tuple[int, Mapping[Offset, int], bytes | memoryview]:
        """The batch that holds a message: its log time, and the row of each of its offsets."""
        index = self._state.queue.held_in(offset)
        if index is not None:
            for reappended in decode_reappended(self._log.entry(Index(index)).body):
                if offset in reappended.offsets:
                    places = {Offset(o): row for row, o in enumerate(reappended.offsets)}
                    return reappended.time_ms, places, reappended.batch
        entry = self._reader.entry_at(offset)
        for base, count, stored in () if entry is None else stored_batches(entry):
            if entry is not None and base <= offset < base + count:
                return entry.time_ms, {Offset(base + row): row for row in range(count)}, stored
        raise ValueError(f"message {offset} is not stored")


def _leading(offsets: Iterable[Offset], places: Mapping[Offset, int]) -> list[int]:
    """The rows of the first offsets, as far as they are all in one batch."""
    rows: list[int] = []
    for offset in offsets:
        row = places.get(offset)
        if row is None:
            break
        rows.append(row)
    return rows
