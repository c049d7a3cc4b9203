"""Signs of life: told together, not too often, and believed only where both sides agree."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from goqueue.wire.errors import GoQueueError, NoQuorum, Timeout, Unavailable
from goqueue.wire.types import Index, PartitionId
from node.cluster.host import ClusterHost
from node.groups.heartbeats import REQUESTS_MAX, SignsOfLife
from node.groups.sessions import GroupSessions
from node.peers.forwarding import Forwarder
from node.queue_assembly import node_tasks
from node.rpc import partitions as rpc
from node.rpc.groups import HeardAnswer, HeardRequest
from tests.unit.node.groups.test_sessions import World, sessions_of
from tests.unit.node.test_node import eventually


class Leader:
    """The way to the leader of the cluster group: it answers what the sessions say, once `open` is
    set, unless there is an error to raise."""

    def __init__(self, world: World, sessions: GroupSessions) -> None:
        self.world = world
        self.sessions = sessions
        self.open = asyncio.Event()
        self.open.set()
        self.errors: list[GoQueueError] = []
        self.asked: list[list[tuple[int, str]]] = []
        self.refreshes = 0
        self.applied_here = 2**63
        """What the node that tells has applied, of what the leader has."""

    async def call(
        self,
        partition_id: PartitionId,
        *,
        local: Callable[[float], Awaitable[Any]],
        payload: Callable[[float], bytes],
        **_: object,
    ) -> object:
        self.asked.append(rpc.decode_request(payload(1.0), HeardRequest).members)
        await self.open.wait()
        if self.errors:
            raise self.errors.pop(0)
        return await local(1.0)

    @property
    def state(self) -> object:
        return self.world.state

    async def refresh(self) -> bool:
        self.refreshes += 1
        return True

    async def until_applied(self, index: Index, timeout_s: float) -> None:
        assert timeout_s > 0
        await eventually(lambda: self.applied_here >= index)


class Signs:
    """Signs of life of members a and b, and what they are told by."""

    def __init__(self) -> None:
        self.world = World()
        self.sessions = sessions_of(self.world)
        self.leader = Leader(self.world, self.sessions)
        self.background_tasks = node_tasks()
        self.told = SignsOfLife(
            cast(ClusterHost, self.leader),
            self.sessions,
            cast(Forwarder, self.leader),
            self.background_tasks,
        )
        self.world.join("a")
        self.world.join("b")
        self.sessions.look()

    async def tell(self, member: str) -> bool:
        return await self.told.tell(self.world.group, member)

    def silent_ms(self, member: str) -> int:
        return self.sessions.silent_ms([self.world.group])[self.world.group][member]


@pytest.fixture
async def signs() -> Signs:
    return Signs()


async def test_members_that_are_heard_of_at_once_are_told_of_in_one_request(signs: Signs) -> None:
    group = signs.world.group
    signs.world.cluster.pass_ms(900)

    assert await asyncio.gather(*map(signs.tell, ["a", "b", "a", "c"])) == [True, True, True, False]

    assert signs.leader.asked == [[(group, "a"), (group, "b"), (group, "c")]]
    assert (signs.silent_ms("a"), signs.silent_ms("b")) == (0, 0)


async def test_while_requests_are_out_members_wait_for_the_next_one_together(signs: Signs) -> None:
    signs.leader.open.clear()
    telling: list[asyncio.Future[bool]] = []
    for number in range(REQUESTS_MAX):
        telling.append(asyncio.ensure_future(signs.tell("a")))
        await eventually(lambda count=number + 1: len(signs.leader.asked) == count)  # type: ignore[misc]
    later = [asyncio.ensure_future(signs.tell(member)) for member in ("a", "b")]
    await asyncio.sleep(0)
    later[0].cancel()

    signs.leader.open.set()

    assert await asyncio.gather(*telling, later[1]) == [True] * (REQUESTS_MAX + 1)
    assert len(signs.leader.asked) == REQUESTS_MAX + 1


@pytest.mark.parametrize("error", [NoQuorum("nobody"), Timeout("late")])
async def test_where_no_leader_is_told_everyone_learns_it(
    signs: Signs, error: GoQueueError
) -> None:
    signs.leader.errors = [error]

    ends = await asyncio.gather(signs.tell("a"), signs.tell("b"), return_exceptions=True)

    assert all(isinstance(end, Unavailable) for end in ends)
    assert ends[0] is not ends[1]
    assert await signs.tell("a") is True


async def test_who_is_known_here_but_not_to_the_leader_is_asked_about_again(signs: Signs) -> None:
    heard_all, gone = signs.sessions.heard_all, [HeardAnswer([(signs.world.group, "a")])]
    signs.sessions.heard_all = lambda members: gone.pop() if gone else heard_all(members)  # type: ignore[method-assign]

    assert await signs.tell("a") is True

    assert (len(signs.leader.asked), signs.leader.refreshes) == (2, 1)


async def test_a_sign_is_told_once_this_node_knows_all_that_the_leader_knew(signs: Signs) -> None:
    applied = signs.leader.applied_here = signs.world.cluster.state.applied_index
    signs.world.join("c")

    telling = asyncio.ensure_future(signs.tell("c"))
    await eventually(lambda: len(signs.leader.asked) == 1)
    await asyncio.sleep(0.05)
    assert not telling.done()
    signs.leader.applied_here = applied + 1

    assert await telling is True


async def test_signs_that_nobody_waits_for_are_told_a_few_times_a_session(signs: Signs) -> None:
    for _ in range(5):
        signs.told.tell_soon(signs.world.group, "a", 10_000)
    await eventually(lambda: len(signs.leader.asked) == 1)
    await asyncio.sleep(0.02)
    assert len(signs.leader.asked) == 1

    signs.told.tell_soon(signs.world.group, "a", 100)
    await eventually(lambda: len(signs.leader.asked) == 2)
    await signs.background_tasks.stop()


async def test_a_sign_that_did_not_arrive_is_told_at_the_next_occasion(signs: Signs) -> None:
    signs.leader.errors = [NoQuorum("nobody")]
    signs.told.tell_soon(signs.world.group, "a", 10_000)
    await eventually(lambda: not signs.leader.errors)
    await asyncio.sleep(0.02)

    signs.told.tell_soon(signs.world.group, "a", 10_000)
    await eventually(lambda: len(signs.leader.asked) == 2)
    await signs.background_tasks.stop()
