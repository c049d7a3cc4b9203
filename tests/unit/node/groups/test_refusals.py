"""Polls that partitions refuse: looked into, asked again, and told in the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from coordinator.commands.codec import DeleteTopic
from coordinator.groups.membership import GroupMembership
from coordinator.groups.settings import Group
from goqueue.wire.errors import GoQueueError, StaleGeneration, UnknownMember, UnknownTopic
from goqueue.wire.types import Offset
from node.api.claims import Claim
from node.api.members import Place
from node.api.queue import QueuedMessage
from node.cluster.host import ClusterHost
from node.groups.heartbeats import SignsOfLife
from node.groups.members import GroupMembers
from node.groups.polls import REFUSALS_MAX, GroupPolls
from node.groups.request_metrics import RequestMetrics
from node.metrics import Metrics
from tests.unit.node.groups.test_sessions import World, sessions_of

MESSAGE = QueuedMessage("t", 0, Offset(0), 0, b"", None, (), 2)


class Asked:
    """A member that has all of a topic, and partitions that refuse as long as there are refusals.

    It stands for what a poll asks of its node.
    """

    def __init__(self) -> None:
        self.world = World()
        self.changes = self.world.changes
        self.refusals: list[GoQueueError] = []
        self.claims: list[tuple[Sequence[Place], Claim]] = []
        self.refreshes = 0
        self.told = 0
        self.polls = GroupPolls(
            cast(ClusterHost, self),
            cast(GroupMembers, self),
            cast(SignsOfLife, self),
            self.receive,
            RequestMetrics(Metrics()),
        )

    @property
    def state(self) -> object:
        return self.world.state

    async def refresh(self) -> bool:
        self.refreshes += 1
        return True

    async def find(self, group: str, member: str) -> Group:
        return self.world.state.groups[group]

    def membership_of(self, group: Group, member: str) -> GroupMembership:
        membership = self.world.state.members.of(group)
        membership.member(group.name, member)
        return membership

    def tell_soon(self, group: int, member: str, session_ms: int) -> None:
        self.told += 1

    async def receive(
        self,
        group: str,
        topics: Sequence[str],
        *,
        claim: Claim,
        limit: int,
        wait_s: float,
        visibility_ms: int | None,
        places: Sequence[Place],
    ) -> list[QueuedMessage]:
        self.claims.append((places, claim))
        if self.refusals:
            raise self.refusals.pop(0)
        return [MESSAGE]

    async def poll(self, wait_s: float) -> list[QueuedMessage]:
        return await self.polls.poll("g", "a", generation=None, limit=1, wait_s=wait_s)


@pytest.fixture
async def asked() -> Asked:
    found = Asked()
    found.world.join("a")
    await found.world.settle(sessions_of(found.world))
    return found


async def test_a_refusal_that_nothing_explains_is_asked_about_again(asked: Asked) -> None:
    asked.refusals = [StaleGeneration(), StaleGeneration()]

    assert await asked.poll(5) == [MESSAGE]

    places = [("t", number) for number in range(4)]
    assert asked.claims == [(places, Claim("a", asked.world.membership.generation))] * 3
    assert (asked.refreshes, asked.told > 0) == (2, True)


async def test_a_refusal_that_lasts_is_told(asked: Asked) -> None:
    asked.refusals = [StaleGeneration() for _ in range(100)]

    with pytest.raises(StaleGeneration):
        await asked.poll(0)
    assert len(asked.claims) == 1
    with pytest.raises(StaleGeneration):
        await asked.poll(60)
    assert len(asked.claims) <= REFUSALS_MAX + 2


async def test_a_topic_that_is_deleted_meanwhile_is_left_out(asked: Asked) -> None:
    async def delete() -> bool:
        asked.world.do(DeleteTopic("t"))
        return True

    asked.refresh = delete  # type: ignore[method-assign]
    asked.refusals = [UnknownTopic("t")]

    assert await asked.poll(0) == []
    assert len(asked.claims) == 1


async def test_a_member_that_is_gone_by_then_is_told_so(asked: Asked) -> None:
    async def refresh() -> bool:
        del asked.world.membership.members["a"]
        return True

    asked.refresh = refresh  # type: ignore[method-assign]
    asked.refusals = [StaleGeneration()]

    with pytest.raises(UnknownMember):
        await asked.poll(5)
