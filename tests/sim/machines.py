"""The machines of a simulated cluster: what is done to their processes, disks and clocks."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from goqueue.wire.types import NodeId, PartitionId
from log.errors import LogError
from raft.log_time import majority_offset_ms
from tests.sim.disk import ROOM, Died, DiskSpeed, SimDisk
from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.world import World

STARTS_AGAIN_S = 0.05
"""A process that died while it recovered is started again after this."""


@dataclass
class Machine:
    """A node's hardware; `process` is None while it is down."""

    node: NodeId
    disk: SimDisk
    speed: DiskSpeed
    process: Process | None = None
    clock_ahead_ms: float = 0.0
    """What its clock was ahead by at `clock_at_s`."""
    clock_rate: float = 0.0
    """What it gains in a second since, in seconds."""
    clock_at_s: float = 0.0
    is_lost: bool = False
    """It is down, and does not come back."""
    is_wiped: bool = False
    """It came back with an empty disk: no voter any more, whatever its name says."""

    def ahead_ms(self, now_s: float) -> int:
        """What its clock is ahead by now."""
        return int(self.clock_ahead_ms + 1000 * self.clock_rate * (now_s - self.clock_at_s))

    def set_aside(self, world: World) -> None:
        """Its write-ahead log is damaged: it begins anew, under another incarnation."""
        world.loop.note("set aside", self.node)
        world.set_aside += 1
        self.is_wiped = not world.shape.moving

    def set_clock(self, now_s: float, *, step_ms: int = 0, rate: float | None = None) -> None:
        """It steps, or goes on at another rate."""
        self.clock_ahead_ms = self.ahead_ms(now_s) + step_ms
        self.clock_at_s = now_s
        self.clock_rate = self.clock_rate if rate is None else rate


