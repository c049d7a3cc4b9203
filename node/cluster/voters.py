"""Who takes part in the cluster group, kept as it should be where the group is led.

Every registered broker follows it, and the electorate votes: see
`coordinator.placement.cluster_steps`. One step is taken after the other, each only once the one
before has committed; a leader that comes later goes on from what the log says. What has committed
is noted in the cluster's state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.commands.placement import ReplicasChanged, Reported
from coordinator.placement.cluster_steps import cluster_members, cluster_step
from coordinator.placement.steps import ADD_LEARNER, PROMOTE, TRANSFER, Seen, Step, refusal
from coordinator.topics.partitions import Configuration
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import CLUSTER_GROUP, NodeId
from node.cluster.host import ClusterHost
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic
from raft.configuration import AddLearner, Change, Promote, Remove
from raft.errors import Outcome
from raft.group import RaftGroup

TICK_S = 0.2
"""Between steps, and between two looks after one."""
IDLE_S = 0.6
"""Between looks while nothing is to be done, and where the group is not led."""
STEP_TIMEOUT_S = 5.0
NOTE_TIMEOUT_S = 5.0

_log = get_logger("cluster")


class ClusterMembers:
    """A service. `now_s` is monotonic: for how long brokers are away is counted from the beginning
    of this leadership."""

    def __init__(self, cluster: ClusterHost, now_s: Callable[[], float]) -> None:
        self._cluster = cluster
        self._now_s = now_s
        self._seen_s: dict[NodeId, float] = {}
        self._leadership = 0
        self._led_since_s = 0.0
        self._rounds = Periodic(
            "cluster-members", self._round, TICK_S, _log, "cluster_members_failed"
        )

    async def start(self) -> None:
        await self._rounds.start()

    async def stop(self) -> None:
        await self._rounds.stop()

    async def round(self) -> bool:
        """Note what is, and take one step towards what should be; whether something is under way.
        Nothing where this node does not lead."""
        raft_group = self._cluster.raft_group
        if raft_group is None or not raft_group.is_ready_leader:
            return False
        self._look_around()
        seen = self._seen(raft_group)
        if seen.busy:
            return True
        await self._note(seen.configuration)
        members = cluster_members(
            self._cluster.state.layout.brokers, seen.configuration.voters, self._away_ms
        )
        seen = self._seen(raft_group)
        step = cluster_step(members, seen)
        if isinstance(step, Step) and refusal(step, seen) is None:
            await self._take(raft_group, step)
            return True
        return False

    # private

    async def _round(self) -> float:
        try:
            return TICK_S if await self.round() else IDLE_S
        except GoQueueError as error:
            _log.debug("cluster_member_not_changed", problem=error.message)
            return TICK_S

    def _look_around(self) -> None:
        now = self._now_s()
        if self._leadership != self._cluster.leaderships:
            self._leadership, self._led_since_s = self._cluster.leaderships, now
            self._seen_s.clear()
        for node in self._cluster.nodes:
            if self._cluster.is_present(node):
                self._seen_s[node] = now

    def _away_ms(self, node: NodeId) -> int:
        return round((self._now_s() - self._seen_s.get(node, self._led_since_s)) * 1000)

    def _seen(self, raft_group: RaftGroup) -> Seen:
        known = raft_group.membership.configuration
        configuration = Configuration(known.index, known.voters, known.learners)
        matches, committed = raft_group.replication.matches(), raft_group.commit_index
        present = self._cluster.has_directory
        return Seen(
            configuration,
            raft_group.node,
            frozenset(
                voter.node
                for voter in known.voters
                if present(voter) and matches.get(voter.node, 0) >= committed
            ),
            frozenset(
                one.node
                for one in known.learners
                if present(one) and raft_group.replication.caught_up(one.node)
            ),
            busy=not (raft_group.is_ready_leader and raft_group.membership.is_committed),
        )

    async def _note(self, now: Configuration) -> None:
        noted = self._cluster.state.layout.configuration(CLUSTER_GROUP)
        if noted is None or noted.index < now.index:
            row = Reported(0, 0, now.index, now.voters, now.learners)
            await self._cluster.command_here(ReplicasChanged([row]), NOTE_TIMEOUT_S)

    async def _take(self, raft_group: RaftGroup, step: Step) -> None:
        node = step.voter.node
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def ended(succeeded: bool) -> None:
            if not done.done():
                done.set_result(succeeded)

        if step.kind == TRANSFER:
            raft_group.transfer.start(node, ended)
        else:
            raft_group.changes.change(
                _change(step), lambda how, _, __: ended(how is Outcome.APPLIED)
            )
        try:
            async with asyncio.timeout(STEP_TIMEOUT_S):
                succeeded = await done
        except TimeoutError:
            succeeded = False
        _log.info("cluster_member_changed", step=step.kind, node=node, done=succeeded)


def _change(step: Step) -> Change:
    if step.kind == ADD_LEARNER:
        return AddLearner(step.voter)
    return Promote(step.voter.node) if step.kind == PROMOTE else Remove(step.voter.node)
