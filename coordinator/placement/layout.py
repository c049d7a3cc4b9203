"""Which broker should hold which partitions, which do, and what is on its way between the two.

Placement is desire: a command changes it at once. The truth is the configuration in a partition's
own log, of which its leader tells (`ReplicasChanged`). Whatever differs is `moving`, until truth
has followed desire, step by step (see `steps`). All of this is part of the cluster's state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from coordinator.brokers.registry import ACTIVE, DRAINED, DRAINING, Broker, Brokers, not_empty
from coordinator.commands.codec import BrokerRegistered, RegisterBroker
from coordinator.commands.members import Partition
from coordinator.commands.placement import (
    ROWS_MAX,
    BrokerResult,
    DrainBroker,
    Reassign,
    ReassignResult,
    RemoveBroker,
    ReplicasChanged,
    ReplicasNoted,
    Row,
    UndrainBroker,
)
from coordinator.errors import BadConfig, BrokerNotEmpty, Overtaken, TooFewBrokers
from coordinator.groups.holdings import short
from coordinator.placement.dropped_replicas import Dropped
from coordinator.placement.new_topics import Candidate, place
from coordinator.placement.planner import Picture, Site
from coordinator.placement.reassignments import (
    CANCELLED,
    CANCELLING,
    DELETED,
    DRAIN,
    FACTOR,
    MOVING,
    RETURNING,
    Move,
    Reassignment,
    Reassignments,
    result_of,
)
from coordinator.topics.partitions import (
    Configuration,
    PartitionPlacement,
    Topic,
    is_settled,
    with_partitions,
)
from goqueue.wire.errors import Conflict, UnknownPartition, UnknownTopic
from goqueue.wire.types import CLUSTER_GROUP, Index, NodeId, PartitionId, Voter
from log.levels import FIRST

CAUSE_CHARACTERS_MAX = 64
PROBLEMS_MAX = 20
"""Named in one refusal."""


@dataclass(frozen=True, slots=True)
class LayoutRecord:
    """A layout in a snapshot; desire is in the topics."""

    configurations: list[tuple[PartitionId, Configuration]] = field(
        default_factory=list[tuple[PartitionId, Configuration]]
    )
    reassignments: list[Reassignment] = field(default_factory=list[Reassignment])
    gone: list[Voter] = field(default_factory=list[Voter])
    epoch: int = 0
    dropped: list[tuple[PartitionId, Voter, int]] = field(
        default_factory=list[tuple[PartitionId, Voter, int]]
    )
    level: int = FIRST


@dataclass(frozen=True, slots=True)
class _Look:
    """A partition as it was counted last."""

    desired: tuple[NodeId, ...]
    holders: frozenset[NodeId]


class Layout:
    """The brokers, and the replicas of all partitions. `keep` is told of topics that it changes."""

    def __init__(
        self,
        keep: Callable[[Topic], object],
        brokers: Iterable[Broker] = (),
        record: LayoutRecord | None = None,
    ) -> None:
        record = record or LayoutRecord()
        self._keep = keep
        self.brokers = Brokers(brokers, record.gone, record.level)
        self.reassignments = Reassignments(record.reassignments)
        self.moving: dict[PartitionId, None] = {}
        """Partitions whose truth is not what is desired."""
        self.unequal: dict[PartitionId, None] = {}
        """Partitions that should have another number of replicas than they are to have."""
        self.replicas: Counter[NodeId] = Counter()
        """How many each broker should hold."""
        self.leaders: Counter[NodeId] = Counter()
        """How many each broker should lead."""
        self.held: Counter[NodeId] = Counter()
        """How many each broker should hold or still does."""
        self._topics: dict[int, Topic] = {}
        self._known = dict(record.configurations)
        self.epoch = record.epoch
        """Counts how often replicas were no longer desired. What is decided carries it."""
        self._dropped = Dropped(record.dropped)
        self._looks: dict[PartitionId, _Look] = {}

    def dump(self) -> LayoutRecord:
        """Equal wherever the same commands were applied."""
        return LayoutRecord(
            sorted(self._known.items(), key=lambda known: known[0]),
            list(self.reassignments.by_id.values()),
            list(self.brokers.gone),
            self.epoch,
            self._dropped.rows(),
            self.brokers.level,
        )

    # -- what is asked

    def topic(self, index: int) -> Topic | None:
        """The living topic with this index in its id."""
        return self._topics.get(index)

    def partition_id(self, partition: Partition) -> PartitionId | None:
        """The full name of a living partition."""
        topic = self._topics.get(partition[0])
        if topic is None or not 0 <= partition[1] < len(topic.partitions):
            return None
        return PartitionId(topic.id, partition[1])

    def placement(self, id: PartitionId) -> PartitionPlacement | None:
        """Where a partition's replicas should be; None for one that is not alive."""
        topic = self._topics.get(id.topic.index)
        if topic is None or topic.id != id.topic or id.partition >= len(topic.partitions):
            return None
        return topic.partitions[id.partition]

    def configuration(self, id: PartitionId) -> Configuration | None:
        """Who takes part in a partition as far as its leader has told; at first its creators."""
        known = self._known.get(id)
        placement = self.placement(id)
        if known is None and placement is not None:
            return Configuration(Index(1), placement.creators)
        return known

    def votes(self, id: PartitionId, voter: Voter) -> bool:
        """Whether this one votes in a partition as far as its leader has told. A replica is
        emptied only by what has been told."""
        configuration = self.configuration(id)
        return configuration is not None and voter in configuration.voters

    def to_be_confirmed(self, id: PartitionId) -> int:
        """The epoch that a partition's log must have seen before brokers that are being drained
        are known to take no part in it; 0 where that is known."""
        last = self._dropped.last(id)
        return max((epoch for node, epoch in last.items() if self._drains(node)), default=0)

    def holders(self, id: PartitionId) -> tuple[Voter, ...]:
        """Who should run a replica: those that should have one, and those that still take part."""
        placement, configuration = self.placement(id), self.configuration(id)
        desired = () if placement is None else placement.replicas
        actual = () if configuration is None else configuration.everyone
        return tuple(dict.fromkeys((*desired, *actual)))

    def held_by(self, voter: Voter) -> list[PartitionId]:
        """The partitions of which this one is a holder."""
        return [
            id
            for id, look in self._looks.items()
            if voter.node in look.holders and voter in self.holders(id)
        ]

    def throttle_bytes_s(self, id: PartitionId) -> int:
        """How fast a moving partition's new replicas may get what they lack; 0: any way."""
        moves = self.reassignments.of(short(id))
        return 0 if moves is None else moves.throttle_bytes_s

    @property
    def takers(self) -> int:
        """How many brokers may be given replicas."""
        return sum(broker.takes for broker in self.brokers.by_name.values())

    def picture(self) -> Picture:
        """What planners look at; a copy."""
        sites = {
            node: Site(broker.zone, broker.takes) for node, broker in self.brokers.by_name.items()
        }
        desired = {short(id): look.desired for id, look in self._looks.items()}
        factors = {index: t.config.replication_factor for index, t in self._topics.items()}
        return Picture(sites, desired, factors)

    def place(
        self, partitions: int, factor: int, avoid: Iterable[str]
    ) -> tuple[tuple[Voter, ...], ...]:
        """Replicas for new partitions. Raises TooFewBrokers."""
        shunned = set(avoid)
        candidates = [
            Candidate(node, broker.zone, self.replicas[node], self.leaders[node])
            for node, broker in self.brokers.by_name.items()
            if broker.takes
        ]
        wanted = [candidate for candidate in candidates if candidate.node not in shunned]
        if len(wanted) < factor:
            wanted = candidates
        return tuple(map(self.voters, place(wanted, partitions, factor)))

    def voters(self, nodes: Iterable[str]) -> tuple[Voter, ...]:
        """Brokers with the data directories they have now."""
        return tuple(self.brokers.by_name[NodeId(node)].voter for node in nodes)

    # -- topics

    def put(self, topic: Topic, time_ms: int) -> None:
        """A topic was created or changed."""
        self._topics[topic.id.index] = topic
        for number in range(len(topic.partitions)):
            self._look(PartitionId(topic.id, number), time_ms)

    def drop(self, topic: Topic, time_ms: int) -> None:
        """A topic was deleted."""
        del self._topics[topic.id.index]
        for number in range(len(topic.partitions)):
            id = PartitionId(topic.id, number)
            self._known.pop(id, None)
            confirmed = self._dropped.forget(id)
            self.reassignments.ended(short(id), time_ms, DELETED)
            self._look(id, time_ms)
            self._check_drained(confirmed)

    # -- brokers

    def register(self, time_ms: int, command: RegisterBroker) -> BrokerRegistered:
        """A broker with a new data directory gets its replicas anew.

        Raises BadName, BrokerWiped, BrokerGone, ClusterFull.
        """
        registered = self.brokers.register(time_ms, command)
        if registered.replaced:
            node = NodeId(command.node)
            holding = [id for id, look in self._looks.items() if node in look.desired]
            self._move({id: self._looks[id].desired for id in holding}, time_ms)
        return registered

    def drain(self, time_ms: int, command: DrainBroker) -> BrokerResult:
        """Raises UnknownBroker, TooFewBrokers."""
        broker = self.brokers.named(command.node)
        if broker.takes:
            self.check_drain(broker)
            self.brokers.put(
                broker,
                state=DRAINING,
                drain_ms=time_ms,
                drain_replicas=self.held[broker.node],
                drain_bytes_s=command.throttle_bytes_s,
            )
            self._look_at_dropped(broker.node, time_ms)
            self._check_drained([broker.node])
        elif broker.drain_bytes_s != command.throttle_bytes_s and broker.state == DRAINING:
            self.brokers.put(broker, drain_bytes_s=command.throttle_bytes_s)
            self.reassignments.throttle(broker.node, command.throttle_bytes_s)
        return self._told(broker.node)

    def check_drain(self, broker: Broker) -> None:
        """Raises TooFewBrokers where the others could not hold all replicas of a partition: also of
        one that has none here yet, and whose replica on another that is drained needs the room."""
        others = self.takers - 1
        factors = (topic.config.replication_factor for topic in self._topics.values())
        factor = max(factors, default=0)
        if factor > others:
            raise TooFewBrokers(
                f"{others} brokers would be left for {factor} replicas of a partition",
                replication_factor=factor,
                brokers=others,
            )

    def undrain(self, time_ms: int, command: UndrainBroker) -> BrokerResult:
        """Raises UnknownBroker."""
        broker = self.brokers.named(command.node)
        if not broker.takes:
            self.brokers.put(broker, state=ACTIVE, drain_ms=0, drain_replicas=0, drain_bytes_s=0)
            self._look_at_dropped(broker.node, time_ms)
            for one in self.reassignments.running():
                if one.cause == DRAIN and broker.node in one.brokers:
                    self._roll_back(one, time_ms)
        return self._told(broker.node)

    def remove(self, command: RemoveBroker) -> BrokerResult:
        """Raises UnknownBroker, BrokerNotEmpty."""
        broker = self.brokers.named(command.node)
        if broker.state != DRAINED:
            raise BrokerNotEmpty(
                not_empty(broker, self.held[broker.node]),
                node=broker.node,
                state=broker.state,
                replicas=self.held[broker.node],
            )
        self.brokers.remove(broker)
        return BrokerResult(broker.node, "gone")

    # -- replicas

    def reassign(self, index: Index, time_ms: int, command: Reassign) -> ReassignResult:
        """Raises BadConfig, Overtaken, UnknownTopic, UnknownPartition, Busy."""
        known = self.reassignments.requested(command.request)
        if known is not None:
            return result_of(known)
        wanted = self.check_reassign(command)
        moves = [
            Move(row.topic, row.partition, list(self._looks[id].desired), row.replicas)
            for id, row in wanted.items()
        ]
        begun = self.reassignments.begin(index, time_ms, command, moves)
        self._move({id: row.replicas for id, row in wanted.items()}, time_ms)
        return result_of(begun)

    def check_reassign(self, command: Reassign) -> dict[PartitionId, Row]:
        """The partitions that this would move. Raises what `reassign` would raise."""
        self._check_plan(command)
        self.reassignments.check_room()
        return {self._checked(row): row for row in command.rows}

    def cancel(self, time_ms: int, id: int) -> ReassignResult:
        """Raises UnknownReassignment, Conflict where something would plan the same again."""
        one = self.reassignments.numbered(id)
        if one.is_running and one.cause in (DRAIN, FACTOR):
            other = "undrain the broker" if one.cause == DRAIN else "set the former factor"
            raise Conflict(f"reassignment {id} follows from a {one.cause}: {other} instead")
        self._roll_back(one, time_ms)
        return result_of(one)

    def reported(self, time_ms: int, command: ReplicasChanged) -> ReplicasNoted:
        """Older tidings, and those of partitions that are gone, are left out."""
        changed = 0
        for row in command.rows:
            id = CLUSTER_GROUP if row.topic == 0 else self.partition_id((row.topic, row.partition))
            known = None if id is None else self.configuration(id)
            if id is None or (known is not None and row.index <= known.index):
                continue
            now = Configuration(Index(row.index), row.voters, row.learners, row.epoch)
            self._known[id] = now
            confirmed = self._dropped.confirmed(id, now.epoch)
            changed += 1
            if id == CLUSTER_GROUP:
                self._check_drained(self.brokers.by_name)
            else:
                self._look(id, time_ms)
                self._check_drained(confirmed)
        return ReplicasNoted(changed)

    # -- private

    def _check_plan(self, command: Reassign) -> None:
        problems: list[str] = []
        if not command.rows or len(command.rows) > ROWS_MAX:
            problems.append(f"a plan moves 1 to {ROWS_MAX} partitions, not {len(command.rows)}")
        if len({(row.topic, row.partition) for row in command.rows}) < len(command.rows):
            problems.append("the plan names a partition twice")
        if len(command.cause) > CAUSE_CHARACTERS_MAX or len(command.brokers) > len(
            self.brokers.by_name
        ):
            problems.append("cause or brokers: too long")
        if command.throttle_bytes_s < 0:
            problems.append(f"throttle_bytes_s: {command.throttle_bytes_s} is negative")
        for row in command.rows:
            problems += self._problems(row) if len(problems) < PROBLEMS_MAX else ()
        if problems:
            raise BadConfig(problems)

    def _problems(self, row: Row) -> list[str]:
        topic = self._topics.get(row.topic)
        if topic is None:
            raise UnknownTopic(f"{row.topic:x}")
        name = f"{topic.name}:{row.partition}"
        factor = topic.config.replication_factor
        if len(row.replicas) != factor or len(set(row.replicas)) != factor:
            return [f"{name}: not {factor} different brokers"]
        id = self.partition_id((row.topic, row.partition))
        now = () if id is None else self.holders(id)
        held = {voter.node for voter in now}
        problems = []
        for node in map(NodeId, row.replicas):
            broker = self.brokers.by_name.get(node)
            if broker is None:
                problems.append(f"{name}: unknown broker {node[:64]}")
            elif not broker.takes and node not in held:
                problems.append(f"{name}: broker {node} is {broker.state}")
        return problems

    def _checked(self, row: Row) -> PartitionId:
        id = self.partition_id((row.topic, row.partition))
        if id is None:
            raise UnknownPartition(self._topics[row.topic].name, row.partition)
        if row.before and tuple(row.before) != self._looks[id].desired:
            raise Overtaken("partitions have moved since this was planned")
        return id

    def _roll_back(self, one: Reassignment, time_ms: int) -> None:
        """What can't go back, because a broker that had it may have none any more, goes on."""
        if not one.is_running:
            return
        one.state = CANCELLING
        back: dict[PartitionId, Sequence[str]] = {}
        for move in one.moves:
            id = self.partition_id((move.topic, move.partition))
            if move.state == MOVING and id is not None and self._may_return(id, move):
                move.state = RETURNING
                back[id] = move.before
        self._move(back, time_ms)
        if not one.left:
            one.state = CANCELLED

    def _may_return(self, id: PartitionId, move: Move) -> bool:
        held = {voter.node for voter in self.holders(id)}
        brokers = map(self.brokers.by_name.get, map(NodeId, move.before))
        return all(
            broker is not None and (broker.takes or broker.node in held) for broker in brokers
        )

    def _look_at_dropped(self, node: NodeId, time_ms: int) -> None:
        """The broker's state is another one, and with it what has to be confirmed."""
        for id in self._dropped.partition_ids(node):
            self._look(id, time_ms)

    def _drains(self, node: NodeId) -> bool:
        broker = self.brokers.by_name.get(node)
        return broker is not None and broker.state == DRAINING

    def _move(self, wanted: Mapping[PartitionId, Sequence[str]], time_ms: int) -> None:
        self.epoch += 1
        by_topic: dict[int, dict[int, tuple[Voter, ...]]] = {}
        for id, nodes in wanted.items():
            by_topic.setdefault(id.topic.index, {})[id.partition] = self.voters(nodes)
        for index, changes in by_topic.items():
            topic = self._topics[index]
            partitions = list(topic.partitions)
            for number, replicas in changes.items():
                id, before = PartitionId(topic.id, number), partitions[number].replicas
                self._dropped.moved(id, before, replicas, self.epoch)
                partitions[number] = partitions[number].moved(replicas)
            moved = with_partitions(topic, partitions)
            self._topics[index] = moved
            self._keep(moved)
            for number in changes:
                self._look(PartitionId(topic.id, number), time_ms)

    def _look(self, id: PartitionId, time_ms: int) -> None:
        """Count a partition anew."""
        before = self._looks.pop(id, None)
        if before is not None:
            self._count(before, -1)
        placement, configuration = self.placement(id), self.configuration(id)
        self.moving.pop(id, None)
        self.unequal.pop(id, None)
        if placement is not None and configuration is not None:
            holders = frozenset(voter.node for voter in self.holders(id))
            self._looks[id] = _Look(placement.nodes, holders)
            self._count(self._looks[id], 1)
            if len(placement.replicas) != self._topics[id.topic.index].config.replication_factor:
                self.unequal[id] = None
            settled = is_settled(placement.replicas, configuration)
            if settled:
                self.reassignments.settled(short(id), time_ms)
            if not settled or self.to_be_confirmed(id):
                self.moving[id] = None
        if before is not None:
            self._check_drained(sorted(before.holders))

    def _count(self, look: _Look, by: int) -> None:
        self.leaders[look.desired[0]] += by
        for node in look.desired:
            self.replicas[node] += by
        for node in look.holders:
            self.held[node] += by

    def _check_drained(self, nodes: Iterable[str]) -> None:
        cluster = self._known.get(CLUSTER_GROUP)
        busy = () if cluster is None else [voter.node for voter in cluster.voters]
        for node in list(map(NodeId, nodes)):
            if not self._drains(node) or self.held[node] or node in busy:
                continue
            if not self._dropped.partition_ids(node):
                self.brokers.put(self.brokers.by_name[node], state=DRAINED)

    def _told(self, node: NodeId) -> BrokerResult:
        return BrokerResult(node, self.brokers.by_name[node].state, self.held[node])
