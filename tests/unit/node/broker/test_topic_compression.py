"""A topic's compression on whole nodes: refused below level 2, the same on all of them after."""

from __future__ import annotations

import pytest

from log.levels import NotFinished
from tests.unit.node.test_node import eventually
from tests.unit.node.three_nodes import three_nodes


async def test_compression_needs_level_2_and_is_told_by_every_node() -> None:
    async with three_nodes() as nodes:
        broker = nodes.broker("n1")
        with pytest.raises(NotFinished):
            await broker.topics.create_topic("early", {"partitions": 1, "compression": "zstd"})
        await broker.topics.create_topic("t", {"partitions": 1})
        with pytest.raises(NotFinished):
            await broker.topics.alter_topic("t", {"compression": "zstd"})
        assert broker.topics.list_topics() == ["t"]

        await broker.upgrade.finish_level()
        await eventually(lambda: all(one.upgrade.version().level == 2 for one in nodes.brokers))
        made = await broker.topics.create_topic("new", {"partitions": 1, "compression": "lz4"})
        changed = await broker.topics.alter_topic("t", {"compression": "zstd"})

        assert (made.config["compression"], changed.config["compression"]) == ("lz4", "zstd")
        for one in nodes.brokers:
            await eventually(lambda one=one: one.topics.compression("t") == "zstd")  # type: ignore[misc]
            assert one.topics.compression("new") == "lz4"
