"""Message ids, delays and visibility on a whole node: what its leader decides, over restarts."""

from __future__ import annotations

import asyncio
import random

import pytest

from goqueue.wire.batch import encode_columns
from goqueue.wire.errors import DelayTooLong, TooManyDelayed
from goqueue.wire.types import Offset
from log.disk.memory import MemoryDisk
from node.api.records import AppendResult, Slice
from node.assembly import NodeAssembly
from node.http.messages.render import Room
from node.http.messages.visible import see
from tests.unit.node.test_node import eventually, running


async def publish(
    node: NodeAssembly,
    *ids: str | None,
    delay_ms: int | None = None,
    producer: tuple[int, int] = (0, 0),
) -> AppendResult:
    batch = encode_columns(
        [b"v"] * len(ids),
        message_ids=ids,
        deliver_at_ms=[delay_ms] * len(ids),
        producer_id=producer[0],
        base_sequence=producer[1],
    )
    return await node.broker.records.append("t", 0, batch, deadline_s=30)


async def look(node: NodeAssembly, offset: int = 0, wait_s: float = 0.0) -> Slice:
    return await node.broker.records.read(
        "t", 0, Offset(offset), max_records=1000, max_bytes=1 << 20, wait_s=wait_s, visible=True
    )


async def visible(found: Slice, offset: int = 0) -> tuple[list[int], int]:
    """The offsets shown, and where reading goes on."""
    seen = await see(found, offset, 1000, Room(1 << 20), skip_pending=False)
    return [view.offset for view in seen.views], seen.following


async def test_ids_are_known_after_a_power_cut() -> None:
    disk = MemoryDisk()
    async with running(disk) as node:
        await node.broker.topics.create_topic("t", {})
        assert (await publish(node, "a", None, "b")).base_offset == 0
        after_cut = disk.crash(random.Random(1), keep=0.0)

    async with running(after_cut) as node:
        await eventually(lambda: node.broker.topics.list_topics() == ["t"])
        again = await publish(node, "b", "c", "a")

    assert again.rows == ((2, True), (3, False), (0, True))
    assert not again.duplicate


async def test_ids_are_known_after_a_restart_from_snapshots() -> None:
    disk = MemoryDisk()
    async with running(disk) as node:
        await node.broker.topics.create_topic("t", {})
        await publish(node, "a", "b")
        await publish(node, "b", "a", producer=(7, 0))  # nothing of it is stored
        await eventually(lambda: sum(p.endswith(".snapshot") for p in disk.paths()) > 1)

    async with running(disk) as node:
        await eventually(lambda: node.broker.topics.list_topics() == ["t"])
        assert (await publish(node, "b")).rows == ((1, True),)
        assert (await publish(node, "c", producer=(7, 2))).base_offset == 2
        assert (await look(node)).next_offset == 3


async def test_a_topics_window_and_bounds_are_obeyed() -> None:
    settings = {"dedup_window_ms": 0, "delay_ms_max": 60_000, "delayed_max": 2}
    async with running(MemoryDisk()) as node:
        await node.broker.topics.create_topic("t", settings)
        assert node.broker.topics.delay_ms_max("t") == 60_000
        async with asyncio.timeout(30):
            while (await publish(node, "a", "a")).rows is not None:
                pass  # the leader is still telling the log of these settings
        end = (await publish(node, "a")).base_offset

        with pytest.raises(DelayTooLong):
            await publish(node, None, delay_ms=60_001)
        await publish(node, None, None, delay_ms=60_000)
        with pytest.raises(TooManyDelayed):
            await publish(node, None, delay_ms=1)
        assert (await publish(node, None)).base_offset == end + 3

        await node.broker.delays.cancel_delayed("t", 0, end + 1)
        assert (await publish(node, None, delay_ms=1)).base_offset == end + 4


async def test_a_visible_read_stops_at_what_is_not_due_and_passes_what_was_cancelled() -> None:
    async with running(MemoryDisk()) as node:
        await node.broker.topics.create_topic("t", {})
        await publish(node, None)
        await publish(node, None, delay_ms=60_000)
        await publish(node, None)

        found = await look(node)
        assert await visible(found) == ([0], 1)
        assert found.visibility is not None
        assert found.visibility.withdrawn == []

        await node.broker.delays.cancel_delayed("t", 0, 1)
        assert await visible(await look(node)) == ([0, 2], 3)


async def test_a_delayed_message_is_visible_once_it_is_due() -> None:
    async with running(MemoryDisk()) as node:
        await node.broker.topics.create_topic("t", {})
        stored = await publish(node, None, delay_ms=40)
        shown_ms = 0

        async with asyncio.timeout(30):
            while not shown_ms:
                found = await look(node)
                assert found.visibility is not None
                shown_ms = found.visibility.time_ms if (await visible(found))[0] else 0
                await asyncio.sleep(0)

        assert stored.time_ms + 40 <= shown_ms
