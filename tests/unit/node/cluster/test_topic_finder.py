"""A node does not deny what another one has just made: it catches up, or says that it can't."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from goqueue.wire.batch import Record, encode_batch
from goqueue.wire.errors import Unavailable, UnknownPartition
from node.api.claims import NOBODY
from node.cluster.host import ClusterHost
from node.cluster.topic_finder import TopicFinder
from tests.unit.node.test_node import eventually
from tests.unit.node.three_nodes import NAMES, three_nodes


class Cluster:
    """A topic of one partition as this node knows it, and of two as it is."""

    def __init__(self, *, reached: bool = True) -> None:
        self.reached = reached
        self.asked = 0
        self.state = SimpleNamespace(topics={"t": SimpleNamespace(partitions=[0])})
        self.finder = TopicFinder(cast(ClusterHost, self))

    def check_outcast(self) -> None:
        return None

    def not_ready(self) -> str | None:
        return None

    def topic(self, name: str) -> Any:
        return self.state.topics[name]

    async def refresh(self) -> bool:
        self.asked += 1
        if self.reached:
            self.state.topics["t"] = SimpleNamespace(partitions=[0, 1])
        return self.reached


async def test_a_partition_that_is_not_known_is_looked_for_once_more() -> None:
    cluster = Cluster()
    assert len((await cluster.finder.find("t", 1)).partitions) == 1
    assert cluster.asked == 0

    assert len((await cluster.finder.find("t", 2)).partitions) == 2
    assert len((await cluster.finder.find("t", 9)).partitions) == 2
    assert cluster.asked == 2


async def test_where_nobody_can_say_whether_there_is_such_a_partition_that_is_said() -> None:
    cluster = Cluster(reached=False)
    with pytest.raises(Unavailable, match="partition 1 of t"):
        await cluster.finder.find("t", 2)


async def test_a_partition_is_used_through_any_node_as_soon_as_it_is_added() -> None:
    async with three_nodes() as nodes:
        await nodes.broker("n1").topics.create_topic(
            "t", {"partitions": 1, "replication_factor": 1}
        )
        await eventually(lambda: nodes.leader() is not None)
        adds, uses = (nodes.broker(name) for name in NAMES if name != nodes.leader())
        for last in range(1, 7):
            await adds.placement.add_partitions("t", last + 1, [])
            if last % 2:
                await uses.records.append("t", last, encode_batch([Record(b"x")]), deadline_s=30)
            else:
                await uses.queue.receive(
                    "g",
                    ["t"],
                    claim=NOBODY,
                    limit=1,
                    wait_s=0,
                    visibility_ms=1000,
                    partitions=[last],
                )
        with pytest.raises(UnknownPartition):
            await uses.records.append("t", 7, encode_batch([Record(b"x")]), deadline_s=30)
