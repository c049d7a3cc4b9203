"""What this node says of itself and of the cluster: hello to peers, views, readiness, figures."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any

from coordinator.brokers.health import Standing
from coordinator.brokers.registry import ACTIVE
from coordinator.cluster.state import ClusterState, Topic
from goqueue.wire.types import CLUSTER_GROUP, NodeId, Offset, PartitionId
from log.levels import Feature
from log.store.directory import Store
from node.api.node import Check, ClusterView, NodeView, Readiness, StatsView, TopicStats
from node.api.topics import PartitionView, TopicView
from node.cluster.host import ClusterHost
from node.config import open_listener
from node.config import secret_checks as secret_care
from node.config.node import NodeConfig
from node.observe.in_sync import InSync
from node.observe.replay_watch import ReplayWatch
from node.partition.host import PartitionHost
from node.placement.views import nodes_of
from node.replicas.damaged import DAMAGED, damaged_replicas
from node.replicas.local import Replicas
from node.replicas.topology import Topology
from node.rpc import partitions as rpc
from node.runtime.logger import get_logger
from node.runtime.loop_lag import LoopLag
from node.storage.disks import REPLAYING, STOPPING, Disks
from node.storage.space_watch import ROOM_BYTES, SpaceWatch
from raft.group import RaftGroup

_log = get_logger("node")

UNDER_REPLICATED, LAGGING = "under_replicated", "lagging"
"""The names under which peers are told: how many partitions led here lack replicas in sync, and how
many of them each node's."""
LAG_S_MAX = 2.0
"""A loop this late is not ready for work."""
LEVEL_WAITS = (
    f"feature level {Feature.SCOPES:d} is not finished: until then new groups belong to nobody,"
    " receipts can be made up, and a session that is logged out of goes on at other nodes."
    " Once all nodes run a version that speaks it: goqueue-cli cluster upgrade --finish"
)
"""Where keys are asked for. A new cluster begins with level 1, too."""


_SHOWN = {Standing.UP: "alive", Standing.DOWN: "dead", Standing.WIPED: "wiped"}


