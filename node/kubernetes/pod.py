"""A node's part in Kubernetes: one service over what finds, shows, scales and stops its pod.

Nothing that serves waits for it. Where the Kubernetes API is away, or refuses, all goes on with
what was seen last, and metrics say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from coordinator.brokers.registry import DRAINED, Broker
from coordinator.errors import BrokerGone
from goqueue.background import TaskSet
from goqueue.wire.types import NodeId, Voter
from node.cluster.host import ClusterHost
from node.config.node import NodeConfig
from node.config.option import Address
from node.config.pod_names import PodNames, names_of
from node.kubernetes.api import ApiProblem, KubernetesApi, Subject
from node.kubernetes.discovery import find_peers
from node.kubernetes.face import CONTROLLER, LEARNER, VOTER, Face, PodFace
from node.kubernetes.founding import Founding
from node.kubernetes.quorums import at_stake
from node.kubernetes.scaling import Placement, Scaling
from node.kubernetes.stopping import PodStop, StopTimes
from node.kubernetes.watching import StatefulSetWatch
from node.metrics import Metrics
from node.observe.status import NodeStatus
from node.placement.maintenance import Maintenance
from node.replicas.local import Replicas
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic
from node.runtime.service import Service

PEERS_S = 10.0
PEERS_FORMING_S = 1.0
"""So often others are looked for, and while this node belongs to no cluster yet."""
ZONE_PAUSE_S = 5.0
ZONE_PAUSE_MAX_S = 300.0
OUTCAST_S = 1.0

_log = get_logger("kubernetes")


class BrokerMembership(Protocol):
    """Who is told of peers, as `node.cluster.membership.Membership` is."""

    may_found: Callable[[int], str]

    def listed(self, peers: Mapping[NodeId, Address], *, founders: bool) -> None: ...

    def in_zone(self, zone: str) -> None: ...

    def reconsider(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PodParts:
    """What of the node the pod shows and moves. `begin_anew` stops the node, and starts it with an
    empty data directory, what it holds set aside."""

    cluster: ClusterHost
    replicas: Replicas
    status: NodeStatus
    maintenance: Maintenance
    placement: Placement
    membership: BrokerMembership
    metrics: Metrics
    begin_anew: Callable[[], None]


class Pod:
    """A service."""

    def __init__(self, config: NodeConfig, parts: PodParts, api: KubernetesApi) -> None:
        pod = config.kubernetes
        self._config = config
        self._me = NodeId(config.node_id)
        self._parts = parts
        self._names: PodNames = names_of(config)
        self._api = api
        self._peers = Periodic(
            "kubernetes-peers", self._find_peers, PEERS_S, _log, "pod_part_failed", first_s=0.0
        )
        self._returns = Periodic(
            "kubernetes-return",
            self._find_out,
            None,
            _log,
            "pod_part_failed",
            first_s=OUTCAST_S,
            retry_s=OUTCAST_S,
        )
        self._watch = StatefulSetWatch(api, parts.metrics, self._peers.wake)
        interval_s = pod.label_interval_ms / 1000
        self._face = PodFace(api, parts.metrics, self._look, interval_s)
        self._scaling = Scaling(
            self._names,
            parts.cluster,
            parts.placement,
            parts.metrics,
            wanted=lambda: self._watch.wanted,
            complain=self._complain_of_set,
        )
        self._founding = Founding(
            api,
            self._names.cluster_record,
            current=lambda: parts.cluster.state.cluster_id if parts.cluster.raft_group else 0,
            changed=parts.membership.reconsider,
            complain=self._complain_of_founding,
        )
        parts.membership.may_found = self._founding.may_found
        times = StopTimes(lambda: self._face.grace_s, pod.stop_delay_ms / 1000)
        self._stop = PodStop(config.data_dir, self, times)
        self._tasks = TaskSet("kubernetes", "pod_part_failed")

    async def start(self) -> None:
        await self._stop.start()
        for part in self._parts_of_pod():
            await part.start()
        self._tasks.begin(self._watch.run(), "kubernetes-watch")
        self._tasks.begin(self._find_zone(), "kubernetes-zone")

    async def stop(self) -> None:
        for part in (*self._parts_of_pod(), self._tasks):
            await part.stop()
        await self._stop.stop()
        await self._api.close()

    # what stopping asks of the node

    def ordinal(self) -> int:
        return self._names.ordinal(self._me) or 0

    def wanted(self) -> int | None:
        return self._watch.wanted

    async def look(self) -> int | None:
        return await self._watch.look()

    def broker(self) -> Broker | None:
        return self._parts.cluster.state.brokers.get(self._me)

    def held(self) -> int:
        return self._parts.cluster.state.layout.held[self._me]

    def lagging(self) -> str:
        return self._parts.status.lagging_elsewhere()

    def at_stake(self) -> str:
        cluster, broker = self._parts.cluster, self.broker()
        layout = cluster.state.layout
        groups = [("the cluster group", set(cluster.voters))]
        me = None if broker is None else Voter(broker.node, broker.incarnation)
        for partition_id in [] if me is None else layout.held_by(me):
            known = layout.configuration(partition_id)
            voters = () if known is None else known.voters
            groups.append(("partitions", {voter.node for voter in voters}))
        away = {*map(NodeId, cluster.absent()), *self._parts.status.lagging_nodes()}
        return at_stake(self._me, groups, away)

    def leaving(self) -> list[str]:
        wanted = self._watch.wanted
        return [
            node
            for node, broker in sorted(self._parts.cluster.state.brokers.items())
            if wanted and (self._names.ordinal(node) or 0) >= wanted and broker.state != DRAINED
        ]

    def led(self) -> int:
        return sum(
            len(raft_group.membership.voters) > 1 for raft_group in self._parts.maintenance.led()
        )

    async def drain(self) -> Any:
        return await self._parts.placement.drain(self._me)

    async def hand_over(self, timeout_s: float) -> None:
        await self._parts.maintenance.hand_over_all(timeout_s)

    def stops(self, stopping: bool) -> None:
        self._parts.status.stopping = stopping

    async def complain(self, problem: str, reason: str) -> None:
        await self._event(Subject("Pod", self._config.kubernetes.pod), reason, problem)

    # private

    def _parts_of_pod(self) -> Sequence[Service]:
        return (self._face, self._scaling, self._founding, self._peers, self._returns)

    def _look(self) -> Face:
        cluster, status = self._parts.cluster, self._parts.status
        if cluster.raft_group is not None and cluster.raft_group.is_leader:
            role = CONTROLLER
        else:
            role = VOTER if self._me in cluster.voters else LEARNER
        behind = cluster.not_ready() or status.behind_here()
        broker = self.broker()
        drained = broker is not None and broker.state == DRAINED
        return Face(role, len(self._parts.replicas.led()), behind, drained)

    async def _find_peers(self) -> float:
        """Until all that are wanted are known, and again whenever their number changes. Only the
        API tells who founds: what DNS knows may be fewer, and would found another cluster."""
        cluster = self._parts.cluster
        fixed = bool(self._config.cluster.peers)
        wanted = self._watch.wanted
        known = [] if cluster.raft_group is None else list(cluster.nodes)
        found = await find_peers(
            self._names, self._me, wanted, known, addresses=self._api.addresses
        )
        if not fixed:
            self._parts.membership.listed(found, founders=bool(wanted))
        return PEERS_S if cluster.raft_group is not None else PEERS_FORMING_S

    async def _find_zone(self) -> None:
        """Once: a pod does not move. Without the right to read machines, `broker.zone` tells."""
        pause_s = ZONE_PAUSE_S
        while self._config.kubernetes.machine and not self._config.broker.zone:
            try:
                self._parts.membership.in_zone(await self._api.zone())
                return
            except ApiProblem as problem:
                _log.info("zone_not_read", problem=str(problem))
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, ZONE_PAUSE_MAX_S)

    async def _find_out(self) -> float | None:
        """A pod that was removed, as when the set was scaled down, and is wanted again, begins
        anew: it was drained before, so others have all that it held."""
        outcast, wanted = self._parts.cluster.outcast, self._watch.wanted
        is_gone = outcast is not None and outcast.code == BrokerGone.code
        if outcast is None or not is_gone or not wanted or self.ordinal() >= wanted:
            return OUTCAST_S
        _log.warning("begins_anew", problem=outcast.message)
        self._parts.begin_anew()
        return None

    async def _complain_of_set(self, problem: str) -> None:
        about = Subject("StatefulSet", self._names.statefulset, self._watch.uid)
        await self._event(about, "DrainRefused", problem)

    async def _complain_of_founding(self, problem: str) -> None:
        about = Subject("StatefulSet", self._names.statefulset, self._watch.uid)
        await self._event(about, "NotFounded", problem)

    async def _event(self, about: Subject, reason: str, problem: str) -> None:
        try:
            await self._api.event(about, reason, problem)
        except ApiProblem as error:  # the log has it
            _log.info("event_not_written", reason=reason, problem=str(error))


def pod_of(config: NodeConfig, parts: PodParts) -> Pod | None:
    """None where the node is no pod. Raises ClientMissing."""
    if not config.kubernetes.enabled:
        parts.metrics.kubernetes.api_up.set(1)  # nothing is to answer
        return None
    api = KubernetesApi(config.kubernetes, names_of(config), parts.metrics)
    return Pod(config, parts, api)


async def stands_among_others(config: NodeConfig) -> bool:
    """Whether the API says that this pod is one of several: asked before the node is there, so that
    a pod alone is not taken for one that can copy from others."""
    api = KubernetesApi(config.kubernetes, names_of(config), Metrics())
    try:
        return (await api.statefulset()).spec.replicas > 1
    except ApiProblem as problem:
        _log.warning("statefulset_not_seen", problem=str(problem))
        return False
    finally:
        await api.close()
