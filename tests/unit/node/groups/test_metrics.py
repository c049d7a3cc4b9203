"""Figures of groups: told once in the cluster, counted once, and labelled within bounds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator.commands.codec import CreateTopic
from coordinator.commands.members import Handed, HandOver, JoinGroup, LeaveGroup, LetGo
from coordinator.commands.queue import DeleteGroup, PutGroup
from goqueue.wire.types import PartitionId
from log.disk.memory import MemoryDisk
from node.api.members import JoinRequest
from node.groups.metrics import GroupFigures
from node.metrics import Metrics
from tests.unit.coordinator.cluster_group import Cluster
from tests.unit.node.queue.test_whole_node import publish
from tests.unit.node.test_node import running

GROUP = 'consumer_group="g"'


class Groups:
    """The cluster's state, and whoever leads it."""

    def __init__(self, series_max: int = 10_000) -> None:
        self.cluster = Cluster()
        self.metrics = Metrics(series_max)
        self.figures = GroupFigures(self.metrics)
        self.leads = True
        self.metrics.before_render(self._look)
        self.cluster.do(CreateTopic("t", {"partitions": 2}))
        self.cluster.do(CreateTopic("u", {"partitions": 2}))

    def id(self, group: str) -> int:
        return self.cluster.state.groups[group].id

    def join(self, member: str, group: str = "g", *topics: str) -> None:
        self.cluster.do(PutGroup(group, ensure=True))
        self.cluster.do(JoinGroup(group, self.id(group), member, topics=list(topics) or ["t"]))
        self.hand_over(group)

    def leave(self, member: str, group: str = "g") -> None:
        self.cluster.do(LeaveGroup(self.id(group), member))
        self.hand_over(group)

    def let_go(self, member: str, *, fence: bool = False) -> None:
        """What the member is asked for."""
        held = self.cluster.state.members.of(self.cluster.state.groups["g"]).holdings.values()
        asked = [_short(h.partition) for h in held if (h.state, h.member) == ("revoking", member)]
        self.cluster.do(LetGo(self.id("g"), member, asked, fence))
        self.hand_over("g")

    def hand_over(self, group: str) -> None:
        """Partitions' logs name their owners."""
        self.cluster.pass_ms(200)
        moving = self.cluster.state.members.of(self.cluster.state.groups[group]).moving()
        rows = [
            Handed(_short(held.partition), held.member, held.generation)
            for held in moving
            if held.state == "handing"
        ]
        self.cluster.do(HandOver(self.id(group), rows))

    def count(self) -> str:
        return text(self.metrics)

    def _look(self) -> Iterator[None]:
        state = self.cluster.state
        self.metrics.forget("consumer_group", state.groups.__contains__)
        if self.leads:
            yield from self.figures.count(state)
        else:
            self.figures.end()


def _short(partition: PartitionId) -> tuple[int, int]:
    return partition.topic.index, partition.partition


def text(metrics: Metrics) -> str:
    return metrics.render()[0].decode().replace("goqueue_consumer_", "")


def figures(found: str) -> list[str]:
    """All but what is told of metrics themselves."""
    return [line for line in found.splitlines() if "goqueue_metrics" not in line]


@pytest.fixture
def groups() -> Groups:
    return Groups()


def test_members_are_told_by_group_and_by_the_topic_of_what_they_have(groups: Groups) -> None:
    groups.join("a", "g", "t", "u")
    groups.join("b")
    groups.let_go("a")

    found = groups.count()

    assert f"group_members{{{GROUP}}} 2.0" in found
    assert f'goqueue_broker_active_consumers{{{GROUP},topic="t"}} 1.0' in found
    assert f'goqueue_broker_active_consumers{{{GROUP},topic="u"}} 1.0' in found
    assert f"assigned_partitions{{{GROUP}}} 4.0" in found


def test_members_of_a_shared_group_consume_whatever_they_subscribe_to(groups: Groups) -> None:
    groups.cluster.do(PutGroup("g", {"mode": "shared"}))
    groups.join("a", "g", "t", "u")
    groups.join("b")
    groups.cluster.do(JoinGroup("g", groups.id("g"), "c", patterns=["*"]))

    found = groups.count()

    assert f'goqueue_broker_active_consumers{{{GROUP},topic="t"}} 3.0' in found
    assert f'goqueue_broker_active_consumers{{{GROUP},topic="u"}} 2.0' in found
    assert f"assigned_partitions{{{GROUP}}} 0.0" in found


