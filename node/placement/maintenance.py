"""What a node does from time to time: retention, local snapshots, and handing leaderships back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from goqueue.background import TaskSet
from goqueue.wire.types import CLUSTER_GROUP, NodeId, PartitionId
from log.errors import StoreFailed
from node.cluster.host import ClusterHost
from node.config.node import NodeConfig
from node.metrics import Metrics
from node.partition.host import PartitionHost
from node.partition.offset_lookup import time_at_hand
from node.placement.steps import transferred
from node.queue.group_admin import group_ref
from node.replicas.local import Replicas
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic
from node.storage.flusher import Flusher
from raft.group import RaftGroup
from raft.interfaces import SnapshotWork

CLUSTER_SNAPSHOT_S = 1.0
"""The cluster's state is small and every restart begins with it: it is snapshotted soon."""
GROUPS_S = 1.0
"""How long a deleted group may linger in partitions, and old settings of a changed one."""
QUIET_S = 60.0
"""A full disk stores no snapshots, which is tried often and told so seldom."""
MOVES_A_ROUND, MOVES_SHARE = 4, 64
"""So many leaderships drift in a round, or one in so many of those led, where that is more. Each
stops its partition's publishes for a moment."""
PARTITION, CLUSTER = "partition", "cluster"
"""Whose state a snapshot holds."""

_log = get_logger("upkeep")


