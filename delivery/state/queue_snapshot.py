"""The queue in a snapshot: equal bytes wherever the same entries were applied.

A record holds copies of the bitmaps; `encode_bitmaps` turns them into bytes when the record is
encoded, which takes long for a deep queue and may happen on any thread.
"""

from __future__ import annotations

from collections import deque
from typing import cast

import msgspec

from delivery.config import GroupConfig, QueueConfig
from delivery.entries.ops import Result
from delivery.group.counters import Counters
from delivery.group.failures import DeadLetter, Reason, Redrives
from delivery.group.key_order import KeyOrder
from delivery.group.leases import OpenLease, StreamLease
from delivery.group.state import GroupState, Owner
from delivery.history.archive import ArchiveRecord
from delivery.history.compacted_set import CompactedSetRecord
from delivery.history.outcome_notes import GroupPast, OutcomeNotesRecord
from delivery.offsets.bitmaps import BitMap64, canonical
from delivery.offsets.due import DueTimes
from delivery.state.queue import QueueState


class OrderRecord(msgspec.Struct, array_like=True, frozen=True):
    """Keys of an `ordering: key` group."""

    heads: list[tuple[int, int]]
    chains: list[tuple[int, list[int]]]
    parked: list[tuple[int, bytes, int | None]]


class GroupRecord(msgspec.Struct, array_like=True, frozen=True):
    """One group."""

    id: int
    name: str
    version: int
    config: GroupConfig
    base: int
    opened_ms: int
    committed_offset: int
    halted: str
    done: bytes
    ready: tuple[list[bytes], list[list[tuple[int, int]]]]
    leases: list[OpenLease]
    waiting: list[tuple[int, int, bool]]
    since: list[tuple[int, int]]
    timed: bytes
    first: list[tuple[int, int]]
    failures: list[tuple[int, int, list[Reason]]]
    dead: list[tuple[int, int, int, str, list[Reason], int]]
    redrives: list[tuple[int, int, int]]
    order: OrderRecord | None
    outcomes: list[bool]
    turns: list[int]
    counters: Counters
    owner: tuple[str, int, int, int]
    begins: int = 0
    """0 as well where the snapshot is of a release that did not know it."""
    outside: bytes = b""


class StreamedGroupRecord(GroupRecord, array_like=True, frozen=True):
    """A group whose streams have messages in flight; written in place of the other one where that
    is so, in snapshots that say so by their version."""

    stream_leases: list[StreamLease] = []


class QueueRecord(msgspec.Struct, array_like=True, frozen=True):
    """The whole queue of a partition."""

    config: QueueConfig
    next_offset: int
    lanes: list[bytes]
    bitmaps: list[bytes]
    """hidden, withdrawn, cancelled, delayed ever, late."""
    due: list[bytes]
    """delays, expiries, late until."""
    keys: list[tuple[int, bytes]]
    times: tuple[bytes, bytes]
    reappended: list[tuple[int, int]]
    results: list[tuple[int, int, Result]]
    counters: list[int]
    lasting: int
    stored_by_lane: list[int]
    groups: list[StreamedGroupRecord]
    """Without streams each is written as a `GroupRecord`."""
    compacted_set: CompactedSetRecord | None = None
    """Of a partition that was compacted."""
    outcome_notes: OutcomeNotesRecord | None = None
    archive: ArchiveRecord | None = None
    """Of a partition that waits for its archive, or was told of one."""


def encode_bitmaps(found: object) -> bytes:
    """What the encoder of a snapshot calls for what msgpack does not know."""
    if isinstance(found, BitMap64):
        return canonical(found)
    assert isinstance(found, DueTimes), type(found)
    return found.dump()


def _later(found: BitMap64 | DueTimes) -> bytes:
    """Stands in a record for its bytes."""
    return cast(bytes, found.copy())


def dump_queue(queue: QueueState) -> QueueRecord:
    """The queue as a record."""
    for group in queue.groups.values():
        group.look()
    return QueueRecord(
        queue.config,
        queue.next_offset,
        [_later(offsets) for offsets in queue.lanes],
        [_later(offsets) for offsets in _bitmaps(queue)],
        [_later(due) for due in (queue.delays, queue.expiries, queue.late_until)],
        queue.keys.dump(),
        queue.times.dump(),
        sorted(queue.reappended.items()),
        queue.results.dump(),
        [
            queue.scheduled,
            queue.released,
            queue.cancelled_count,
            queue.expired_count,
            queue.delay_ms_sum,
        ],
        queue.lasting,
        list(queue.stored_by_lane),
        [cast(StreamedGroupRecord, _dump_group(queue.groups[id_])) for id_ in sorted(queue.groups)],
        None if queue.compacted_set.is_empty else queue.compacted_set.dump(),
        queue.outcome_notes.dump(),
        queue.archive.dump(),
    )


