"""A replica that was added by an entry which never committed goes by what the leader tells."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.cluster.state import ClusterState
from coordinator.placement.steps import Seen
from coordinator.topics.partitions import Configuration
from goqueue.wire.errors import Unavailable
from goqueue.wire.types import Incarnation, Index, NodeId, PartitionId, TopicId, Voter
from node.replicas.local import Replicas
from node.replicas.orphans import ASKED_MAX, OrphanReplicas

ME = Voter(NodeId("n3"), Incarnation(7))
OTHERS = tuple(Voter(NodeId(name), Incarnation(7)) for name in ("n0", "n1", "n2"))
GROUP = PartitionId(TopicId(1, 2), 0)
LEFT = Seen(Configuration(Index(24), OTHERS), OTHERS[0].node, frozenset(), term=4)


def replica_of(configuration: Configuration) -> SimpleNamespace:
    return SimpleNamespace(membership=SimpleNamespace(configuration=configuration))


class Node:
    """One replica, which knows of term 3 and of a configuration at entry 38 that names it."""

    def __init__(self, answer: Seen | Exception) -> None:
        self.answer = answer
        self.asked = 0
        self.meanwhile: Callable[[], None] = lambda: None
        self.retired: list[PartitionId] = []
        self.host = SimpleNamespace(
            raft_group=replica_of(Configuration(Index(38), OTHERS, (ME,))),
            log=SimpleNamespace(hard_state=SimpleNamespace(term=3)),
        )
        self.left = [GROUP]
        self.strays_of = OrphanReplicas(ME, cast(Replicas, self), ClusterState, self.ask)

    def orphans(self, _state: ClusterState) -> list[PartitionId]:
        return [partition_id for partition_id in self.left if partition_id not in self.retired]

    def find(self, _partition_id: PartitionId) -> Any:
        return self.host

    def retire(self, partition_id: PartitionId) -> None:
        self.retired.append(partition_id)

    async def ask(self, _partition_id: PartitionId) -> Seen:
        self.asked += 1
        self.meanwhile()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_who_is_a_stray_in_two_looks_asks_and_goes() -> None:
    node = Node(LEFT)

    await node.strays_of.look()
    assert node.asked == 0, "its removal may be told any moment"
    await node.strays_of.look()

    assert node.retired == [GROUP]
    await node.strays_of.look()
    assert node.asked == 1


@pytest.mark.parametrize(
    "answer",
    [
        Unavailable("nobody leads"),
        Seen(LEFT.configuration, LEFT.leader, LEFT.in_sync, term=2),
        Seen(LEFT.configuration, LEFT.leader, LEFT.in_sync, term=4, busy=True),
        Seen(Configuration(Index(38), OTHERS, (ME,)), LEFT.leader, LEFT.in_sync, term=4),
    ],
    ids=["no answer", "an older leader", "a change is under way", "it takes part"],
)
async def test_without_certainty_it_stays_and_asks_again(answer: Seen | Exception) -> None:
    node = Node(answer)

    for _ in range(3):
        await node.strays_of.look()

    assert (node.asked, node.retired) == (2, [])


@pytest.mark.parametrize("news", ["configuration", "host", "named"])
async def test_what_has_changed_while_it_asked_makes_the_answer_worthless(news: str) -> None:
    node = Node(LEFT)

    def meanwhile() -> None:
        if news == "configuration":
            node.host.raft_group.membership.configuration = Configuration(Index(40), OTHERS, (ME,))
        elif news == "host":
            node.host = SimpleNamespace(raft_group=node.host.raft_group, log=node.host.log)
        else:
            node.left = []

    node.meanwhile = meanwhile

    for _ in range(2):
        await node.strays_of.look()

    assert (node.asked, node.retired) == (1, [])


async def test_those_whose_leaders_do_not_answer_keep_no_others_from_being_asked_about() -> None:
    node = Node(Unavailable("nobody leads"))
    partition_ids = [PartitionId(GROUP.topic, number) for number in range(ASKED_MAX + 1)]
    node.left = partition_ids[:]
    asked: list[PartitionId] = []

    async def ask(partition_id: PartitionId) -> Seen:
        asked.append(partition_id)
        if partition_id == partition_ids[-1]:
            return LEFT
        raise Unavailable("nobody leads")

    node.strays_of = OrphanReplicas(ME, cast(Replicas, node), ClusterState, ask)
    for _ in range(3):
        await node.strays_of.look()

    assert node.retired == [partition_ids[-1]]
    assert max(map(asked.count, partition_ids)) <= 2
