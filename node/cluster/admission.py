"""Letting nodes into the cluster: a node that has no cluster group yet asks a peer to register it.

The peer checks that the node asks for itself, with the data directory that the link has proven, and
forwards the command to whoever leads the cluster group.
"""

from __future__ import annotations

import asyncio

from coordinator.commands.codec import (
    BrokerRegistered,
    RegisterBroker,
    decode_command,
    encode_command,
    encode_result,
)
from coordinator.errors import ClusterFull, CommandUnreadable
from goqueue.wire.errors import BadRequest, GoQueueError, Unavailable
from goqueue.wire.types import NodeId
from node.cluster.host import ClusterHost
from node.peers.link import PeerLink
from raft.configuration import REPLICAS_MAX
from raft.link import RemoteError

ADMIT = "admit"
ADMIT_DEADLINE_S = 4.0
ASK_TIMEOUT_S = 6.0
ALIVE_S = 2.0
"""Nobody takes the place of a node that was heard so shortly ago: two of one name are a mistake."""


class Admission:
    """Both sides: what this node asks of its peers, and what it does for them."""

    def __init__(self, cluster: ClusterHost, link: PeerLink) -> None:
        self._cluster = cluster
        self._link = link
        self._heard_s: dict[NodeId, float] = {}
        link.handle(ADMIT, self._serve)

    def heard(self, node: NodeId) -> None:
        """A node with the data directory that the cluster knows is alive."""
        self._heard_s[node] = asyncio.get_running_loop().time()

    async def ask(self, command: RegisterBroker, cluster_id: int) -> None:
        """Returns once that cluster has registered this node. Raises what it refuses it with, or
        why no peer could ask it."""
        problem: GoQueueError = Unavailable("no peer belongs to a cluster that can be reached")
        payload = encode_command(command)
        for node, told in sorted(self._cluster.hellos.items()):
            if told.get("cluster") != cluster_id:
                continue
            try:
                await self._link.request(node, ADMIT, payload, ASK_TIMEOUT_S)
            except RemoteError as error:
                problem = error.error
                if problem.http_status == 409:
                    break
            except GoQueueError as error:
                problem = error
            else:
                return
        raise problem

    async def _serve(self, peer: NodeId, payload: bytes) -> bytes:
        try:
            command = decode_command(payload)
        except CommandUnreadable as error:
            raise BadRequest(str(error)) from error
        cluster = self._cluster
        told = cluster.hellos.get(peer)
        if not isinstance(command, RegisterBroker) or command.node != peer or told is None:
            raise BadRequest("a node registers nobody but itself")
        if told.get("cluster", 0) not in (0, cluster.state.cluster_id):
            raise BadRequest(f"{peer} belongs to another cluster")
        if command.incarnation != told.get("incarnation"):
            raise BadRequest("a node registers with its own data directory")
        self._check_alone(command)
        if not command.peer_address:
            raise BadRequest(f"nobody could dial {peer}: set cluster.advertise there")
        if cluster.raft_group is None or cluster.wiped or cluster.outcast is not None:
            raise Unavailable("this node does not belong to the cluster itself")
        if peer not in cluster.state.brokers and len(cluster.state.brokers) >= REPLICAS_MAX:
            raise ClusterFull(f"there are {REPLICAS_MAX} brokers already")
        result = await cluster.command(command, ADMIT_DEADLINE_S)
        assert isinstance(result, BrokerRegistered)
        return encode_result(result)

    def _check_alone(self, command: RegisterBroker) -> None:
        node = NodeId(command.node)
        known = self._cluster.known_incarnation(node)
        now = asyncio.get_running_loop().time()
        if (
            known in (None, command.incarnation)
            or now - self._heard_s.get(node, -ALIVE_S) >= ALIVE_S
        ):
            return
        raise Unavailable(f"another node that calls itself {node} was here a moment ago")
