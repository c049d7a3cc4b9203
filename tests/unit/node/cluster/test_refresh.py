"""A node that has not heard of a topic catches up before it says so, and does not guess."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from goqueue.wire.errors import NoQuorum
from goqueue.wire.types import Incarnation, NodeId, Voter
from log.partition.log import PartitionLog
from node.cluster.host import ClusterHost
from node.peers.forwarding import Forwarder
from node.peers.link import NoPeers
from raft.group import RaftGroup


class Group:
    """A replica of the cluster group that has applied all there is."""

    applied_index = 10
    membership = SimpleNamespace(voters=())


class Asked:
    """Counts the questions for the commit index; each waits until the test answers it."""

    def __init__(self) -> None:
        self.questions: list[asyncio.Future[int]] = []

    async def call(self, *_: Any, **__: Mapping[str, Any]) -> int:
        question: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.questions.append(question)
        return await question


def host(asked: Asked) -> ClusterHost:
    cluster = ClusterHost(Voter(NodeId("n1"), Incarnation(1)), on_change=lambda: None)
    cluster.use(cast(Forwarder, asked), NoPeers())
    log = SimpleNamespace(last_index=10, suspect=False, quarantined=False)
    cluster.attach(cast(RaftGroup, Group()), cast(PartitionLog, log))
    return cluster


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_question_that_is_out_answers_nobody_who_comes_later() -> None:
    asked = Asked()
    cluster = host(asked)
    first = [asyncio.ensure_future(cluster.refresh()) for _ in range(3)]
    await turns()
    assert len(asked.questions) == 1

    later = [asyncio.ensure_future(cluster.refresh()) for _ in range(3)]
    await turns()
    asked.questions[0].set_result(9)
    assert await asyncio.gather(*first) == [True] * 3
    await turns()
    assert [waiting.done() for waiting in later] == [False] * 3

    asked.questions[1].set_result(10)
    assert await asyncio.gather(*later) == [True] * 3
    assert len(asked.questions) == 2


async def test_without_a_leader_it_does_not_claim_to_be_current() -> None:
    asked = Asked()
    cluster = host(asked)
    asking = asyncio.ensure_future(cluster.refresh())
    await turns()
    asked.questions[0].set_exception(NoQuorum("nobody there"))
    assert await asking is False

    again = asyncio.ensure_future(cluster.refresh())
    await turns()
    asked.questions[1].set_result(1)
    assert await again is True


async def test_a_node_outside_any_cluster_knows_nothing_for_sure() -> None:
    cluster = ClusterHost(Voter(NodeId("n1"), Incarnation(1)), on_change=lambda: None)
    assert await cluster.refresh() is False


async def test_a_node_whose_cluster_log_is_being_replaced_does_not_claim_to_be_current() -> None:
    asked = Asked()
    cluster = host(asked)
    asking = asyncio.ensure_future(cluster.refresh())
    await turns()
    cluster.detach("the cluster group's log is being replaced by a copy")
    asked.questions[0].set_result(11)
    assert await asking is False
