"""The state of the cluster, the same on every node that has applied the same commands."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from coordinator.access.api_keys import ApiKeys
from coordinator.access.receipt_keys import ReceiptKeys
from coordinator.brokers.registry import Broker
from coordinator.cluster.snapshot import (
    SNAPSHOT_VERSION,
    Level2,
    Snapshot,
    encode_snapshot,
    read_snapshot,
)
from coordinator.commands.codec import (
    AllocateProducer,
    AlterTopic,
    BrokerRegistered,
    Command,
    CreateTopic,
    DeleteTopic,
    ProducerAllocated,
    RegisterBroker,
    Result,
    TopicResult,
)
from coordinator.commands.keys import AddReceiptKey, CreateKey, EndSession, RevokeKey, RotateKey
from coordinator.commands.members import (
    ExpireMembers,
    HandOver,
    JoinGroup,
    LeaveGroup,
    LetGo,
    MemberResult,
)
from coordinator.commands.placement import (
    AddPartitions,
    CancelReassignment,
    DrainBroker,
    FinishLevel,
    PartitionsAdded,
    Reassign,
    RemoveBroker,
    ReplicasChanged,
    SetReplicationFactor,
    UndrainBroker,
)
from coordinator.commands.queue import (
    AssignGroup,
    BeginRun,
    DeleteGroup,
    DeleteSchedule,
    EndRun,
    GroupResult,
    PauseSchedule,
    PlanRun,
    PutGroup,
    PutSchedule,
    RedriveResult,
    RedriveStep,
    ScheduleResult,
    StartRedrive,
    StopRedrive,
)
from coordinator.groups.membership import Topics
from coordinator.groups.memberships import Memberships
from coordinator.groups.rebalances import PARTITIONS, TOPIC
from coordinator.groups.settings import Group, Groups
from coordinator.jobs.redrives import Redrive, Redrives
from coordinator.jobs.schedules import Schedule, Schedules
from coordinator.placement.layout import Layout
from coordinator.placement.new_topics import check_factor
from coordinator.placement.partition_count import check_growth, check_room, grow
from coordinator.topics.compression import NONE, Compressions, split
from coordinator.topics.partitions import PartitionPlacement, Topic
from coordinator.topics.producers import ProducerIds
from coordinator.topics.settings import TopicConfig, create_config
from goqueue.wire.errors import Conflict, GoQueueError, TopicExists, UnknownGroup, UnknownTopic
from goqueue.wire.ids import INTERNAL_TOPICS, validate_topic_name
from goqueue.wire.types import Index, NodeId, PartitionId, TopicId

__all__ = [
    "Broker",
    "ClusterState",
    "PartitionPlacement",
    "Topic",
    "TopicConfig",
]

TOMBSTONES_MAX = 10_000
"""Ids of deleted topics that are remembered by name. No safety hangs on the bound: an id is alive
or deleted for ever once the state has passed its index (`is_deleted`)."""


class ClusterState:
    """Commands in, state out: no clock, no I/O; `cluster_id` is set before the first command."""

    def __init__(self, cluster_id: int = 0) -> None:
        self.cluster_id = cluster_id
        self.applied_index = Index(0)
        self.time_ms = 0
        """The latest log time of what was applied; 0 after a restore from a snapshot of 0.1.0."""
        self.topics: dict[str, Topic] = {}
        self.deleted: dict[TopicId, str] = {}
        """The newest deleted ids, with the names they had."""
        self._by_id: dict[TopicId, Topic] = {}
        self.layout = Layout(self._keep)
        """Brokers and replicas. Not to be changed but by commands."""
        self.producers = ProducerIds()
        self._groups = Groups()
        self._schedules = Schedules()
        self._redrives = Redrives()
        self.keys = ApiKeys()
        """Who may come in. Not to be changed but by commands."""
        self.receipt_keys = ReceiptKeys()
        self.compressions = Compressions()
        self._members = Memberships(self._groups, self._subscribable)
        self._counts: dict[str, tuple[TopicId, int]] | None = None

    def apply(self, index: Index, time_ms: int, command: Command) -> Result | GoQueueError:
        """The command's result, or the error that refused it: then nothing has changed.

        `index` and `time_ms` are its entry's. Never raises on content.
        """
        self.applied_index, self.time_ms = index, max(self.time_ms, time_ms)
        try:
            return _APPLY[type(command)](self, index, time_ms, command)
        except GoQueueError as error:
            return error

    # looking up

    @property
    def brokers(self) -> dict[NodeId, Broker]:
        """All brokers by name."""
        return self.layout.brokers.by_name

    @property
    def groups(self) -> Mapping[str, Group]:
        """All groups by name."""
        return self._groups.by_name

    @property
    def group_owners(self) -> Mapping[int, str]:
        """The prefix that each group belongs to, as `Groups.owners` says."""
        return self._groups.owners

    def check_judged(self, group: Group, owner: str | None, judged: int) -> None:
        """Raises GroupTaken, as `Groups.check_judged` says."""
        self._groups.check_judged(group, owner, judged)

    def group_of(self, id: int) -> Group | None:
        """The living group with this id."""
        return self._groups.by_id().get(id)

    @property
    def members(self) -> Memberships:
        """Who is in which group, and has which partitions. Not to be changed but by commands."""
        return self._members

    @property
    def schedules(self) -> Mapping[str, Schedule]:
        """All schedules by name."""
        return self._schedules.by_name

    @property
    def redrives(self) -> Mapping[int, Redrive]:
        """The redrive jobs by id, oldest first."""
        return self._redrives.by_id

    def placement(self, partition_id: PartitionId) -> PartitionPlacement | None:
        """Where a partition's replicas are; None for a topic that is not alive."""
        return self.layout.placement(partition_id)

    def topic_of(self, id: TopicId) -> Topic | None:
        """The living topic with this id."""
        return self._by_id.get(id)

    def is_deleted(self, id: TopicId) -> bool:
        """Whether this topic of our cluster existed and is gone for ever: its files may go.

        False for a topic that this node has yet to hear of.
        """
        ours = id.cluster == self.cluster_id and 0 < id.index <= self.applied_index
        return ours and id not in self._by_id

    def check_producer(self, producer_id: int, epoch: int) -> None:
        """Raises NotFound for an id never given out, ProducerFenced for an epoch that is over."""
        self.producers.check(producer_id, epoch)

    # commands

    def _register(self, _index: Index, time_ms: int, command: RegisterBroker) -> BrokerRegistered:
        return self.layout.register(time_ms, command)

    def _drain(self, _index: Index, time_ms: int, command: DrainBroker) -> Result:
        return self.layout.drain(time_ms, command)

    def _undrain(self, _index: Index, time_ms: int, command: UndrainBroker) -> Result:
        return self.layout.undrain(time_ms, command)

    def _remove(self, _index: Index, _time_ms: int, command: RemoveBroker) -> Result:
        return self.layout.remove(command)

    def _reassign(self, index: Index, time_ms: int, command: Reassign) -> Result:
        return self.layout.reassign(index, time_ms, command)

    def _cancel(self, _index: Index, time_ms: int, command: CancelReassignment) -> Result:
        return self.layout.cancel(time_ms, command.id)

    def _reported(self, _index: Index, time_ms: int, command: ReplicasChanged) -> Result:
        return self.layout.reported(time_ms, command)

    def _create(self, index: Index, time_ms: int, command: CreateTopic) -> TopicResult:
        assert self.cluster_id, "the cluster's id is set before its first command"
        if command.name not in INTERNAL_TOPICS:
            validate_topic_name(command.name)
        if command.name in self.topics:
            raise TopicExists(command.name)
        if command.after:
            self._check_not_gone(command.name, command.after)
        settings, codec = split(command.config)
        config = create_config(settings, self.layout.takers)
        check_room(self.topics.values(), config.partitions, is_new=True)
        self._members.check_topic(command.name, config.partitions)
        topic = Topic(
            command.name,
            TopicId(self.cluster_id, index),
            config,
            tuple(
                PartitionPlacement(replicas)
                for replicas in self.layout.place(
                    config.partitions, config.replication_factor, command.avoid
                )
            ),
            time_ms,
        )
        self.compressions.put(topic.id, codec)
        result = self._put(topic, time_ms)
        self._members.topics_changed(TOPIC, time_ms)
        return result

    def _check_not_gone(self, name: str, after: int) -> None:
        """Raises Conflict where a topic of this name was made after that index, and is deleted."""
        if any(id.index > after and gone == name for id, gone in self.deleted.items()):
            raise Conflict(f"topic {name} was created and deleted after the first request for it")

    def _add_partitions(self, index: Index, time_ms: int, command: AddPartitions) -> Result:
        topic = self._meant(command.name, command.id)
        before = len(topic.partitions)
        check_growth(topic, command)
        check_room(self.topics.values(), command.count - before, is_new=False)
        self._members.check_topic(command.name, command.count - before)
        grown = grow(self.layout, topic, index, time_ms, command)
        self._put(grown, time_ms)
        self._members.topics_changed(PARTITIONS, time_ms)
        return PartitionsAdded(topic.name, str(topic.id), before, command.count)

    def _set_factor(self, _index: Index, time_ms: int, command: SetReplicationFactor) -> Result:
        topic = self._meant(command.name, command.id)
        if command.factor != topic.config.replication_factor:
            check_factor(command.factor, self.layout.takers)
        config = dataclasses.replace(topic.config, replication_factor=command.factor)
        return self._put(dataclasses.replace(topic, config=config), time_ms)

    def _alter(self, _index: Index, time_ms: int, command: AlterTopic) -> TopicResult:
        topic = self._meant(command.name, command.id)
        return self._put(self.compressions.altered(topic, command.changes), time_ms)

    def _delete(self, _index: Index, time_ms: int, command: DeleteTopic) -> TopicResult:
        topic = self._meant(command.name, command.id)
        del self.topics[topic.name]
        del self._by_id[topic.id]
        self.layout.drop(topic, time_ms)
        self.compressions.put(topic.id, NONE)
        self._counts = None
        self.deleted[topic.id] = topic.name
        while len(self.deleted) > TOMBSTONES_MAX:
            del self.deleted[next(iter(self.deleted))]
        self._redrives.topic_deleted(topic.id)
        self._members.topics_changed(TOPIC, time_ms)
        return TopicResult(topic.name, str(topic.id), len(topic.partitions))

    def _allocate(self, _index: Index, time_ms: int, command: AllocateProducer) -> Result:
        producer_id, epoch = self.producers.allocate(command.transactional_id, time_ms)
        return ProducerAllocated(producer_id, epoch)

    # groups

    def _put_group(self, index: Index, time_ms: int, command: PutGroup) -> GroupResult:
        known = self.groups.get(command.name)
        if known is not None and not command.ensure:
            self._members.check_changes(known, command.settings.get("mode"))
        return self._groups.put(index, time_ms, command)

    def _delete_group(self, _index: Index, _time_ms: int, command: DeleteGroup) -> GroupResult:
        known = self.groups.get(command.name)
        if known is not None and command.id in (0, known.id):
            self._members.check_deletion(known, force=command.force)
        deleted = self._groups.delete(command)
        self._redrives.group_deleted(deleted.id)
        self._members.group_deleted(deleted.id)
        return deleted

    def _assign_group(self, _index: Index, _time_ms: int, command: AssignGroup) -> GroupResult:
        return self._groups.assign(command)

    # members

    def _join(self, _index: Index, time_ms: int, command: JoinGroup) -> MemberResult:
        for topic in command.topics:
            self._named(topic)
        return self._members.join(time_ms, command)

    def _leave(self, _index: Index, time_ms: int, command: LeaveGroup) -> MemberResult:
        return self._members.leave(time_ms, command)

    def _expire(self, _index: Index, time_ms: int, command: ExpireMembers) -> MemberResult:
        return self._members.expire(time_ms, command)

    def _let_go(self, _index: Index, time_ms: int, command: LetGo) -> MemberResult:
        return self._members.let_go(time_ms, command)

    def _hand_over(self, _index: Index, time_ms: int, command: HandOver) -> MemberResult:
        return self._members.handed(time_ms, command)

    def _subscribable(self) -> Topics:
        """The topics that are alive."""
        if self._counts is None:
            self._counts = {t.name: (t.id, len(t.partitions)) for t in self.topics.values()}
        return self._counts

    # schedules, redrive jobs

    def _put_schedule(self, index: Index, time_ms: int, command: PutSchedule) -> ScheduleResult:
        topic = self._named(command.topic)
        return self._schedules.put(
            index, time_ms, command, topic.id, len(topic.partitions), self._new_producer
        )

    def _pause_schedule(self, _index: Index, time_ms: int, command: PauseSchedule) -> Result:
        return self._schedules.pause(time_ms, command)

    def _delete_schedule(self, _index: Index, _time_ms: int, command: DeleteSchedule) -> Result:
        return self._schedules.delete(command)

    def _plan_run(self, _index: Index, _time_ms: int, command: PlanRun) -> ScheduleResult:
        return self._schedules.plan(command)

    def _begin_run(self, _index: Index, time_ms: int, command: BeginRun) -> ScheduleResult:
        topic = self._named(self._schedules.named(command.name, command.id).topic)
        return self._schedules.begin(
            time_ms, command, topic.id, len(topic.partitions), self._new_producer
        )

    def _end_run(self, _index: Index, _time_ms: int, command: EndRun) -> ScheduleResult:
        return self._schedules.end(command, self._new_producer)

    def _new_producer(self) -> int:
        return self.producers.allocate(None, 0)[0]

    def _start_redrive(self, index: Index, time_ms: int, command: StartRedrive) -> RedriveResult:
        topic = self._named(command.topic)
        group = self._groups.named(command.group)
        if group.id != command.group_id:
            raise UnknownGroup(command.group)
        return self._redrives.start(index, time_ms, command, topic.id)

    def _redrive_step(self, _index: Index, _time_ms: int, command: RedriveStep) -> RedriveResult:
        return self._redrives.step(command)

    def _stop_redrive(self, _index: Index, _time_ms: int, command: StopRedrive) -> RedriveResult:
        return self._redrives.stop(command)

    def _named(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise UnknownTopic(name[:249])
        return topic

    def _meant(self, name: str, id: str) -> Topic:
        """The topic of this name, if it is the one with this id, where one is given."""
        topic = self._named(name)
        if id not in ("", str(topic.id)):
            raise UnknownTopic(name)
        return topic

    def _keep(self, topic: Topic) -> None:
        self.topics[topic.name] = self._by_id[topic.id] = topic

    def _put(self, topic: Topic, time_ms: int) -> TopicResult:
        self._keep(topic)
        self.layout.put(topic, time_ms)
        self._counts = None
        return TopicResult(topic.name, str(topic.id), len(topic.partitions), topic.warnings)

    # snapshots

    def snapshot(self) -> bytes:
        """The whole state; equal bytes on nodes that applied the same commands."""
        fields = (
            self.cluster_id,
            self.applied_index,
            list(self.brokers.values()),
            list(self.topics.values()),
            list(self.deleted.items()),
            self.producers.dump(),
            list(self.groups.values()),
            list(self.schedules.values()),
            list(self.redrives.values()),
            self._members.dump(),
            self.layout.dump(),
            self.keys.dump(),
            self.time_ms,
        )
        return encode_snapshot(Snapshot(SNAPSHOT_VERSION, *fields), self._level_2())

    def _level_2(self) -> Level2 | None:
        """What came with level 2; None below it, where no node may be sent it."""
        if self.layout.brokers.level < Level2.LEVEL:
            return None
        return Level2(
            group_owners=list(self._groups.owners.items()),
            group_prefixes=list(self.keys.group_prefixes.items()),
            receipt_keys=list(self.receipt_keys.all),
            ended_sessions=self.keys.sessions.dump(),
            topic_compression=self.compressions.dump(),
        )

    @classmethod
    def restore(cls, state: bytes) -> ClusterState:
        """The state of a snapshot. Raises SnapshotUnreadable."""
        found, level_2 = read_snapshot(state)
        restored = cls(found.cluster_id)
        restored.applied_index = Index(found.applied_index)
        restored.time_ms = found.time_ms
        restored.layout = Layout(restored._keep, found.brokers, found.layout)
        restored.deleted = dict(found.deleted)
        for topic in found.topics:
            restored._keep(topic)
            restored.layout.put(topic, 0)
        restored.producers.load(found.producers)
        restored._groups = Groups(found.groups, level_2.group_owners)
        restored._schedules = Schedules(found.schedules)
        restored._redrives = Redrives(found.redrives)
        restored.keys = ApiKeys(found.keys, level_2.group_prefixes, level_2.ended_sessions)
        restored.receipt_keys = ReceiptKeys(level_2.receipt_keys)
        restored.compressions = Compressions(level_2.topic_compression)
        restored._members = Memberships(restored._groups, restored._subscribable, found.memberships)
        return restored


_APPLY: Mapping[type, Callable[[ClusterState, Index, int, Any], Result]] = {
    RegisterBroker: ClusterState._register,
    DrainBroker: ClusterState._drain,
    UndrainBroker: ClusterState._undrain,
    RemoveBroker: ClusterState._remove,
    Reassign: ClusterState._reassign,
    CancelReassignment: ClusterState._cancel,
    ReplicasChanged: ClusterState._reported,
    FinishLevel: lambda state, _index, _time_ms, command: state.layout.brokers.finish(command),
    AddPartitions: ClusterState._add_partitions,
    SetReplicationFactor: ClusterState._set_factor,
    CreateTopic: ClusterState._create,
    AlterTopic: ClusterState._alter,
    DeleteTopic: ClusterState._delete,
    AllocateProducer: ClusterState._allocate,
    PutGroup: ClusterState._put_group,
    DeleteGroup: ClusterState._delete_group,
    AssignGroup: ClusterState._assign_group,
    PutSchedule: ClusterState._put_schedule,
    PauseSchedule: ClusterState._pause_schedule,
    DeleteSchedule: ClusterState._delete_schedule,
    PlanRun: ClusterState._plan_run,
    BeginRun: ClusterState._begin_run,
    EndRun: ClusterState._end_run,
    StartRedrive: ClusterState._start_redrive,
    RedriveStep: ClusterState._redrive_step,
    StopRedrive: ClusterState._stop_redrive,
    JoinGroup: ClusterState._join,
    LeaveGroup: ClusterState._leave,
    ExpireMembers: ClusterState._expire,
    LetGo: ClusterState._let_go,
    HandOver: ClusterState._hand_over,
    CreateKey: lambda state, _index, time_ms, command: state.keys.create(time_ms, command),
    RotateKey: lambda state, _index, time_ms, command: state.keys.rotate(time_ms, command),
    RevokeKey: lambda state, _index, time_ms, command: state.keys.revoke(time_ms, command),
    AddReceiptKey: lambda state, _index, time_ms, command: state.receipt_keys.add(time_ms, command),
    EndSession: lambda state, _index, time_ms, command: state.keys.end_session(time_ms, command),
}