class Maintenance:
    """A service of periodic work; each kind runs by itself, and a failed round is logged."""

    def __init__(
        self,
        node: NodeId,
        *,
        config: NodeConfig,
        cluster: ClusterHost,
        replicas: Replicas,
        flusher: Flusher,
        metrics: Metrics,
        should_lead: Callable[[NodeId], bool],
    ) -> None:
        self._node = node
        self._config = config
        self._cluster = cluster
        self._replicas = replicas
        self._flusher = flusher
        self._metrics = metrics
        self._should_lead = should_lead
        self._quiet_until_s = 0.0
        self._unstored: set[PartitionId] = set()
        """Whose newest snapshot the disk has refused: it is taken again, changed or not."""
        self._compacted: set[str] = set()
        """Topics of which partitions to compact were led here at the last look."""
        self._snapshots = TaskSet("upkeep", "snapshot_failed")
        self._rounds: list[Periodic] = []
        self._group_looks = replicas.looks()
        self._leader_looks = replicas.looks()
        self._snapshot_looks = replicas.looks()

    async def start(self) -> None:
        storage, raft = self._config.storage, self._config.raft
        works: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (storage.retention_check_ms / 1000, self._retain),
            (storage.retention_check_ms / 1000, self.compact),
            (storage.snapshot_interval_ms / 1000, self._snapshot_partitions),
            (CLUSTER_SNAPSHOT_S, self._snapshot_cluster),
            (raft.leader_balance_ms / 1000, self._balance),
            (GROUPS_S, self._match_groups),
        ]
        for every_s, work in works:
            name = work.__name__
            rounds = Periodic(name, work, every_s, _log.bind(work=name), "upkeep_failed")
            self._rounds.append(rounds)
            await rounds.start()

    async def stop(self) -> None:
        for rounds in self._rounds:
            await rounds.stop()
        await self._snapshots.stop()

    def snapshot_due(self, raft_group: RaftGroup) -> None:
        """Raft has applied enough of a group that its state is worth storing."""
        host = self._replicas.find(raft_group.id)
        work = raft_group.apply.take_snapshot() if host is None else host.take_snapshot()
        if work is not None:
            self._snapshots.begin(self._store(raft_group.id, work))

    def led(self) -> list[RaftGroup]:
        """The groups led here, that of the cluster first."""
        cluster = self._cluster.raft_group
        first = [cluster] if cluster is not None and cluster.is_ready_leader else []
        return [*first, *(host.raft_group for host in self._replicas.led())]

    async def snapshot(self, id: PartitionId) -> None:
        """Store the present state of a replica here, where it is another than was stored last."""
        host = self._replicas.find(id)
        again = id in self._unstored
        if host is not None and (again or host.is_snapshot_due):
            work = host.take_snapshot(again=again)
            if work is not None:
                await self._store(id, work)

    async def compact(self) -> None:
        """What is due of the partitions led here, one after the other: memory is bounded."""
        ratios: dict[str, float] = {}
        for host in self._replicas.led():
            if host.config.is_compacted or host.state.queue.compacted:
                ratio = host.compactor.standing().ratio  # before: a run leaves nothing to see
                ratios[host.topic] = max(ratio, ratios.get(host.topic, 0.0))
                await host.compactor.run()
                await asyncio.sleep(0)
        for topic in ratios.keys() | self._compacted:  # those led elsewhere now, too
            gauge = self._metrics.storage.compaction_dirty_ratio.labels(topic)
            gauge.set(ratios.get(topic, 0.0))
        self._compacted = set(ratios)

    async def hand_over_all(self, timeout_s: float) -> None:
        """Give every leadership to another replica, before this node stops."""
        raft_groups = [
            raft_group for raft_group in self.led() if len(raft_group.membership.voters) > 1
        ]
        if not raft_groups:
            return
        done = asyncio.gather(
            *(transferred(raft_group, self._heir(raft_group)) for raft_group in raft_groups)
        )
        try:
            async with asyncio.timeout(timeout_s):
                await done
        except TimeoutError:
            left = sum(raft_group.is_leader for raft_group in raft_groups)
            _log.warning("leaderships_not_handed_over", left=left)

    def _heir(self, raft_group: RaftGroup) -> NodeId | None:
        """The voter furthest ahead of those that would serve at once; None leaves it to Raft."""
        matches = raft_group.replication.matches()
        able = [
            node
            for node, peer in raft_group.peers.items()
            if peer.voter and peer.connected and self._should_lead(node)
        ]
        return max(able, key=lambda node: matches.get(node, 0), default=None)

    # rounds

    async def _retain(self) -> None:
        for host in self._replicas.led():
            if host.state.log_start_offset == host.end_offset and not host.state.queue.reappended:
                continue  # it holds nothing
            if host.config.is_deleted and host.config.retention_ms >= 0:
                await time_at_hand(host.log, host.log_time_ms() - host.config.retention_ms)
            await host.retention.run()
            await asyncio.sleep(0)

    async def _match_groups(self) -> None:
        """Partitions led here drop groups that the cluster has deleted, and obey new settings."""
        state = self._cluster.state
        living = {group.id: group for group in state.groups.values()}
        for host in self._group_looks.take(state.applied_index):
            groups = host.state.queue.groups if host.is_leader else {}
            for id, known in list(groups.items()):
                group = living.get(id)
                if group is not None and group.version > known.version:
                    host.queue.reopen(group_ref(group))
                elif group is None and id <= state.applied_index:  # ids are indexes of creation
                    host.queue.drop_group(id)

    async def _snapshot_partitions(self) -> None:
        for host in self._snapshot_looks.take():
            await self.snapshot(host.id)
            if host.is_snapshot_due or host.id in self._unstored:
                self._snapshot_looks.again(host)
        self._unstored = {id for id in self._unstored if id == CLUSTER_GROUP or self._has(id)}

    async def _snapshot_cluster(self) -> None:
        raft_group = self._cluster.raft_group
        again = CLUSTER_GROUP in self._unstored
        work = raft_group.apply.take_snapshot(again=again) if raft_group is not None else None
        if work is not None:
            await self._store(CLUSTER_GROUP, work)
        self._cluster.trim()

    def _has(self, id: PartitionId) -> bool:
        return self._replicas.find(id) is not None

    async def _store(self, id: PartitionId, work: SnapshotWork) -> None:
        loop, storage = asyncio.get_running_loop(), self._metrics.storage
        kind = CLUSTER if id == CLUSTER_GROUP else PARTITION
        began_s = loop.time()
        self._unstored.discard(id)
        try:
            await self._flusher.sync()  # of relaxed entries, too: it must not outlive them
            size = await self._flusher.keep(work.run)
            storage.snapshots_created.labels(kind).inc()
            storage.snapshot_size_bytes.labels(kind).set(size)
            storage.snapshot_latency.labels(kind).observe(loop.time() - began_s)
        except (OSError, StoreFailed) as error:  # the log still has what it would have held
            self._unstored.add(id)
            now = asyncio.get_running_loop().time()
            if now >= self._quiet_until_s:
                self._quiet_until_s = now + QUIET_S
                _log.warning("snapshot_not_stored", problem=str(error))

    async def _balance(self) -> None:
        """A few leaderships a round drift to the replicas that the placement prefers."""
        moved, state = 0, self._cluster.state
        most = max(MOVES_A_ROUND, len(self._replicas.led()) // MOVES_SHARE)
        for host in self._leader_looks.take(state.applied_index):
            preferred = self._preferred(host)
            if not host.is_leader or preferred in (None, self._node):
                continue
            self._leader_looks.again(host)
            if moved == most or not self._cluster.is_present(preferred):
                continue
            if not self._should_lead(preferred):
                continue
            matches = host.matches()
            if matches.get(preferred, 0) >= host.raft_group.commit_index:
                if await transferred(host.raft_group, preferred):
                    _log.info("leadership_moved", group=str(host.id), to=preferred)
                moved += 1

    def _preferred(self, host: PartitionHost) -> NodeId | None:
        placement = self._cluster.state.placement(host.id)
        return None if placement is None else placement.preferred
