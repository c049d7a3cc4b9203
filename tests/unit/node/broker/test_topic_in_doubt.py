"""A creation whose answer was lost: what is there afterwards may be another client's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import CreateTopic, RegisterBroker
from goqueue.wire.errors import TopicExists
from goqueue.wire.types import Index
from node.broker.topics import NodeTopics

ASKED = {"replication_factor": 1, "retention_ms": 5}


class InDoubt:
    """A cluster whose leader died over the answer; its next one says that the topic exists."""

    def __init__(self, there: dict[str, object]) -> None:
        self.state = ClusterState(9)
        self.state.apply(Index(2), 0, RegisterBroker("n1", 7, "a:1", "http://a", "", "1", {}))
        self.there = there

    def absent(self) -> list[str]:
        return []

    async def refresh(self) -> bool:
        return True

    async def command(self, command: CreateTopic, _deadline_s: float) -> None:
        self.state.apply(Index(3), 0, CreateTopic(command.name, {**command.config, **self.there}))
        error = TopicExists(command.name)
        error.outcome = "unknown"
        raise error


def broker(cluster: InDoubt) -> NodeTopics:
    made = cast(Any, NodeTopics.__new__(NodeTopics))
    made._cluster = cluster
    made._config = SimpleNamespace()
    made._replicas = None
    return cast(NodeTopics, made)


@pytest.mark.parametrize(("there", "is_ours"), [({}, True), ({"retention_ms": 7}, False)])
async def test_a_topic_that_exists_is_taken_for_this_calls_only_if_it_is_as_asked(
    there: dict[str, object], is_ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = broker(InDoubt(there))

    async def view(*_: object) -> str:
        return "created"

    monkeypatch.setattr("node.cluster.topic_defaults.topic_defaults", lambda *_: {})
    monkeypatch.setattr("node.broker.topics.until_led", view)
    monkeypatch.setattr(made, "_view", view)

    if is_ours:
        assert cast(str, await made.create_topic("t", ASKED)) == "created"
    else:
        with pytest.raises(TopicExists) as raised:
            await made.create_topic("t", ASKED)
        assert raised.value.outcome == "unknown"
