"""The queue in a partition: lanes, delays, expiry and groups, as its applied entries add up.

Whatever falls due by an entry's log time happens before the entry itself: delayed messages become
ready, expired ones are withdrawn, backoffs end. Nothing happens between entries, so all replicas
agree; a leader that has something due makes an entry for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from delivery.config import LANES_COUNT, QueueConfig, bounded, sound_group, sound_queue
from delivery.dedup.results import Results
from delivery.entries.columns import stored_batch, stored_lanes
from delivery.entries.ops import (
    NOT_FOUND,
    OK,
    REPEATED,
    TOO_LATE,
    Cancelled,
    CodesResult,
    Committed,
    Configure,
    CountResult,
    Delivered,
    DeliveredToStream,
    DropGroup,
    Expired,
    Granted,
    Halted,
    Op,
    OpenGroup,
    Own,
    Parked,
    Purged,
    Redriven,
    Result,
    Resumed,
    Settled,
    Sought,
    StaleResult,
    StreamsEnded,
    Tick,
    UnknownGroup,
    Unparked,
)
from delivery.entries.reappended import Held
from delivery.entries.records import AppendedBatch
from delivery.group.operations import GroupOperations
from delivery.group.state import GroupState
from delivery.history.archive import ARCHIVE_OPS, Archive
from delivery.history.compacted_set import CompactedSet, Compaction
from delivery.history.outcome_notes import GroupPast, OutcomeNotes
from delivery.offsets.bitmaps import BitMap64, lane_rows, remove_below, span, stored_only
from delivery.offsets.due import DueTimes
from delivery.offsets.keys import KeyHashes
from delivery.offsets.store_times import StoreTimes
from goqueue.wire.batch import resolve_ms
from goqueue.wire.layout import HAS_DELIVER_AT, HAS_EXPIRES_AT, Header

_FOLDED = bytes((1, 1, 2, 3, 3))
"""Lanes of a topic with three: critical counts as high, background as low."""

RUNS_SPARE = 1000
"""Times of messages that are gone, beyond as many as matter."""


class QueueState:
    """Implements `Stored` for its groups."""

    operations = GroupOperations

    def __init__(self) -> None:
        self.config = QueueConfig()
        self.next_offset = 0
        self.log_start_offset = 0
        self.time_ms = 0
        """Log time of the newest entry."""
        self.lanes = [BitMap64() for _ in range(LANES_COUNT)]
        self.hidden = BitMap64()
        self.withdrawn = BitMap64()
        self.cancelled = BitMap64()
        """Those of `withdrawn` that were cancelled; the others have expired."""
        self.delayed_ever = BitMap64()
        """Stored with a delay, and still in the log."""
        self.late = BitMap64()
        """Were delayed and are due, for no longer than retention keeps a message."""
        self.delays = DueTimes()
        self.expiries = DueTimes()
        self.late_until = DueTimes()
        self.keys = KeyHashes()
        self.times = StoreTimes()
        self.groups: dict[int, GroupState] = {}
        self.reappended: dict[int, int] = {}
        """Offset below the log start -> index of the entry that holds it now."""
        self.compacted_set = CompactedSet()
        self.archive = Archive()
        self.results = Results()
        self.outcome_notes = OutcomeNotes()
        self.lasting = 0
        """Runs of `expiries` that were left when they were cleared last."""
        self.stored_by_lane = [0] * LANES_COUNT
        self.scheduled = self.released = self.cancelled_count = self.expired_count = 0
        self.delay_ms_sum = 0
        """Of all that were `scheduled`, as they were stored."""

    # -- what a leader asks

    def next_due_ms(self) -> int | None:
        """When the next delay or backoff is over. Expiry waits for any entry."""
        due = (self.delays.next_ms(), self.next_wake_ms())
        return min((time_ms for time_ms in due if time_ms is not None), default=None)

    def next_wake_ms(self) -> int | None:
        """When the next backoff of any group is over."""
        wakes = (group.next_wake_ms() for group in self.groups.values())
        return min((time_ms for time_ms in wakes if time_ms is not None), default=None)

    def pending_delays(self, limit: int, skip: int) -> list[tuple[int, int]]:
        """(when due, offset) of delayed messages, soonest first."""
        found: list[tuple[int, int]] = []
        for time_ms, offset, _ in self.delays.runs():
            if offset in self.hidden:
                if skip:
                    skip -= 1
                    continue
                if len(found) == limit:
                    break
                found.append((time_ms, offset))
        return found

    def due(self, now_ms: int) -> list[int]:
        """Delayed messages that are due, and not released yet."""
        if not self.hidden:
            return []
        return [offset for _, offset, _ in self.delays.due(now_ms) if offset in self.hidden]

    def state_of(self, offset: int) -> str:
        """`pending`, `due`, `cancelled`, `expired`, or `plain` for one without a delay."""
        if offset in self.hidden:
            return "pending"
        if offset in self.withdrawn:
            return "cancelled" if offset in self.cancelled else "expired"
        return "due" if offset in self.delayed_ever else "plain"

    def lane_of(self, offset: int) -> int:
        return next((n for n, offsets in enumerate(self.lanes) if offset in offsets), 2)

    @property
    def compacted(self) -> BitMap64:
        """What compaction has left below the log's start: it belongs to the stream."""
        return self.compacted_set.offsets

    def held_in(self, offset: int) -> int | None:
        """The entry that holds a message which outlived the log before it; None for others."""
        index = self.reappended.get(offset)
        if index is not None or offset >= self.log_start_offset:
            return index
        carrier = self.compacted_set.carrier_of(offset)
        return None if carrier is None else carrier.index

    @property
    def held(self) -> Held:
        """`held_in`, for those who look up many."""
        return Held(self.held_in)

    def needed_below(self, offset: int) -> list[int]:
        """Messages below the offset that must outlive the log before it: delayed ones, those that
        were due or redriven not long ago and are not settled, and dead letters."""
        needed = BitMap64(self._must_keep(offset))
        late = (self.late & span(0, offset)) - self.withdrawn
        if late and not self.groups:
            needed |= late
        keep_ms = self.config.dead_retention_ms
        redriven_from_ms = self.time_ms - keep_ms if keep_ms >= 0 else 0
        for group in self.groups.values():
            if late:
                needed |= group.pending(late)
            needed.update(group.outlasting(offset, redriven_from_ms))
        return list(needed)

    def begun(self, op: OpenGroup, time_ms: int) -> GroupState:
        """A group as it begins here at this time; it is not kept."""
        base = bounded(op.offset, 0, self.next_offset)
        if base <= self.log_start_offset and op.config.start != "latest":
            base = 0
        group = GroupState(
            op.group, op.name, op.version, sound_group(op.config), base, time_ms, self
        )
        below = span(base, self.log_start_offset)
        group.outside = (
            (BitMap64(self.reappended) & below) - self.hidden - self.late - self.compacted
        )
        group.admit_kept((self.compacted & below) - self.late)
        for offset in (self.late & below) - self.withdrawn:
            group.release_due(offset, time_ms)
        return group

    # -- entries

    def advance(self, now_ms: int) -> None:
        """Everything that is due by this log time happens."""
        self.time_ms = now_ms
        delayed = self.delays.pop(now_ms)
        if delayed:
            self._release([(t, o) for t, o, _ in delayed if o in self.hidden])
        expired = self.expiries.pop(now_ms)
        if expired:
            gone = BitMap64()
            for _, first, count in expired:
                gone |= span(first, first + count)
            self._expire(gone)
        for group in self.groups.values():
            if group.wakes and group.wakes[0][0] <= now_ms:
                self.operations(group).wake(now_ms)
            if group.dead and self.config.dead_retention_ms >= 0:
                self.operations(group).bury_old(now_ms - self.config.dead_retention_ms)
        for _, offset, _ in self.late_until.pop(now_ms):
            self.late.discard(offset)
        self.results.forget(now_ms)

    def stored(self, batch: AppendedBatch, header: Header, time_ms: int) -> None:
        """A batch of an applied records entry."""
        base, count = batch.base_offset, batch.count
        assert base == self.next_offset, "batches follow each other"
        lanes = stored_lanes(batch.batch, header)
        if self.config.lanes < LANES_COUNT:
            lanes = lanes.translate(_FOLDED + bytes(range(LANES_COUNT, 256)))
        if lanes.count(lanes[0]) == count:
            self.lanes[lanes[0]].add_range(base, base + count)
            self.stored_by_lane[lanes[0]] += count
        else:
            for lane in set(lanes):
                self.lanes[lane].update(lane_rows(lanes, lane, base))
                self.stored_by_lane[lane] += lanes.count(lane)
        timed = header.flags & (HAS_DELIVER_AT | HAS_EXPIRES_AT)
        if header.keys_bytes or timed:
            columns = stored_batch(batch.batch, header)
            if header.keys_bytes:
                self.keys.stored(base, columns.keys())
            if header.flags & HAS_DELIVER_AT:
                self._hide(base, columns.deliver_at(), time_ms)
            if header.flags & HAS_EXPIRES_AT:
                self._note_expiries(base, columns.expires_at(), time_ms)
        if self.config.ttl_ms and not header.flags & HAS_EXPIRES_AT:
            self.expiries.add(time_ms + self.config.ttl_ms, base, count)
        if self.groups:
            self.times.stored(base, time_ms)
        self.next_offset = base + count

    def apply(self, ops: list[Op], index: int, time_ms: int) -> list[Result]:
        """Each operation's result, in order."""
        results: list[Result] = []
        self.outcome_notes.index = index
        for number, op in enumerate(ops):
            self.outcome_notes.number = number
            results.append(self._apply(op, index, time_ms))
        return results

    def carry(self, offsets: Sequence[int], index: int) -> None:
        """These messages stand in this entry from now on."""
        self.reappended.update(dict.fromkeys(offsets, index))

    def may_trim(self, index: int, offset: int) -> bool:
        """Whether the log may begin here: what must be kept stands elsewhere."""
        return all(
            self.reappended.get(needed, 0) >= index for needed in self._must_keep(offset)
        ) and (
            all(at >= index or not self._keeps(carried) for carried, at in self.reappended.items())
        )

    def trim(self, index: int, offset: int) -> None:
        """The log begins here; what is carried stays, what compaction had kept is too old."""
        self.compacted_set.clear()
        self._begin_at(index, offset)

    def compact(self, decision: Compaction, time_ms: int) -> None:
        """The log begins later; what is carried stays, and what the decision keeps."""
        dropped = decision.offset - self.log_start_offset + len(self.compacted) - len(decision.kept)
        self.compacted_set.compact(decision, time_ms, dropped)
        self._begin_at(decision.index, decision.offset)

    def did_nothing(self, index: int) -> None:
        """This trim, or compaction, was refused."""
        self.outcome_notes.index, self.outcome_notes.number = index, 0
        self.outcome_notes.nothing()

    # -- private

    def _begin_at(self, index: int, offset: int) -> None:
        self.log_start_offset = offset
        self.outcome_notes.trim(index)
        self.reappended = {o: at for o, at in self.reappended.items() if at >= index}
        kept = BitMap64(self.reappended) | self.compacted
        for group in self.groups.values():
            self.operations(group).trim(offset, kept)
        for offsets in (*self.lanes, self.withdrawn, self.cancelled, self.delayed_ever, self.late):
            low = offsets & kept if kept else None
            remove_below(offsets, offset)
            if low:
                offsets |= low
        self.keys.forget_below(offset, kept)
        lowest = min((group.committed_offset for group in self.groups.values()), default=offset)
        self.times.forget_below(
            min(lowest, offset, self.compacted.min() if self.compacted else offset)
        )
        self._forget_runs()

    def _apply(self, op: Op, index: int, time_ms: int) -> Result:
        request = op.request if isinstance(op, REPEATED) else 0
        if request:
            known = self.results.of(request)
            if known is not None and not self._is_overtaken(op, known):
                self.outcome_notes.nothing()
                return known
        result = _APPLY[type(op)](self, op, index, time_ms)
        if request and not isinstance(result, UnknownGroup | StaleResult) and not _is_empty(result):
            self.results.remember(request, time_ms, result)
        return result

    def _is_overtaken(self, op: Op, known: Result) -> bool:
        """Whether what was granted once is no longer the member's."""
        group = self.groups.get(op.group) if isinstance(op, Delivered) else None
        if group is None or not isinstance(op, Delivered) or not isinstance(known, Granted):
            return False
        return not group.upholds(known) or not group.is_owned_by(op.member, op.generation)

    def _configure(self, op: Configure, _index: int, _time_ms: int) -> Result:
        self.config = sound_queue(op.config)
        self.outcome_notes.configured(self.config)
        return None

    def _open(self, op: OpenGroup, _index: int, time_ms: int) -> Result:
        group = self.groups.get(op.group)
        if group is not None:
            if op.version > group.version:
                self.operations(group).configure(op.version, op.config)
                self.outcome_notes.regrouped(group.id, group.config)
            return CountResult(0)
        for other in [g for g in self.groups.values() if g.name == op.name]:
            if other.id > op.group:
                return CountResult(0)
            del self.groups[other.id]
            self.outcome_notes.dropped(other.id)
        group = self.groups[op.group] = self.begun(op, time_ms)
        past = GroupPast(group.id, group.name, group.base, time_ms)
        self.outcome_notes.opened(past, group.config)
        return CountResult(1)

    def _drop(self, op: DropGroup, _index: int, _time_ms: int) -> Result:
        if self.groups.pop(op.group, None) is not None:
            self.outcome_notes.dropped(op.group)
        return None

    def _tick(self, _op: Tick, _index: int, _time_ms: int) -> Result:
        return None

    def _cancel(self, op: Cancelled, _index: int, _time_ms: int) -> Result:
        codes = [self._cancel_code(offset) for offset in op.offsets]
        offsets = stored_only(op.offsets, self.next_offset)
        gone = BitMap64(o for o in offsets if o in self.hidden)
        if gone:
            for group in self.groups.values():
                group.look()
            self.hidden -= gone
            self.withdrawn |= gone
            self.cancelled |= gone
            self.cancelled_count += len(gone)
            for group in self.groups.values():
                self.operations(group).withdraw(gone)
            self._forget_runs()
        return CodesResult(codes)

    def _cancel_code(self, offset: int) -> int:
        if not 0 <= offset < self.next_offset:
            return NOT_FOUND
        if offset in self.hidden or offset in self.cancelled:
            return OK
        return TOO_LATE if offset in self.delayed_ever else NOT_FOUND

    def _hide(self, base: int, deliver_at: list[int | None], time_ms: int) -> None:
        for row, given in enumerate(deliver_at):
            due_ms = resolve_ms(given, time_ms)
            if due_ms is not None and due_ms > time_ms:
                self.hidden.add(base + row)
                self.delayed_ever.add(base + row)
                self.delays.add(due_ms, base + row)
                self.scheduled += 1
                self.delay_ms_sum += due_ms - time_ms

    def _note_expiries(self, base: int, expires_at: list[int | None], time_ms: int) -> None:
        run_at: int | None = None
        first = base
        default = time_ms + self.config.ttl_ms if self.config.ttl_ms else None
        for row, given in enumerate([*expires_at, None]):
            expires = resolve_ms(given, time_ms) or default
            ended = row == len(expires_at)
            if run_at is not None and (ended or expires != run_at):
                self.expiries.add(run_at, first, base + row - first)
            if ended:
                return
            if row == 0 or expires != run_at:
                run_at, first = expires, base + row

    def _release(self, due: list[tuple[int, int]]) -> None:
        for group in self.groups.values():
            group.look()
        self.hidden -= BitMap64(offset for _, offset in due)
        self.released += len(due)
        for group in self.groups.values():
            for time_ms, offset in due:
                group.release_due(offset, time_ms)
        if self.config.retention_ms >= 0:
            for time_ms, offset in due:
                self.late.add(offset)
                self.late_until.add(time_ms + self.config.retention_ms, offset)

    def _expire(self, gone: BitMap64) -> None:
        for group in self.groups.values():
            group.look()
        stored = BitMap64()
        for offsets in self.lanes:
            stored |= offsets & gone
        gone = stored - self.withdrawn
        self.hidden -= gone
        self.withdrawn |= gone
        self.expired_count += len(gone)
        for group in self.groups.values():
            self.operations(group).withdraw(gone)

    def _forget_runs(self) -> None:
        """Let go of times that came to nothing: of messages cancelled, expired or trimmed."""
        if len(self.delays) > RUNS_SPARE + 2 * len(self.hidden):
            self.delays.keep(lambda first, _: first in self.hidden)
        if len(self.late_until) > RUNS_SPARE + 2 * len(self.late):
            self.late_until.keep(lambda first, _: first in self.late)
        if len(self.expiries) > RUNS_SPARE + 2 * self.lasting:
            self.expiries.keep(self._stores_any)
            self.lasting = len(self.expiries)

    def _stores_any(self, first: int, count: int) -> bool:
        return any(offsets.range_cardinality(first, first + count) for offsets in self.lanes)

    def _keeps(self, offset: int) -> bool:
        return offset in self.hidden or any(offset in g.dead for g in self.groups.values())

    def _must_keep(self, below: int) -> list[int]:
        needed: set[int] = set()
        for offset in self.hidden:
            if offset >= below:
                break
            needed.add(offset)
        for group in self.groups.values():
            needed.update(offset for offset in group.dead if offset < below)
        return sorted(needed)


