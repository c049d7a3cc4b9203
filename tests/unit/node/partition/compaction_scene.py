"""A partition's leader with its log in a list: segments of a few entries, proposals that apply at
once, until one is told to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from coordinator.topics.settings import TopicConfig
from delivery.entries.records import AppendBatch, encode_records
from delivery.state.partition import PartitionState
from goqueue.wire.batch import Record, RecordBatch, encode_batch
from goqueue.wire.types import Index, Offset
from log.entry import Entry, EntryKind, make_entry
from log.segments.chain import SegmentInfo
from node.metrics import Metrics
from node.partition.reading.reader import Bounds, PartitionReader
from node.partition.retention.compaction import Compactor, Findings
from node.partition.retention.reappended import CompactedReader
from node.partition.retention.trimming import Retention
from raft.errors import Outcome

START_MS = 1_700_000_000_000
SEGMENT_ENTRIES = 5


class Inline(Executor):
    """Does at once what worker threads would."""

    def submit(self, work: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - told by the future, as a thread does
            done.set_exception(error)
        return done


class ListLog:
    """As much of a group's log as compaction and reading ask for."""

    id = "t-0"

    def __init__(self) -> None:
        self.all: list[Entry] = []

    @property
    def last_index(self) -> int:
        return len(self.all)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments())

    def entry(self, index: int) -> Entry:
        return self.all[index - 1]

    def entries(self, first: int, *, max_bytes: int, max_count: int) -> list[Entry]:
        return self.all[first - 1 : first - 1 + min(max_count, 3)]

    def is_cold(self, _first: int) -> bool:
        return False

    cold_entries = entries

    def locate_offset(self, offset: int) -> Index | None:
        found = [e.index for e in self.all if e.record_count and e.base_offset <= offset]
        return Index(found[-1]) if found else None

    def locate_time(self, time_ms: int) -> Index | None:
        return next((e.index for e in self.all if e.time_ms >= time_ms), None)

    def segments(self) -> list[SegmentInfo]:
        found = []
        for at in range(0, len(self.all), SEGMENT_ENTRIES):
            chunk = self.all[at : at + SEGMENT_ENTRIES]
            size = sum(len(entry.frame) for entry in chunk)
            sealed = at + SEGMENT_ENTRIES < len(self.all)
            found.append(SegmentInfo(chunk[0].index, chunk[-1].index, size, sealed))
        return found


class ListGroup:
    """A group that this node leads; `fails_after` so many proposals it does not any more."""

    membership = SimpleNamespace(voters=())
    leader = None

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.fails_after: int | None = None
        self.replication = self
        self.log_time = SimpleNamespace(now_ms=lambda: scene.now_ms)

    @property
    def is_ready_leader(self) -> bool:
        return self.fails_after != 0

    @property
    def trim_limit(self) -> Index:
        return self._scene.state.applied_index

    def propose(
        self,
        kind: EntryKind,
        body: bytes,
        *,
        callback: Callable[[Outcome, object, Index], None],
        begins_segment: bool = False,
    ) -> Index:
        if self.fails_after == 0:
            callback(Outcome.UNKNOWN, None, Index(0))
            return Index(0)
        if self.fails_after:
            self.fails_after -= 1
        index = self._scene.apply(kind, body)
        callback(Outcome.APPLIED, None, index)
        return index


@dataclass(frozen=True)
class Seen:
    offset: int
    key: bytes | None
    value: bytes | None


class Scene:
    """The leader, and a follower that applies the same entries."""

    def __init__(self, **settings: Any) -> None:
        self.config = TopicConfig(**{"cleanup": "compact", **settings})
        self.log, self.now_ms = ListLog(), START_MS
        self.state, self.follower = PartitionState(), PartitionState()
        self.group = ListGroup(self)
        self.metrics = Metrics()
        self.lacks_room = False
        self.room_bytes = 1 << 62
        self._wire()

    def _wire(self) -> None:
        kept = CompactedReader(self.log, lambda: self.state.queue.compacted_set)  # type: ignore[arg-type]
        self.reader = PartitionReader(self.log, self._bounds, kept)  # type: ignore[arg-type]
        parts: dict[str, Any] = {
            "log": self.log,
            "state": self.state,
            "reader": self.reader,
            "raft_group": lambda: self.group,
            "config": lambda: self.config,
        }
        self.retention = Retention(**parts)
        node: Any = SimpleNamespace(
            workers=Inline(),
            metrics=self.metrics,
            lacks_room=lambda _voters: self.lacks_room,
            least_room=lambda _voters: (self.room_bytes, "n2"),
        )
        self.compactor = Compactor(topic="t", retention=self.retention, parts=node, **parts)

    def apply(self, kind: EntryKind, body: Any, base: int = 0, count: int = 0) -> Index:
        index = Index(len(self.log.all) + 1)
        entry = make_entry(
            index=index,
            term=1,
            time_ms=self.now_ms,
            kind=kind,
            body=body,
            base_offset=base,
            record_count=count,
        )
        self.log.all.append(entry)
        self.state.apply(entry)
        self.follower.apply(entry)
        return index

    def publish(self, *records: Record) -> int:
        base = self.state.next_offset
        body = encode_records([AppendBatch(encode_batch(records), len(records), 0)])
        self.apply(EntryKind.RECORDS, body, base, len(records))
        return base

    async def compact(self, *, fails_after: int | None = None, **how: bool) -> Findings:
        self.group.fails_after = fails_after
        try:
            return await self.compactor.run(force=True, **how)
        finally:
            self.group.fails_after = None

    def restart(self) -> None:
        """The state goes through a snapshot, as a process does."""
        state = self.state.snapshot()
        self.state = PartitionState()
        self.state.restore(state)
        self._wire()

    def seen(self, step: int = 1000) -> list[Seen]:
        """What a reader from the start sees, so many messages at a time."""
        found: list[Seen] = []
        at = Offset(0)
        while at < self.state.next_offset:
            page = self.reader.read(at, max_records=step, max_bytes=1 << 20)
            for stored in page.batches:
                batch = RecordBatch.parse(stored.batch)
                batch.validate()
                rows: Iterable[tuple[bytes | None, bytes | None]]
                rows = zip(batch.keys(), batch.values_or_nulls(), strict=True)
                for offset, (key, value) in enumerate(rows, stored.base_offset):
                    if offset >= at:
                        found.append(Seen(offset, key, value))
            assert page.next_offset > at, "reading goes on"
            at = page.next_offset
        return found

    def _bounds(self) -> Bounds:
        state = self.state
        return Bounds(
            state.log_start_offset, state.next_offset, state.applied_index, state.first_offset
        )
