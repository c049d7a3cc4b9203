"""The cluster follows the number of replicas, as whoever leads it decides from its state."""

from __future__ import annotations

import dataclasses

import pytest

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import CreateTopic
from coordinator.commands.placement import (
    DrainBroker,
    Reassign,
    RemoveBroker,
    ReplicasChanged,
    Reported,
    UndrainBroker,
)
from coordinator.placement.planner import plan_drain, plan_rebalance
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import NodeId
from node.kubernetes import scaling as scaling_module
from node.kubernetes.scaling import NEW_MS, Scaling
from node.metrics import Metrics
from tests.kubernetes.conftest import NAMES
from tests.unit.coordinator.cluster_group import Cluster as Commands
from tests.unit.coordinator.cluster_group import broker


class World:
    """A cluster's state, in which what is asked for happens at once, and moves end when told."""

    def __init__(self, brokers: int, factor: int = 3, partitions: int = 4) -> None:
        self.commands = Commands(0)
        self.leads = True
        self.away: set[str] = set()
        self.wanted: int | None = brokers
        self.said: list[str] = []
        self.asked: list[str] = []
        self.metrics = Metrics()
        for ordinal in range(brokers):
            self.join(ordinal)
        if partitions:
            config = {"partitions": partitions, "replication_factor": factor}
            made = self.commands.do(CreateTopic("orders", config))
            assert not isinstance(made, GoQueueError), made
        self.scaling = self.leader()

    def leader(self) -> Scaling:
        return Scaling(
            NAMES,
            self,
            self,
            self.metrics,
            wanted=lambda: self.wanted,
            complain=self.complain,
        )

    def join(self, ordinal: int, incarnation: int = 7) -> None:
        self.commands.do(broker(NAMES.node(ordinal), incarnation))

    def arrive(self) -> None:
        """All moves end; nobody that is drained votes in the cluster group."""
        while True:
            leaving = [node for node, one in self.state.brokers.items() if one.state == "draining"]
            rows = plan_drain(self.state.layout.picture(), leaving)
            if not rows:
                break
            self.commands.do(Reassign(rows, "drain", leaving))
        self.index = getattr(self, "index", 100) + 1
        told = [
            Reported(
                topic.id.index,
                number,
                self.index,
                placement.replicas,
                epoch=self.state.layout.epoch,
            )
            for topic in self.state.topics.values()
            for number, placement in enumerate(topic.partitions)
        ]
        voters = tuple(one.voter for one in self.state.brokers.values() if one.takes)
        told.append(Reported(0, 0, self.index, voters))
        self.commands.do(ReplicasChanged(told))

    def states(self) -> dict[str, str]:
        return {node: one.state for node, one in sorted(self.state.brokers.items())}

    async def complain(self, problem: str) -> None:
        self.said.append(problem)

    # the cluster

    @property
    def state(self) -> ClusterState:
        return self.commands.state

    def led_time_ms(self) -> int | None:
        return self.state.time_ms if self.leads else None

    def is_present(self, node: NodeId) -> bool:
        return node not in self.away

    # placement

    async def drain(self, id: str, *, throttle_bytes_s: int = 0) -> None:
        self._do("drain", id, DrainBroker(id, throttle_bytes_s))

    async def undrain(self, id: str) -> None:
        self._do("undrain", id, UndrainBroker(id))

    async def remove_broker(self, id: str) -> None:
        self._do("remove", id, RemoveBroker(id))

    async def rebalance(
        self, *, leaders_only: bool, limit: int, throttle_bytes_s: int
    ) -> object | None:
        rows = plan_rebalance(self.state.layout.picture(), limit)
        self.asked.append("rebalance")
        if rows:
            self.commands.do(Reassign(rows, "rebalance"))
        return rows

    def _do(
        self, what: str, node: str, command: DrainBroker | UndrainBroker | RemoveBroker
    ) -> None:
        self.asked.append(f"{what} {node}")
        result = self.commands.do(command)
        if isinstance(result, GoQueueError):
            raise result


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling_module, "GONE_S", 0.0)


