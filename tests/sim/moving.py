"""Replicas that come and go at a simulated node: the production mover where the cluster group is
led, what partitions' leaders see and do, and who takes part in the cluster group itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from coordinator.commands.placement import PlacementCommand, ReplicasChanged, Reported
from coordinator.placement.cluster_steps import cluster_step
from coordinator.placement.mover import Ask, Limits, Mover
from coordinator.placement.steps import ADD_LEARNER, CONFIRM, PROMOTE, TRANSFER, Seen, Step
from coordinator.topics.partitions import Configuration
from goqueue.wire.errors import GoQueueError, Timeout
from goqueue.wire.types import CLUSTER_GROUP, Index, NodeId, PartitionId, Voter
from node.replicas.local import ReplicasOf
from node.replicas.orphans import OrphanReplicas
from raft.configuration import AddLearner, Change, Confirm, Promote, Remove
from raft.errors import NotLeader, Outcome
from raft.group import RaftGroup
from tests.sim import rpc

if TYPE_CHECKING:
    from tests.sim.managed import ClusterReplica
    from tests.sim.process import Process
    from tests.sim.replica import Replica

LOOK_S = 0.1
MEMBERS_S = 0.2
TELL_S = 0.3
STRAYS_S = 0.7
ASK_S, STEP_S = 0.6, 2.0
LIMITS = Limits(moves_max=2, leaders_pause_ms=1500)


class Counted:
    """Replicas of which those that go because nobody names them are counted."""

    def __init__(self, process: Process, replicas: ReplicasOf[Replica]) -> None:
        self._process = process
        self._retire = replicas.retire
        self.orphans, self.find = replicas.orphans, replicas.find

    def retire(self, partition_id: PartitionId) -> None:
        self._process.world.orphans += 1
        self._retire(partition_id)


class Moving:
    """One node's part in moves."""

    def __init__(self, process: Process, cluster: ClusterReplica) -> None:
        self._process = process
        self._cluster = cluster
        self._mover: Mover | None = None
        self._present_s: dict[NodeId, float] = {}
        self._led_since_s = 0.0
        self._changing = False
        assert process.registry is not None
        self._orphans = OrphanReplicas(
            process.voter,
            Counted(process, process.registry.replicas),
            lambda: cluster.state,
            self._ask_leader,
            look_s=STRAYS_S,
        )

    def start(self) -> None:
        """Look at what is to be done, for as long as the process lives."""
        self._again(LOOK_S, self._look)
        self._again(MEMBERS_S, self._look_at_members)
        self._again(TELL_S, self._tell)
        self._process.coroutines.start(self._orphans.start(), _nothing)

    def lead(self) -> None:
        """This node leads the cluster group: whatever another mover did, this one asks anew."""
        self._mover = self._process.world.mutant.mover(lambda: self._cluster.state.layout, LIMITS)
        self._present_s, self._led_since_s = {}, self._process.time.now()
        self._changing = False

    def follow(self) -> None:
        self._mover = None

    def _again(self, delay_s: float, look: Callable[[], None]) -> None:
        def run() -> None:
            look()
            self._process.time.call_later(delay_s, run)

        self._process.time.call_later(delay_s, run)

    # where the cluster group is led

    def _look(self) -> None:
        mover = self._mover
        if mover is None or not self._cluster.is_ready_leader:
            return
        work = mover.collect(self._now_ms())
        for command in work.commands:
            self._propose(mover, command)
        for ask in work.asks:
            self._ask(mover, ask)
        for step in work.steps:
            self._step(mover, step)

    def _now_ms(self) -> int:
        return self._cluster.now_ms()

    def _propose(self, mover: Mover, command: PlacementCommand) -> None:
        def ended(result: object) -> None:
            applied = result is not None and not isinstance(result, GoQueueError)
            mover.answered(command, self._now_ms(), applied=applied)

        self._cluster.command(command, ended)

    def _ask(self, mover: Mover, ask: Ask) -> None:
        def ended(answer: object) -> None:
            mover.seen(
                ask.partition_id, answer if isinstance(answer, Seen) else None, self._now_ms()
            )

        def serve(process: Process, reply: rpc.Reply) -> None:
            assert process.moving is not None
            reply(process.moving.seen_of(ask.partition_id))

        rpc.call(self._process, self._leader_of(ask.partition_id), serve, ended, ASK_S)

    def _step(self, mover: Mover, step: Step) -> None:
        def ended(answer: object) -> None:
            mover.stepped(step, answer if isinstance(answer, Seen) else None, self._now_ms())

        def serve(process: Process, reply: rpc.Reply) -> None:
            assert process.moving is not None
            process.moving.take(step, reply)

        rpc.call(self._process, self._leader_of(step.partition_id), serve, ended, STEP_S)

    def _leader_of(self, partition_id: PartitionId) -> NodeId:
        """Who leads, as far as this node knows, now and then; else who does, or may. A replica that
        has no vote is believed as `node.replicas.topology.Topology` believes it."""
        world, replica = self._process.world, self._process.replicas.get(partition_id)
        known = None if replica is None else replica.raft.leader
        if (
            replica is not None
            and replica.raft.is_learner
            and not replica.raft.voting.hears_leader()
        ):
            known = None
        if known is not None and world.rng("moving").random() < 0.5:
            return known
        holders = [voter.node for voter in self._cluster.state.layout.holders(partition_id)]
        led = [node for node in holders if world.machines.leads_partition(node, partition_id)]
        return world.rng("moving").choice(led or holders or [self._process.node])

    # where a partition is led

    def seen_of(self, partition_id: PartitionId) -> Seen | None:
        """What this node sees, where it leads."""
        replica = self._process.replicas.get(partition_id)
        return None if replica is None or not replica.raft.is_leader else self._seen(replica.raft)

    def _seen(self, raft: RaftGroup) -> Seen:
        return self._process.world.mutant.sees(self._truth(raft))

    def _truth(self, raft: RaftGroup) -> Seen:
        hasty = self._process.world.mutant.hasty
        known = raft.membership.configuration if hasty else raft.membership.before
        return Seen(
            Configuration(known.index, known.voters, known.learners, known.epoch),
            self._process.node,
            frozenset(
                v.node
                for v in known.voters
                if self._is_there(v) and raft.replication.in_step(v.node)
            ),
            frozenset(
                v.node
                for v in known.learners
                if self._is_there(v) and raft.replication.caught_up(v.node)
            ),
            not (raft.membership.is_committed and raft.is_ready_leader) and not hasty,
            term=raft.term,
        )

    def _is_there(self, voter: Voter) -> bool:
        """Whether it is connected with the very data directory that is meant."""
        if voter.node == self._process.node:
            return voter == self._process.voter
        peer = self._process.world.machines.process(voter.node)
        up = self._process.world.net.is_up(self._process.node, voter.node)
        return up and peer is not None and peer.voter == voter

    def take(self, step: Step, reply: rpc.Reply) -> None:
        """As the partition's leader: the step, or not; what is seen when it has ended."""
        seen = self.seen_of(step.partition_id)
        if seen is None:
            reply(None)
        elif self._process.world.mutant.refusal(step, seen) is not None:
            reply(seen)
        else:
            raft = self._process.replicas[step.partition_id].raft
            self._do(raft, step, self._truth(raft), partial(self._answer, step.partition_id, reply))

    def _answer(self, partition_id: PartitionId, reply: rpc.Reply) -> None:
        reply(self.seen_of(partition_id))

    def _do(self, raft: RaftGroup, step: Step, truth: Seen, ended: Callable[[], None]) -> None:
        self._process.world.loop.note(
            "step", step.kind, step.partition_id.partition, step.voter.node
        )
        if step.kind == TRANSFER:
            raft.transfer.start(step.voter.node, lambda _ok: ended())
            return

        def changed(outcome: Outcome, _result: object, _index: Index) -> None:
            self._process.world.changes += outcome is Outcome.APPLIED
            ended()

        try:
            raft.changes.change(_change(step), changed, epoch=step.epoch)
        except (GoQueueError, NotLeader):
            ended()
        else:
            self._process.world.checks.stepped(self._process.node, step, truth)
            voters = raft.membership.before.voters
            self._process.world.traps.changing(
                self._process.node, step, [voter.node for voter in voters]
            )
            if self._process.world.mutant.hasty:
                ended()

    def _tell(self) -> None:
        """The cluster group's leader is told of replicas that it does not know."""
        for partition_id, replica in self._process.replicas.items():
            known = self._cluster.state.layout.configuration(partition_id)
            raft = replica.raft
            if known is None or not raft.is_ready_leader:
                continue
            if known.index < raft.membership.before.index:
                self._tell_leader(partition_id, self._seen(raft))

    def _tell_leader(self, partition_id: PartitionId, seen: Seen) -> None:
        def serve(process: Process, reply: rpc.Reply) -> None:
            assert process.moving is not None
            process.moving.told(partition_id, seen)
            reply(True)

        leader = self._cluster.leader
        if leader is not None:
            rpc.call(self._process, leader, serve, _nothing, ASK_S)

    def told(self, partition_id: PartitionId, seen: Seen) -> None:
        """What a partition's leader tells unasked."""
        if self._mover is not None:
            self._mover.told(partition_id, seen)

    # replicas that nobody names

    async def _ask_leader(self, partition_id: PartitionId) -> Seen:
        """What a partition's leader sees."""
        told: asyncio.Future[object] = self._process.coroutines.create_future()

        def serve(process: Process, reply: rpc.Reply) -> None:
            assert process.moving is not None
            reply(process.moving.seen_of(partition_id))

        rpc.call(self._process, self._leader_of(partition_id), serve, told.set_result, ASK_S)
        answer = await told
        if not isinstance(answer, Seen):
            raise Timeout(f"nobody tells of {partition_id}")
        return answer

    # the cluster group itself

    def _look_at_members(self) -> None:
        raft, state = self._cluster.raft, self._cluster.state
        if raft is None or not raft.is_ready_leader or self._changing:
            return
        now_s = self._process.time.now()
        for broker in state.brokers.values():
            if self._is_there(broker.voter):
                self._present_s[broker.node] = now_s
        seen = self._cluster_seen(raft)
        if seen.busy:
            return
        known = state.layout.configuration(CLUSTER_GROUP)
        now = seen.configuration
        if known is None or known.index < now.index:
            row = Reported(0, 0, now.index, now.voters, now.learners)
            self._cluster.command(ReplicasChanged([row]), _nothing)
            return
        members_of = self._process.world.mutant.cluster_members
        members = members_of(state.layout.brokers, now.voters, self._away_ms)
        step = cluster_step(members, seen)
        if isinstance(step, Step) and self._process.world.mutant.refusal(step, seen) is None:
            self._changing = True
            self._process.time.call_later(STEP_S, self._changed)
            self._do(raft, step, seen, self._changed)

    def _changed(self) -> None:
        self._changing = False

    def _away_ms(self, node: NodeId) -> int:
        """Sped up: who is away for two seconds is replaced as if it were for many minutes."""
        seen_s = self._present_s.get(node, self._led_since_s)
        return round((self._process.time.now() - seen_s) * 300_000)

    def _cluster_seen(self, raft: RaftGroup) -> Seen:
        known, matches, committed = (
            raft.membership.configuration,
            raft.replication.matches(),
            raft.commit_index,
        )
        return Seen(
            Configuration(known.index, known.voters, known.learners),
            self._process.node,
            frozenset(
                voter.node
                for voter in known.voters
                if self._is_there(voter) and matches.get(voter.node, 0) >= committed
            ),
            frozenset(
                one.node
                for one in known.learners
                if self._is_there(one) and raft.replication.caught_up(one.node)
            ),
            busy=not (raft.is_ready_leader and raft.membership.is_committed)
            and not self._process.world.mutant.hasty,
        )


def _change(step: Step) -> Change:
    if step.kind == ADD_LEARNER:
        return AddLearner(step.voter)
    if step.kind == CONFIRM:
        return Confirm()
    return Promote(step.voter.node) if step.kind == PROMOTE else Remove(step.voter.node)


def _nothing(_result: object) -> None:
    return None
