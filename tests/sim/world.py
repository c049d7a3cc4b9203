"""One simulated cluster: machines, their network, clients, faults; from a seed to a verdict."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import Command
from goqueue.wire.types import CLUSTER_GROUP, NodeId, Offset, PartitionId, TopicId, Voter
from raft.group import RaftGroup
from tests.check.queuelog import QueueLog
from tests.sim.checks import Checks
from tests.sim.clients import Client
from tests.sim.compact_work import CompactWork
from tests.sim.faults import Fault, make_plan, strike
from tests.sim.loop import Loop, Trace
from tests.sim.machines import Machines
from tests.sim.managed import Admin, Ended
from tests.sim.member_work import MemberWork
from tests.sim.move_work import MoveWork
from tests.sim.mutants import Mutant
from tests.sim.net import Net
from tests.sim.process import Process
from tests.sim.queue_requests import Ask
from tests.sim.queue_work import QueueWork
from tests.sim.quiet import quiet
from tests.sim.rare import Rare, counted
from tests.sim.relaxed import Relaxed
from tests.sim.requests import Publish
from tests.sim.shape import Shape, make_shape
from tests.sim.timelines import Timelines
from tests.sim.traps import Traps
from tests.sim.watched import watched

FORMED_S = 1.5
"""Where groups have members, the first of them join before the first fault."""
HEALED_S = 15.0
"""Within this time after the last fault, everybody agrees and goes on."""
FAULTS = 12
TRIM_S = 0.4
ASK_S = 0.001
QUEUE_CLIENTS = 2
"""Clients that publish batches of another kind beside the queue's own."""


@dataclass
class Verdict:
    """How a run ended."""

    seed: int
    violations: list[str]
    trace: str
    plan: list[Fault]
    acks: int
    duplicates: int
    faults: int
    elections: int
    steps: int
    deliveries: int = 0
    settles: int = 0
    lines: list[str] = field(default_factory=list)
    rare: Counter[str] = field(default_factory=Counter[str])
    """How often rare paths were walked."""


