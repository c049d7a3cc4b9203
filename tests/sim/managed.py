"""Clusters whose topics come and go: the cluster group on every node, and who commands it."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from coordinator.brokers.formation import cluster_id
from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import (
    AllocateProducer,
    AlterTopic,
    BrokerRegistered,
    Command,
    CreateTopic,
    DeleteTopic,
    ProducerAllocated,
    RegisterBroker,
    TopicResult,
    decode_command,
    encode_command,
)
from coordinator.errors import BrokerGone
from goqueue.wire.errors import TopicExists, UnknownTopic
from goqueue.wire.types import CLUSTER_GROUP, Index, NodeId, PartitionId, Term
from log.entry import Entry, EntryKind
from node.cluster.newest_state import NewestState
from raft.errors import NotLeader, Outcome
from raft.group import RaftGroup

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.world import World

RETRY_S = 0.15
KEPT_ENTRIES = 10
"""Of the newest commands; a node keeps more."""
WIPED_S = 0.1
"""Between two looks at whether a wiped broker is known under its new data directory."""
STATE_CHECKED_EVERY = 4
"""Entries between two looks at the whole state: where it differs once, it does so from then on."""
TOPICS = ("orders", "payments")

Ended = Callable[[object], object]
"""The command's result, the error that refused it, or None where its outcome is not known."""


class ClusterReplica:
    """Implements Raft's StateMachine for the cluster group, as the node does."""

    def __init__(self, process: Process) -> None:
        self.raft: RaftGroup | None = None
        """None while its log is damaged or replaced, so that nothing can run on it."""
        self.newest: NewestState | None = None
        self._process = process
        self._checks = process.world.checks
        self._alter = process.world.mutant.cluster
        self.state: ClusterState
        self.begin()

    def begin(self) -> None:
        """The group is about to be started, from what its log holds then."""
        self.state = ClusterState(cluster_id(self._process.world.voters))
        self._alter(self.state)

    def apply(self, entry: Entry) -> object:
        log = self._process.store.partition_log(CLUSTER_GROUP)
        self._checks.applied(self._process.node, log, entry)
        command = decode_command(entry.body)
        result = self.state.apply(entry.index, entry.time_ms, command)
        self._alter(self.state)
        if self._process.world.trims_cluster:
            log.trim_to(Index(entry.index - KEPT_ENTRIES))
        members, moves = self._process.world.members, self._process.world.moves
        if members is not None:
            members.cluster_applied(entry, command, self.state)
        if moves is not None:
            moves.removing.applied(entry, command, result)
        if entry.index % STATE_CHECKED_EVERY == 0:
            self.check_state()
        self.changed()
        return result

    def snapshot(self) -> bytes:
        return self.state.snapshot()

    def restore(self, index: Index, state: bytes) -> None:
        self.state = ClusterState.restore(state)
        self._alter(self.state)
        self.check_state()
        self.changed()

    def on_leader(self, term: Term) -> None:
        for part in (self._process.groups, self._process.moving):
            if part is not None:
                part.lead()

    def on_follower(self, leader: NodeId | None) -> None:
        for part in (self._process.groups, self._process.moving):
            if part is not None:
                part.follow()

    @property
    def is_ready_leader(self) -> bool:
        return self.raft is not None and self.raft.is_ready_leader

    @property
    def leader(self) -> NodeId | None:
        return None if self.raft is None else self.raft.leader

    def now_ms(self) -> int:
        """Of the group's clock; 0 where it does not lead, as a node has it."""
        raft = self.raft
        return raft.log_time.now_ms() if raft is not None and raft.is_ready_leader else 0

    def check_state(self) -> None:
        crc = zlib.crc32(self.state.snapshot())
        self._checks.state_is(self._process.node, CLUSTER_GROUP, self.state.applied_index, crc)

    def wanted(self) -> list[PartitionId]:
        """The partitions that this node should hold."""
        return self.state.layout.held_by(self._process.voter)

    def changed(self) -> None:
        """Look soon at what should run here."""
        if self._process.registry is not None:
            self._process.registry.changed()

    @property
    def is_newest(self) -> bool:
        """Whether the state is no older than any that was known here before."""
        return self.newest is not None and self.newest.is_reached

    def command(self, command: Command, ended: Ended) -> None:
        """Replicate a command as leader; `ended` is called once, unless the process dies."""

        def answered(outcome: Outcome, result: object, _index: Index) -> None:
            ended(result if outcome is Outcome.APPLIED else None)

        if self.raft is None:
            ended(None)
            return
        try:
            self.raft.propose(EntryKind.COMMAND, encode_command(command), callback=answered)
        except NotLeader:
            ended(None)


