"""Streams over a real WebSocket, to a real broker: delivered by credit, settled in order, ended."""

from __future__ import annotations

import pytest

from tests.unit.node.http.stream.talk import talking


@pytest.fixture(autouse=True)
async def level(broker):
    await broker.upgrade.finish_level()


async def test_messages_are_pushed_and_settled_on_one_connection(front, put):
    async with talking(front) as talker:
        begun = await talker.subscribe(topics=["orders"])
        await put(b"a", b"b", keys=[b"k", b"\xff"])

        one, other = await talker.take(2)
        told = await talker.settled("ack", one, other)

        assert begun["node"] == "node-1" and begun["credit"] == {"messages": 100, "bytes": 4 << 20}
        assert (begun["keepalive_ms"], begun["silence_ms"]) == (5000, 10000)
        assert (one["value"], one["key"], one["attempt"]) == ("a", "k", 1)
        assert [result["state"] for result in told["results"]] == ["acked", "acked"]
        assert told["settled"] == 2
        await put(b"c")
        assert (await talker.take(1))[0]["value"] == "c"
