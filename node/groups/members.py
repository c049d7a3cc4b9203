"""Members of groups as the front asks for them, from any node: joining, heartbeats, leaving.

What a member is told stands in this node's own cluster state; a sign of life goes to whoever leads
the cluster group, whose answer says how far this state has to be. So news reach a waiting member
as soon as they are applied here, and no node tells a member what another one has told is over.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Sequence

from coordinator.commands.members import JoinGroup, LeaveGroup, LetGo, Partition
from coordinator.groups.holdings import REVOKING, short
from coordinator.groups.membership import GroupMembership
from coordinator.groups.memberships import check_join
from coordinator.groups.settings import Group
from coordinator.groups.subscriptions import Subscription
from goqueue.background import TaskSet
from goqueue.wire.errors import GoQueueError, Unavailable, UnknownMember
from goqueue.wire.ids import NAME_CHARACTERS_MAX
from node.api.members import Assignment, JoinRequest, MembershipView, Place
from node.cluster.host import ClusterHost
from node.cluster.topic_finder import TopicFinder
from node.groups.heartbeats import SignsOfLife
from node.groups.member_views import membership_view
from node.groups.request_metrics import RequestMetrics
from node.queue.group_admin import GroupsBroker

COMMAND_DEADLINE_S = 15.0
HEARTBEATS_A_SESSION = 3
"""How often a session is told of while its member waits, and should be by the member."""
HEARTBEAT_MS_MAX = 10_000
MEMBER_ID_BITS = 48
SUBSCRIBED_KEPT_MAX = 1000
"""Groups whose subscriptions are remembered."""
VIEWS_AT_ONCE = 100
"""Groups described before the loop is given back."""

_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]+")


class GroupMembers:
    """Implements `node.api.members.Members`. Loop thread only."""

    def __init__(
        self,
        *,
        cluster: ClusterHost,
        groups: GroupsBroker,
        finder: TopicFinder,
        signs: SignsOfLife,
        background_tasks: TaskSet,
        rng: random.Random,
        requests: RequestMetrics,
    ) -> None:
        self._cluster = cluster
        self._groups = groups
        self._finder = finder
        self._signs = signs
        self._background_tasks = background_tasks
        self._rng = rng
        self._requests = requests
        self._subscribed: dict[int, tuple[int, Subscription]] = {}
        """By a group's id: its generation, and what its members subscribe to since."""

    # as Members names them

    async def join(self, group: str, request: JoinRequest, *, wait_s: float) -> Assignment:
        for topic in request.topics:
            await self._finder.find(topic)
        id = request.member or self._new_id(request.client_id)
        check_join(_join_command(group, 0, id, request))
        if request.member:
            found = await self.find(group, request.member)
        else:
            found = await self._groups.ensure_group(group, request.settings, request.maker)
        command = _join_command(found.name, found.id, id, request)
        joined = False
        try:
            await self._cluster.command(command, COMMAND_DEADLINE_S)
            joined = True
            await self.find(group, id)
            if request.member:
                await self._tell(found, id)
            self._requests.joined(found.name)
            await self._attend(found, id, wait_s, lambda: self._has_its_share(found, id))
            return self.assignment(found, id)
        except asyncio.CancelledError:
            self._forget(found, id, request)
            raise
        except GoQueueError as error:
            if joined or error.outcome == "unknown":
                self._forget(found, id, request)
            raise

    async def heartbeat(
        self,
        group: str,
        member: str,
        *,
        revision: str | None = None,
        wait_s: float = 0.0,
        let_go: Sequence[Place] = (),
    ) -> Assignment:
        found = await self.find(group, member)
        if let_go:
            session_ms = self.membership_of(found, member).members[member].session_timeout_ms
            self._signs.tell_soon(found.id, member, session_ms)  # letting go may take its time
            await self._let_go(found, member, let_go)

        def is_news() -> bool:
            return self.assignment(found, member).revision != revision

        try:
            began_s = asyncio.get_running_loop().time()
            await self._tell(found, member)
            took_s = asyncio.get_running_loop().time() - began_s
            self._requests.heartbeat_told(found.name, took_s)
            session_ms = self.membership_of(found, member).members[member].session_timeout_ms
            wait_s = min(wait_s, session_ms / 1000 / HEARTBEATS_A_SESSION)
            await self._attend(found, member, wait_s, is_news)
        except Unavailable:
            if revision is None or not is_news():
                raise
        return self.assignment(found, member)

    async def leave(self, group: str, member: str) -> None:
        found = await self.find(group, member)
        await self._leave(found, member)
        self._requests.left(found.name)

    async def membership(self, group: str) -> MembershipView:
        await self._cluster.refresh()
        return (await self._views([await self._groups.find(group)]))[0]

    async def memberships(self) -> list[MembershipView]:
        await self._cluster.refresh()
        groups = self._cluster.state.groups
        return await self._views([groups[name] for name in sorted(groups)])

    def subscribed(self, group: str) -> Subscription:
        """See `Members.subscribed`. A group's is found once a generation."""
        state = self._cluster.state
        known = state.groups.get(group)
        if known is None:
            return (), ()
        membership = state.members.of(known)
        kept = self._subscribed.get(known.id)
        if kept is not None and kept[0] == membership.generation:
            return kept[1]
        topics, patterns = set[str](), set[str]()
        for subscription in membership.subscriptions():
            topics.update(subscription[0])
            patterns.update(subscription[1])
        found = tuple(sorted(topics)), tuple(sorted(patterns))
        if len(self._subscribed) >= SUBSCRIBED_KEPT_MAX:
            self._subscribed.clear()
        self._subscribed[known.id] = membership.generation, found
        return found

    # for what else members do

    async def find(self, group: str, member: str) -> Group:
        """The group, which the member is in. A node that knows of neither first catches up.

        Raises UnknownGroup, UnknownMember, or Unavailable where nobody can say.
        """
        found = await self._groups.find(group)
        if member in self._cluster.state.members.of(found).members:
            return found
        is_current = await self._cluster.refresh()
        found = await self._groups.find(group)
        if is_current or member in self._cluster.state.members.of(found).members:
            self.membership_of(found, member)
            return found
        problem = self._cluster.not_ready() or "the cluster group's leader does not answer"
        raise Unavailable(f"member {member[:100]} is not known here: {problem}", group=group)

    def membership_of(self, group: Group, member: str) -> GroupMembership:
        """Of the very group, not one that was made anew under its name. Raises UnknownMember."""
        membership = self._cluster.state.members.of(group)
        membership.member(group.name, member)
        return membership

    def assignment(self, group: Group, member: str) -> Assignment:
        """What the member is told. Raises UnknownMember."""
        membership = self.membership_of(group, member)
        known = membership.members[member]
        settled = self._cluster.state.group_of(group.id) or group
        view = self._cluster.state.members.view(settled, member)
        return Assignment(
            group=group.name,
            member=member,
            generation=view.generation,
            assigned=view.assigned,
            revoking=view.revoking,
            deadline_ms=view.deadline_ms,
            revision=view.revision,
            leader=membership.leader,
            members=list(membership.members),
            mode=settled.settings.mode,
            state=membership.state,
            session_timeout_ms=known.session_timeout_ms,
            heartbeat_ms=min(HEARTBEAT_MS_MAX, known.session_timeout_ms // HEARTBEATS_A_SESSION),
            lets_go=known.lets_go,
        )

    # private

    def _forget(self, group: Group, id: str, request: JoinRequest) -> None:
        """A member that its consumer will not know of is none; a static one is taken over."""
        if not request.member and not request.instance_id:
            self._background_tasks.send(self._leave(group, id))

    def _new_id(self, client_id: str) -> str:
        random_hex = f"{self._rng.getrandbits(MEMBER_ID_BITS):0{MEMBER_ID_BITS // 4}x}"
        legal = _ILLEGAL.sub("-", client_id).lstrip("._-") or "member"
        return f"{legal[: NAME_CHARACTERS_MAX - len(random_hex) - 1]}-{random_hex}"

    async def _attend(
        self, group: Group, member: str, wait_s: float, is_over: Callable[[], bool]
    ) -> None:
        """Wait until it is over; the session does not run out meanwhile. Raises UnknownMember."""
        loop = asyncio.get_running_loop()
        session_ms = self.membership_of(group, member).members[member].session_timeout_ms
        interval_s = session_ms / 1000 / HEARTBEATS_A_SESSION
        end_s, tell_s = loop.time() + wait_s, loop.time() + interval_s
        with self._cluster.changes.watch(group.id) as changed:
            while not is_over() and loop.time() < end_s:
                changed.clear()
                try:
                    async with asyncio.timeout_at(min(end_s, tell_s)):
                        await changed.wait()
                except TimeoutError:
                    if loop.time() >= tell_s:
                        await self._tell(group, member)
                        tell_s = loop.time() + interval_s

    async def _tell(self, group: Group, member: str) -> None:
        if not await self._signs.tell(group.id, member):
            self.membership_of(group, member)
            raise UnknownMember(group.name, member)

    async def _let_go(self, group: Group, member: str, places: Sequence[Place]) -> None:
        """What the member was not asked for is left out: it would only fill the cluster's log."""
        wanted = set(places)
        asked = self._asked_for(group, member, wanted)
        if len(asked) < len(wanted) and await self._cluster.refresh():  # another node may have told
            asked = self._asked_for(group, member, wanted)
        if asked:
            await self._cluster.command(LetGo(group.id, member, asked), COMMAND_DEADLINE_S)

    def _asked_for(self, group: Group, member: str, places: set[Place]) -> list[Partition]:
        held = self.membership_of(group, member).holdings.of(member)
        asked = [one for one in held if one.state == REVOKING]
        return [short(h.partition) for h in asked if (h.topic, h.partition.partition) in places]

    async def _leave(self, group: Group, member: str) -> None:
        try:
            await self._cluster.command(LeaveGroup(group.id, member), COMMAND_DEADLINE_S)
        except UnknownMember as error:
            if error.outcome == "none":  # else this very call may have done it, earlier
                raise UnknownMember(group.name, member) from None

    def _has_its_share(self, group: Group, member: str) -> bool:
        """Whether nothing that the member is to have is on its way still."""
        membership = self.membership_of(group, member)
        target = membership.target
        return all(target.get(held.partition) != member for held in membership.moving())

    async def _views(self, groups: Sequence[Group]) -> list[MembershipView]:
        silent_ms = await self._signs.silent_ms([group.id for group in groups])
        state = self._cluster.state
        views: list[MembershipView] = []
        for group in groups:
            current = state.group_of(group.id) or group
            views.append(membership_view(current, state, silent_ms.get(group.id, {})))
            if len(views) % VIEWS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return views


def _join_command(group: str, group_id: int, id: str, request: JoinRequest) -> JoinGroup:
    return JoinGroup(
        group,
        group_id,
        id,
        request.client_id,
        request.instance_id,
        request.host,
        list(request.topics),
        list(request.patterns),
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        request.lets_go,
    )
