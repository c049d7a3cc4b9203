"""Groups with members in a simulated cluster: who they are, and what is known of them for certain.

All partitions of all topics are consumed. Each has a ledger, every command of the cluster group is
told to a `MemberLog`; what members are told and granted is compared with both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import Command
from coordinator.commands.queue import GroupResult, PutGroup
from coordinator.groups.settings import Group
from delivery.config import QueueConfig
from delivery.entries import ops
from delivery.state.partition import PartitionState
from goqueue.wire.types import Index, NodeId, PartitionId, Term
from log.entry import Entry
from node.queue.group_admin import group_config
from tests.check.memberlog import MemberLog
from tests.check.queuemodel import Ownership
from tests.check.queuestate import compare
from tests.sim.coordinating import Beat
from tests.sim.faults import Fault
from tests.sim.managed import Ended
from tests.sim.member_life import Life
from tests.sim.member_programs import Outsider, Program
from tests.sim.queue_ledger import QueueLedger
from tests.sim.work import GroupSpec

if TYPE_CHECKING:
    from tests.sim.world import World

RETRY_S = 0.15
LATE_DEATH_S = 2.5
"""When a member dies after the last fault: everything is calm by then."""
TAKEN_OVER_S = 1.0
"""Its partitions are somebody else's so soon after its session."""
WRONG_CLOCK_S = {"clock": 2.5, "clock-drift": 1.3}
"""Log time, by which sessions are measured, may be off by this where clocks step, or drift by 30 %
for 4 s."""
SETTLED_S = 1000
"""What is due within this time is waited for in the end."""


@dataclass
class MemberGroup:
    """A group that has members."""

    name: str
    mode: str
    assignor: str
    session_s: float
    rebalance_s: float
    is_mixed: bool
    """Its members subscribe to different topics."""
    commits: bool
    id: int = 0
    programs: list[Program] = field(default_factory=list[Program])

    @property
    def settings(self) -> dict[str, object]:
        return {
            "mode": self.mode,
            "assignor": self.assignor,
            "session_timeout_ms": int(1000 * self.session_s),
            "rebalance_timeout_ms": int(1000 * self.rebalance_s),
            "visibility_ms": 2500,
            "max_attempts": 6,
        }


