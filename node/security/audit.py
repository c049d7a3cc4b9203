"""The audit log: who did what, kept in `__audit`, a topic of the cluster's own.

Requests never wait for it. What is to be kept goes into a buffer with a bound, and from there, in
batches, into the topic, which is replicated as any other; what finds no room is counted, and told
in a record as soon as there is some. Requests of those who showed no key are told in sums
(`node.security.audit_sums`), so that nobody pushes out what was done with keys. The ids of records
make a repeated batch store nothing twice. What is in the buffer when the process is killed is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import msgspec

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import AlterTopic, Command, CreateTopic, Result
from goqueue.wire.batch import encode_columns
from goqueue.wire.errors import GoQueueError, TopicExists
from goqueue.wire.ids import AUDIT_TOPIC
from node.api.auth.access import Access
from node.api.auth.audit import ANONYMOUS, DENIED, LOST, SUM, AuditRecord, is_audited, record_of
from node.api.records import AppendResult
from node.api.times import format_time
from node.config.audit import AuditConfig
from node.metrics.doors import DoorMetrics
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic
from node.security.audit_sums import SUM_S, Sum, Sums

BATCH_RECORDS = 200
GATHER_S = 0.05
"""How long a record waits for others to join it."""
APPEND_DEADLINE_S = 10.0
STOP_S = 2.0

_log = get_logger("audit")


@dataclass(frozen=True, slots=True)
class AuditLimits:
    """Of what waits to be written."""

    records_max: int = 4096
    """In the buffer: some seconds of a busy node."""
    retry_s: float = 1.0


What = Access | Sum | int
"""What a record tells: a request, a sum of them, or how many records were lost."""


class AuditCluster(Protocol):
    """What is asked of the cluster group; `node.cluster.host.ClusterHost` is one."""

    @property
    def state(self) -> ClusterState: ...

    async def refresh(self) -> bool: ...

    async def command(self, command: Command, deadline_s: float) -> Result: ...


class Publisher(Protocol):
    """What is asked of the node; `node.broker.records.NodeRecords` is one."""

    async def append(
        self, topic: str, partition: int, batch: bytes, *, deadline_s: float
    ) -> AppendResult: ...


class AuditLog:
    """A `Service`, and an `OnAccess`. Loop thread only."""

    def __init__(
        self,
        node: str,
        config: AuditConfig,
        cluster: AuditCluster,
        publisher: Publisher,
        metrics: DoorMetrics,
        wall_ms: Callable[[], int],
        *,
        has_keys: bool = True,
        limits: AuditLimits = AuditLimits(),
    ) -> None:
        self._node = node
        self._config = config
        self._cluster = cluster
        self._publisher = publisher
        self._metrics = metrics
        self._wall_ms = wall_ms
        self._limits = limits
        self._run = os.urandom(6).hex()
        self._count = 0
        self._waiting: deque[tuple[int, int, What]] = deque()
        """(number, time in ms, what happened)."""
        self._sums = Sums(has_keys=has_keys)
        self._lost = 0
        self._is_checked = False
        self._is_failing = False
        self._writes = Periodic(
            "audit", self._write_all, None, _log, "audit_failed", retry_s=limits.retry_s
        )
        self._minutes = Periodic("audit-sums", self._minute, SUM_S, _log, "audit_failed")
        self._is_started = False

    def __call__(self, access: Access) -> None:
        if not is_audited(access):
            return
        if self._sums.takes(access):
            self._sums.add(access, self._wall_ms())
        elif len(self._waiting) >= self._limits.records_max:
            self._lost += 1
            self._metrics.audit_lost.inc()
        else:
            self._put(access)

    def minute(self) -> None:
        """A minute is over: the sum of it is told, once there is room for it."""
        if len(self._waiting) < self._limits.records_max and (told := self._sums.minute()):
            self._put(told)

    async def start(self) -> None:
        self._is_started = True
        await self._writes.start()
        await self._minutes.start()

    async def stop(self) -> None:
        """What waits is written within two seconds, or lost, and this node's log says how much."""
        if not self._is_started:
            return
        self._is_started = False
        await self._writes.stop()
        await self._minutes.stop()
        if told := self._sums.rest():
            self._put(told)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                while self._waiting or self._lost:
                    await self._write()
        if left := len(self._waiting) + self._lost:
            self._metrics.audit_lost.inc(len(self._waiting))
            _log.warning("audit_records_lost", count=left)

    # private

    def _put(self, what: What) -> None:
        self._count += 1
        self._waiting.append((self._count, self._wall_ms(), what))
        self._writes.wake()

    async def _write_all(self) -> None:
        await asyncio.sleep(GATHER_S)
        while self._waiting or self._lost:
            await self._write()

    async def _minute(self) -> None:
        self.minute()

    async def _write(self) -> None:
        """One batch; a pause where it could not be written."""
        if self._lost and len(self._waiting) < self._limits.records_max:
            lost, self._lost = self._lost, 0
            self._put(lost)
        rows = list(islice(self._waiting, BATCH_RECORDS))
        try:
            if not self._is_checked:
                await self._ensure_topic()
            await self._publisher.append(
                AUDIT_TOPIC, 0, self._batch(rows), deadline_s=APPEND_DEADLINE_S
            )
        except GoQueueError as error:
            self._is_checked = False
            if not self._is_failing:
                _log.warning("audit_not_written", problem=error.message, waiting=len(self._waiting))
            self._is_failing = True
            await asyncio.sleep(self._limits.retry_s)
            return
        except Exception:  # noqa: BLE001 - the log goes on, whatever one batch has met
            _log.exception("audit_failed")
            await asyncio.sleep(self._limits.retry_s)
            return
        self._is_failing = False
        for row in rows:
            if self._waiting and self._waiting[0] is row:
                self._waiting.popleft()
                self._metrics.audit_records.inc()

    def _batch(self, rows: list[tuple[int, int, What]]) -> bytes:
        return encode_columns(
            [msgspec.json.encode(self._record(time_ms, what)) for _, time_ms, what in rows],
            timestamps_ms=[time_ms for _, time_ms, _ in rows],
            message_ids=[f"{self._node}:{self._run}:{number}" for number, _, _ in rows],
        )

    def _record(self, time_ms: int, what: What) -> AuditRecord:
        time = format_time(time_ms)
        if isinstance(what, Sum):
            return AuditRecord(
                time,
                self._node,
                ANONYMOUS,
                SUM,
                DENIED,
                count=what.count,
                since=format_time(what.since_ms),
                reasons=dict(what.reasons.most_common()),
                addresses=len(what.addresses),
                sample=what.samples,
            )
        if isinstance(what, int):
            return AuditRecord(time, self._node, self._node, "audit", LOST, count=what)
        return record_of(what, time, self._node)

    async def _ensure_topic(self) -> None:
        """The topic is there, with the settings of this node's configuration."""
        wanted: dict[str, object] = {
            "retention_ms": self._config.retention_ms,
            "retention_bytes": self._config.retention_bytes,
        }
        topic = self._cluster.state.topics.get(AUDIT_TOPIC)
        if topic is None and await self._cluster.refresh():
            topic = self._cluster.state.topics.get(AUDIT_TOPIC)
        if topic is None:
            with contextlib.suppress(TopicExists):  # another node was first
                command = CreateTopic(AUDIT_TOPIC, {"partitions": 1, **wanted})
                await self._cluster.command(command, APPEND_DEADLINE_S)
        elif any(getattr(topic.config, name) != value for name, value in wanted.items()):
            change = AlterTopic(AUDIT_TOPIC, wanted, str(topic.id))
            await self._cluster.command(change, APPEND_DEADLINE_S)
        self._is_checked = True
