"""Replicas of this node that are copied whole: new ones, and those that lag or are damaged beyond
what their leaders can send.

A copy is made beside a replica that goes on serving. Then the replica is stopped, its log replaced,
and it starts anew from what the log now holds, as after a restart: there is one way to begin.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from goqueue.background import TaskSet
from goqueue.wire.errors import NotFound
from goqueue.wire.types import Index, NodeId, PartitionId
from log.copy.manifest import Manifest
from log.copy.staging import Staging
from log.errors import EntryDamaged, InstallRefused
from log.partition.log import PartitionLog
from log.store.directory import Store
from log.wal.install import UNKNOWN_END
from node.rpc import partitions as rpc
from node.rpc import transfer as transfer_rpc
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic
from node.storage.copying.pull import NoRoom, Progress, Pull, PullParts, TransferFailed
from node.storage.flusher import Flusher

PULLS_MAX = 2
"""Copies made at a time; others wait."""
WAITING_MAX = 4096
INSTALL_TRIES = 20

_log = get_logger("transfer")


class ReplicaControl(Protocol):
    """What starts and stops the replicas of a node."""

    def hold(self, partition_id: PartitionId) -> bool:
        """Stops the replica, and starts it no more until `release`; False where that can't be."""
        ...

    def release(self, partition_id: PartitionId) -> None:
        """Starts the replica from what its log holds."""
        ...


