"""The partition replicas of this node: started and stopped as the applied cluster state says.

A replica runs because the cluster state names this node, with this data directory's incarnation,
among those that should have one or still take part. So a node that slept through
delete-and-recreate starts nothing of the old topic, and its files go.

What has moved away is retired: only once the state knows a configuration without this node that is
no older than the newest one in the replica's own log. A state that is behind, as after a restart,
takes nothing away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Generic, Protocol, TypeVar

import structlog

from coordinator.cluster.state import ClusterState, PartitionPlacement, Topic
from coordinator.topics.settings import TopicConfig
from goqueue.wire.types import CLUSTER_GROUP, GroupId, Voter
from log.errors import LogError, StoreFailed
from log.group.log import GroupLog
from log.store.directory import Store
from node.partition.host import NodeParts, PartitionHost, PartitionSettings
from raft.group import RaftGroup
from raft.host import RaftHost
from raft.interfaces import StateMachine

STARTS_A_TURN = 16
"""Replicas started before the loop is given back: each reads its snapshot and its log's tail."""

_log = structlog.get_logger("replicas")


class Hosted(StateMachine, Protocol):
    """A partition's replica, as far as it is started and stopped. `attach` gives it the Raft group
    that was started with it, after which Raft may call it; `close` ends what waits there."""

    @property
    def id(self) -> GroupId: ...

    @property
    def log(self) -> GroupLog: ...

    @property
    def group(self) -> RaftGroup: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def is_replaying(self) -> bool: ...

    @property
    def has_leader_soon(self) -> bool: ...

    def attach(self, group: RaftGroup) -> None: ...

    def topic_changed(self, config: TopicConfig) -> None: ...

    def close(self) -> None: ...


Host = TypeVar("Host", bound=Hosted)
Make = Callable[[GroupId, Topic, GroupLog, int], Host]
"""Makes the replica of a partition, over its log; the number is the index of the command that added
the partition to a topic that was there, 0 for none."""