def load_queue(record: QueueRecord) -> QueueState:
    """The queue of a record."""
    queue = QueueState()
    queue.config = record.config
    queue.next_offset = record.next_offset
    queue.lanes = [BitMap64.deserialize(offsets) for offsets in record.lanes]
    hidden, withdrawn, cancelled, ever, late = map(BitMap64.deserialize, record.bitmaps)
    queue.hidden, queue.withdrawn, queue.cancelled = hidden, withdrawn, cancelled
    queue.delayed_ever, queue.late = ever, late
    for due, data in zip((queue.delays, queue.expiries, queue.late_until), record.due, strict=True):
        due.load(data)
    queue.keys.load(record.keys)
    queue.times.load(record.times)
    queue.reappended = dict(record.reappended)
    queue.results.load(record.results)
    queue.scheduled, queue.released, queue.cancelled_count, *others = record.counters
    queue.expired_count, queue.delay_ms_sum = others
    queue.lasting = record.lasting
    queue.stored_by_lane = list(record.stored_by_lane)
    if record.compacted_set is not None:
        queue.compacted_set.load(record.compacted_set)
    if record.outcome_notes is not None:
        queue.outcome_notes.load(record.outcome_notes)
    if record.archive is not None:
        queue.archive.load(record.archive)
    queue.groups = {found.id: _load_group(found, queue) for found in record.groups}
    return queue


def begin_outcome_notes(queue: QueueState, index: int, start_index: int) -> None:
    """The queue is as a release that noted nothing has left it, after this entry."""
    groups = [
        GroupPast(group.id, group.name, group.base, group.opened_ms, [((index, 0), group.config)])
        for group in queue.groups.values()
    ]
    queue.outcome_notes.begin_anew(index, queue.config, groups)
    queue.outcome_notes.start_index = start_index


def _bitmaps(queue: QueueState) -> tuple[BitMap64, ...]:
    return queue.hidden, queue.withdrawn, queue.cancelled, queue.delayed_ever, queue.late


def _dump_group(group: GroupState) -> GroupRecord:
    order = None if group.order is None else OrderRecord(*group.order.dump())
    record = GroupRecord(
        group.id,
        group.name,
        group.version,
        group.config,
        group.base,
        group.opened_ms,
        group.committed_offset,
        group.halted,
        _later(group.done),
        cast(tuple[list[bytes], list[list[tuple[int, int]]]], group.ready.dump()),
        group.leases.dump(),
        [(offset, *group.waiting[offset]) for offset in sorted(group.waiting)],
        sorted(group.since.items()),
        _later(group.timed),
        sorted(group.first.items()),
        group.failures.dump(),
        [_dump_dead(offset, letter) for offset, letter in group.dead.items()],
        [(o, group.redrives[o].count, group.redrives[o].at_ms) for o in sorted(group.redrives)],
        order,
        list(group.outcomes),
        list(group.turns),
        group.counters.copy(),
        (group.owner.member, group.owner.generation, group.owner.since, group.owner.ended),
        group.begins,
        _later(group.outside) if group.outside else b"",
    )
    of_streams = group.leases.dump_streams()
    if not of_streams:
        return record
    return StreamedGroupRecord(**msgspec.structs.asdict(record), stream_leases=of_streams)


def _dump_dead(offset: int, letter: DeadLetter) -> tuple[int, int, int, str, list[Reason], int]:
    history = list(letter.history)
    return offset, letter.died_ms, letter.attempts, letter.reason, history, letter.redrives


def _load_group(record: StreamedGroupRecord, queue: QueueState) -> GroupState:
    config = record.config
    group = GroupState(
        record.id, record.name, record.version, config, record.base, record.opened_ms, queue
    )
    group.committed_offset, group.seen, group.halted = (
        record.committed_offset,
        queue.next_offset,
        record.halted,
    )
    group.done = BitMap64.deserialize(record.done)
    group.ready.load(record.ready)
    group.leases.load(record.leases, record.stream_leases)
    group.waiting = {offset: (due_ms, back) for offset, due_ms, back in record.waiting}
    group.wakes = sorted((due_ms, offset) for offset, due_ms, _ in record.waiting)
    group.since = dict(record.since)
    group.timed = BitMap64.deserialize(record.timed)
    group.first = dict(record.first)
    group.failures.load(record.failures)
    for offset, died_ms, attempts, reason, history, redrives in record.dead:
        group.dead[offset] = DeadLetter(died_ms, attempts, reason, history, redrives)
        group.dead_by_reason[reason] = group.dead_by_reason.get(reason, 0) + 1
    group.redrives = {offset: Redrives(count, at) for offset, count, at in record.redrives}
    if record.order is not None:
        order = record.order
        group.order = KeyOrder.load(order.heads, order.chains, order.parked)
    group.outcomes = deque(record.outcomes, maxlen=config.halt_window)
    group.turns = list(record.turns)
    group.counters = record.counters
    group.owner = Owner(*record.owner)
    group.begins = record.begins
    group.outside = BitMap64.deserialize(record.outside) if record.outside else BitMap64()
    return group