class NodeStatus:
    """Views over the parts of one node; reads, decides nothing."""

    def __init__(
        self,
        *,
        config: NodeConfig,
        store: Store,
        cluster: ClusterHost,
        replicas: Replicas,
        topology: Topology,
        lag: LoopLag,
        space: SpaceWatch,
        disks: Disks,
    ) -> None:
        self._config = config
        self._node = NodeId(config.node_id)
        self._store = store
        self._cluster = cluster
        self._replicas = replicas
        self._topology = topology
        self._lag = lag
        self._space = space
        self._disks = disks
        self._started_s = time.monotonic()
        self._heard_ms: dict[NodeId, int] = {}
        self._failed: dict[PartitionId, RaftGroup] = {}
        """Replicas that have stopped themselves, some of which may be gone by now."""
        self.in_sync = InSync(replicas, lambda: cluster.state)
        self._replay = ReplayWatch(replicas)
        self._was_ready = False
        """From then on a replica that is copied or healed, and applies its log, is one of many."""
        self.stopping = False
        self.diverged: Callable[[], Collection[str]] = tuple
        """What differs between replicas of groups led here."""

    @cached_property
    def _start_warnings(self) -> tuple[str, ...]:
        """Of how this node was started."""
        config = self._config
        return tuple(filter(None, [open_listener.warning(config), *secret_care.warnings(config)]))

    def _warnings(self) -> tuple[str, ...]:
        is_waiting = self._config.auth.enabled and not self._cluster.levels.speaks(Feature.SCOPES)
        return (*self._start_warnings, LEVEL_WAITS) if is_waiting else self._start_warnings

    # peers

    def hello(self) -> dict[str, Any]:
        """What peers are told of this node's work."""
        under_replicated, lagging = self.in_sync.look()
        return {
            **self._disks.hello(),
            ROOM_BYTES: self._space.room_bytes,
            "leaders": len(self._replicas.led()),
            "replicas": len(self._replicas.all()),
            UNDER_REPLICATED: under_replicated,
            LAGGING: dict(lagging),
            REPLAYING: self._replicas.are_replaying,
            DAMAGED: damaged_replicas(self._store),
            STOPPING: self.stopping,
        }

    def heard(self, node: NodeId, now_ms: int) -> None:
        """A peer's status arrived."""
        self._heard_ms[node] = now_ms

    def replica_failed(self, raft_group: RaftGroup, error: Exception) -> None:
        """A replica has stopped itself; the others of its group go on."""
        self._failed[raft_group.id] = raft_group
        _log.error("replica_stopped", group=str(raft_group.id), problem=str(error))

    @property
    def fault(self) -> str | None:
        """Why this process should be restarted."""
        if self._store.failed is not None:
            return f"storage failed: {self._store.failed}"
        partition_ids = self._store.partition_ids()
        if CLUSTER_GROUP in partition_ids and self._store.partition_log(CLUSTER_GROUP).untrusted:
            return "the cluster group's replica here is not to be believed: a restart renews it"
        stopped = self._stopped().get(CLUSTER_GROUP)
        return None if stopped is None else f"the cluster group's replica has stopped: {stopped}"

    # views

    def topic_view(
        self, topic: Topic, offsets: Mapping[int, rpc.PartitionOffsets], stale: Collection[int] = ()
    ) -> TopicView:
        """`stale` are the partitions whose leaders did not confirm the ends in time."""
        partitions = []
        for number, placement in enumerate(topic.partitions):
            replicas = tuple(voter.node for voter in placement.replicas)
            partition_id = PartitionId(topic.id, number)
            known = offsets.get(number)
            configuration = self._cluster.state.layout.configuration(partition_id)
            leader = known.leader if known is not None else self._topology.leader(partition_id)
            partitions.append(
                PartitionView(
                    partition=number,
                    leader=leader,
                    replicas=replicas,
                    isr=tuple(known.isr) if known is not None else (),
                    earliest=Offset(known.earliest if known is not None else 0),
                    next=Offset(known.next if known is not None else 0),
                    size_bytes=known.size_bytes if known is not None else 0,
                    voters=() if configuration is None else nodes_of(configuration.voters),
                    learners=() if configuration is None else nodes_of(configuration.learners),
                    archive=known.archive if known is not None else None,
                    stale=number in stale or known is None,
                )
            )
        codec = self._cluster.state.compressions.of(topic.id)
        config = {**dataclasses.asdict(topic.config), "compression": codec}
        return TopicView(
            topic.name, str(topic.id), config, tuple(partitions), tuple(topic.warnings)
        )

    @property
    def is_drained(self) -> bool:
        broker = self._cluster.state.brokers.get(self._node)
        return broker is not None and broker.state != ACTIVE

    def cluster_view(self) -> ClusterView:
        state = self._cluster.state
        raft_group = self._cluster.raft_group
        nodes = tuple(self._node_view(name, state) for name in sorted(self._cluster.nodes))
        told = [hello.get(UNDER_REPLICATED, 0) for hello in self._cluster.hellos.values()]
        leaderless = [host for host in self._replicas.all() if host.raft_group.leader is None]
        return ClusterView(
            cluster_id=f"{state.cluster_id:016x}" if state.cluster_id else "",
            node=self._node,
            controller=None if raft_group is None else raft_group.leader,
            epoch=0 if raft_group is None else raft_group.term,
            version=0 if raft_group is None else raft_group.applied_index,
            has_quorum=self._cluster.has_quorum,
            nodes=nodes,
            topics=len(state.topics),
            partitions=sum(len(topic.partitions) for topic in state.topics.values()),
            under_replicated=self.in_sync.look()[0] + sum(map(int, told)),
            leaderless=len(leaderless),
            problems=tuple(self._problems(nodes)),
            voters=tuple(sorted(self._cluster.voters)),
            warnings=self._warnings(),
        )

    def hosts_by_topic(self) -> dict[str, list[PartitionHost]]:
        """The replicas here of each topic, also of those that have none here."""
        return {
            name: [
                host
                for number in range(len(topic.partitions))
                if (host := self._replicas.find(PartitionId(topic.id, number))) is not None
            ]
            for name, topic in self._cluster.state.topics.items()
        }

    @property
    def uptime_s(self) -> float:
        return time.monotonic() - self._started_s

    def stats(self, told: Mapping[PartitionId, rpc.PartitionOffsets] | None = None) -> StatsView:
        """`told` are ends as leaders know them: what they leave out is stale."""
        topics: dict[str, TopicStats] = {}
        for name, hosts in self.hosts_by_topic().items():
            known = {host.id: told.get(host.id) for host in hosts} if told is not None else {}
            ends = [
                host.end_offset if (one := known.get(host.id)) is None else one.next
                for host in hosts
            ]
            starts = [host.state.log_start_offset for host in hosts]
            topics[name] = TopicStats(
                len(self._cluster.state.topics[name].partitions),
                sum(ends) - sum(starts),
                sum(host.log.size_bytes for host in hosts),
                stale=None in known.values(),
            )
        return StatsView(
            self.uptime_s,
            topics,
            {
                "replicas": len(self._replicas.all()),
                "leaders": len(self._replicas.led()),
                "durable_lsn": self._store.durable_lsn,
                "incarnation": f"{self._store.incarnation:016x}",
                "free_bytes": self._space.free_bytes,
                "loop_lag_worst_ms": round(self._lag.worst_s * 1000, 3),
            },
        )

    def readiness(self) -> Readiness:
        checks = {
            "storage": _check(self.fault),
            "cluster": _check(self._cluster.not_ready()),
            "replay": _check(None if self._was_ready else self._not_replayed()),
            "loop": _check(
                f"the event loop was {self._lag.lately_s:.1f} s late"
                if self._lag.lately_s > LAG_S_MAX
                else None
            ),
        }
        auth = self._config.auth
        if auth.enabled and auth.admin_key_file and not self._cluster.state.keys.by_id:
            checks["keys"] = Check("fail", "the first admin key is still to be made")
        if self.stopping:
            checks["lifecycle"] = Check("fail", "stopping")
        ready = all(check.status == "pass" for check in checks.values())
        self._was_ready = self._was_ready or (ready and self._cluster.is_newest)
        return Readiness(ready, checks)

    # private

    def _not_replayed(self) -> str | None:
        if self._replicas.are_behind(self._cluster.state):
            return "the replicas are being started"
        return self._replay.not_ready()

    def behind_here(self) -> str:
        """Why this node is not in sync, as the leaders of what it holds have told; empty where it
        is."""
        if self._replicas.are_replaying:
            return "what its disk held at the start is still being applied"
        told = [hello.get(LAGGING) for hello in self._cluster.hellos.values()]
        count = sum(_count(one.get(self._node)) or 0 for one in told if isinstance(one, dict))
        return f"{count} partitions are not in sync here" if count else ""

    def lagging_elsewhere(self) -> str:
        """Which other nodes of the cluster are not in sync, as all leaders have told; empty for
        none."""
        lagging = sorted(self._lagging().items())
        return ", ".join(f"{count} partitions on {node}" for node, count in lagging)

    def lagging_nodes(self) -> set[NodeId]:
        """The other nodes that lack a partition in sync, as all leaders have told."""
        return set(map(NodeId, self._lagging()))

    def _lagging(self) -> Counter[str]:
        _under_replicated, lagging = self.in_sync.look()
        for hello in self._cluster.hellos.values():
            told = hello.get(LAGGING)
            lagging.update(told if isinstance(told, dict) else {})
        lagging.pop(self._node, None)
        return lagging

    def _node_view(self, node: NodeId, state: ClusterState) -> NodeView:
        broker = state.brokers.get(node)
        told: Mapping[str, Any] = self._told(node)
        return NodeView(
            node=node,
            status=_SHOWN[self._cluster.standing(node)],
            http_url=broker.http_url if broker is not None else str(told.get("http_url", "")),
            peer_address=broker.peer_address if broker is not None else "",
            zone=broker.zone if broker is not None else "",
            version=broker.version if broker is not None else "",
            leaders=int(told.get("leaders", 0)),
            replicas=int(told.get("replicas", 0)),
            incarnation=broker.incarnation if broker is not None else 0,
            joined_at_ms=broker.joined_at_ms if broker is not None else 0,
            last_heartbeat_ms=self._heard_ms.get(node, 0),
            labels=broker.labels if broker is not None else {},
            state=broker.state if broker is not None else "active",
            room_bytes=_count(told.get(ROOM_BYTES)),
        )

    def _told(self, node: NodeId) -> Mapping[str, Any]:
        """What a node last said of itself."""
        if node != self._node:
            return self._cluster.hellos.get(node, {})
        return {
            "leaders": len(self._replicas.led()),
            "replicas": len(self._replicas.all()),
            ROOM_BYTES: self._space.room_bytes,
        }

    @property
    def damaged_replicas(self) -> int:
        """Replicas here that neither vote nor lead: stopped, not opened, or with damage."""
        stopped = self._replicas.refused.keys() | self._stopped().keys()
        return len(stopped) + sum(host.log.quarantined for host in self._replicas.all())

    def _stopped(self) -> dict[PartitionId, str]:
        """Replicas here that have stopped themselves, and why: until another one has taken their
        place, or none is wanted any more."""
        self._failed = {
            id: raft_group for id, raft_group in self._failed.items() if self._is_here(raft_group)
        }
        return {id: str(raft_group.failed) for id, raft_group in self._failed.items()}

    def _is_here(self, raft_group: RaftGroup) -> bool:
        if raft_group.id == CLUSTER_GROUP:
            return self._cluster.raft_group in (None, raft_group)
        host = self._replicas.find(raft_group.id)
        return (
            self._replicas.is_held(raft_group.id) if host is None else host.raft_group is raft_group
        )

    def _problems(self, nodes: tuple[NodeView, ...]) -> list[str]:
        outcast = self._cluster.outcast  # nobody tells this node of the cluster any more
        found = [] if outcast is None else [outcast.message]
        found += [f"{view.node} is {view.status}" for view in nodes if view.status != "alive"]
        if not self._cluster.has_quorum:
            found.append(f"the {_name(CLUSTER_GROUP)} has no quorum as seen from {self._node}")
        if self.fault is not None:
            found.append(self.fault)
        found += [
            f"replica {partition_id} on {self._node} has stopped: {why}"
            for partition_id, why in {**self._replicas.refused, **self._stopped()}.items()
        ]
        found += [
            f"replica {host.id} on {self._node} has damaged entries and neither votes nor leads"
            for host in self._replicas.all()
            if host.log.quarantined
        ]
        found += self._unspoken()
        found += self.diverged()
        return found + self._disks.problems

    def _unspoken(self) -> list[str]:
        """What this version of the program can't read or can't take part in."""
        raft_groups = [host.raft_group for host in self._replicas.all()]
        raft_groups += [] if self._cluster.raft_group is None else [self._cluster.raft_group]
        levels = self._cluster.levels
        lacks = levels.problem or ("" if self._cluster.has_quorum else levels.refused)
        return [lacks] * bool(lacks) + [
            f"replica {raft_group.id} on {self._node} applies nothing more: {raft_group.unspoken}"
            for raft_group in raft_groups
            if raft_group.unspoken
        ]


def _count(told: object) -> int | None:
    return told if isinstance(told, int) else None


def _name(partition_id: PartitionId) -> str:
    return "cluster group" if partition_id == CLUSTER_GROUP else str(partition_id)


def _check(problem: str | None) -> Check:
    return Check("pass") if problem is None else Check("fail", problem)