async def test_who_is_to_go_is_drained_and_removed_only_when_its_pod_is_gone() -> None:
    world = World(5)
    world.wanted = 3

    await world.scaling.round()
    await world.scaling.round()
    assert world.asked == ["drain goqueue-4", "drain goqueue-3"]
    assert world.states()["goqueue-4"] == "draining"

    world.arrive()
    assert world.states()["goqueue-4"] == "drained"
    await world.scaling.round()
    assert len(world.states()) == 5
    world.away = {"goqueue-3", "goqueue-4"}
    await world.scaling.round()
    assert list(world.states()) == ["goqueue-0", "goqueue-1", "goqueue-2"]


async def test_a_drain_that_would_strand_replicas_is_refused_and_said_once() -> None:
    world = World(3)
    world.wanted = 2

    await world.scaling.round()
    await world.scaling.round()

    assert set(world.states().values()) == {"active"}
    (said,) = world.said
    assert said.startswith("goqueue-2 can't be drained: 2 brokers would be left for 3 replicas")
    assert "drains_refused 1.0" in world.metrics.render()[0].decode()
    world.wanted = 3
    await world.scaling.round()
    assert "drains_refused 0.0" in world.metrics.render()[0].decode()


async def test_a_pod_that_is_wanted_again_before_it_went_stays() -> None:
    world = World(5)
    world.wanted = 3
    await world.scaling.round()

    world.wanted = 4
    await world.scaling.round()

    assert world.states()["goqueue-3"] == "active"
    assert world.states()["goqueue-4"] == "draining"


async def test_another_leader_that_saw_it_too_keeps_it_likewise() -> None:
    world = World(4)
    other = world.leader()
    world.wanted = 3
    await world.scaling.round()
    world.leads = False
    await other.round()

    world.leads, world.wanted = True, 4
    await other.round()

    assert world.states()["goqueue-3"] == "active"


async def test_a_drain_that_an_operator_asked_for_is_let_alone() -> None:
    world = World(4)
    world.commands.do(DrainBroker("goqueue-1"))

    for wanted in (4, 5, 4):
        world.wanted = wanted
        await world.scaling.round()

    assert world.states()["goqueue-1"] == "draining"


@pytest.mark.parametrize("wanted", [0, None])
async def test_a_set_that_is_switched_off_or_unknown_loses_nobody(wanted: int | None) -> None:
    world = World(3)
    world.wanted = wanted
    world.away = {"goqueue-1", "goqueue-2"}

    await world.scaling.round()

    assert world.asked == []


async def test_only_the_leader_does_anything() -> None:
    world = World(5)
    world.wanted, world.leads = 3, False

    await world.scaling.round()

    assert world.asked == []


async def test_who_came_is_given_work_once_all_are_there() -> None:
    world = World(3, partitions=12)
    world.wanted = 5
    world.join(3)
    await world.scaling.round()
    world.join(4)
    world.away = {"goqueue-4"}
    await world.scaling.round()
    assert world.asked == []

    world.away.clear()
    await world.scaling.round()
    await world.scaling.round()
    assert world.asked == ["rebalance"]
    world.arrive()

    assert all(world.state.layout.held[NAMES.node(number)] >= 7 for number in range(5))
    await world.scaling.round()
    assert world.asked == ["rebalance"]


async def test_a_leader_that_comes_later_gives_work_too() -> None:
    world = World(3, partitions=12)
    world.wanted = 4
    world.join(3)

    await world.leader().round()

    assert world.asked == ["rebalance"]


async def test_who_has_had_nothing_for_long_keeps_it() -> None:
    world = World(3, partitions=12)
    world.wanted = 4
    world.join(3)
    world.commands.pass_ms(NEW_MS + 1)
    world.commands.do(UndrainBroker("goqueue-0"))

    await world.scaling.round()

    assert world.asked == []


async def test_without_topics_there_is_nothing_to_give() -> None:
    world = World(3, partitions=0)
    await world.scaling.round()

    assert world.asked == []


async def test_brokers_of_another_set_are_none_of_its_business() -> None:
    world = World(4)
    other = dataclasses.replace(NAMES, statefulset="other")
    world.commands.do(broker(other.node(9)))
    world.wanted = 3

    await world.scaling.round()

    assert world.asked == ["drain goqueue-3"]
