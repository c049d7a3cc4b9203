"""What a node tells Prometheus at each look, beside what its parts count as they work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

from node.metrics import Metrics
from node.metrics.exposition import SLICE_S
from node.observe.cluster_metrics import ClusterFigures
from node.observe.link_metrics import LinkFigures
from node.observe.process_metrics import BudgetFigures, ProcessFigures
from node.observe.replica_metrics import ReplicaFigures
from node.observe.status import NodeStatus
from node.peers.link import PeerLink
from node.queue.lag import REFRESH_S, TakingPart
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic

DIRECTIONS = ("sent", "received")
"""Of copies; shown from the start, since Prometheus sees no first event of a series."""
WATCH_S = 1.0
"""How soon after a link went down or came up it is noted who is in sync."""

_log = get_logger("node")


class Front(Protocol):
    """The HTTP front, as far as its figures go."""

    @property
    def connections(self) -> int: ...

    @property
    def bytes_in_flight(self) -> int: ...

    requests_in_flight: int

    @property
    def budgets(self) -> BudgetFigures: ...


class NodeFigures:
    """A service. Loop thread only."""

    def __init__(
        self,
        cluster: ClusterFigures,
        replicas: ReplicaFigures,
        *,
        link: PeerLink,
        front: Front,
        status: NodeStatus,
        clock_offset_ms: Callable[[], float | None],
        taking_part: TakingPart,
        metrics: Metrics,
    ) -> None:
        self._metrics = metrics
        self._link = link
        self._links = LinkFigures(link, metrics)
        self._cluster = cluster
        self._replicas = replicas
        self._process = ProcessFigures(metrics)
        self._front = front
        self._status = status
        self._clock_offset_ms = clock_offset_ms
        self._link_changes = 0
        """Up to when it is known who is in sync."""
        self._watches = [
            Periodic("in-sync-watch", self._watch, WATCH_S, _log, "in_sync_not_noted"),
            Periodic(
                "groups-begun-watch",
                taking_part.refresh,
                REFRESH_S,
                _log,
                "groups_begun_not_known",
                first_s=0.0,
            ),
        ]
        for direction in DIRECTIONS:
            metrics.storage.transferred_bytes.labels(direction)
        metrics.before_render(self._tell)

    async def start(self) -> None:
        await self._links.start()
        for watch in self._watches:
            await watch.start()

    async def stop(self) -> None:
        await self._links.stop()
        for watch in self._watches:
            await watch.stop()

    def _tell(self) -> Iterator[None]:
        metrics = self._metrics
        metrics.process.up.set(0 if self._status.stopping else 1)
        metrics.storage.damaged_replicas.set(self._status.damaged_replicas)
        metrics.cluster.clock_skew.set(abs(self._clock_offset_ms() or 0.0) / 1000)
        metrics.broker.active_connections.set(self._front.connections)
        metrics.http.body_bytes.set(self._front.bytes_in_flight)
        metrics.http.in_flight.set(self._front.requests_in_flight)
        self._process.tell()
        self._process.tell_budgets(self._front.budgets)
        self._links.tell()
        yield
        yield from self._cluster.tell()
        yield from self._replicas.tell()

    async def _watch(self) -> None:
        """Who fell out of sync between two looks, and came back, is counted all the same."""
        changes = sum(one.connects + one.losses for one in self._link.traffic.values())
        if changes == self._link_changes:
            return
        loop, self._link_changes = asyncio.get_running_loop(), changes
        began_s = loop.time()
        for _ in self._replicas.note_in_sync():
            if loop.time() - began_s > SLICE_S:
                await asyncio.sleep(0)
                began_s = loop.time()
