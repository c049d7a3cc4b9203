"""Coordinates the members of groups, on whichever node leads the cluster group.

It remembers when each member was heard of, takes partitions from those that are gone or have let
go, and gives them to whom they are meant for. What it does may be interrupted anywhere: whoever
leads next finds in the cluster's state what is left to do, and grants every session its full time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import Command, Result
from coordinator.commands.members import ExpireMembers, MemberCommand
from coordinator.groups.coordinator import Drain, GroupCoordinator, Naming
from coordinator.groups.membership import GroupMembership
from coordinator.groups.settings import Group
from goqueue.background import TaskSet
from goqueue.wire.errors import GoQueueError, NotLeader
from goqueue.wire.types import Index, NodeId
from node.cluster.changes import Changes
from node.groups.metrics import GroupFigures
from node.metrics import Metrics
from node.peers.link import PeerLink
from node.rpc import groups as group_rpc
from node.rpc import partitions as rpc
from node.rpc.groups import HeardAnswer, HeardRequest, SilentAnswer, SilentRequest
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic

LOOK_S = 0.25
"""The time between two looks at most, where nothing happens."""
LOOK_MIN_S = 0.005
LONG_LOOK_S, LONG_LOOK_RESTS = 0.002, 5
"""With thousands of groups a look takes so long that changes are looked at several at once."""
STOOD_STILL_MS = 1000
"""Where the look before is longer ago, it can't be told whether members were silent since, or
nobody listened."""
COMMAND_DEADLINE_S = 5.0
PARTITIONS_AT_ONCE_MAX = 256
"""Owner entries and questions on their way; the link to a peer takes four times as many requests
of each kind."""

_log = get_logger("groups")


class SessionsCluster(Protocol):
    """What is asked of the cluster group; `node.cluster.host.ClusterHost` is one."""

    changes: Changes
    leaderships: int

    @property
    def state(self) -> ClusterState: ...

    @property
    def applied(self) -> Index: ...

    def led_time_ms(self) -> int | None: ...

    async def command_here(self, command: Command, deadline_s: float) -> Result: ...


class OwnedPartitions(Protocol):
    """What is asked of partitions; `node.groups.partitions.GroupPartitions` is one."""

    async def name_owner(self, naming: Naming) -> tuple[str, int, int]: ...

    async def in_flight(self, drain: Drain) -> int: ...


class GroupSessions:
    """A service. Loop thread only."""

    def __init__(
        self,
        cluster: SessionsCluster,
        partitions: OwnedPartitions,
        link: PeerLink,
        metrics: Metrics,
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._coordinator: GroupCoordinator | None = None
        self._leadership = 0
        self._looked_ms = 0
        self._at_once = asyncio.Semaphore(PARTITIONS_AT_ONCE_MAX)
        self._task_set = TaskSet("groups")
        self._looks = Periodic(
            "group_sessions", self._round, LOOK_S, _log, "groups_not_coordinated", first_s=0.0
        )
        self._figures = GroupFigures(metrics)
        metrics.before_render(self._count)
        link.handle(group_rpc.HEARD, self._serve_heard)
        link.handle(group_rpc.SILENT, self._serve_silent)

    async def start(self) -> None:
        self._cluster.changes.wakes(self._looks.woken)
        await self._looks.start()

    async def stop(self) -> None:
        self._cluster.changes.wakes_no_more(self._looks.woken)
        await self._looks.stop()
        await self._task_set.stop()

    # what nodes tell and ask the leader

    def heard(self, group: int, member: str) -> bool:
        """A member's sign of life; whether there is such a member. Raises NotLeader."""
        now_ms = self._now_ms()
        return self._led(now_ms).heard(group, member, now_ms)

    def heard_all(self, members: Sequence[tuple[int, str]]) -> HeardAnswer:
        """Signs of life of (group, member) each. Raises NotLeader."""
        gone = [(group, member) for group, member in members if not self.heard(group, member)]
        return HeardAnswer(gone, self._cluster.applied)

    def silent_ms(self, groups: list[int]) -> dict[int, dict[str, int]]:
        """For how long each member of these groups was not heard of. Raises NotLeader."""
        now_ms = self._now_ms()
        coordinator, known = self._led(now_ms), self._memberships()
        return {
            group: {id: coordinator.silent_ms(group, id, now_ms) for id in known[group].members}
            for group in groups
            if group in known
        }

    # what is to be done

    def look(self) -> float:
        """Begin what is to be done, without waiting for it; in how many seconds to look again."""
        now_ms = self._cluster.led_time_ms()
        if now_ms is None:
            self._coordinator = None
            self._drop()
            return LOOK_S
        coordinator = self._led(now_ms)
        self._forgive(coordinator, now_ms)
        work = coordinator.collect(now_ms)
        for command in work.commands:
            self._task_set.begin(self._propose(coordinator, command))
        for naming in work.namings:
            self._task_set.begin(self._name(coordinator, naming))
        for drain in work.drains:
            self._task_set.begin(self._drain(coordinator, drain))
        wake_ms = coordinator.next_wake_ms(now_ms)
        if wake_ms is None:
            return LOOK_S
        return min(LOOK_S, max(LOOK_MIN_S, (wake_ms - now_ms) / 1000))

    def wake(self) -> None:
        """Look now."""
        self._looks.wake()

    def next_ms(self) -> int | None:
        """The log time at which there is something to do next, if nothing happens before."""
        now_ms = self._cluster.led_time_ms()
        return None if now_ms is None else self._led(now_ms).next_wake_ms(now_ms)

    def has_members(self, group: int) -> bool:
        membership = self._memberships().get(group)
        return membership is not None and bool(membership.members)

    def subscribed(self, topic: str) -> list[Group]:
        """Those of which a member subscribes to this topic."""
        ids = [id for id, group in self._memberships().items() if group.subscribes_to(topic)]
        found = map(self._cluster.state.group_of, ids)
        return [group for group in found if group is not None]

    def leaps(self, now_ms: int, *, heard: bool) -> None:
        """Log time is about to leap to this one, though nobody stood still: members that are silent
        then were silent all the time, unless they are all `heard` of."""
        if self._coordinator is None or self._cluster.led_time_ms() is None:
            return
        self._looked_ms = now_ms
        for group, membership in self._memberships().items() if heard else ():
            for member in membership.members:
                self._coordinator.heard(group, member, now_ms)

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        await self._task_set.settled()

    # private

    async def _round(self) -> float:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        wait_s = self.look()
        took_s = loop.time() - began_s
        if took_s > LONG_LOOK_S:
            await asyncio.sleep(min(LOOK_S, took_s * LONG_LOOK_RESTS))
        return wait_s

    def _count(self) -> Iterator[None]:
        now_ms = self._cluster.led_time_ms()
        if now_ms is None:
            self._figures.end()
        else:
            self._led(now_ms)
            yield from self._figures.count(self._cluster.state)

    def _memberships(self) -> Mapping[int, GroupMembership]:
        return self._cluster.state.members.by_group

    def _now_ms(self) -> int:
        now_ms = self._cluster.led_time_ms()
        if now_ms is None:
            raise NotLeader(None)
        return now_ms

    def _led(self, now_ms: int) -> GroupCoordinator:
        """The coordinator of this leadership, which begins with its first use."""
        if self._coordinator is None or self._leadership != self._cluster.leaderships:
            self._drop()
            self._leadership = self._cluster.leaderships
            self._coordinator = GroupCoordinator(self._memberships)
            self._figures.begin(self._cluster.state)
            self._looked_ms = now_ms
        return self._coordinator

    def _drop(self) -> None:
        """What is under way is of a leadership that is over: the next one does it again."""
        self._task_set.cancel()

    def _forgive(self, coordinator: GroupCoordinator, now_ms: int) -> None:
        """While this node stood still, or its clock was set forward, nobody was silent."""
        late_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        if late_ms <= STOOD_STILL_MS:
            return
        _log.debug("sessions_prolonged", late_ms=late_ms)
        for group, membership in self._memberships().items():
            for member in membership.members:
                silent_ms = coordinator.silent_ms(group, member, now_ms) - late_ms
                coordinator.heard(group, member, now_ms - max(0, silent_ms))

    async def _propose(self, coordinator: GroupCoordinator, command: MemberCommand) -> None:
        applied = False
        try:
            await self._cluster.command_here(command, COMMAND_DEADLINE_S)
            applied = True
        except GoQueueError as error:
            # Refused for good: the state has gone on, and there is nothing to do.
            applied = not error.retriable and error.outcome == "none"
            if not applied:
                _log.debug("member_command_delayed", problem=error.message)
        finally:
            coordinator.answered(command, self._ended_ms(), applied=applied)
        if applied and isinstance(command, ExpireMembers):
            _log.info("members_expired", group=command.group_id, count=len(command.members))
            group = self._cluster.state.group_of(command.group_id)
            if group is not None:
                self._figures.expired(group.name, len(command.members))

    async def _name(self, coordinator: GroupCoordinator, naming: Naming) -> None:
        owner = None
        try:
            async with self._at_once:
                owner = await self._partitions.name_owner(naming)
        except GoQueueError as error:
            _log.debug("owner_not_named", partition=str(naming.partition), problem=error.message)
        finally:
            coordinator.named(naming, owner, self._ended_ms())

    async def _drain(self, coordinator: GroupCoordinator, drain: Drain) -> None:
        in_flight = None
        try:
            async with self._at_once:
                in_flight = await self._partitions.in_flight(drain)
        except GoQueueError as error:
            _log.debug("drain_not_known", partition=str(drain.partition), problem=error.message)
        finally:
            coordinator.drained(drain, in_flight, self._ended_ms())

    def _ended_ms(self) -> int:
        """When something ended; there may be more to do after it."""
        self._looks.wake()
        return self._cluster.led_time_ms() or self._looked_ms

    async def _serve_heard(self, _peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, HeardRequest)
        return rpc.encode(self.heard_all(request.members))

    async def _serve_silent(self, _peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, SilentRequest)
        return rpc.encode(SilentAnswer(self.silent_ms(request.groups)))
