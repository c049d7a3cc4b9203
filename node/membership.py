"""Which nodes belong to the cluster: its first formation, who is there, and who was wiped.

A cluster is formed once. Each node tells its peers the set of data directories it sees; a node
forms the cluster when its own set names every configured node, all of them empty, and every peer
has told the same set. Whoever forms next does so with the voters of those that have: so no two
different clusters can come out of one start, whichever of the nodes die on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

from coordinator.commands import RegisterBroker
from coordinator.formation import (
    Hello,
    Step,
    cluster_id,
    empty_directories,
    fingerprint,
    plan_formation,
)
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import CLUSTER_GROUP, GroupId, Incarnation, Index, NodeId, Voter
from log.store import Store
from node.cluster import ClusterHost
from node.config import NodeConfig
from node.version import VERSION
from raft.host import RaftHost
from raft.voters import decode_voters

REGISTER_DEADLINE_S = 5.0
REGISTER_PAUSE_S = 0.05
REGISTER_CHECK_S = 1.0

_log = structlog.get_logger("cluster")


class Membership:
    """A service that starts the cluster group, registers this node, and sorts its peers."""

    def __init__(
        self,
        me: Voter,
        *,
        config: NodeConfig,
        store: Store,
        raft: RaftHost,
        cluster: ClusterHost,
    ) -> None:
        self._me = me
        self._config = config
        self._store = store
        self._raft = raft
        self._cluster = cluster
        self._members = tuple(map(NodeId, config.members))
        self._admitted: set[NodeId] = set()
        self._registrar: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if not self._is_new:
            log = self._store.group(CLUSTER_GROUP)
            self._start_group(decode_voters(log.entry(Index(1)).body), bootstrap=False)
        else:
            self._consider()
        self._registrar = asyncio.create_task(self._register_forever(), name="registrar")

    async def stop(self) -> None:
        if self._registrar is not None:
            self._registrar.cancel()
            await asyncio.wait([self._registrar])
            self._registrar = None

    def hello(self) -> dict[str, Any]:
        """What peers are told of this node's part in the cluster."""
        told = self._me_hello()
        return {
            "voters": {voter.node: voter.incarnation for voter in told.voters},
            "empty": told.empty,
            "sees": told.sees,
            "http_url": self._config.http_url,
        }

    # what the peer link tells

    def peer_told(self, node: NodeId, hello: Mapping[str, Any]) -> None:
        self._cluster.hellos[node] = hello
        self._consider()
        self._sort(node)

    def peer_down(self, node: NodeId) -> None:
        self._cluster.hellos.pop(node, None)
        if node in self._admitted:
            self._admitted.discard(node)
            self._raft.peer_disconnected(node)

    def frame(self, node: NodeId, group: GroupId, frame: memoryview) -> None:
        """A Raft frame; those of a node with another data directory than it voted with are not
        its own."""
        if node in self._admitted:
            self._raft.receive(node, group, frame)

    # private

    @property
    def _is_new(self) -> bool:
        """Whether this data directory has never been part of a cluster."""
        if CLUSTER_GROUP not in self._store.groups():
            return True
        return self._store.group(CLUSTER_GROUP).last_index < 1

    def _sort(self, node: NodeId) -> None:
        """Let Raft talk with a peer exactly while it has the data directory it is known by."""
        if self._cluster.group is None:
            return
        if self._cluster.is_present(node):
            if node not in self._admitted:
                self._admitted.add(node)
                self._raft.peer_connected(node)
        elif node in self._admitted:
            self._admitted.discard(node)
            self._raft.peer_disconnected(node)
        else:
            _warn_once(node, self._cluster)

    def _me_hello(self) -> Hello:
        if self._cluster.group is not None:
            founders = self._cluster.group.voters
            return Hello(self._me.node, self._me.incarnation, False, founders)
        me = Hello(self._me.node, self._me.incarnation, self._is_new)
        seen = empty_directories(me, self._peer_hellos(), self._members)
        return Hello(me.node, me.incarnation, me.empty, sees=fingerprint(seen))

    def _peer_hellos(self) -> dict[NodeId, Hello]:
        return {node: _hello(node, told) for node, told in self._cluster.hellos.items()}

    def _consider(self) -> None:
        """Form, join what has formed, or see that this is not the directory the cluster knows."""
        cluster = self._cluster
        if cluster.group is not None or not self._is_new:
            return
        plan = plan_formation(self._me_hello(), self._peer_hellos(), self._members)
        cluster.reason_not_formed = plan.reason
        if plan.step is Step.WIPED and not cluster.wiped:
            cluster.wiped = True
            _log.error("data_directory_replaced", problem=plan.reason)
        elif plan.step is Step.FOUND:
            _log.info("cluster_founded", voters=[voter.node for voter in plan.voters])
            self._start_group(plan.voters, bootstrap=True)

    def _start_group(self, voters: tuple[Voter, ...], *, bootstrap: bool) -> None:
        cluster = self._cluster
        known = {voter.node: voter.incarnation for voter in voters}
        if known.get(self._me.node) not in (None, self._me.incarnation):
            cluster.wiped = True  # the log was damaged: this directory began another life
            return
        cluster.found(cluster_id(voters))
        group = self._raft.start_group(
            CLUSTER_GROUP,
            voters,
            cluster,
            bootstrap=bootstrap,
            preferred=min(known),
        )
        cluster.attach(group)
        for node in cluster.hellos:
            self._sort(node)

    async def _register_forever(self) -> None:
        """Keep what the cluster knows of this node true."""
        while True:
            try:
                if self._cluster.group is not None and not self._is_registered():
                    await self._cluster.command(self._registration(), REGISTER_DEADLINE_S)
            except GoQueueError as error:
                _log.debug("not_registered_yet", problem=error.message)
            is_settled = self._cluster.group is not None and self._is_registered()
            await asyncio.sleep(REGISTER_CHECK_S if is_settled else REGISTER_PAUSE_S)

    def _registration(self) -> RegisterBroker:
        broker = self._config.broker
        return RegisterBroker(
            node=self._me.node,
            incarnation=self._me.incarnation,
            peer_address=self._config.peer_address,
            http_url=self._config.http_url,
            zone=broker.zone,
            version=VERSION.version,
            labels=dict(broker.labels),
        )

    def _is_registered(self) -> bool:
        known = self._cluster.state.brokers.get(self._me.node)
        wanted = self._registration()
        return known is not None and all(
            getattr(known, name) == getattr(wanted, name)
            for name in ("incarnation", "peer_address", "http_url", "zone", "version", "labels")
        )


def _hello(node: NodeId, told: Mapping[str, Any]) -> Hello:
    """A peer's hello; its incarnation is the one that the link has proven."""
    voters = told.get("voters")
    named = voters.items() if isinstance(voters, dict) else ()
    return Hello(
        node,
        Incarnation(int(told["incarnation"])),
        told.get("empty") is True,
        tuple(sorted(Voter(NodeId(str(name)), Incarnation(int(n))) for name, n in named)),
        str(told.get("sees", "")),
    )


def _warn_once(node: NodeId, cluster: ClusterHost) -> None:
    if node not in cluster.strangers:
        cluster.strangers.add(node)
        _log.error("peer_with_another_data_directory", peer=node)
