"""The links to peers for Prometheus: what they count by themselves, and how long a word takes."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import NodeId
from node.metrics import Metrics
from node.peers.link import PeerLink
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic
from raft.link import RemoteError

PING = "ping"
PING_S = 2.0
"""How often each peer is asked for nothing, and how long for its answer is waited."""

_log = get_logger("link")


class LinkFigures:
    """A service: asks every peer for nothing from time to time, and measures. Loop thread only."""

    def __init__(self, link: PeerLink, metrics: Metrics) -> None:
        self._link = link
        self._figures = metrics.cluster
        self._doors = metrics.doors
        self._pings = Periodic("link-pings", self._ping_all, PING_S, _log, "peers_not_pinged")
        self._totals = (0, 0)
        link.handle(PING, self._serve_ping)

    async def start(self) -> None:
        await self._pings.start()

    async def stop(self) -> None:
        await self._pings.stop()

    def tell(self) -> None:
        """What each link has counted. Of peers that are gone for good, bytes stay in the sums."""
        figures = self._figures
        received = sent = 0
        for node, traffic in self._link.traffic.items():
            figures.heartbeats_received.labels(node).set(traffic.heartbeats)
            figures.heartbeats_missed.labels(node).set(traffic.heartbeats_missed)
            figures.failure_detections.labels(node).set(traffic.losses)
            figures.link_connects.labels(node).set(traffic.connects)
            figures.link_frames.labels(node, "in").set(traffic.received_frames)
            figures.link_frames.labels(node, "out").set(traffic.sent_frames)
            figures.link_backlog_bytes.put(self._link.backlog_bytes(node), node)
            received += traffic.received_bytes
            sent += traffic.sent_bytes
        for failure, count in self._link.failed_handshakes.counts.items():
            self._doors.handshakes_failed.labels(failure).set(count)
        figures.network_in_bytes.inc(max(0, received - self._totals[0]))
        figures.network_out_bytes.inc(max(0, sent - self._totals[1]))
        self._totals = (received, sent)

    async def _ping_all(self) -> None:
        await asyncio.gather(*(self._ping(peer) for peer in self._link.connected()))

    async def _ping(self, peer: NodeId) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        with suppress(GoQueueError, RemoteError):  # a lost link is told by other figures
            await self._link.request(peer, PING, b"", PING_S)
            latency = self._figures.inter_broker_latency.labels(peer)
            latency.observe(loop.time() - began_s)

    async def _serve_ping(self, _peer: NodeId, _payload: bytes) -> bytes:
        return b""
