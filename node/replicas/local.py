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

from coordinator.cluster.state import ClusterState, PartitionPlacement, Topic
from coordinator.topics.settings import TopicConfig
from goqueue.wire.types import CLUSTER_GROUP, PartitionId, Voter
from log.errors import LogError, StoreFailed
from log.partition.log import PartitionLog
from log.store.directory import Store
from node.partition.host import NodeParts, PartitionHost, PartitionSettings
from node.runtime.logger import get_logger
from node.runtime.looks import SHARE, Looks
from raft.group import RaftGroup
from raft.host import RaftHost
from raft.interfaces import StateMachine

STARTS_A_TURN = 16
"""Replicas started before the loop is given back: each reads its snapshot and its log's tail."""

_log = get_logger("replicas")


class Hosted(StateMachine, Protocol):
    """A partition's replica, as far as it is started and stopped. `attach` gives it the Raft group
    that was started with it, after which Raft may call it; `close` ends what waits there."""

    @property
    def id(self) -> PartitionId: ...

    @property
    def log(self) -> PartitionLog: ...

    @property
    def raft_group(self) -> RaftGroup: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def rests(self) -> bool: ...

    @property
    def is_replaying(self) -> bool: ...

    @property
    def has_leader_soon(self) -> bool: ...

    def attach(self, raft_group: RaftGroup) -> None: ...

    def topic_changed(self, config: TopicConfig) -> None: ...

    def close(self) -> None: ...