class Registrar:
    """Keeps one process registered, as the node does."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._is_gone = False
        self._command = RegisterBroker(
            process.node, process.store.incarnation, replaces=process.world.shape.moving
        )

    def look(self) -> None:
        cluster = self._process.cluster
        assert cluster is not None
        known = cluster.state.brokers.get(self._process.node)
        if self._is_gone:
            return
        if known is None or known.incarnation != self._process.store.incarnation:
            self._process.world.ask_cluster(self._command, self._registered)
            self._process.time.call_later(RETRY_S, self.look)

    def _registered(self, result: object) -> None:
        if isinstance(result, BrokerGone):
            self._is_gone = True
        elif result is not None and not isinstance(result, BrokerRegistered):
            self._process.world.checks.violated(f"cluster: {self._process.node}: {result}")


class Admin:
    """Creates, alters, deletes and recreates topics, each until it is done."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._producers: set[int] = set()
        self._busy = False

    def start(self) -> None:
        self._world.loop.call_later(0.05, self._first)

    def _first(self) -> None:
        """The first topic waits until all brokers are known, but for a wiped one."""
        founders = self._world.nodes[: self._world.shape.founders]
        brokers = set(founders) - set(self._world.machines.wiped())
        states = [
            process.cluster.state for process in self._world.machines.running() if process.cluster
        ]
        if any(brokers <= state.brokers.keys() for state in states):
            self._create(TOPICS[0])
            self._world.loop.call_later(0.3, self._next)
        elif not self._world.is_over:
            self._world.loop.call_later(0.05, self._first)

    def _next(self) -> None:
        world, rng = self._world, self._rng
        if world.is_quiet:
            return
        name = rng.choice(TOPICS)
        if not self._busy and world.members is None:
            self._busy = True
            act = rng.choice((self._create, self._create, self._alter, self._delete))
            (act if rng.random() < 0.8 else self._allocate)(name)
        elif not self._busy and rng.random() < 0.2:
            self._busy = True
            (self._create if rng.random() < 0.7 else self._delete)(TOPICS[1])
        world.loop.call_later(rng.uniform(0.1, 0.8), self._next)

    def _create(self, name: str) -> None:
        if self._world.machines.victim_is_unknown():
            # Of two replicas, one on what was wiped, none could ever lead: see
            # docs/internals/reliability.md.
            self._world.loop.call_later(WIPED_S, self._create, name)
            return
        counts = (1, 2) if self._world.members is None else (1, 2, 3)
        config = {"partitions": self._rng.choice(counts)}
        self._until_done(CreateTopic(name, config), self._created)

    def _created(self, result: object) -> None:
        if isinstance(result, TopicResult):
            self._world.topics_changed()
        elif not isinstance(result, TopicExists):
            self._world.checks.violated(f"cluster: create answered {result!r}")

    def _alter(self, name: str) -> None:
        changes = {"retention_ms": self._rng.randrange(1, 10**9)}
        self._until_done(AlterTopic(name, changes), self._altered)

    def _altered(self, result: object) -> None:
        if not isinstance(result, TopicResult | UnknownTopic):
            self._world.checks.violated(f"cluster: alter answered {result!r}")

    def _delete(self, name: str) -> None:
        """The very topic that is there now: the command may arrive twice."""
        topic = self._world.newest_state().topics.get(name)
        self._until_done(DeleteTopic(name, "" if topic is None else str(topic.id)), self._deleted)

    def _deleted(self, result: object) -> None:
        if not isinstance(result, TopicResult | UnknownTopic):
            self._world.checks.violated(f"cluster: delete answered {result!r}")
        self._world.topics_changed()

    def _allocate(self, _name: str) -> None:
        self._until_done(AllocateProducer(), self._allocated)

    def _allocated(self, result: object) -> None:
        if not isinstance(result, ProducerAllocated) or result.producer_id in self._producers:
            self._world.checks.violated(f"cluster: allocate answered {result!r}")
        else:
            self._producers.add(result.producer_id)

    def _until_done(self, command: Command, done: Ended) -> None:
        answered = False

        def ended(result: object) -> None:
            nonlocal answered
            if not answered and result is not None:
                answered = True
                self._busy = False
                done(result)

        def again() -> None:
            if not answered and not self._world.is_over:
                self._world.ask_cluster(command, ended)
                self._world.loop.call_later(RETRY_S, again)

        again()

    @property
    def idle(self) -> bool:
        return not self._busy
