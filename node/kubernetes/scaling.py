"""The cluster follows the number of replicas: who is to go is drained, who came is given work.

All is decided from the cluster's state and the number that was seen last, by whoever leads the
cluster group: a leader that comes later goes on from there. Nothing is remembered but which pods
this node has seen on their way out, so that they are kept when the number is raised again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from coordinator.brokers.registry import DRAINED, Broker
from coordinator.cluster.state import ClusterState
from coordinator.errors import TooFewBrokers
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import NodeId
from node.config.pod_names import PodNames
from node.metrics import Metrics
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic

TICK_S = 0.5
GONE_S = 3.0
"""A drained broker is removed after its pod was away for so long."""
NEW_MS = 3_600_000
"""A broker without replicas is given some while it is new; later it was somebody's will."""
MOVES_MAX = 1000
"""Of one rebalance; what is left is for the next."""

_log = get_logger("kubernetes")


class Cluster(Protocol):
    """The cluster group, as `node.cluster.host.ClusterHost` is it."""

    @property
    def state(self) -> ClusterState: ...

    def led_time_ms(self) -> int | None: ...

    def is_present(self, node: NodeId) -> bool: ...


class Placement(Protocol):
    """What is asked of the cluster, as `node.broker.placement.NodePlacement` does it."""

    async def drain(self, id: str, *, throttle_bytes_s: int = 0) -> Any: ...

    async def undrain(self, id: str) -> Any: ...

    async def remove_broker(self, id: str) -> None: ...

    async def rebalance(
        self, *, leaders_only: bool, limit: int, throttle_bytes_s: int
    ) -> object | None: ...


class Scaling:
    """A service. Loop thread only. `wanted` is the number of replicas as it was seen last, None for
    unknown; with none wanted the set is switched off, and nobody leaves. `complain` is told, once
    for each sentence, what can't be done."""

    def __init__(
        self,
        names: PodNames,
        cluster: Cluster,
        placement: Placement,
        metrics: Metrics,
        *,
        wanted: Callable[[], int | None],
        complain: Callable[[str], Awaitable[None]],
    ) -> None:
        self._names = names
        self._cluster = cluster
        self._placement = placement
        self._metrics = metrics.kubernetes
        self._wanted = wanted
        self._complain = complain
        self._leaving: set[NodeId] = set()
        self._away_s: dict[NodeId, float] = {}
        self._spread: set[tuple[NodeId, int]] = set()
        self._refused: dict[NodeId, str] = {}

        self._rounds = Periodic("kubernetes-scaling", self._round, TICK_S, _log, "scaling_failed")

    async def start(self) -> None:
        await self._rounds.start()

    async def stop(self) -> None:
        await self._rounds.stop()

    async def round(self) -> None:
        """Look at what is wanted, and have done what is left of it, where this node leads."""
        wanted = self._wanted()
        leaving, staying = self._sorted(wanted)
        self._leaving |= leaving.keys()
        returned = self._leaving & staying.keys()
        if not wanted or self._cluster.led_time_ms() is None:
            self._refused.clear()
            self._metrics.drains_refused.set(0)
            self._leaving -= {node for node in returned if wanted and staying[node].takes}
            return
        for broker in leaving.values():
            await self._let_go(broker)
        for node in sorted(returned):
            if not staying[node].takes:
                _log.info("broker_stays", node=node, replicas=wanted)
                await self._placement.undrain(node)
            self._leaving.discard(node)
        self._refused = {node: why for node, why in self._refused.items() if node in leaving}
        self._metrics.drains_refused.set(len(self._refused))
        if not leaving:
            await self._give_work(staying, wanted)

    # private

    async def _round(self) -> None:
        try:
            await self.round()
        except GoQueueError as error:
            _log.debug("not_scaled_yet", problem=error.message)

    def _sorted(self, wanted: int | None) -> tuple[dict[NodeId, Broker], Mapping[NodeId, Broker]]:
        """Brokers of this set that are to go, the highest ordinal first, and those that stay."""
        leaving: dict[NodeId, Broker] = {}
        staying: dict[NodeId, Broker] = {}
        ordinals = {
            node: ordinal
            for node in self._cluster.state.brokers
            if (ordinal := self._names.ordinal(node)) is not None
        }
        for node in sorted(ordinals, key=lambda node: -ordinals[node]):
            goes = bool(wanted) and ordinals[node] >= (wanted or 0)
            (leaving if goes else staying)[node] = self._cluster.state.brokers[node]
        return leaving, staying

    async def _let_go(self, broker: Broker) -> None:
        if broker.takes:
            try:
                await self._placement.drain(broker.node)
            except TooFewBrokers as error:
                await self._refuse(broker.node, error.message)
            else:
                self._refused.pop(broker.node, None)
                _log.info("broker_drains", node=broker.node)
        elif broker.state == DRAINED and self._is_gone(broker.node):
            await self._placement.remove_broker(broker.node)
            _log.info("broker_removed", node=broker.node)

    async def _refuse(self, node: NodeId, why: str) -> None:
        if self._refused.get(node) != why:
            self._refused[node] = why
            _log.error("drain_refused", node=node, problem=why)
            await self._complain(f"{node} can't be drained: {why}. Raise the replicas again")

    def _is_gone(self, node: NodeId) -> bool:
        now = asyncio.get_running_loop().time()
        if self._cluster.is_present(node):
            self._away_s.pop(node, None)
            return False
        return now - self._away_s.setdefault(node, now) >= GONE_S

    async def _give_work(self, staying: Mapping[NodeId, Broker], wanted: int | None) -> None:
        """A rebalance, once all are there that are wanted and one of them is new and has nothing,
        though there is something to have."""
        layout, now_ms = self._cluster.state.layout, self._cluster.led_time_ms()
        if now_ms is None or len(staying) != wanted or not layout.held.total():
            return
        if not all(one.takes and self._cluster.is_present(one.node) for one in staying.values()):
            return
        idle = {
            (one.node, one.joined_at_ms)
            for one in staying.values()
            if not layout.held[one.node] and now_ms - one.joined_at_ms < NEW_MS
        }
        if idle <= self._spread or layout.moving:
            return
        await self._placement.rebalance(leaders_only=False, limit=MOVES_MAX, throttle_bytes_s=0)
        self._spread |= idle
        _log.info("rebalance_begun", idle=sorted(node for node, _ in idle))