class Machines:
    """All machines of one cluster, by node."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._victim: NodeId | None = None
        """The one node whose disk loses what it held."""
        self._machines = {node: self._machine(node) for node in world.nodes}

    def __getitem__(self, node: NodeId) -> Machine:
        return self._machines[node]

    def start_all(self) -> None:
        """The founders' processes for the first time: they know each other's data directories."""
        world = self._world
        for machine in list(self._machines.values())[: world.shape.founders]:
            machine.process = Process(world, machine)
            world.voters.append(machine.process.voter)
        for process in self.running():
            process.start()
            world.net.process_started(process.node)

    def heal(self) -> None:
        """All processes run, and no disk is slow."""
        for machine in self._machines.values():
            machine.disk.heal()
            self._restore_speed(machine.speed)
            self._right_clock(machine.node)
            self._resume(machine.node)
            self._restart(machine.node)

    def process(self, node: NodeId) -> Process | None:
        """The running process of a node."""
        return self._machines[node].process

    def leads(self, node: NodeId) -> bool:
        """Whether the node leads some group."""
        process = self.process(node)
        return process is not None and any(raft.is_leader for raft in process.rafts())

    def leads_partition(self, node: NodeId, partition_id: PartitionId) -> bool:
        """Whether the node leads this group."""
        process = self.process(node)
        return process is not None and any(
            raft.id == partition_id and raft.is_leader for raft in process.rafts()
        )

    def bring_up(self, node: NodeId) -> None:
        """Start a node's process, if it does not run."""
        self._restart(node)

    def running(self) -> list[Process]:
        """The processes that run, paused ones included."""
        return [m.process for m in self._machines.values() if m.process is not None]

    def kill(self, node: NodeId, *, power: bool, down_s: float) -> None:
        """End a node's process now, and start it again after a time."""
        power = power and not self._world.relaxed.spares_power()
        machine = self._machines[node]
        process, machine.process = machine.process, None
        if process is None:
            return
        self._world.loop.note("power" if power else "kill", node)
        process.end()
        if power:
            self._cut_power(machine)
        self._world.net.process_died(node, silent=power)
        self._world.loop.call_later(down_s, self._restart, node)

    def _cut_power(self, machine: Machine) -> None:
        machine.disk = machine.disk.power_cut(self._world.rng("power"), self._world.shape.keep)
        self._world.relaxed.power_went(machine.node)

    def _restart(self, node: NodeId) -> None:
        machine = self._machines[node]
        if machine.process is not None or machine.is_lost:
            return
        rng = self._world.rng("restart")
        if not self._world.is_quiet and rng.random() < self._world.shape.open_fails:
            machine.disk.die_after(rng.randrange(40))
        process = None
        try:
            process = Process(self._world, machine)
            process.start()
        except (Died, OSError) as error:
            if process is not None:
                process.time.kill()
            machine.disk.process_died()
            cut = isinstance(error, Died) and rng.random() < 0.5
            if cut and not self._world.relaxed.spares_power():
                self._cut_power(machine)
            self._world.loop.note("died in recovery", node)
            self._world.loop.call_later(STARTS_AGAIN_S, self._restart, node)
            return
        except LogError as error:
            self._world.checks.violated(f"storage: {node} can't recover: {error}")
            raise
        machine.disk.die_after(None)
        machine.process = process
        self._world.loop.note("start", node)
        self._world.net.process_started(node)

    def wipe(self, node: NodeId, down_s: float) -> None:
        """Kill a node, and bring it back with an empty disk; only one in a run, and none that a
        majority can't do without. It is let in again where replicas come and go."""
        if self._victim not in (None, node) or self._machines[node].is_wiped:
            return
        if self._partitions_of_two(node) or self._world.relaxed.spares_disks():
            return
        self.kill(node, power=True, down_s=down_s)
        machine = self._machines[node]
        if machine.process is None:
            self._world.loop.note("wipe", node)
            machine.disk = self._disk()
            machine.is_wiped = not self._world.shape.moving
            self._victim = node

    def lose(self, node: NodeId) -> bool:
        """Kill a node for good, where no other one has lost anything in this run; whether it is."""
        if self._victim not in (None, node) or self._world.relaxed.spares_disks():
            return False
        self._victim = node
        self._machines[node].is_lost = True
        self.kill(node, power=True, down_s=0.0)
        self._world.loop.note("lost", node)
        return True

    def find(self, node: NodeId) -> None:
        """A node that was lost is there again."""
        self._machines[node].is_lost = False
        self._restart(node)

    @property
    def victim(self) -> NodeId | None:
        """Whose disk has lost what it held, or may yet."""
        return self._victim

    def victim_is_unknown(self) -> bool:
        """Whether a broker was wiped that comes back, and the cluster group does not know it yet as
        what it is now. One that was removed is not let in again."""
        node, moves = self._victim, self._world.moves
        if node is None or moves is None or self._machines[node].is_lost:
            return False
        if moves.removing.is_gone(node):
            return False
        process, known = self.process(node), self._world.newest_state().brokers.get(node)
        return process is None or known is None or known.voter != process.voter

    def is_victim(self, node: NodeId) -> bool:
        """Whether its disk loses what it held."""
        return node == self._victim

    def wiped(self) -> list[NodeId]:
        return [node for node, machine in self._machines.items() if machine.is_wiped]

    def pause(self, node: NodeId, seconds: float) -> None:
        process = self.process(node)
        if process is not None:
            self._world.loop.note("pause", node)
            process.time.pause()
            self._world.loop.call_later(seconds, self._resume, node)

    def _resume(self, node: NodeId) -> None:
        process = self.process(node)
        if process is not None:
            process.time.resume()

    def slow_disk(self, node: NodeId, sync_s: float, seconds: float) -> None:
        speed = self._machines[node].speed
        speed.sync_s = sync_s
        self._world.loop.call_later(seconds, self._restore_speed, speed)

    def _restore_speed(self, speed: DiskSpeed) -> None:
        speed.sync_s = self._world.shape.sync_s

    def fill_disk(self, node: NodeId, room_bytes: int, seconds: float) -> None:
        """Another program leaves this much room, for a time."""
        disk = self._machines[node].disk
        disk.capacity = disk.used_bytes() + room_bytes
        self._world.loop.call_later(seconds, self._empty_disk, node)

    def _empty_disk(self, node: NodeId) -> None:
        self._machines[node].disk.capacity = ROOM

    def fail_disk(self, node: NodeId, operation: str) -> None:
        """The disk fails once, at its next operation of this name."""
        if self._world.relaxed.spares_power():
            return
        self._world.loop.note("disk fails", node, operation)
        self._machines[node].disk.fail_soon(operation, errno.EIO)

    def damage(self, node: NodeId, rng: random.Random, *, of_cluster: bool = False) -> None:
        """Change bytes of files at rest, on one node only in a run. What that costs a node may be
        the end of a log, or all it has: what a majority can't do without is spared."""
        node = self._victim or node
        if self._world.shape.relaxed or self._machines[node].is_wiped:
            return
        path = self._machines[node].disk.damage(
            rng, spared=self._partitions_of_two(node), of_cluster=of_cluster
        )
        if path is not None:
            self._victim = node
            self._world.loop.note("damage", node, path)
            self._world.damaged[path.rpartition(".")[2]] += 1

    def _partitions_of_two(self, node: NodeId) -> set[PartitionId]:
        """Those whose majority can't do without it."""
        moves = self._world.moves
        return set() if moves is None else moves.removing.partitions_of_two(node)

    def step_clock(self, node: NodeId, step_ms: int) -> None:
        """Only a minority's clocks are wrong: a majority that agrees is believed."""
        if self._may_be_wrong(node):
            self._machines[node].set_clock(self._world.loop.time, step_ms=step_ms)

    def drift_clock(self, node: NodeId, rate: float, seconds: float) -> None:
        """A clock of that minority runs fast or slow for a time."""
        if self._may_be_wrong(node):
            self._machines[node].set_clock(self._world.loop.time, rate=rate)
            self._world.loop.call_later(seconds, self._right_clock, node)

    def _right_clock(self, node: NodeId) -> None:
        self._machines[node].set_clock(self._world.loop.time, rate=0.0)

    def _may_be_wrong(self, node: NodeId) -> bool:
        return node in self._world.nodes[: (len(self._world.nodes) - 1) // 2]

    def clock_offset_ms(self, node: NodeId) -> float | None:
        """What a node makes of the clocks that its peers tell it."""
        now_s = self._world.loop.time
        own = self._machines[node].ahead_ms(now_s)
        peers = [other for other in self._world.others(node) if self._world.net.is_up(node, other)]
        return majority_offset_ms(
            [self._machines[peer].ahead_ms(now_s) - own for peer in peers], len(self._world.nodes)
        )

    def transfer(self, node: NodeId) -> None:
        process = self.process(node)
        if process is not None and not process.time.is_paused:
            for raft in process.rafts():
                if raft.is_ready_leader:
                    raft.transfer.start()

    def _machine(self, node: NodeId) -> Machine:
        return Machine(node, self._disk(), DiskSpeed(sync_s=self._world.shape.sync_s))

    def _disk(self) -> SimDisk:
        disk = SimDisk()
        disk.lies = self._world.mutant.disk_lies
        disk.hides = self._world.mutant.disk_hides
        return disk