Host = TypeVar("Host", bound=Hosted)
Make = Callable[[PartitionId, Topic, PartitionLog, int], Host]
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
        self._hosts: dict[PartitionId, Host] = {}
        self._looks: list[Looks[Host]] = []
        self._led: dict[PartitionId, Host] = {}
        self._led_looks = self.looks(share=None)
        self._replaying: dict[PartitionId, Host] = {}
        """Those that have not been seen with all that was found at the start applied."""
        self._ordered: tuple[object, ...] = ()
        """What was known when no replica was here that is not wanted."""
        self._held: set[PartitionId] = set()
        self._began = False
        self.refused: dict[PartitionId, str] = {}
        """Replicas that can't be started from what their directories hold, and why."""
        self.waiting: list[PartitionId] = []
        """Those to be founded once the cluster state is as new as it has been here."""

    @property
    def pending_bytes(self) -> int:
        """Bytes of publishes in flight on this node."""
        return self._pending_bytes()

    def find(self, partition_id: PartitionId) -> Host | None:
        return self._hosts.get(partition_id)

    def all(self) -> list[Host]:
        return list(self._hosts.values())

    def led(self) -> list[Host]:
        for host in self._led_looks.take():
            if host.is_leader:
                self._led[host.id] = host
            else:
                self._led.pop(host.id, None)
        return list(self._led.values())

    def looks(self, *, share: int | None = SHARE) -> Looks[Host]:
        """For one who looks at each replica again and again: those that may have changed."""
        looks = Looks(self._hosts.values, share=share)
        self._looks.append(looks)
        return looks

    def roused(self, partition_id: PartitionId) -> None:
        """The replica's Raft group rests no more."""
        host = self._hosts.get(partition_id)
        if host is not None:
            for looks in self._looks:
                looks.again(host)

    def first_unled(self, topic: Topic, begin: int = 0) -> int | None:
        """The first partition of the topic, from `begin` on, that has a replica here and no known
        leader, or whose leader is this node and is not ready."""
        for number in range(begin, len(topic.partitions)):
            host = self._hosts.get(PartitionId(topic.id, number))
            if host is None:
                if topic.partitions[number].may_found(self._me):
                    return number
            elif self._me in host.raft_group.membership.voters:
                leader = host.raft_group.leader
                if leader is None or (leader == self._me.node and not host.is_leader):
                    return number
        return None

    @property
    def are_replaying(self) -> bool:
        """Whether this node has not come back from its last start with all of them."""
        return not self._began or any(host.is_replaying for host in self._not_replayed())

    def are_behind(self, state: ClusterState) -> bool:
        """Whether the state names replicas here that no `reconcile` has met yet."""
        if not self._began:
            return True
        met = self._hosts.keys() | self.refused.keys() | self._held | set(self.waiting)
        return any(id not in met for id in self._wanted(state))

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
        return sum(host.raft_group.applied_index for host in self._catching_up())

    async def reconcile(self, state: ClusterState, *, may_found: bool = True) -> None:
        """Make what runs here what the state says. A replica that can't be started is named in
        `refused`, and stops no other. Without `may_found`, where the state may be older than one
        that was known here, none begins with nothing: those are `waiting`."""
        wanted = self._wanted(state)
        for partition_id in [
            partition_id for partition_id in self._hosts if state.placement(partition_id) is None
        ]:
            self._stop(partition_id)
        self._forget_deleted(state)
        left = self._left(state, wanted)
        self.refused = {g: why for g, why in self.refused.items() if g in wanted or g in left}
        self.waiting = []
        started = 0
        for partition_id in [*wanted, *left]:
            placement, topic = state.placement(partition_id), state.topic_of(partition_id.topic)
            if placement is None or topic is None:
                continue  # deleted while others were being started
            host = self._hosts.get(partition_id)
            if host is not None:
                host.topic_changed(topic.config)
            elif partition_id not in self.refused and partition_id not in self._held:
                votes = state.layout.votes(partition_id, self._me)
                founds = placement.may_found(self._me, votes=votes)
                if founds and not may_found and self._is_empty(partition_id):
                    self.waiting.append(partition_id)
                    continue
                self._try_to_start(partition_id, topic, placement, founds=founds)
                started += 1
                if started % STARTS_A_TURN == 0:
                    await asyncio.sleep(0)
        for partition_id in left:
            if partition_id not in wanted and self._is_removed(state, partition_id):
                self.retire(partition_id)
        self._began = True

    def orphans(self, state: ClusterState) -> list[PartitionId]:
        """Replicas that run here, that the state does not name, and of which it is not known that
        they were removed; but for damaged ones."""
        ids = self._store.partition_ids()
        known = (state.applied_index, ids)
        if known == self._ordered:
            return []
        wanted = self._wanted(state)
        self._ordered = known if all(id in wanted or id == CLUSTER_GROUP for id in ids) else ()
        return [
            partition_id
            for partition_id in self._left(state, wanted)
            if (host := self._hosts.get(partition_id)) is not None
            and not host.log.quarantined
            and not self._is_removed(state, partition_id)
        ]

    def retire(self, partition_id: PartitionId) -> None:
        """The replica takes part no more: it stops, and only its promises stay."""
        if partition_id in self._hosts:
            self._stop(partition_id)
        self._raft.retire_raft_group(partition_id)
        self.refused.pop(partition_id, None)
        _log.info("replica_moved_away", group=str(partition_id))

    def healed(self, partition_id: PartitionId) -> None:
        """The group's log is whole again: its replica starts anew with the next `reconcile`, from
        what the log holds. A leader has read past the damage, and leads on."""
        self.refused.pop(partition_id, None)
        host = self._hosts.get(partition_id)
        if host is not None and not host.is_leader:
            self._stop(partition_id)

    def hold(self, partition_id: PartitionId) -> bool:
        """Stop the replica, if it runs, and don't start it before `release`: its log is going to
        be another one. False for the cluster's own group, which is not kept here."""
        if partition_id == CLUSTER_GROUP:
            return False
        self._held.add(partition_id)
        if partition_id in self._hosts:
            self._stop(partition_id)
        return True

    def is_held(self, partition_id: PartitionId) -> bool:
        """Whether it waits for another log."""
        return partition_id in self._held

    def release(self, partition_id: PartitionId) -> None:
        """The replica may start again, with the next `reconcile`."""
        self._held.discard(partition_id)
        self.refused.pop(partition_id, None)

    def stop_all(self) -> None:
        for partition_id in list(self._hosts):
            self._stop(partition_id)

    # private

    def _catching_up(self) -> list[Host]:
        return [host for host in self._not_replayed() if host.is_replaying and host.has_leader_soon]

    def _not_replayed(self) -> list[Host]:
        """Those that are not done for good: a damaged one goes on once it is healed."""
        self._replaying = {
            id: host
            for id, host in self._replaying.items()
            if host.is_replaying or host.log.quarantined
        }
        return list(self._replaying.values())

    def _wanted(self, state: ClusterState) -> dict[PartitionId, None]:
        return dict.fromkeys(state.layout.held_by(self._me))

    def _left(self, state: ClusterState, wanted: Collection[PartitionId]) -> list[PartitionId]:
        """Replicas that hold something here though the state as known now names none. Those that
        don't run do so, until it is known that they were removed."""
        return [
            partition_id
            for partition_id in self._store.partition_ids()
            if partition_id not in wanted
            and partition_id not in self._held
            and state.placement(partition_id) is not None
            and (partition_id in self._hosts or self._is_mine(state, partition_id))
        ]

    def _is_mine(self, state: ClusterState, partition_id: PartitionId) -> bool:
        """Whether there is a log, and the state means no other data directory of this node."""
        named = [one for one in state.layout.holders(partition_id) if one.node == self._me.node]
        return self._store.partition_log(partition_id).last_index > 0 and all(
            one == self._me for one in named
        )

    def _is_removed(self, state: ClusterState, partition_id: PartitionId) -> bool:
        """Whether a configuration without this replica has committed after all that its log tells
        of. It was asked before the state named this node: what has begun since is not known here.
        """
        truth = state.layout.configuration(partition_id)
        if (
            truth is None
            or partition_id in self._held
            or self._me in state.layout.holders(partition_id)
        ):
            return False
        if truth.index > self._store.partition_log(partition_id).last_index:
            return True
        host = self._hosts.get(partition_id)
        if host is None or host.log.quarantined:
            return False
        return truth.index >= host.raft_group.membership.configuration.index

    def _is_empty(self, partition_id: PartitionId) -> bool:
        return (
            not self._store.has_log(partition_id)
            or self._store.partition_log(partition_id).last_index == 0
        )

    def _try_to_start(
        self,
        partition_id: PartitionId,
        topic: Topic,
        placement: PartitionPlacement,
        *,
        founds: bool,
    ) -> None:
        try:
            self._start(partition_id, topic, placement, founds=founds)
        except StoreFailed:
            raise
        except Exception as error:  # noqa: BLE001 - one replica's fault is not the others'
            self.refused[partition_id] = str(error)
            _log.exception("replica_not_started", group=str(partition_id))

    def _start(
        self,
        partition_id: PartitionId,
        topic: Topic,
        placement: PartitionPlacement,
        *,
        founds: bool,
    ) -> None:
        """One that was named after the partition was created, and holds nothing yet, learns from
        its leader who takes part."""
        exists = self._store.has_log(partition_id)
        log = (
            self._store.partition_log(partition_id)
            if exists
            else self._store.create_log(partition_id)
        )
        if log.untrusted:
            raise LogError(f"what this node holds of {partition_id} waits to be copied anew")
        host = self._make(partition_id, topic, log, placement.created)
        raft_group = self._raft.start_raft_group(
            partition_id,
            placement.creators if founds or log.last_index else (),
            host,
            bootstrap=founds,
            created_ms=topic.founded_ms(partition_id.partition),
            preferred=placement.preferred,
        )
        host.attach(raft_group)
        self._hosts[partition_id] = self._replaying[partition_id] = host
        for looks in self._looks:
            looks.again(host)

    def _stop(self, partition_id: PartitionId) -> None:
        host = self._hosts.pop(partition_id)
        self._led.pop(partition_id, None)
        self._replaying.pop(partition_id, None)
        for looks in self._looks:
            looks.forget(partition_id)
        self._raft.stop_raft_group(partition_id)
        host.close()

    def _forget_deleted(self, state: ClusterState) -> None:
        """Delete the files of topics that were deleted, also while this node was away."""
        for partition_id in self._store.partition_ids():
            if partition_id != CLUSTER_GROUP and state.is_deleted(partition_id.topic):
                _log.info("replica_deleted", group=str(partition_id))
                self._store.remove_log(partition_id)
                self._held.discard(partition_id)


Replicas = ReplicasOf[PartitionHost]
"""As a node has them."""


def partition_hosts(settings: PartitionSettings, parts: NodeParts) -> Make[PartitionHost]:
    """Makes what serves a partition on a node."""

    def make(
        partition_id: PartitionId, topic: Topic, log: PartitionLog, created: int
    ) -> PartitionHost:
        return PartitionHost(
            id=partition_id,
            topic=topic.name,
            config=topic.config,
            log=log,
            settings=settings,
            parts=parts,
            created=created,
        )

    return make