class ReplicasOf(Generic[Host]):
    """Starts, stops and keeps the partitions of one node, which `make` makes. Loop thread only.

    `pending_bytes` tells the bytes of publishes in flight on this node.
    """

    def __init__(
        self,
        me: Voter,
        *,
        store: Store,
        raft: RaftHost,
        make: Make[Host],
        pending_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        self._me = me
        self._store = store
        self._raft = raft
        self._make = make
        self._pending_bytes = pending_bytes
        self._hosts: dict[GroupId, Host] = {}
        self._held: set[GroupId] = set()
        self._began = False
        self.refused: dict[GroupId, str] = {}
        """Replicas that can't be started from what their directories hold, and why."""
        self.waiting: list[GroupId] = []
        """Those to be founded once the cluster state is as new as it has been here."""

    @property
    def pending_bytes(self) -> int:
        """Bytes of publishes in flight on this node."""
        return self._pending_bytes()

    def find(self, group: GroupId) -> Host | None:
        return self._hosts.get(group)

    def all(self) -> list[Host]:
        return list(self._hosts.values())

    def led(self) -> list[Host]:
        return [host for host in self._hosts.values() if host.is_leader]

    def all_led(self, topic: Topic) -> bool:
        """Whether every partition of the topic that has a replica here has a known leader, which
        is ready if it is this node."""
        hosts = [
            host
            for number in range(len(topic.partitions))
            if (host := self._hosts.get(GroupId(topic.id, number))) is not None
            and self._me in host.group.voters
        ]
        return all(
            host.group.leader is not None and (host.group.leader != self._me.node or host.is_leader)
            for host in hosts
        ) and all(
            GroupId(topic.id, number) in self._hosts
            for number, placement in enumerate(topic.partitions)
            if placement.may_found(self._me)
        )

    @property
    def are_replaying(self) -> bool:
        """Whether this node has not come back from its last start with all of them."""
        return not self._began or any(host.is_replaying for host in self._hosts.values())

    @property
    def not_caught_up(self) -> str | None:
        """Why requests would wait here: replicas apply what their logs held at the start, and keep
        the loop busy with it. Those that nobody leads may have to wait for others for long, and
        don't count."""
        if not self._began:
            return "the replicas are being started"
        count = len(self._catching_up())
        return f"{count} replicas still apply what their logs held at the start" if count else None

    @property
    def replayed(self) -> int | None:
        """Up to where those have applied their logs, added up; None while the replicas are being
        started."""
        if not self._began:
            return None
        return sum(host.group.applied_index for host in self._catching_up())

    async def reconcile(self, state: ClusterState, *, may_found: bool = True) -> None:
        """Make what runs here what the state says. A replica that can't be started is named in
        `refused`, and stops no other. Without `may_found`, where the state may be older than one
        that was known here, none begins with nothing: those are `waiting`."""
        wanted = self._wanted(state)
        for group in [group for group in self._hosts if state.placement(group) is None]:
            self._stop(group)
        self._forget_deleted(state)
        left = self._left(state, wanted)
        self.refused = {g: why for g, why in self.refused.items() if g in wanted or g in left}
        self.waiting = []
        started = 0
        for group in [*wanted, *left]:
            placement, topic = state.placement(group), state.topic_of(group.topic)
            if placement is None or topic is None:
                continue  # deleted while others were being started
            host = self._hosts.get(group)
            if host is not None:
                host.topic_changed(topic.config)
            elif group not in self.refused and group not in self._held:
                as_created = state.layout.is_as_created(group)
                founds = placement.may_found(self._me, is_as_created=as_created)
                if founds and not may_found and self._is_empty(group):
                    self.waiting.append(group)
                    continue
                self._try_to_start(group, topic, placement, founds=founds)
                started += 1
                if started % STARTS_A_TURN == 0:
                    await asyncio.sleep(0)
        for group in left:
            if group not in wanted and self._is_removed(state, group):
                self.retire(group)
        self._began = True

    def strays(self, state: ClusterState) -> list[GroupId]:
        """Replicas that run here, that the state does not name, and of which it is not known that
        they were removed; but for damaged ones."""
        return [
            group
            for group in self._left(state, self._wanted(state))
            if (host := self._hosts.get(group)) is not None
            and not host.log.quarantined
            and not self._is_removed(state, group)
        ]

    def retire(self, group: GroupId) -> None:
        """The replica takes part no more: it stops, and only its promises stay."""
        if group in self._hosts:
            self._stop(group)
        self._raft.retire_group(group)
        self.refused.pop(group, None)
        _log.info("replica_moved_away", group=str(group))

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

    def is_held(self, group: GroupId) -> bool:
        """Whether it waits for another log."""
        return group in self._held

    def release(self, group: GroupId) -> None:
        """The replica may start again, with the next `reconcile`."""
        self._held.discard(group)
        self.refused.pop(group, None)

    def stop_all(self) -> None:
        for group in list(self._hosts):
            self._stop(group)

    # private

    def _catching_up(self) -> list[Host]:
        return [host for host in self.all() if host.is_replaying and host.has_leader_soon]

    def _wanted(self, state: ClusterState) -> dict[GroupId, None]:
        return dict.fromkeys(state.layout.held_by(self._me))

    def _left(self, state: ClusterState, wanted: Collection[GroupId]) -> list[GroupId]:
        """Replicas that hold something here though the state as known now names none. Those that
        don't run do so, until it is known that they were removed."""
        return [
            group
            for group in self._store.groups()
            if group not in wanted
            and group not in self._held
            and state.placement(group) is not None
            and (group in self._hosts or self._is_mine(state, group))
        ]

    def _is_mine(self, state: ClusterState, group: GroupId) -> bool:
        """Whether there is a log, and the state means no other data directory of this node."""
        named = [one for one in state.layout.holders(group) if one.node == self._me.node]
        return self._store.group(group).last_index > 0 and all(one == self._me for one in named)

    def _is_removed(self, state: ClusterState, group: GroupId) -> bool:
        """Whether a configuration without this replica has committed after all that its log tells
        of. It was asked before the state named this node: what has begun since is not known here.
        """
        truth = state.layout.configuration(group)
        if truth is None or group in self._held or self._me in state.layout.holders(group):
            return False
        if truth.index > self._store.group(group).last_index:
            return True
        host = self._hosts.get(group)
        if host is None or host.log.quarantined:
            return False
        return truth.index >= host.group.configuration.index

    def _is_empty(self, group: GroupId) -> bool:
        return group not in self._store.groups() or self._store.group(group).last_index == 0

    def _try_to_start(
        self, group: GroupId, topic: Topic, placement: PartitionPlacement, *, founds: bool
    ) -> None:
        try:
            self._start(group, topic, placement, founds=founds)
        except StoreFailed:
            raise
        except Exception as error:  # noqa: BLE001 - one replica's fault is not the others'
            self.refused[group] = str(error)
            _log.exception("replica_not_started", group=str(group))

    def _start(
        self, group: GroupId, topic: Topic, placement: PartitionPlacement, *, founds: bool
    ) -> None:
        """One that was named after the partition was created, and holds nothing yet, learns from
        its leader who takes part."""
        exists = group in self._store.groups()
        log = self._store.group(group) if exists else self._store.create_group(group)
        if log.untrusted:
            raise LogError(f"what this node holds of {group} waits to be copied anew")
        host = self._make(group, topic, log, placement.created)
        raft_group = self._raft.start_group(
            group,
            placement.creators if founds or log.last_index else (),
            host,
            bootstrap=founds,
            created_ms=topic.founded_ms(group.partition),
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
                self._held.discard(group)


Replicas = ReplicasOf[PartitionHost]
"""As a node has them."""


def partition_hosts(settings: PartitionSettings, parts: NodeParts) -> Make[PartitionHost]:
    """Makes what serves a partition on a node."""

    def make(group: GroupId, topic: Topic, log: GroupLog, created: int) -> PartitionHost:
        return PartitionHost(
            id=group,
            topic=topic.name,
            config=topic.config,
            log=log,
            settings=settings,
            parts=parts,
            created=created,
        )

    return make