def test_the_state_a_group_is_in_is_the_only_one_that_is_1(groups: Groups) -> None:
    def states() -> dict[str, str]:
        found = groups.count().splitlines()
        lines = [line for line in found if line.startswith(f"group_state{{{GROUP}")]
        return {line.split('state="')[1].split('"')[0]: line.split()[-1] for line in lines}

    groups.join("a")
    assert states() == {"empty": "0.0", "rebalancing": "0.0", "stable": "1.0"}
    assert f"group_generation{{{GROUP}}} 1.0" in groups.count()
    groups.join("b")
    assert states() == {"empty": "0.0", "rebalancing": "1.0", "stable": "0.0"}
    assert f"moving_partitions{{{GROUP}}} 1.0" in groups.count()
    groups.let_go("a")
    groups.leave("a")
    groups.leave("b")
    assert states() == {"empty": "1.0", "rebalancing": "0.0", "stable": "0.0"}


def test_rebalances_are_counted_by_cause_and_moves_by_what_became_of_them(groups: Groups) -> None:
    groups.join("a")
    groups.join("b")
    groups.count()
    groups.cluster.pass_ms(60_000)
    groups.let_go("a", fence=True)
    groups.leave("b")
    groups.cluster.do(CreateTopic("later", {}))

    found = groups.count()

    assert f'rebalances_total{{{GROUP},trigger="join"}} 2.0' in found
    assert f'rebalances_total{{{GROUP},trigger="leave"}} 1.0' in found
    assert f"partitions_assigned_total{{{GROUP}}} 4.0" in found
    assert f"partitions_revoked_total{{{GROUP}}} 2.0" in found
    assert f"partitions_fenced_total{{{GROUP}}} 1.0" in found
    kind = 'rebalance_type="cooperative"'
    assert f"rebalance_latency_seconds_count{{{GROUP},{kind}}} 3.0" in found
    assert "partition_pause_seconds_count 2.0" in found
    assert f"partition_pause_max_seconds{{{GROUP}}} 60.4" in found
    assert figures(groups.count()) == figures(found)


def test_what_a_former_leader_counted_is_not_counted_again(groups: Groups) -> None:
    groups.join("a")
    groups.figures.begin(groups.cluster.state)

    groups.join("b")
    groups.let_go("a")

    found = groups.count()
    assert f'rebalances_total{{{GROUP},trigger="join"}} 1.0' in found
    assert f"partitions_assigned_total{{{GROUP}}} 1.0" in found


def test_a_former_leader_tells_of_no_group(groups: Groups) -> None:
    groups.join("a")
    groups.count()

    groups.leads = False

    for name in ("group_members{", "group_state{", "group_generation{", "active_consumers{"):
        assert name not in text(groups.metrics)


def test_nothing_is_left_of_a_deleted_group(groups: Groups) -> None:
    groups.join("a")
    groups.count()

    groups.cluster.do(DeleteGroup("g", groups.id("g"), force=True))

    assert GROUP not in groups.count()


def test_groups_beyond_the_bound_share_a_label() -> None:
    groups = Groups(series_max=30)
    for number in range(50):
        groups.join("a", f"g{number}")

    found = groups.count()

    assert found.count("group_members{") == 31
    assert 'group_members{consumer_group="_other"} 20.0' in found
    assert 'rebalances_total{consumer_group="_other",trigger="join"} 20.0' in found
    assert 'group_state{consumer_group="_other"' not in found


def test_members_that_expired_are_counted_with_their_reason(groups: Groups) -> None:
    groups.join("a")

    groups.figures.expired("g", 2)

    found = groups.count()
    assert f"session_timeouts_total{{{GROUP}}} 2.0" in found
    assert f'group_leaves_total{{{GROUP},reason="session_timeout"}} 2.0' in found


async def test_a_node_tells_of_its_groups() -> None:
    async with running(MemoryDisk()) as node:
        await node.broker.topics.create_topic("t", {"partitions": 1})
        await node.broker.members.join("g", JoinRequest("c", topics=["t"]), wait_s=30)
        await publish(node, "a")

        found = text(node.metrics)

    assert f"group_members{{{GROUP}}} 1.0" in found
    assert 'goqueue_consumergroup_group_lag{group="g",partition="0",topic="t"} 1.0' in found
