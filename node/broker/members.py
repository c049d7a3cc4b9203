"""Members of groups as the HTTP front sees them, from any node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from node.api.claims import Claim
from node.api.members import (
    Assignment,
    JoinRequest,
    LagView,
    MembershipView,
    Place,
    ResetTo,
    ResetView,
)
from node.api.queue import QueuedMessage
from node.broker.queue import QueueBrokerNode
from node.broker.queue_parts import QueueParts
from node.cluster.host import ClusterHost
from node.cluster.topic_finder import TopicFinder
from node.groups.heartbeats import SignsOfLife
from node.groups.members import GroupMembers
from node.groups.polls import GroupPolls
from node.groups.positions import GroupPositions


@dataclass(frozen=True, slots=True)
class MemberParts:
    """What the front's members stand on."""

    cluster: ClusterHost
    members: GroupMembers
    signs: SignsOfLife
    positions: GroupPositions


class MemberBrokerNode(QueueBrokerNode):
    """Implements `node.api.members`. Loop thread only."""

    def __init__(self, finder: TopicFinder, queue: QueueParts, members: MemberParts) -> None:
        super().__init__(finder, queue)
        self._members = members.members
        self._positions = members.positions
        self._polls = GroupPolls(members.cluster, members.members, members.signs, self.receive)

    async def join(self, group: str, request: JoinRequest, *, wait_s: float) -> Assignment:
        return await self._members.join(group, request, wait_s=wait_s)

    async def heartbeat(
        self,
        group: str,
        member: str,
        *,
        revision: str | None = None,
        wait_s: float = 0.0,
        let_go: Sequence[Place] = (),
    ) -> Assignment:
        return await self._members.heartbeat(
            group, member, revision=revision, wait_s=wait_s, let_go=let_go
        )

    async def leave(self, group: str, member: str) -> None:
        await self._members.leave(group, member)

    async def membership(self, group: str) -> MembershipView:
        return await self._members.membership(group)

    async def memberships(self) -> list[MembershipView]:
        return await self._members.memberships()

    def subscribed(self, group: str) -> tuple[Sequence[str], Sequence[str]]:
        return self._members.subscribed(group)

    async def poll(
        self, group: str, member: str, *, generation: int | None, limit: int, wait_s: float
    ) -> list[QueuedMessage]:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        found = await self._polls.poll(
            group, member, generation=generation, limit=limit, wait_s=wait_s
        )
        self._queue.requests.polled(group, len(found), loop.time() - began_s)
        return found

    async def lag(self, group: str, topics: Sequence[str] | None = None) -> list[LagView]:
        return await self._positions.lag(group, topics)

    async def reset(
        self,
        group: str,
        topic: str,
        to: ResetTo,
        *,
        partitions: Sequence[int] | None,
        dry_run: bool,
        claim: Claim,
    ) -> list[ResetView]:
        return await self._positions.reset(
            group, topic, to, partitions=partitions, dry_run=dry_run, claim=claim
        )
