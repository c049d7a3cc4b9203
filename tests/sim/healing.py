"""Damaged logs of a simulated node made good: entry by entry from peers, else by a whole copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.wire.types import CLUSTER_GROUP, Index, NodeId, PartitionId
from log.entry import Entry, decode_frames
from log.errors import Damaged, LogError
from log.partition.log import PartitionLog
from log.segments.verify import mend
from log.wal.install import UNKNOWN_END
from node.storage.repair.healer import _agreeing
from tests.sim import rpc

if TYPE_CHECKING:
    from tests.sim.process import Process

LOOK_S = 0.3
ASK_S = 0.4
RUN_MAX = 64


class Healing:
    """One node's healer, and its scrub once all is quiet: it reads everything there is."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._asking: set[PartitionId] = set()
        self._unread: set[PartitionId] | None = None
        """What is still to be read once all is quiet; None before."""

    def start(self) -> None:
        self._process.time.call_later(LOOK_S, self._look)

    @property
    def is_done(self) -> bool:
        """Whether everything was read since the last fault, and nothing is damaged."""
        store = self._process.store
        return self._unread == set() and not any(
            store.partition_log(g).damaged for g in store.partition_ids()
        )

    def _look(self) -> None:
        store = self._process.store
        if self._process.world.is_quiet and self._unread is None:
            self._unread = set(store.partition_ids())
        if self._unread is not None:
            self._unread &= set(store.partition_ids())
            held = [one for one in self._unread if self._process.is_held(one)]  # by a copy, maybe
            for partition_id in sorted(self._unread.difference(held)):
                self._scrub(store.partition_log(partition_id))
            self._unread = set(held)
        for partition_id in store.partition_ids():
            if store.partition_log(partition_id).damaged is not None and not self._process.is_held(
                partition_id
            ):
                self._heal(store.partition_log(partition_id))
        self._process.time.call_later(LOOK_S, self._look)

    def _scrub(self, log: PartitionLog) -> None:
        """From the medium, as a node's: an entry that is in memory, too, may not be for long."""
        segments = log.disk_segments
        for segment in segments.chain:
            check = segments.verification(segment, segment.last_index, lambda _entry: None)
            while check.step():
                pass
            segments.forget(segment)
            mend(segment, check.findings)
            for first, last in check.findings.entries:
                if last >= log.first_index:
                    log.quarantine(max(first, log.first_index), last, "found by a scrub")

    def _heal(self, log: PartitionLog) -> None:
        assert log.damaged is not None
        first, last = log.damaged
        if last == UNKNOWN_END or first < log.first_index:
            self._copy(log.id)
            return
        index = first
        while index <= min(last, log.spilled_index):
            try:
                index = Index(log.cold_entries(index)[-1].index + 1)
            except (LogError, OSError):
                self._mend(log, index, last)
                return
        if last <= log.last_index and log.damaged == (first, last):
            log.lift_quarantine()
            self._process.world.repairs += 1
            self._process.world.cluster_repairs += log.id == CLUSTER_GROUP
            self._process.world.loop.note("healed", self._process.node, log.id.partition)
            self._process.healed(log.id)

    def _mend(self, log: PartitionLog, index: Index, last: Index) -> None:
        if log.identity(index) is None:
            self._copy(log.id)
        elif not log.is_cold(index):
            self._put(log, log.entries(index, max_count=RUN_MAX))
        elif log.id not in self._asking:
            self._ask(log, index, min(RUN_MAX, last - index + 1))

    def _put(self, log: PartitionLog, run: Sequence[Entry]) -> None:
        try:
            if log.disk_segments.repair(run):
                return
        except (Damaged, OSError):
            pass
        self._copy(log.id)

    def _ask(self, log: PartitionLog, index: Index, count: int) -> None:
        self._asking.add(log.id)

        def serve(process: Process, reply: rpc.Reply) -> None:
            try:
                found = process.store.partition_log(log.id)
                entries = [] if found.untrusted else found.entries(index, max_count=count)
            except (KeyError, LogError):
                entries = []
            reply(b"".join([entry.frame for entry in entries]))

        def ended(answer: object) -> None:
            self._asking.discard(log.id)
            if not isinstance(answer, bytes) or not self._process.store.holds(log):
                return
            run = _agreeing(log, index, list(decode_frames(answer)))
            if run:
                self._put(log, run)

        rpc.call(self._process, self._peer(), serve, ended, ASK_S)

    def _copy(self, partition_id: PartitionId) -> None:
        if self._process.copying is not None:
            self._process.copying.want(partition_id)

    def _peer(self) -> NodeId:
        world = self._process.world
        return world.rng("healing").choice(world.others(self._process.node))