class Transfers:
    """A service. `sources` tells who may have a replica of a group, the best first; `replicas` is
    asked to let go of one while its log is replaced."""

    def __init__(
        self,
        store: Store,
        flusher: Flusher,
        parts: PullParts,
        replicas: ReplicaControl,
        *,
        sources: Callable[[PartitionId], Sequence[NodeId]],
        random_u64: Callable[[], int],
    ) -> None:
        self._store = store
        self._flusher = flusher
        self._parts = parts
        self._limits = parts.limits
        self._replicas = replicas
        self._sources = sources
        self._random_u64 = random_u64
        self._waiting: dict[PartitionId, NodeId | None] = {}
        self._running: set[PartitionId] = set()
        self._tasks = TaskSet("transfer", "replica_not_copied")
        self._progress: dict[PartitionId, Progress] = {}
        self._damaged_since_s: dict[PartitionId, float] = {}
        self._rests_until_s: dict[PartitionId, float] = {}
        self._full: set[PartitionId] = set()
        """Groups with no room for a copy of them, which is said once."""
        self._started_s: float | None = None
        self._watches = Periodic(
            "transfers", self._watch, parts.limits.watch_s, _log, "transfers_not_watched"
        )
        parts.link.handle(transfer_rpc.OFFER, self._offered)

    async def start(self) -> None:
        self._started_s = self._parts.now_s()
        await self._watches.start()

    async def stop(self) -> None:
        """What was copied so far is gone on with after the next start."""
        self._waiting.clear()
        await self._watches.stop()
        await self._tasks.stop()

    def want(self, partition_id: PartitionId, source: NodeId | None = None) -> None:
        """Have the group's log replaced by a copy, of this node's replica if it has one. Asked
        again while that is under way, nothing more happens."""
        rests = self._parts.now_s() < self._rests_until_s.get(partition_id, 0.0)
        if rests or partition_id in self._running or len(self._waiting) >= WAITING_MAX:
            return
        self._waiting[partition_id] = source
        self._begin()

    def progress(self) -> list[Progress]:
        """The copies being made."""
        return list(self._progress.values())

    def watch(self) -> None:
        """One round: replicas damaged beyond repair by entries are copied; leftovers go."""
        now = self._parts.now_s()
        damaged = {
            partition_id: self._damaged_since_s.get(partition_id, now)
            for partition_id in sorted(self._store.damaged_ids)
        }
        self._damaged_since_s = damaged
        resting = {partition_id: at for partition_id, at in self._rests_until_s.items() if at > now}
        self._rests_until_s = resting
        for partition_id, since_s in damaged.items():
            if now - since_s >= self._limits.damaged_patience_s:
                self.want(partition_id)
        if self._started_s is not None and now - self._started_s >= self._limits.leftovers_s:
            self._started_s = None
            self._remove_leftovers()

    # -- private

    async def _watch(self) -> None:
        self.watch()

    async def _offered(self, peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, transfer_rpc.TransferRequest)
        partition_id = PartitionId.unpack(request.partition)
        if not self._store.has_log(partition_id):
            raise NotFound(f"no replica of {partition_id} is wanted here")
        self.want(partition_id, peer)
        return b""

    def _begin(self) -> None:
        while self._waiting and len(self._running) < PULLS_MAX:
            partition_id = next(iter(self._waiting))
            source = self._waiting.pop(partition_id)
            self._running.add(partition_id)
            task = self._tasks.begin(self._run(partition_id, source))
            task.add_done_callback(functools.partial(self._ended, partition_id))

    def _ended(self, partition_id: PartitionId, _done: object) -> None:
        self._running.discard(partition_id)
        self._progress.pop(partition_id, None)
        self._rests_until_s[partition_id] = self._parts.now_s() + self._limits.rest_s
        self._parts.metrics.storage.transfers.set(len(self._running))
        self._begin()

    async def _run(self, partition_id: PartitionId, source: NodeId | None) -> None:
        self._parts.metrics.storage.transfers.set(len(self._running))
        try:
            await self._transfer(partition_id, source)
        except NoRoom as error:
            if partition_id not in self._full:
                self._full.add(partition_id)
                _log.warning("replica_not_copied", group=str(partition_id), problem=error.message)
        except TransferFailed as error:
            _log.warning("replica_not_copied", group=str(partition_id), problem=str(error))
        except InstallRefused as error:
            _log.warning("copy_not_installed", group=str(partition_id), problem=str(error))
            await self._drop(partition_id)
        except Exception:  # noqa: BLE001 - the task's outermost guard
            _log.exception("replica_not_copied", group=str(partition_id))

    async def _transfer(self, partition_id: PartitionId, source: NodeId | None) -> None:
        if not self._store.has_log(partition_id):
            return  # deleted while the copy waited for others
        log = self._store.partition_log(partition_id)
        progress = Progress(partition_id, self._parts.now_s())
        self._progress[partition_id] = progress
        staging = self._store.staging(partition_id, self._random_u64() or 1)
        pull = Pull(
            partition_id,
            staging,
            self._parts,
            sources=lambda: self._ordered(partition_id, source),
            is_needed=lambda manifest: self._store.holds(log) and _lacks(log, manifest),
            progress=progress,
            others_bytes=lambda: sum(
                one.total_bytes - one.done_bytes
                for one in self._progress.values()
                if one is not progress
            ),
        )
        try:
            copied = await pull.run()
        finally:
            if not self._store.holds(log):
                await self._remove(staging)
        if copied is None or not self._store.holds(log):
            return
        self._full.discard(partition_id)
        progress.stage = "installing"
        if not self._replicas.hold(partition_id):
            raise InstallRefused(f"group {partition_id}: its replica can't be stopped")
        try:
            is_installed = await self._install(log, lambda: log.install(copied.install))
        finally:
            self._replicas.release(partition_id)
        await pull.close(copied)
        if not is_installed:
            return
        _log.info(
            "replica_copied",
            group=str(partition_id),
            source=copied.source,
            bytes=progress.total_bytes,
            reused_bytes=progress.reused_bytes,
            seconds=round(self._parts.now_s() - progress.began_s, 1),
        )

    async def _install(self, log: PartitionLog, install: Callable[[], object]) -> bool:
        """Whether it is installed: not in the log of a group that was removed before, or between
        two tries, which took what was copied along."""
        for last in (False,) * (INSTALL_TRIES - 1) + (True,):
            if not self._store.holds(log):
                return False
            try:
                install()
                break
            except InstallRefused:
                if last:
                    raise
            await self._parts.sleep(self._limits.install_pause_s)
        await self._flusher.spilled()
        return True

    async def _drop(self, partition_id: PartitionId) -> None:
        """What was copied is of no use: the log has gone its own way."""
        if self._store.has_log(partition_id):
            await self._remove(self._store.staging(partition_id, 0))

    async def _remove(self, staging: Staging) -> None:
        with suppress(OSError):  # else the next start, or copy, does
            await asyncio.get_running_loop().run_in_executor(self._parts.workers, staging.remove)

    def _ordered(self, partition_id: PartitionId, first: NodeId | None) -> list[NodeId]:
        there = self._parts.link.connected()
        nodes = [node for node in self._sources(partition_id) if node in there]
        if first is not None and first in there and first not in nodes:
            nodes.append(first)
        return sorted(nodes, key=lambda node: node != first)

    def _remove_leftovers(self) -> None:
        for partition_id in self._store.partition_ids():
            if partition_id in self._running or partition_id in self._waiting:
                continue
            with suppress(OSError):
                if removed := self._store.staging(partition_id, 0).remove():
                    _log.info("copy_given_up", group=str(partition_id), files=removed)


def _lacks(log: PartitionLog, manifest: Manifest) -> bool:
    """Whether the log can't become what it should be without the copy: entries are damaged that the
    copy has, or nothing here joins the copy's beginning, so that no leader can go on from it."""
    before = Index(manifest.first_index - 1)
    if log.last_index == 0:
        return manifest.last_index > 0
    if log.damaged is not None and log.damaged[1] == UNKNOWN_END:
        return True
    if log.damaged is not None and log.damaged[0] <= min(log.last_index, manifest.last_index):
        return True
    if log.last_index < before or before < log.first_index - 1:
        return log.last_index < before
    try:
        known = log.term_at(before)
    except EntryDamaged:
        return True
    return bool(known and manifest.base_term) and known != manifest.base_term
