"""Which server leads a partition is learned from answers, and forgotten with the server."""

from __future__ import annotations

import asyncio

import pytest

from goqueue.errors import ConnectionFailed
from goqueue.transport import leaders as module
from goqueue.transport.leaders import ASK_AGAIN_S, Leaders
from tests.one_node import TimedLoop

A, B = ("t", 0), ("t", 1)


class Servers:
    """Say who they are, unless they are down; `asked` are their numbers."""

    def __init__(self, *nodes: str) -> None:
        self.nodes = list(nodes)
        self.down: set[int] = set()
        self.asked: list[int] = []
        self.leaders = Leaders(len(nodes), self.identify)

    async def identify(self, server: int) -> str:
        self.asked.append(server)
        if server in self.down:
            raise ConnectionFailed("down")
        return self.nodes[server]

    async def told(self, place: tuple[str, int], asked: int, leader: str | None) -> None:
        """An answer, and all that comes of it."""
        self.leaders.learn(place, asked, leader)
        await self.leaders._tasks.settled()


async def pass_s(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TimedLoop)
    loop.ahead_s += seconds


async def test_who_answers_for_itself_leads() -> None:
    servers = Servers("n1", "n2")

    await servers.told(A, 1, None)

    assert (servers.leaders.server(A), servers.leaders.server(B)) == (1, None)
    assert servers.asked == []


async def test_a_leader_that_is_named_is_looked_for_among_the_servers_once() -> None:
    servers = Servers("n1", "n2", "n3")

    await servers.told(A, 0, "n3")
    unknown = servers.leaders.server(A)
    await servers.told(A, 0, "n3")
    await servers.told(B, 2, "n2")

    assert (unknown, servers.leaders.server(A), servers.leaders.server(B)) == (None, 2, 1)
    assert sorted(servers.asked) == [0, 1, 2]


async def test_a_leader_that_no_server_is_is_asked_through_others() -> None:
    servers = Servers("n1", "n2")

    for _ in range(3):
        await servers.told(A, 0, "n3")

    assert servers.leaders.server(A) is None
    assert sorted(servers.asked) == [0, 1]


async def test_servers_that_do_not_say_who_they_are_are_asked_again_later_only() -> None:
    servers = Servers("", "n2")
    servers.down = {1}
    await servers.told(A, 0, "n2")
    await servers.told(A, 0, "n2")
    before = sorted(servers.asked)
    servers.down = set()

    await pass_s(ASK_AGAIN_S)
    await servers.told(A, 0, "n2")
    await servers.told(A, 0, "n2")

    assert before == [0, 1]
    assert servers.leaders.server(A) == 1


async def test_a_server_that_is_lost_leads_nothing_until_it_says_again_who_it_is() -> None:
    servers = Servers("n1", "n2")
    for place in (A, B, A, B):
        await servers.told(place, 0, "n2")
    known = servers.leaders.server(A), servers.leaders.server(B)

    servers.leaders.lose(1)
    lost = servers.leaders.server(A), servers.leaders.server(B)
    await servers.told(A, 0, "n2")
    soon = servers.leaders.server(A)
    await pass_s(ASK_AGAIN_S)
    await servers.told(A, 0, "n2")
    await servers.told(A, 0, "n2")

    assert (known, lost, soon) == ((1, 1), (None, None), None)
    assert servers.leaders.server(A) == 1


async def test_what_a_lost_server_says_of_itself_meanwhile_counts_for_nothing() -> None:
    servers = Servers("n1", "n2")
    servers.leaders.learn(A, 0, "n2")
    servers.leaders.lose(1)
    await servers.leaders._tasks.settled()

    await servers.told(A, 0, "n2")

    assert servers.leaders.server(A) is None


async def test_a_server_that_stands_for_several_nodes_is_none_of_them() -> None:
    """A balancer before the nodes, say: it was taken for the leader, and sends the request on."""
    servers = Servers("n1", "n2")
    await servers.told(A, 0, "n2")
    await servers.told(A, 0, "n2")

    await servers.told(A, 1, "n2")

    assert servers.leaders.server(A) is None


async def test_one_server_leads_nothing() -> None:
    servers = Servers("n1")

    await servers.told(A, 0, "n2")

    assert (servers.leaders.server(A), servers.asked) == (None, [])


async def test_so_many_partitions_are_remembered_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PLACES_MAX", 2)
    servers = Servers("n1", "n2")

    for partition in range(3):
        await servers.told(("t", partition), 1, None)

    assert [servers.leaders.server(("t", partition)) for partition in range(3)] == [None, 1, 1]