class World:
    """Everything of one run. Each part draws from a generator of its own, so that one more draw
    in one of them does not change the others."""

    def __init__(
        self,
        seed: int,
        *,
        mutant: Mutant | None = None,
        faults: int = FAULTS,
        keep_trace: bool = False,
        shape: Shape | None = None,
        plan: list[Fault] | None = None,
        kind: str | None = None,
        nemesis: Collection[str] = (),
    ) -> None:
        """`kind` of shape, which else the seed draws; `nemesis`: the faults that may strike, by
        their names or those of their groups; all, where none is named."""
        self.seed = seed
        self._rngs: dict[str, random.Random] = {}
        self.mutant = mutant or Mutant()
        self.shape = shape or make_shape(self.rng("shape"), kind=kind)
        self.trace = Trace(keep=keep_trace)
        self.loop = Loop(self.trace)
        self.nodes = [NodeId(f"n{number}") for number in range(self.shape.nodes)]
        self.partition_ids: list[PartitionId] = []
        """Partitions that clients publish to."""
        if not self.shape.managed:
            self.partition_ids = [
                PartitionId(TopicId(7, 1), number) for number in range(self.shape.groups)
            ]
        self.is_quiet = False
        self.is_over = False
        self.checks = Checks(self.loop)
        self.checks.requests_kept = self.shape.requests_kept
        self.admin = Admin(self, self.rng("admin"))
        self.queue = None
        if self.shape.queue:
            self.queue = QueueWork(self, self.partition_ids[0])
        self.members = MemberWork(self) if self.shape.members else None
        self.moves = MoveWork(self) if self.shape.moving else None
        self.compaction = CompactWork(self) if self.shape.compacts else None
        self.timelines = Timelines(self)
        self.traps = Traps(self)
        self.relaxed = Relaxed(self)
        self.rare = Rare()
        self.raft_group_type = counted(watched(self.mutant.raft_group, self.traps), self.rare)
        self.machines = Machines(self)
        self.net = Net(
            self.loop,
            self.rng("net"),
            self.nodes,
            self.machines.process,
            delay_s=self.shape.delay_s,
            repeats=self.shape.repeats,
        )
        self.voters: list[Voter] = []
        if plan is None:
            count = self.shape.faults(faults)
            plan = make_plan(self.rng("plan"), count, self.shape.faulty_s, nemesis)
            if self.members is not None:
                plan = self.members.thinned(plan)
        self.plan = plan
        self._formed_s = FORMED_S if self.members is not None else 0.0
        self.faulty_s = self.shape.faulty_s + self._formed_s
        self.clients = [
            Client(self, number, self.rng(f"client {number}"))
            for number in range(self.shape.clients)
        ]
        if self.queue is not None or self.members is not None:
            del self.clients[QUEUE_CLIENTS:]
        self.elections = 0
        self.changes = 0
        """Of who takes part in a group, that have committed."""
        self.copies = 0
        """Of whole replicas."""
        self.resumed_copies = 0
        """Of these, those that went on with files of an attempt before."""
        self.orphans = 0
        """Replicas that nobody named, and that went by what a leader told."""
        self.repairs = 0
        """Of damaged logs, entry by entry."""
        self.cluster_copies = self.cluster_repairs = 0
        """Of these, those of the cluster group."""
        self.damaged: Counter[str] = Counter()
        """Files, by the ends of their names."""
        self.calls: Counter[str] = Counter()
        """Of requests between nodes: answers lost, operations sent again, leases given back, and
        of these those that were recalled, as their answers were lost."""
        self.set_aside = 0
        """Data directories whose write-ahead log was damaged."""

    def rng(self, name: str) -> random.Random:
        """The generator of one part."""
        if name not in self._rngs:
            self._rngs[name] = random.Random(f"{self.seed} {name}")
        return self._rngs[name]

    @property
    def is_damaged(self) -> bool:
        """Whether what disks hold may be damaged, so that it must be healed."""
        return any(fault.kind in ("damage", "damage-cluster") for fault in self.plan)

    @property
    def trims_cluster(self) -> bool:
        """Whether the cluster group keeps few of its commands, so that who was away needs a copy:
        where its files are damaged, too."""
        return any(fault.kind == "damage-cluster" for fault in self.plan)

    # the run

    def run(self) -> Verdict:
        """From formation to the verdict. Whatever is raised on the way is a violation."""
        try:
            with quiet():
                self._form()
                self.loop.run_until(self.faulty_s)
                self._heal()
                self._judge()
        except Exception as error:  # noqa: BLE001 - a crash of the code under test is a finding
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.checks.violated(
                f"crash: {type(error).__name__}: {error} at {where.filename}:{where.lineno}"
            )
        self.is_over = True
        with quiet():
            for process in self.machines.running():
                process.coroutines.close()
        self._count_rare()
        checks = self.checks
        return Verdict(
            self.seed,
            checks.violations,
            self.trace.digest,
            self.plan,
            checks.acks,
            checks.duplicates,
            len(self.plan),
            self.elections,
            self.loop.steps,
            sum(work.deliveries for work in (self.queue, self.members) if work),
            sum(work.settles for work in (self.queue, self.members) if work),
            self.trace.kept(),
            self.rare.paths,
        )

    def _form(self) -> None:
        self.machines.start_all()
        for client in self.clients:
            client.start()
        if self.shape.managed:
            self.admin.start()
        for work in self._works():
            work.start()
        if self.queue is not None or self.members is not None:
            self.timelines.start()
        for fault in self.plan:
            self.loop.call_later(fault.at_s + self._formed_s, strike, self, fault)
        self.loop.call_later(self.shape.read_s, self._read)
        if self.shape.trim_keep:
            self.loop.call_later(TRIM_S, self._trim)

    def _count_rare(self) -> None:
        replicas = [r for p in self.machines.running() for r in p.replicas.values()]
        self.rare.count("copies of replicas", self.copies)
        self.rare.count("copies that went on", self.resumed_copies)
        self.rare.count("leases recalled", self.calls["leases recalled"])
        forgotten = sum(sum(replica.state.evicted().values()) for replica in replicas)
        self.rare.count("requests forgotten early", forgotten)
        self.rare.count("requests stored again", self.checks.stored_again)

    def _heal(self) -> None:
        self.loop.note("heal")
        self.is_quiet = True
        self.traps.clear()
        self.machines.heal()
        self.net.heal()
        for work in self._works():
            work.heal()

    def _judge(self) -> None:
        if not self.loop.run_until(self.faulty_s + HEALED_S, self._is_settled):
            self.checks.violated("alive:", self._unsettled())
            return
        before = self.checks.acks
        probes = [Client(self, 1000 + number, self.rng(f"probe {number}")) for number in range(2)]
        for probe in probes:
            for partition_id in self.partition_ids:
                probe.publish(partition_id)
        until = self.loop.time + HEALED_S
        if not self.loop.run_until(until, lambda: all(probe.idle for probe in probes)):
            self.checks.violated("alive: a new write is not acked")
        if not self.loop.run_until(until + HEALED_S, self._is_settled):
            self.checks.violated("alive:", self._unsettled())
        self.checks.acks = before
        for process in self.members_here():
            if process.cluster is not None:
                process.cluster.check_state()
                self.checks.log_is(
                    process.node, CLUSTER_GROUP, process.store.partition_log(CLUSTER_GROUP)
                )
            for partition_id, replica in process.replicas.items():
                replica.check_state()
                self.checks.log_is(process.node, partition_id, replica.log)
        if self.queue is not None:
            states = {
                p.node: p.replicas[self.queue.partition_id].state for p in self.members_here()
            }
            self.queue.judge(states)
            self.loop.note("queue", self.queue.digest)
        if self.members is not None:
            self.members.judge(
                {(p.node, g): r.state for p in self.members_here() for g, r in p.replicas.items()}
            )
        if self.compaction is not None:
            self.compaction.judge([r for p in self.members_here() for r in p.replicas.values()])
        for partition_id, model in self.queue_logs().items():
            members = [p for p in self.members_here() if partition_id in p.replicas]
            self.timelines.judge(
                partition_id, model, {p.node: p.replicas[partition_id] for p in members}
            )

    def queue_logs(self) -> dict[PartitionId, QueueLog]:
        """The models of the partitions whose queues are used."""
        if self.queue is not None:
            return {self.queue.partition_id: self.queue.log}
        if self.members is None:
            return {}
        return {partition_id: ledger.log for partition_id, ledger in self.members.ledgers.items()}

    def _is_settled(self) -> bool:
        return not self._unsettled()

    def _unsettled(self) -> str:
        """What keeps the cluster from being at rest, in words."""
        if self.shape.managed:
            self.topics_changed()  # who knew of a deletion may have died when it was told
        for client in self.clients:
            if not client.idle:
                return f"client {client.number} is not acked"
        down = set(self.nodes) - {process.node for process in self.machines.running()}
        if any(not self.machines[node].is_lost for node in down):
            return "a node is down"
        processes = self.members_here()
        for process in processes:
            if process.healing is not None and not process.healing.is_done:
                return f"{process.node} is damaged yet"
        if self.shape.managed:
            if not self.admin.idle:
                return "the admin is not answered"
            for process in processes:
                if process.raft(CLUSTER_GROUP) is None:
                    return f"the cluster group does not run on {process.node}"
            rafts = [process.raft(CLUSTER_GROUP) for process in processes]
            found = self._unsettled_partition(CLUSTER_GROUP, [raft for raft in rafts if raft])
            if found:
                return found
            self.topics_changed()
            for process in processes:
                found = self._holds_wrongly(process)
                if found:
                    return found
        for partition_id in self.partition_ids:
            rafts = [p.replicas[partition_id].raft for p in processes if partition_id in p.replicas]
            found = self._unsettled_partition(partition_id, rafts)
            if found:
                return found
        return next((found for work in self._works() if (found := work.unsettled())), "")

    def _works(self) -> list[QueueWork | MemberWork | MoveWork | CompactWork]:
        """What is done in this run beside publishing."""
        works = (self.queue, self.members, self.moves, self.compaction)
        return [work for work in works if work is not None]

    def _holds_wrongly(self, process: Process) -> str:
        """Whether a node holds what it should not, or lacks what it should."""
        assert process.cluster is not None
        wanted = sorted([CLUSTER_GROUP, *process.cluster.wanted()])
        store, held = process.store, process.store.partition_ids()
        if self.moves is not None:  # what was moved away is empty, and keeps its promises
            held = [
                partition_id
                for partition_id in held
                if store.partition_log(partition_id).last_index
            ]
        if held == wanted:
            return ""
        names = [str(partition_id) for partition_id in held]
        return f"{process.node} holds {names}, and not what it should"

    def members_here(self) -> list[Process]:
        """The processes that take part: a wiped node does not, nor does one that was removed."""
        return [
            process
            for process in self.machines.running()
            if not process.machine.is_wiped and not self._is_gone(process.node)
        ]

    def _is_gone(self, node: NodeId) -> bool:
        return self.moves is not None and self.moves.removing.is_gone(node)

    def _unsettled_partition(self, partition_id: PartitionId, rafts: list[RaftGroup]) -> str:
        ends = {(raft.applied_index, str(raft.leader)) for raft in rafts}
        for raft in rafts:
            if not self.checks.applied_all(partition_id, raft.applied_index):
                return f"{raft.node} has applied {partition_id} up to {raft.applied_index} only"
        if len(ends) > 1:
            return f"the replicas of {partition_id} differ: {sorted(ends)}"
        if not any(raft.is_ready_leader for raft in rafts):
            return f"nobody leads {partition_id}"
        return ""

    # what the cluster group decides

    def newest_state(self) -> ClusterState:
        """What the most advanced node knows of the cluster."""
        states = [process.cluster.state for process in self.machines.running() if process.cluster]
        return max(states, key=lambda state: state.applied_index, default=ClusterState())

    def topics_changed(self) -> None:
        """Clients publish to the topics that there are, as far as any node knows."""
        newest = self.newest_state()
        gone = [
            partition_id
            for partition_id in self.partition_ids
            if newest.is_deleted(partition_id.topic)
        ]
        now = [
            PartitionId(topic.id, number)
            for topic in newest.topics.values()
            for number in range(len(topic.partitions))
        ]
        self.partition_ids = now or [
            partition_id for partition_id in self.partition_ids if partition_id not in gone
        ]
        for client in self.clients:
            client.give_up(newest.is_deleted)

    def ask_cluster(self, command: Command, ended: Ended) -> None:
        """A command on its way to who leads the cluster group, as far as anybody knows."""
        rng = self.rng("ask")
        leaders = [
            process
            for process in self.machines.running()
            if (raft := process.raft(CLUSTER_GROUP)) and raft.is_leader
        ]
        asked = rng.choice(leaders or self.machines.running() or [None])
        if asked is not None:
            asked.command(command, ended)

    # what clients and faults use

    def others(self, node: NodeId) -> list[NodeId]:
        return [other for other in self.nodes if other != node]

    def ask(self, node: NodeId, publish: Publish, delay_s: float) -> None:
        """A client's request on its way to a node; lost if that is down when it arrives."""

        def arrive() -> None:
            process = self.machines.process(node)
            if process is not None:
                process.publish(publish)

        self.loop.call_later(delay_s, arrive)

    def ask_queue(self, node: NodeId, ask: Ask) -> None:
        """A consumer's request on its way to a node; lost if that is down when it arrives."""
        self._arrive(node, Process.ask_queue, ask)

    def withdraw(self, node: NodeId, ask: Ask) -> None:
        """The news that who asked a node has left."""
        self._arrive(node, Process.withdraw, ask)

    def _arrive(self, node: NodeId, receive: Callable[[Process, Ask], None], ask: Ask) -> None:
        def arrive() -> None:
            process = self.machines.process(node)
            if process is not None:
                receive(process, ask)

        self.loop.call_later(ASK_S, arrive)

    # work that goes on all the time

    def _read(self) -> None:
        """Read indexes at all leaders, and a reader at random offsets of a random node."""
        if self.is_quiet:
            return
        rng = self.rng("read")
        reader = rng.choice(self.nodes)
        for process in self.machines.running():
            if process.time.is_paused:
                continue
            for replica in process.replicas.values():
                replica.read_index()
                end = replica.state.next_offset
                if end and process.node == reader:
                    size = rng.choice((1, 300, 1 << 20))
                    replica.read(Offset(rng.randrange(end)), rng.choice((1, 7, 1000)), size)
        self.loop.call_later(self.shape.read_s, self._read)

    def _trim(self) -> None:
        if self.is_quiet:
            return
        for node in self.nodes:
            process = self.machines.process(node)
            if process is not None and not process.time.is_paused:
                for replica in process.replicas.values():
                    replica.trim(self.shape.trim_keep)
        self.loop.call_later(TRIM_S, self._trim)
