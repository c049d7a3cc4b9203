"""Publishes of one partition on their way into Raft entries.

Requests that arrive in one turn of the loop share an entry; each is answered when its entry has
applied. The leader decides offsets and duplicates here, in the order of arrival.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from delivery.entries.records import AppendBatch, encode_records
from delivery.leader.appender import NOT_PROPOSED, Admitted, Appender, Duplicate, Rows
from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import Busy, GoQueueError, NotLeader, OutcomeUnknown, ServerError
from goqueue.wire.layout import HAS_DELIVER_AT
from goqueue.wire.types import Index, Offset
from log.entry import EntryKind
from node.api.records import MAJORITY, RELAXED, AppendResult
from node.metrics import Metrics
from node.runtime.logger import get_logger
from raft.errors import Outcome
from raft.group import RaftGroup

_UNPLACED = Offset(0)
OFF_LOOP_BYTES = 256 << 10
"""Batches above this are validated on a worker thread: decompression would stall the loop."""

_log = get_logger("partition")


class ByteBudget:
    """A bound on bytes that wait, shared by the parts of a node."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0

    def fits(self, size: int) -> bool:
        return self.used == 0 or self.used + size <= self.bytes_max


@dataclass(slots=True)
class _Request:
    """One batch that waits: for validation, then for its entry.

    `append` is what goes into the entry, once judged: without the rows that are stored already.
    """

    batch: RecordBatch
    request_id: int
    future: asyncio.Future[AppendResult]
    arrived_s: float
    checked: bool
    append: AppendBatch
    base_offset: Offset = _UNPLACED
    duplicate: bool = False
    rows: Rows | None = None


@dataclass(slots=True)
class _Flight:
    """One entry's requests, and those that wait for it because their originals are in it."""

    requests: list[_Request]
    twins: list[_Request]
    relaxed: bool
    """Whether any replica here may have counted it before it was synced."""
    index: Index = NOT_PROPOSED
    ended: bool = False


@dataclass(frozen=True, slots=True)
class AppendLimits:
    """What may wait, and how much of it goes into one entry."""

    pending_bytes_max: int
    """Of this partition."""
    entry_bytes: int
    node: ByteBudget
    """Of all partitions of the node together."""


