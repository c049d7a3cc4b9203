"""How many replicas a topic gets whose creator does not say: one on each broker, up to three."""

from __future__ import annotations

from typing import Any, cast

import pytest

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import CreateTopic, RegisterBroker
from goqueue.wire.errors import Unavailable
from goqueue.wire.types import Index
from node.broker.topics import NodeTopics
from node.cluster.host import ClusterHost
from node.cluster.topic_defaults import wanted_settings
from node.config.node import NodeConfig

CONFIG = NodeConfig()


class Lagging:
    """A node that has applied the registrations of two of three brokers, and whose cluster group's
    leader answers, or not."""

    def __init__(self, *, reached: bool = True) -> None:
        self.state = ClusterState(9)
        self.reached = reached
        self.asked = 0
        self.commands: list[CreateTopic] = []
        for name in ("n1", "n2"):
            self.register(name)

    def register(self, name: str) -> None:
        at = Index(self.state.applied_index + 1)
        self.state.apply(at, 0, RegisterBroker(name, 7, "a:1", "http://a", "", "1", {}))

    async def refresh(self) -> bool:
        self.asked += 1
        if self.reached:
            self.register("n3")
        return self.reached

    def absent(self) -> list[str]:
        return []

    async def command(self, command: CreateTopic, _deadline_s: float) -> None:
        self.commands.append(command)

    def check_outcast(self) -> None:
        return None

    def not_ready(self) -> str | None:
        return None


async def settings(cluster: Lagging, **given: object) -> dict[str, object]:
    return await wanted_settings(CONFIG, cast(ClusterHost, cluster), given)


async def test_a_broker_that_is_ready_counts_though_this_node_has_yet_to_apply_it() -> None:
    cluster = Lagging()
    assert (await settings(cluster))["replication_factor"] == 3
    assert (await settings(cluster, lanes=2))["lanes"] == 2
    assert cluster.asked == 1, "there are enough by now"


async def test_fewer_replicas_are_not_guessed_where_nobody_says_how_many_brokers_there_are() -> (
    None
):
    with pytest.raises(Unavailable, match="how many brokers"):
        await settings(Lagging(reached=False))


async def test_who_says_how_many_replicas_there_are_to_be_is_asked_nothing_else() -> None:
    cluster = Lagging(reached=False)
    assert (await settings(cluster, replication_factor=1))["replication_factor"] == 1
    assert cluster.asked == 0


async def test_a_topic_made_as_soon_as_all_brokers_are_ready_is_on_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def done(*_: object) -> None:
        return None

    cluster = Lagging()
    broker = cast(Any, NodeTopics.__new__(NodeTopics))
    broker._cluster, broker._config, broker._replicas = cluster, CONFIG, None
    monkeypatch.setattr("node.broker.topics.until_led", done)
    monkeypatch.setattr(broker, "topic", done)

    await broker.create_topic("t", {"partitions": 3})
    assert [command.config["replication_factor"] for command in cluster.commands] == [3]
