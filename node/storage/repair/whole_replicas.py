"""What a node does about damage beyond single entries: copies, and states stored again."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from goqueue.wire.types import CLUSTER_GROUP, PartitionId, Voter
from log.wal.install import UNKNOWN_END
from node.cluster.host import ClusterHost
from node.config.engine import StorageOptions
from node.replicas.local import Replicas
from node.runtime.logger import get_logger
from node.runtime.throttle import Throttle
from node.storage.copying.transfer import Transfers
from node.storage.parts import StorageParts
from node.storage.repair.comparison import Comparison
from node.storage.repair.scrub import Scrub

_log = get_logger("scrub")


class Repair:
    """A service: the scrub of one node and its comparison with others, which share one thread."""

    def __init__(
        self,
        me: Voter,
        parts: StorageParts,
        cluster: ClusterHost,
        replicas: Replicas,
        transfers: Transfers,
        options: StorageOptions,
        wall_ms: Callable[[], int],
    ) -> None:
        self._me = me
        self._store = parts.store
        self._flusher = parts.flusher
        self._cluster = cluster
        self._replicas = replicas
        self._transfers = transfers
        self._workers = ThreadPoolExecutor(1, thread_name_prefix="goqueue-scrub")
        throttle = Throttle(options.scrub_bytes_per_s, time.monotonic)
        self.comparison = Comparison(
            me.node,
            parts.store,
            parts.link,
            parts.raft,
            self._workers,
            parts.metrics,
            pay=throttle.take,
            on_diverged=self.diverged,
        )
        self.scrub = Scrub(
            parts,
            self.comparison,
            self._workers,
            interval_s=options.scrub_interval_ms / 1000,
            throttle=throttle,
            renew_snapshot=self.renew_snapshot,
            is_whole=self.is_whole,
            wall_ms=wall_ms,
        )

    async def start(self) -> None:
        await self.scrub.start()

    async def stop(self) -> None:
        await self.scrub.stop()
        self.comparison.stop()
        self._workers.shutdown(wait=False)

    def give_way(self, partition_id: PartitionId) -> None:
        """Who is damaged does not lead, where anybody else can."""
        replica = self.comparison.replica(partition_id)
        if replica is not None and replica.is_leader:
            replica.transfer.start()

    def copy(self, partition_id: PartitionId) -> None:
        """Single entries can't heal it: all of it is copied. The cluster's own group is renewed by
        a restart, where somebody else leads it, and so has all of it."""
        if partition_id != CLUSTER_GROUP:
            self._transfers.want(partition_id)
            return
        leader = None if self._cluster.raft_group is None else self._cluster.raft_group.leader
        if leader not in (None, self._me.node):
            self.diverged(partition_id, "single entries can't repair it")

    def diverged(self, partition_id: PartitionId, reason: str) -> None:
        """What this node holds of the group is not what the others agree on: it is no longer used,
        and copied anew. The cluster's own group is, after the next start."""
        log = self._store.partition_log(partition_id)
        if log.untrusted:
            return
        _log.error("replica_diverged", group=str(partition_id), problem=reason)
        log.quarantine(log.first_index, UNKNOWN_END, reason)
        if partition_id != CLUSTER_GROUP:
            self._replicas.hold(partition_id)
            self.copy(partition_id)

    async def renew_snapshot(self, partition_id: PartitionId) -> bool:
        """Stores the state of a group that runs here anew; False where there is none."""
        host = self._replicas.find(partition_id)
        replica = (
            self._cluster.raft_group if partition_id == CLUSTER_GROUP else host and host.raft_group
        )
        work = replica.apply.take_snapshot(again=True) if replica else None
        if work is None:
            return False
        await self._flusher.keep(work.run)
        return True

    def is_whole(self, partition_id: PartitionId) -> bool:
        """Whether this node holds the group beyond doubt, or has nothing to do with it any more."""
        state = self._cluster.state
        if self._cluster.not_ready() is not None:
            return False
        holders = state.layout.holders(partition_id)
        if partition_id != CLUSTER_GROUP and self._me not in holders:
            elsewhere = any(holder.node != self._me.node for holder in holders)
            return elsewhere or state.is_deleted(partition_id.topic)
        if not self._store.has_log(partition_id):
            return False
        log = self._store.partition_log(partition_id)
        return log.last_index > 0 and log.damaged is None and not log.suspect
