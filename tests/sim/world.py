"""One simulated cluster: machines, their network, clients, faults; from a seed to a verdict."""

from __future__ import annotations

import random
import traceback
from dataclasses import dataclass, field

from coordinator.commands import Command
from coordinator.state import ClusterState
from goqueue.wire.types import CLUSTER_GROUP, GroupId, NodeId, Offset, Term, TopicId, Voter
from log.errors import LogError
from raft.group import RaftGroup
from raft.log_time import majority_offset_ms
from tests.sim.checks import Checks
from tests.sim.clients import Client
from tests.sim.disk import Died, DiskSpeed, SimDisk
from tests.sim.faults import Fault, make_plan, strike
from tests.sim.figure8 import Figure8
from tests.sim.loop import Loop, Trace
from tests.sim.managed import Admin, Ended
from tests.sim.mutants import Mutant
from tests.sim.net import Net
from tests.sim.process import Process
from tests.sim.requests import Publish
from tests.sim.shape import Shape, make_shape
from tests.sim.watched import watched

FAULTY_S = 8.0
"""Faults strike in this time."""
HEALED_S = 15.0
"""Within this time after the last fault, everybody agrees and goes on."""
FAULTS = 12
TRIM_S = 0.4
READ_S = 0.12


@dataclass
class Machine:
    """A node's hardware; `process` is None while it is down."""

    node: NodeId
    disk: SimDisk
    speed: DiskSpeed
    process: Process | None = None
    clock_ahead_ms: int = 0
    trap: tuple[bool, float] | None = None
    """Die after the next flush has begun: whether by power, and how long after."""


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
    lines: list[str] = field(default_factory=list)


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
    ) -> None:
        self.seed = seed
        self._rngs: dict[str, random.Random] = {}
        self.mutant = mutant or Mutant()
        self.shape = shape or make_shape(self.rng("shape"))
        self.trace = Trace(keep=keep_trace)
        self.loop = Loop(self.trace)
        self.nodes = [NodeId(f"n{number}") for number in range(self.shape.nodes)]
        self.groups: list[GroupId] = []
        """Partitions that clients publish to."""
        if not self.shape.managed:
            self.groups = [GroupId(TopicId(7, 1), number) for number in range(self.shape.groups)]
        self.checks = Checks(self.loop)
        self.admin = Admin(self, self.rng("admin"))
        self.group_type: type[RaftGroup] = watched(self.mutant.group, lambda: self)
        self.machines = {node: self._machine(node) for node in self.nodes}
        self.net = Net(
            self.loop,
            self.rng("net"),
            self.nodes,
            self.process,
            delay_s=self.shape.delay_s,
            repeats=self.shape.repeats,
        )
        self.voters: list[Voter] = []
        if plan is None:
            plan = make_plan(self.rng("plan"), faults, FAULTY_S)
        self.plan = plan
        self.clients = [
            Client(self, number, self.rng(f"client {number}"))
            for number in range(self.shape.clients)
        ]
        self.is_quiet = False
        self.is_over = False
        self.elections = 0
        self._lead_traps = 0
        self._vote_traps = 0
        self._figure8: Figure8 | None = None

    def rng(self, name: str) -> random.Random:
        """The generator of one part."""
        if name not in self._rngs:
            self._rngs[name] = random.Random(f"{self.seed} {name}")
        return self._rngs[name]

    def _machine(self, node: NodeId) -> Machine:
        disk = SimDisk()
        disk.lies = self.mutant.disk_lies
        return Machine(node, disk, DiskSpeed(sync_s=self.shape.sync_s))

    # the run

    def run(self) -> Verdict:
        """From formation to the verdict. Whatever is raised on the way is a violation."""
        try:
            self._form()
            self.loop.run_until(FAULTY_S)
            self._heal()
            self._judge()
        except Exception as error:  # noqa: BLE001 - a crash of the code under test is a finding
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.checks.violated(
                f"crash: {type(error).__name__}: {error} at {where.filename}:{where.lineno}"
            )
        self.is_over = True
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
            self.trace.lines,
        )

    def _form(self) -> None:
        for machine in self.machines.values():
            machine.process = Process(self, machine)
            self.voters.append(machine.process.voter)
        for machine in self.machines.values():
            assert machine.process is not None
            machine.process.start()
            self.net.process_started(machine.node)
        for client in self.clients:
            client.start()
        if self.shape.managed:
            self.admin.start()
        for fault in self.plan:
            self.loop.call_later(fault.at_s, strike, self, fault)
        self.loop.call_later(READ_S, self._read)
        if self.shape.trim_keep:
            self.loop.call_later(TRIM_S, self._trim)

    def _heal(self) -> None:
        self.loop.note("heal")
        self.is_quiet = True
        self._lead_traps = self._vote_traps = 0
        self._figure8 = None
        for machine in self.machines.values():
            machine.trap = None
            machine.speed.sync_s = self.shape.sync_s
            self._resume(machine.node)
            self._restart(machine.node)
        self.net.heal()

    def _judge(self) -> None:
        if not self.loop.run_until(FAULTY_S + HEALED_S, self._is_settled):
            self.checks.violated("alive:", self._unsettled())
            return
        before = self.checks.acks
        probes = [Client(self, 1000 + number, self.rng(f"probe {number}")) for number in range(2)]
        for probe in probes:
            for group in self.groups:
                probe.publish(group)
        until = self.loop.time + HEALED_S
        if not self.loop.run_until(until, lambda: all(probe.idle for probe in probes)):
            self.checks.violated("alive: a new write is not acked")
        if not self.loop.run_until(until + HEALED_S, self._is_settled):
            self.checks.violated("alive:", self._unsettled())
        self.checks.acks = before
        for process in self.running():
            if process.cluster is not None:
                process.cluster.check_state()
                self.checks.log_is(process.node, CLUSTER_GROUP, process.store.group(CLUSTER_GROUP))
            for group, replica in process.replicas.items():
                replica.check_state()
                self.checks.log_is(process.node, group, replica.log)

    def _is_settled(self) -> bool:
        return not self._unsettled()

    def _unsettled(self) -> str:
        """What keeps the cluster from being at rest, in words."""
        for client in self.clients:
            if not client.idle:
                return f"client {client.number} is not acked"
        processes = self.running()
        if len(processes) < len(self.nodes):
            return "a node is down"
        if self.shape.managed:
            if not self.admin.idle:
                return "the admin is not answered"
            found = self._unsettled_group(
                CLUSTER_GROUP, [process.cluster.raft for process in processes if process.cluster]
            )
            if found:
                return found
            self.topics_changed()
            for process in processes:
                assert process.cluster is not None
                if process.store.groups() != sorted([CLUSTER_GROUP, *process.cluster.wanted()]):
                    held = [str(group) for group in process.store.groups()]
                    return f"{process.node} holds {held}, and not what it should"
        for group in self.groups:
            rafts = [p.replicas[group].raft for p in processes if group in p.replicas]
            found = self._unsettled_group(group, rafts)
            if found:
                return found
        return ""

    def _unsettled_group(self, group: GroupId, rafts: list[RaftGroup]) -> str:
        ends = {(raft.applied_index, str(raft.leader)) for raft in rafts}
        for raft in rafts:
            if not self.checks.applied_all(group, raft.applied_index):
                return f"{raft.node} has applied {group} up to {raft.applied_index} only"
        if len(ends) > 1:
            return f"the replicas of {group} differ: {sorted(ends)}"
        if not any(raft.is_ready_leader for raft in rafts):
            return f"nobody leads {group}"
        return ""

    # what the cluster group decides

    def running(self) -> list[Process]:
        """The processes that run, paused ones included."""
        return [m.process for m in self.machines.values() if m.process is not None]

    def newest_state(self) -> ClusterState:
        """What the most advanced node knows of the cluster."""
        states = [process.cluster.state for process in self.running() if process.cluster]
        return max(states, key=lambda state: state.applied_index, default=ClusterState())

    def topics_changed(self) -> None:
        """Clients publish to the topics that there are, as far as any node knows."""
        newest = self.newest_state()
        gone = [group for group in self.groups if newest.is_deleted(group.topic)]
        now = [
            GroupId(topic.id, number)
            for topic in newest.topics.values()
            for number in range(len(topic.partitions))
        ]
        self.groups = now or [group for group in self.groups if group not in gone]
        for client in self.clients:
            client.give_up(gone)

    def ask_cluster(self, command: Command, ended: Ended) -> None:
        """A command on its way to who leads the cluster group, as far as anybody knows."""
        rng = self.rng("ask")
        leaders = [
            process
            for process in self.running()
            if process.cluster and process.cluster.raft.is_leader
        ]
        asked = rng.choice(leaders or self.running() or [None])
        if asked is not None:
            asked.command(command, ended)

    # what clients and faults use

    def process(self, node: NodeId) -> Process | None:
        """The running process of a node."""
        return self.machines[node].process

    def others(self, node: NodeId) -> list[NodeId]:
        return [other for other in self.nodes if other != node]

    def leads(self, node: NodeId) -> bool:
        """Whether the node leads some group."""
        process = self.process(node)
        return process is not None and any(
            replica.raft.is_leader for replica in process.replicas.values()
        )

    def ask(self, node: NodeId, publish: Publish, delay_s: float) -> None:
        """A client's request on its way to a node; lost if that is down when it arrives."""

        def arrive() -> None:
            process = self.process(node)
            if process is not None:
                process.publish(publish)

        self.loop.call_later(delay_s, arrive)

    def kill(self, node: NodeId, *, power: bool, down_s: float) -> None:
        """End a node's process now, and start it again after a time."""
        machine = self.machines[node]
        process, machine.process = machine.process, None
        machine.trap = None
        if process is None:
            return
        self.loop.note("power" if power else "kill", node)
        process.end()
        if power:
            self._cut_power(machine)
        self.net.process_died(node, silent=power)
        self.loop.call_later(down_s, self._restart, node)

    def _cut_power(self, machine: Machine) -> None:
        machine.disk = machine.disk.power_cut(self.rng("power"), self.shape.keep)

    def _restart(self, node: NodeId) -> None:
        machine = self.machines[node]
        if machine.process is not None:
            return
        rng = self.rng("restart")
        if not self.is_quiet and rng.random() < self.shape.open_fails:
            machine.disk.die_after(rng.randrange(40))
        try:
            process = Process(self, machine)
            process.start()
        except Died:
            machine.disk.process_died()
            if rng.random() < 0.5:
                self._cut_power(machine)
            self.loop.note("died in recovery", node)
            self.loop.call_later(0.05, self._restart, node)
            return
        except LogError as error:
            self.checks.violated(f"storage: {node} can't recover: {error}")
            raise
        machine.disk.die_after(None)
        machine.process = process
        self.loop.note("start", node)
        self.net.process_started(node)

    def pause(self, node: NodeId, seconds: float) -> None:
        process = self.process(node)
        if process is not None:
            self.loop.note("pause", node)
            process.time.pause()
            self.loop.call_later(seconds, self._resume, node)

    def _resume(self, node: NodeId) -> None:
        process = self.process(node)
        if process is not None:
            process.time.resume()

    def slow_disk(self, node: NodeId, sync_s: float, seconds: float) -> None:
        speed = self.machines[node].speed
        speed.sync_s = sync_s
        self.loop.call_later(seconds, self._restore_speed, speed)

    def _restore_speed(self, speed: DiskSpeed) -> None:
        speed.sync_s = self.shape.sync_s

    def step_clock(self, node: NodeId, step_ms: int) -> None:
        """Only a minority's clocks are wrong: a majority that agrees is believed."""
        if node in self.nodes[: (len(self.nodes) - 1) // 2]:
            self.machines[node].clock_ahead_ms += step_ms

    def clock_offset_ms(self, node: NodeId) -> float | None:
        """What a node makes of the clocks that its peers tell it."""
        own = self.machines[node].clock_ahead_ms
        peers = [other for other in self.others(node) if self.net.is_up(node, other)]
        return majority_offset_ms(
            [self.machines[peer].clock_ahead_ms - own for peer in peers], len(self.nodes)
        )

    def transfer(self, node: NodeId) -> None:
        process = self.process(node)
        if process is not None and not process.time.is_paused:
            for replica in process.replicas.values():
                if replica.raft.is_ready_leader:
                    replica.raft.transfer_leadership()

    def trap_flush(self, node: NodeId, *, power: bool, delay_s: float) -> None:
        """Kill this node after its next flush has begun."""
        self.machines[node].trap = (power, delay_s)

    def flush_begun(self, node: NodeId) -> None:
        trap, self.machines[node].trap = self.machines[node].trap, None
        if trap is not None:
            power, delay_s = trap
            self._kill_later(node, power, delay_s, self.rng("traps").uniform(0.02, 0.8))

    def trap_leads(self, count: int) -> None:
        """Kill each of the next leaders, soon after it has begun to lead."""
        self._lead_traps = count

    def began_to_lead(self, node: NodeId, group: GroupId, term: Term) -> None:
        self.elections += 1
        self.checks.led(group, term, node)
        if self._figure8 is not None:
            self._figure8.began_to_lead(node, group)
        if self._lead_traps:
            self._lead_traps -= 1
            rng = self.rng("traps")
            delay_s = rng.choice((0.0, 0.01, 0.03, 0.1)) * rng.uniform(0.5, 1.5)
            self._kill_later(node, rng.random() < 0.4, delay_s, rng.uniform(0.01, 0.5))

    def follow(self, figure8: Figure8) -> None:
        """Let this script look at what happens, from now on."""
        self._figure8 = figure8
        figure8.start()

    def committed(self, node: NodeId, group: GroupId) -> None:
        if self._figure8 is not None:
            self._figure8.committed(node, group)

    def trap_votes(self, count: int) -> None:
        """Restart each of the next voters, or its link to the candidate, while the vote is told;
        and let frames come again when they are connected."""
        self._vote_traps = count

    def granted(self, node: NodeId, candidate: NodeId) -> None:
        if not self._vote_traps:
            return
        self._vote_traps -= 1
        rng = self.rng("traps")
        delay_s = rng.uniform(0.0, 2 * self.shape.sync_s + self.shape.delay_s[1])
        self.net.repeat(node)
        if rng.random() < 0.3:
            self.loop.call_later(delay_s, self.net.close, node, candidate)
        else:
            self._kill_later(node, rng.random() < 0.6, delay_s, rng.uniform(0.001, 0.02))

    def _kill_later(self, node: NodeId, power: bool, delay_s: float, down_s: float) -> None:
        def kill() -> None:
            if not self.is_quiet:
                self.kill(node, power=power, down_s=down_s)

        self.loop.call_later(delay_s, kill)

    # work that goes on all the time

    def _read(self) -> None:
        """Read indexes at all leaders, and a reader at random offsets of a random node."""
        if self.is_quiet:
            return
        rng = self.rng("read")
        reader = rng.choice(self.nodes)
        for process in self.running():
            if process.time.is_paused:
                continue
            for replica in process.replicas.values():
                replica.read_index()
                end = replica.state.next_offset
                if end and process.node == reader:
                    size = rng.choice((1, 300, 1 << 20))
                    replica.read(Offset(rng.randrange(end)), rng.choice((1, 7, 1000)), size)
        self.loop.call_later(READ_S, self._read)

    def _trim(self) -> None:
        if self.is_quiet:
            return
        for node in self.nodes:
            process = self.process(node)
            if process is not None and not process.time.is_paused:
                for replica in process.replicas.values():
                    replica.trim(self.shape.trim_keep)
        self.loop.call_later(TRIM_S, self._trim)