class MemberWork:
    """All that members do in one run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.config = QueueConfig()
        self.ledgers: dict[PartitionId, QueueLedger] = {}
        self.rng = world.rng("members")
        self.members = MemberLog(self._broken, self._owners)
        self.groups = [self._make_group(name) for name in ("work", "stream")[: self._groups()]]
        self.outsider = Outsider(self, self.groups[0], world.rng("outsider"))
        self._last = 0
        self._sticky: set[int] = set()
        self._to_die = self.rng.random() < 0.3
        self._clock_s = 0.0

    def _groups(self) -> int:
        return self.rng.choice((1, 1, 2))

    def _make_group(self, name: str) -> MemberGroup:
        rng = self.rng
        group = MemberGroup(
            name,
            mode="shared" if rng.random() < 0.1 else "exclusive",
            assignor=rng.choice(("sticky", "sticky", "sticky", "range", "roundrobin")),
            session_s=rng.choice((1.0, 1.5, 2.5)),
            rebalance_s=rng.choice((1.0, 2.0)),
            is_mixed=rng.random() < 0.3,
            commits=name == "stream",
        )
        count = rng.choice((2, 3, 4)) if name == "work" else 2
        group.programs = [
            Program(self, group, number, self.world.rng(f"program {name} {number}"))
            for number in range(count)
        ]
        return group

    def thinned(self, plan: list[Fault]) -> list[Fault]:
        """All of the plan, or some: members fail, too."""
        return plan[:: self.rng.choice((1, 2, 3))]

    def start(self) -> None:
        """Groups are made as soon as there is a topic."""
        kinds = {fault.kind for fault in self.world.plan}
        self._clock_s = max(
            (WRONG_CLOCK_S[kind] for kind in kinds & WRONG_CLOCK_S.keys()), default=0.0
        )
        self.world.loop.call_later(0.1, self._make_groups)
        if self.rng.random() < 0.3:
            self.world.loop.call_later(self.rng.uniform(2.0, 6.0), self._all_die)

    def _make_groups(self) -> None:
        world = self.world
        if not world.partition_ids:
            world.loop.call_later(0.1, self._make_groups)
            return
        for group in self.groups:
            if not group.id:
                world.ask_cluster(PutGroup(group.name, group.settings), self._made(group))
        if not all(group.id for group in self.groups):
            world.loop.call_later(RETRY_S, self._make_groups)

    def _made(self, group: MemberGroup) -> Ended:
        def made(result: object) -> None:
            if not group.id and isinstance(result, GroupResult):
                group.id = result.id
                if group.assignor == "sticky" and group.mode == "exclusive":
                    self._sticky.add(group.id)
                for program in group.programs:
                    program.start()
                if group is self.groups[0]:
                    self.outsider.start()

        return made

    def _all_die(self) -> None:
        """All members of a group at once; some come back later."""
        group = self.rng.choice(self.groups)
        for program in group.programs if not self.world.is_quiet and group.id else ():
            program.crash(self.rng.uniform(0.1, 2.0))

    def heal(self) -> None:
        """No more faults."""
        for group in self.groups:
            for program in group.programs if group.id else ():
                program.heal()
        if self._to_die:
            self.world.loop.call_later(LATE_DEATH_S, self._die_late)

    def _die_late(self) -> None:
        """One member dies though nothing else goes wrong: others have what it had, in time."""
        self._to_die = False
        lives = [
            program
            for group in self.groups
            for program in group.programs
            if not program.is_first and program.life is not None and program.life.has_joined
        ]
        if lives:
            program = self.rng.choice(lives)
            assert program.life is not None
            until_s = self.world.loop.time + program.group.session_s + TAKEN_OVER_S
            until_s += self._clock_s
            self.members.died(program.group.id, program.life.id, until_s)
            program.crash(None)

    # a `work.Work`

    def has(self, partition_id: PartitionId) -> bool:
        """Whether the partition's queue is used."""
        return True

    def known_groups(self, node: NodeId) -> list[GroupSpec]:
        """The groups as this node knows them now."""
        process = self.world.machines.process(node)
        if process is None or process.cluster is None:
            return []
        return [_spec(group) for group in process.cluster.state.groups.values()]

    def proposed(self, partition_id: PartitionId, term: Term, index: Index, seen: Index) -> None:
        """A leader has made a queue entry, having applied everything up to `seen`."""
        self._ledger(partition_id).proposed(term, index, seen)

    def applied(
        self, partition_id: PartitionId, entry: Entry, state: PartitionState, result: object
    ) -> None:
        """A replica has applied an entry."""
        self._ledger(partition_id).applied(entry, state, result)

    def held(self, partition_id: PartitionId, who: str) -> None:
        """A receive was given nothing, though something is ready and nothing is under way."""
        self._broken("G4", f"{who} was given nothing at {partition_id}, and something is ready")

    def _ledger(self, partition_id: PartitionId) -> QueueLedger:
        if partition_id not in self.ledgers:
            self.ledgers[partition_id] = QueueLedger(self._broken, lambda _group, _offset: None)
        return self.ledgers[partition_id]

    # what the cluster group decides

    def cluster_applied(self, entry: Entry, command: Command, state: ClusterState) -> None:
        """A node has applied a command; the first time is judged."""
        if entry.index <= self._last:
            return
        self._last = entry.index
        self.members.applied(
            command, state.members.by_group, self._sticky.__contains__, self.world.loop.time
        )

    def expiring(self, group: int, member: str, silent_s: float) -> None:
        """A coordinator takes a member for dead that it has not heard of for so long, or since it
        began."""
        session_s = next(known.session_s for known in self.groups if known.id == group)
        if silent_s < session_s - (self._clock_s or 0.02):
            told = f"{member} was expired after {silent_s:.2f} s, its session is {session_s} s"
            self._broken("G5", told)

    # for members

    def beat(self, node: NodeId, beat: Beat, delay_s: float) -> None:
        """A heartbeat on its way to a node."""

        def arrive() -> None:
            process = self.world.machines.process(node)
            if process is not None and process.groups is not None:
                process.time.call_soon(process.groups.beat, beat)

        self.world.loop.call_later(delay_s, arrive)

    def command(self, node: NodeId, command: Command, ended: Ended) -> None:
        """A command on its way through a node."""

        def arrive() -> None:
            process = self.world.machines.process(node)
            if process is not None and process.groups is not None:
                process.time.call_soon(process.groups.command, command, ended)

        self.world.loop.call_later(0.001, arrive)

    def joined(self, life: Life, generation: int) -> None:
        """A member is in its group."""
        self.world.loop.note("joined", life.id, generation)

    def told(self, life: Life, assigned: list[PartitionId]) -> None:
        """A member takes these to be its own."""
        self.world.loop.note("told", life.id, life.generation, *[p.partition for p in assigned])
        if life.group.mode != "shared":
            self.members.told(life.group.id, life.id, life.generation, assigned)

    def right(self, group: int, partition: PartitionId, member: str, generation: int) -> int | None:
        """Which owner entry lets it act in the partition; None where it may not."""
        owner = self._owner(group, partition)
        if owner is None or not owner.may(member, generation):
            return None
        return len(owner.known)

    def refused(
        self, group: int, partition: PartitionId, claim: tuple[str, int], right: int | None
    ) -> None:
        """Somebody was refused as stale, who had this right when it asked."""
        if right is not None and self.right(group, partition, *claim) == right:
            self._broken("G4", f"{claim} was refused at {partition}, which is its own")

    def told_granted(
        self, group: int, partition: PartitionId, delivery: int, offsets: list[int]
    ) -> None:
        """A client was given messages: their delivery has applied."""
        for offset in offsets:
            if (group, delivery, offset) not in self._ledger(partition).log.granted:
                self._broken("G2", f"{offset} of {partition} was given, and not delivered")

    def told_settled(
        self, partition: PartitionId, op: ops.Settled, result: ops.SettledResult
    ) -> None:
        """A client was told how its settle ended."""
        receipts = [(delivery, o) for delivery, offsets in op.deliveries for o in offsets]
        settled = self._ledger(partition).log.settled
        for (delivery, offset), found in zip(receipts, result.settles, strict=True):
            if found.code == ops.OK and (op.group, delivery, offset, op.action) not in settled:
                self._broken("G2", f"settle {op.action} of {offset} was answered, and not done")

    def _owner(self, group: int, partition: PartitionId) -> Ownership | None:
        known = self._ledger(partition).log.groups.get(group)
        return None if known is None else known.owner

    def _owners(self, group: int, partition: PartitionId) -> Iterable[tuple[str, int]]:
        owner = self._owner(group, partition)
        return () if owner is None else owner.known

    # the end

    def unsettled(self) -> str:
        """What is still to be done, in words."""
        if self._to_die:
            return "a member is to die yet"
        self.members.overdue(self.world.loop.time)
        state = self.world.newest_state()
        for group in self.groups:
            known = state.group_of(group.id)
            if known is None:
                return f"group {group.name} is not there"
            membership = state.members.of(known)
            lives = {p.life.id: p.life for p in group.programs if p.life is not None}
            if membership.state != "stable" or set(membership.members) != set(lives):
                return f"group {group.name} is {membership.state} with {list(membership.members)}"
            for life in lives.values():
                if not life.is_idle:
                    return f"{life} is busy"
                held = {h.partition for h in membership.holdings.of(life.id)}
                if group.mode != "shared" and held != set(life.shares):
                    return f"{life} has {sorted(held)}, and takes {sorted(life.shares)} to be its"
            if group.mode != "shared" and set(membership.holdings) != set(self.world.partition_ids):
                return f"group {group.name} has {sorted(membership.holdings)} only"
            for partition in self.world.partition_ids:
                pending = self._pending(group, partition)
                if pending is None or pending:
                    return f"group {group.name} has not settled {pending} of {partition}"
        return ""

    def _pending(self, group: MemberGroup, partition: PartitionId) -> list[int] | None:
        """None where the group is not open."""
        log = self._ledger(partition).log
        known = log.groups.get(group.id)
        return None if known is None else log.pending(known, log.time_ms + SETTLED_S)[:5]

    def judge(self, states: dict[tuple[NodeId, PartitionId], PartitionState]) -> None:
        """Everything is settled: compare all replicas with the model."""
        for (node, partition), state in states.items():
            told = f"{node} {partition}"
            for rule, text in compare(self._ledger(partition).log, told, state.queue.groups):
                self._broken(rule, text)

    @property
    def deliveries(self) -> int:
        return sum(len(ledger.log.granted) for ledger in self.ledgers.values())

    @property
    def settles(self) -> int:
        return sum(len(ledger.log.settled) for ledger in self.ledgers.values())

    def _broken(self, rule: str, text: str) -> None:
        self.world.checks.violated(f"{rule}: {text}")


@lru_cache(maxsize=256)
def _spec(group: Group) -> GroupSpec:
    return GroupSpec(group.id, group.name, group_config(group), group.version)