class AppendQueue:
    """The leader's side of publishing to one partition. Loop thread only."""

    def __init__(
        self,
        *,
        topic: str,
        raft_group: RaftGroup,
        appender: Callable[[], Appender],
        original_time_ms: Callable[[Offset], int],
        is_relaxed: Callable[[], bool],
        limits: AppendLimits,
        metrics: Metrics,
        workers: Executor,
    ) -> None:
        self._raft_group = raft_group
        self._make_appender = appender
        self._appender: Appender | None = None
        self._relaxed_below = Offset(0)
        """What was appended before the durability was altered, in this leadership."""
        self._original_time_ms = original_time_ms
        self._is_relaxed = is_relaxed
        self._own = ByteBudget(limits.pending_bytes_max)
        self._entry_bytes = limits.entry_bytes
        self._budget = limits.node
        self._workers = workers
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Request] = deque()
        self._scheduled = False
        self._flying: dict[Index, _Flight] = {}
        self._boarding_twins: list[_Request] = []
        self._metrics = metrics
        self._latency = metrics.broker.publish_latency.labels(topic)
        self._messages = metrics.broker.messages_published.labels(topic)
        self._bytes = metrics.broker.bytes_published.labels(topic)
        self._duplicates = metrics.broker.duplicate_batches.labels(topic)
        self._duplicate_messages = metrics.broker.duplicate_messages.labels(topic)
        self.duplicates = 0
        """Messages that were answered with the offset of their original."""

    def open(self) -> None:
        """This node leads: what it decides from now on starts from what is applied."""
        self._appender = self._make_appender()
        self._relaxed_below = Offset(0)

    def close(self, leader: str | None) -> None:
        """Leadership is lost: nothing that waits here was proposed, so its outcome is `none`."""
        self._appender = None
        self._refuse_waiting(leader)

    def durability_altered(self) -> None:
        """The topic is relaxed from now on, or no longer: what is on its way was, or will be,
        counted in part as relaxed."""
        for flight in self._flying.values():
            flight.relaxed = True
        if self._appender is not None:
            self._relaxed_below = self._appender.next_offset

    def _refuse_waiting(self, leader: str | None) -> None:
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            self._fail(request, NotLeader(leader))

    def append(
        self, batch: bytes | RecordBatch, *, request_id: int, validated: bool
    ) -> asyncio.Future[AppendResult]:
        """Take a batch, encoded or parsed; the future ends when its entry applied, or can't be
        known.

        Raises `Busy` beyond the bound on pending bytes, `NotLeader`, and what parsing raises.
        """
        if self._appender is None:
            raise NotLeader(self._raft_group.leader)
        size = len(batch.buffer if isinstance(batch, RecordBatch) else batch)
        if not self._own.fits(size) or not self._budget.fits(size):
            raise Busy(
                "too many bytes wait for this partition",
                pending_bytes=self._own.used,
                retry_after_s=1,
            )
        if not isinstance(batch, RecordBatch):
            batch = RecordBatch.parse(batch)
        off_loop = not validated and size > OFF_LOOP_BYTES
        if not validated and not off_loop:
            batch.validate()
        future: asyncio.Future[AppendResult] = self._loop.create_future()
        request = _Request(
            batch,
            request_id,
            future,
            self._loop.time(),
            not off_loop,
            AppendBatch.of(batch, request_id),
        )
        self._own.used += size
        self._budget.used += size
        self._waiting.append(request)
        if off_loop:
            checking = self._loop.run_in_executor(self._workers, batch.validate)
            checking.add_done_callback(lambda done: self._checked(request, done))
        else:
            self._schedule()
        return future

    def _checked(self, request: _Request, done: asyncio.Future[None]) -> None:
        error = done.exception() if not done.cancelled() else OutcomeUnknown(outcome="none")
        if error is not None and not request.future.done():
            request.future.set_exception(error)
        request.checked = True
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Everything that arrived in the last turn becomes as few entries as fit."""
        self._scheduled = False
        entry: list[_Request] = []
        size = 0
        while self._waiting and self._waiting[0].checked and self._appender is not None:
            request = self._waiting.popleft()
            if request.future.done():  # refused by validation, or its caller gave up: not proposed
                self._release(request)
                continue
            if entry and size + len(request.batch.buffer) > self._entry_bytes:
                proposed, entry, size = self._propose(entry), [], 0
                if not proposed:
                    self._waiting.appendleft(request)
                    self._refuse_waiting(None)
                    return
            if self._admit(request):
                entry.append(request)
                size += len(request.batch.buffer)
        if entry and not self._propose(entry):
            self._refuse_waiting(None)

    def _admit(self, request: _Request) -> bool:
        """Give the batch its offset. False where it is answered, or will be, without an entry."""
        assert self._appender is not None
        delayed = request.batch.header.flags & HAS_DELIVER_AT
        now_ms = self._raft_group.log_time.now_ms() if delayed else 0
        try:
            verdict = self._appender.admit(request.batch, request.request_id, now_ms)
        except GoQueueError as error:
            self._fail(request, error)
            return False
        request.base_offset, request.rows = verdict.base_offset, verdict.rows
        if isinstance(verdict, Admitted):
            if verdict.rows is not None:
                request.append = verdict.to_append(request.batch, request.request_id)
                request.duplicate = not verdict.count
            return True
        self._await_original(request, verdict)
        return False

    def _await_original(self, request: _Request, verdict: Duplicate) -> None:
        request.duplicate = True
        if verdict.pending_index is None:
            try:
                time_ms = self._original_time_ms(verdict.base_offset)
            except GoQueueError:  # stored, and unreadable here
                time_ms = 0
            relaxed = self._is_relaxed() or verdict.base_offset < self._relaxed_below
            self._answer(request, time_ms, relaxed=relaxed)
        elif verdict.pending_index == NOT_PROPOSED:
            self._boarding_twins.append(request)
        elif verdict.pending_index in self._flying:
            self._flying[verdict.pending_index].twins.append(request)
        else:  # its end was told, and it has not applied
            self._fail(request, OutcomeUnknown())

    def _propose(self, requests: list[_Request]) -> bool:
        """Whether the entry is on its way; if not, its requests are refused, and it leaves no gap:
        a leader that hands over refuses too, and leads on where that fails."""
        appender = self._appender
        assert appender is not None
        time_ms = self._raft_group.log_time.now_ms()
        base = requests[0].base_offset
        count = sum(request.append.count for request in requests)
        body = encode_records([request.append for request in requests])

        flight = _Flight(requests, self._boarding_twins, self._is_relaxed())
        self._boarding_twins = []

        def done(outcome: Outcome, _result: object, _index: Index) -> None:
            self._ended(flight, outcome, time_ms)

        try:
            index = self._raft_group.propose(
                EntryKind.RECORDS,
                body,
                base_offset=base,
                record_count=count,
                time_ms=time_ms,
                callback=done,
            )
        except Exception as error:  # noqa: BLE001 - offsets that are in no entry must be taken back
            refusal = error
            if not isinstance(refusal, GoQueueError):
                _log.exception("entry_refused", group=str(self._raft_group.id))
                refusal = ServerError(f"the entry was refused: {error}")
            appender.withdraw()
            for request in (*requests, *flight.twins):
                self._fail(request, refusal)
            return False
        appender.proposed(index)
        if not flight.ended:
            flight.index = index
            self._flying[index] = flight
        return True

    def _ended(self, flight: _Flight, outcome: Outcome, time_ms: int) -> None:
        flight.ended = True
        self._flying.pop(flight.index, None)
        for request in (*flight.requests, *flight.twins):
            if outcome is Outcome.APPLIED:
                self._answer(request, time_ms, relaxed=flight.relaxed)
            elif outcome is Outcome.UNKNOWN:
                self._fail(request, OutcomeUnknown())
            else:
                self._fail(request, NotLeader(self._raft_group.leader))

    def _answer(self, request: _Request, time_ms: int, *, relaxed: bool) -> None:
        self._release(request)
        batch, rows = request.batch, request.rows
        known = batch.count if request.duplicate else batch.count - request.append.count
        if known:
            self.duplicates += known
            self._duplicate_messages.inc(known)
        if request.duplicate:
            self._duplicates.inc()
        else:
            self._messages.inc(request.append.count)
            self._bytes.inc(len(request.append.batch))
            self._latency.observe(self._loop.time() - request.arrived_s)
        if not request.future.done():
            base_offset = rows[0][0] if rows else request.base_offset
            durability = RELAXED if relaxed else MAJORITY
            request.future.set_result(
                AppendResult(base_offset, batch.count, request.duplicate, time_ms, durability, rows)
            )

    def _fail(self, request: _Request, error: GoQueueError) -> None:
        self._release(request)
        self._metrics.broker.refused_requests.labels(error.code).inc()
        if not request.future.done():
            request.future.set_exception(error)

    def _release(self, request: _Request) -> None:
        self._own.used -= len(request.batch.buffer)
        self._budget.used -= len(request.batch.buffer)
