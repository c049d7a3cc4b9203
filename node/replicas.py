"""The partition replicas of this node: started and stopped as the applied cluster state says.

A replica runs only because the cluster state names this node, with this data directory's
incarnation, for that topic id. So a node that slept through delete-and-recreate starts nothing of
the old topic, and its files go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from coordinator.state import ClusterState, PartitionPlacement, Topic
from goqueue.wire.types import CLUSTER_GROUP, GroupId, Voter
from log.errors import StoreFailed
from log.store import Store
from node.partition import NodeParts, PartitionHost, PartitionSettings
from raft.host import RaftHost

STARTS_A_TURN = 16
"""Replicas started before the loop is given back: each reads its snapshot and its log's tail."""

_log = structlog.get_logger("replicas")

Wanted = Mapping[GroupId, tuple[Topic, PartitionPlacement]]


class Replicas:
    """Starts, stops and keeps the partitions of one node. Loop thread only."""

    def __init__(
        self,
        me: Voter,
        *,
        store: Store,
        raft: RaftHost,
        settings: PartitionSettings,
        parts: NodeParts,
    ) -> None:
        self._me = me
        self._store = store
        self._raft = raft
        self._settings = settings
        self._parts = parts
        self._hosts: dict[GroupId, PartitionHost] = {}
        self._held: set[GroupId] = set()
        self.refused: dict[GroupId, str] = {}
        """Replicas that can't be started from what their directories hold, and why."""

    @property
    def pending_bytes(self) -> int:
        """Bytes of publishes in flight on this node."""
        return self._parts.budget.used

    def find(self, group: GroupId) -> PartitionHost | None:
        return self._hosts.get(group)

    def all(self) -> list[PartitionHost]:
        return list(self._hosts.values())

    def led(self) -> list[PartitionHost]:
        return [host for host in self._hosts.values() if host.is_leader]

    def all_led(self, topic: Topic) -> bool:
        """Whether every partition of the topic that has a replica here has a known leader, which
        is ready if it is this node."""
        hosts = [
            host
            for number in range(len(topic.partitions))
            if (host := self._hosts.get(GroupId(topic.id, number))) is not None
        ]
        return all(
            host.group.leader is not None and (host.group.leader != self._me.node or host.is_leader)
            for host in hosts
        ) and all(
            GroupId(topic.id, number) in self._hosts
            for number, placement in enumerate(topic.partitions)
            if self._me in placement.replicas
        )

    async def reconcile(self, state: ClusterState) -> None:
        """Make what runs here what the state says. A replica that can't be started is named in
        `refused`, and stops no other."""
        wanted = self._wanted(state)
        for group in [group for group in self._hosts if group not in wanted]:
            self._stop(group)
        self.refused = {group: why for group, why in self.refused.items() if group in wanted}
        self._forget_deleted(state)
        started = 0
        for group, (topic, placement) in wanted.items():
            if state.topic_of(topic.id) is None:
                continue  # deleted while others were being started
            host = self._hosts.get(group)
            if host is not None:
                host.topic_changed(topic.config)
                continue
            if group in self.refused or group in self._held:
                continue
            try:
                self._start(group, topic, placement)
            except StoreFailed:
                raise
            except Exception as error:  # noqa: BLE001 - one replica's fault is not the others'
                self.refused[group] = str(error)
                _log.exception("replica_not_started", group=str(group))
            started += 1
            if started % STARTS_A_TURN == 0:
                await asyncio.sleep(0)

    def healed(self, group: GroupId) -> None:
        """The group's log is whole again: its replica starts anew with the next `reconcile`, from
        what the log holds. A leader has read past the damage, and leads on."""
        self.refused.pop(group, None)
        host = self._hosts.get(group)
        if host is not None and not host.is_leader:
            self._stop(group)

    def hold(self, group: GroupId) -> bool:
        """Stop the replica, if it runs, and don't start it before `release`: its log is going to
        be another one. False for the cluster's own group, which is not kept here."""
        if group == CLUSTER_GROUP:
            return False
        self._held.add(group)
        if group in self._hosts:
            self._stop(group)
        return True

    def release(self, group: GroupId) -> None:
        """The replica may start again, with the next `reconcile`."""
        self._held.discard(group)
        self.refused.pop(group, None)

    def stop_all(self) -> None:
        for group in list(self._hosts):
            self._stop(group)

    # private

    def _wanted(self, state: ClusterState) -> Wanted:
        return {
            GroupId(topic.id, number): (topic, placement)
            for topic in state.topics.values()
            for number, placement in enumerate(topic.partitions)
            if self._me in placement.replicas
        }

    def _start(self, group: GroupId, topic: Topic, placement: PartitionPlacement) -> None:
        exists = group in self._store.groups()
        log = self._store.group(group) if exists else self._store.create_group(group)
        host = PartitionHost(
            id=group,
            topic=topic.name,
            config=topic.config,
            log=log,
            settings=self._settings,
            parts=self._parts,
        )
        raft_group = self._raft.start_group(
            group,
            placement.replicas,
            host,
            bootstrap=True,
            created_ms=topic.created_ms,
            preferred=placement.preferred,
        )
        host.attach(raft_group)
        self._hosts[group] = host

    def _stop(self, group: GroupId) -> None:
        host = self._hosts.pop(group)
        self._raft.stop_group(group)
        host.close()

    def _forget_deleted(self, state: ClusterState) -> None:
        """Delete the files of topics that were deleted, also while this node was away."""
        for group in self._store.groups():
            if group != CLUSTER_GROUP and state.is_deleted(group.topic):
                _log.info("replica_deleted", group=str(group))
                self._store.remove_group(group)