def _is_empty(result: Result) -> bool:
    """A delivery that granted nothing: its receive goes on waiting, as the same request."""
    return isinstance(result, Granted) and not result.grants


def _of_group(
    change: Callable[[GroupOperations, Any, int, int], Result],
) -> Callable[[QueueState, Any, int, int], Result]:
    def apply(queue: QueueState, op: Any, index: int, time_ms: int) -> Result:
        group = queue.groups.get(op.group)
        if group is None:
            return UnknownGroup(op.group)
        return change(queue.operations(group), op, index, time_ms)

    return apply


_APPLY: dict[type, Callable[[QueueState, Any, int, int], Result]] = {
    Configure: QueueState._configure,
    OpenGroup: QueueState._open,
    DropGroup: QueueState._drop,
    Tick: QueueState._tick,
    Cancelled: QueueState._cancel,
    Delivered: _of_group(lambda group, op, index, time_ms: group.deliver(op, index, time_ms)),
    DeliveredToStream: _of_group(
        lambda group, op, index, time_ms: group.deliver(op, index, time_ms)
    ),
    StreamsEnded: _of_group(lambda group, op, _index, time_ms: group.end_streams(op, time_ms)),
    Settled: _of_group(lambda group, op, _index, time_ms: group.settle(op, time_ms)),
    Expired: _of_group(lambda group, op, _index, time_ms: group.expire(op, time_ms)),
    Committed: _of_group(lambda group, op, _index, _time_ms: group.commit(op)),
    Sought: _of_group(lambda group, op, _index, time_ms: group.seek(op, time_ms)),
    Purged: _of_group(lambda group, op, _index, _time_ms: group.purge(op.offsets)),
    Redriven: _of_group(lambda group, op, _index, time_ms: group.redrive(op, time_ms)),
    Parked: _of_group(lambda group, op, _index, _time_ms: group.park(op.key)),
    Unparked: _of_group(lambda group, op, _index, time_ms: group.release(op.key, time_ms)),
    Halted: _of_group(lambda group, op, _index, _time_ms: group.halt(op.reason)),
    Resumed: _of_group(lambda group, _op, _index, _time_ms: group.resume()),
    Own: _of_group(lambda group, op, index, time_ms: group.own(op, index, time_ms)),
    **ARCHIVE_OPS,
}
