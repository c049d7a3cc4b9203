"""Members of groups at a simulated node: the production coordinator where the cluster group is led,
and what any node answers its members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.commands.codec import Command, encode_command
from coordinator.commands.members import ExpireMembers, LetGo, MemberCommand, Partition
from coordinator.groups.coordinator import Drain, GroupCoordinator, Naming
from coordinator.groups.membership import MemberView
from delivery.entries.ops import Own, OwnedResult
from goqueue.wire.errors import GoQueueError, UnknownMember
from goqueue.wire.types import Index, NodeId, PartitionId
from log.entry import EntryKind
from raft.errors import NotLeader, Outcome
from tests.sim import rpc
from tests.sim.loop import Timer
from tests.sim.queue_requests import Ask, Done

if TYPE_CHECKING:
    from tests.sim.managed import ClusterReplica
    from tests.sim.process import Process

LOOK_S = 0.25
"""The time between two looks at most, as in a node."""
STOOD_STILL_S = 1.0
RPC_S = 0.6
"""How long a node waits for another one."""


@dataclass(slots=True)
class Beat:
    """A member's heartbeat at some node; waits up to `wait_s` for another revision. `reply` is
    called with `Told` or an error, or never."""

    group: int
    member: str
    revision: str
    wait_s: float
    let_go: list[Partition]
    reply: Callable[[object], None]


@dataclass(frozen=True, slots=True)
class Told:
    """What a member is told, and which partitions that are."""

    view: MemberView
    places: dict[tuple[str, int], PartitionId]


class Coordinating:
    """One node's part in the groups."""

    def __init__(self, process: Process, cluster: ClusterReplica) -> None:
        self._process = process
        self._cluster = cluster
        self._coordinator: GroupCoordinator | None = None
        self._heard_s: dict[tuple[int, str], float] = {}
        """As the checks know it."""
        self._began_s = self._looked_s = 0.0
        self._planned = False
        self._timer: Timer | None = None
        self._waiting: list[tuple[Beat, float]] = []

    # leadership

    def lead(self) -> None:
        """This node leads the cluster group: sessions begin at their full length."""
        members = self._process.world.mutant.coordinator
        self._coordinator = members(lambda: self._cluster.state.members.by_group)
        self._heard_s = {}
        self._began_s = self._looked_s = self._process.time.now()
        self.look_soon()

    def follow(self) -> None:
        self._coordinator = None

    def changed(self) -> None:
        """The cluster's state has changed."""
        self.look_soon()
        self._tell()

    # coordinating

    def look_soon(self) -> None:
        if self._coordinator is not None and not self._planned:
            self._planned = True
            self._process.time.call_soon(self._look)

    def _look(self) -> None:
        self._planned = False
        coordinator = self._coordinator
        if coordinator is None or not self._cluster.is_ready_leader:
            return
        now_ms = self._cluster.now_ms()
        self._listen_anew_if_late(coordinator, now_ms)
        work = coordinator.collect(now_ms)
        for command in work.commands:
            self._propose(coordinator, command)
        for naming in work.namings:
            self._name(coordinator, naming)
        for drain in work.drains:
            self._drain(coordinator, drain)
        wake_ms = coordinator.next_wake_ms(now_ms)
        if self._timer is not None:
            self._timer.cancel()
        wait_s = LOOK_S if wake_ms is None else min(LOOK_S, max(0.005, (wake_ms - now_ms) / 1000))
        self._timer = self._process.time.call_later(wait_s, self.look_soon)

    def _listen_anew_if_late(self, coordinator: GroupCoordinator, now_ms: int) -> None:
        """As a node does that stood still: it cannot tell whether members were silent."""
        now_s = self._process.time.now()
        late = now_s - self._looked_s > LOOK_S + STOOD_STILL_S
        self._looked_s = now_s
        for group, membership in self._cluster.state.members.by_group.items() if late else ():
            for member in membership.members:
                coordinator.heard(group, member, now_ms)

    def _propose(self, coordinator: GroupCoordinator, command: MemberCommand) -> None:
        if isinstance(command, ExpireMembers):
            self._judge_expiry(command)

        def ended(result: object) -> None:
            applied = result is not None
            coordinator.answered(command, self._cluster.now_ms(), applied=applied)
            self.look_soon()

        self.command_here(command, ended)

    def _judge_expiry(self, command: ExpireMembers) -> None:
        work, now_s = self._process.world.members, self._process.time.now()
        assert work is not None
        for member, _ in command.members:
            heard_s = self._heard_s.get((command.group_id, member), self._began_s)
            work.expiring(command.group_id, member, now_s - heard_s)

    def _name(self, coordinator: GroupCoordinator, naming: Naming) -> None:
        def ended(answer: object) -> None:
            owner = None
            if isinstance(answer, Done) and isinstance(answer.result, OwnedResult):
                owner = (answer.result.member, answer.result.generation, answer.result.ended)
            coordinator.named(naming, owner, self._cluster.now_ms())
            self.look_soon()

        op = Own(naming.group, naming.member, naming.generation, naming.fence)
        self._process.front.ask(Ask(naming.partition, ended, op=op))

    def _drain(self, coordinator: GroupCoordinator, drain: Drain) -> None:
        def ended(answer: object) -> None:
            in_flight = answer if isinstance(answer, int) else None
            coordinator.drained(drain, in_flight, self._cluster.now_ms())
            self.look_soon()

        def serve(process: Process, reply: rpc.Reply) -> None:
            replica = process.replicas.get(drain.partition)
            if replica is None or not replica.raft.is_ready_leader:
                reply(None)
                return
            group = replica.state.queue.groups.get(drain.group)
            leases = [] if group is None else [group.leases.get(o) for o in group.leases]
            reply(sum(lease is not None and lease.member == drain.member for lease in leases))

        rpc.call(self._process, self._leader_of(drain.partition), serve, ended, RPC_S)

    def _leader_of(self, partition: PartitionId) -> NodeId:
        """Who leads, as far as this node knows; else one of the replicas."""
        replica = self._process.replicas.get(partition)
        known = None if replica is None else replica.raft.leader
        if known is not None:
            return known
        placed = self._cluster.state.placement(partition)
        nodes = [voter.node for voter in placed.replicas] if placed else [self._process.node]
        return self._process.world.rng("coordinating").choice(nodes)

    # for members, at any node

    def command_here(self, command: Command, ended: rpc.Reply) -> None:
        """Replicate a command as leader: its result, the error that refused it, or None."""

        def answered(outcome: Outcome, result: object, _index: Index) -> None:
            ended(result if outcome is Outcome.APPLIED else None)

        raft = self._cluster.raft
        if raft is None:
            ended(None)
            return
        try:
            body = encode_command(command)
            raft.propose(EntryKind.COMMAND, body, callback=answered)
        except NotLeader:
            ended(None)

    def command(self, command: Command, ended: rpc.Reply) -> None:
        """The same from any node."""

        def serve(process: Process, reply: rpc.Reply) -> None:
            assert process.groups is not None
            process.groups.command_here(command, reply)

        self._ask_leader(serve, ended)

    def beat(self, beat: Beat) -> None:
        """Take a heartbeat: let go, be heard of, and tell what has changed."""

        def let_go(result: object) -> None:
            if isinstance(result, GoQueueError):
                beat.reply(result)
            elif result is not None:
                self._be_heard(beat)

        if beat.let_go:
            self.command(LetGo(beat.group, beat.member, beat.let_go), let_go)
        else:
            self._be_heard(beat)

    def _be_heard(self, beat: Beat) -> None:
        def serve(process: Process, reply: rpc.Reply) -> None:
            assert process.groups is not None
            reply(process.groups.heard(beat.group, beat.member))

        def ended(known: object) -> None:
            if known is False:
                beat.reply(UnknownMember(str(beat.group), beat.member))
            elif known:
                now_s = self._process.time.now()
                self._waiting.append((beat, now_s + beat.wait_s))
                self._process.time.call_later(beat.wait_s, self._tell)
                self._tell()

        self._ask_leader(serve, ended)

    def heard(self, group: int, member: str) -> bool | None:
        """As leader: a sign of life; whether there is such a member. None of who does not lead."""
        coordinator = self._coordinator
        if coordinator is None or not self._cluster.is_ready_leader:
            return None
        known = coordinator.heard(group, member, self._cluster.now_ms())
        if known:
            self._heard_s[group, member] = self._process.time.now()
        return known

    def _tell(self) -> None:
        """Answer the heartbeats that have waited long enough, or for something."""
        now_s, waiting, self._waiting = self._process.time.now(), self._waiting, []
        for beat, until_s in waiting:
            told = self._view(beat)
            if told is not None and (told.view.revision != beat.revision or now_s >= until_s):
                beat.reply(told)
            elif now_s < until_s or (told is None and now_s < until_s + RPC_S):
                self._waiting.append((beat, until_s))

    def _view(self, beat: Beat) -> Told | None:
        """None where this node has yet to learn of the member."""
        state = self._cluster.state
        group = state.group_of(beat.group)
        if group is None or beat.member not in state.members.of(group).members:
            return None
        view = state.members.view(group, beat.member)
        places = {
            (topic, number): PartitionId(state.topics[topic].id, number)
            for topic, number in (*view.assigned, *view.revoking)
        }
        return Told(view, places)

    def _ask_leader(self, serve: rpc.Serve, ended: rpc.Reply) -> None:
        leader = self._cluster.leader
        if leader is not None:
            rpc.call(self._process, leader, serve, ended, RPC_S)
