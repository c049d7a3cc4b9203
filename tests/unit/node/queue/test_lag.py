"""One definition of lag: HTTP, console and metrics say the same, with partitions not begun."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import aiohttp

from goqueue.wire.batch import Record, encode_batch
from node.api.claims import NOBODY
from node.api.queue import SettleRequest
from node.assembly import NodeAssembly
from node.broker.node import NodeBroker
from tests.unit.node.test_node import eventually
from tests.unit.node.three_nodes import ThreeNodes, three_nodes

PARTITIONS, STORED = 6, 10


async def begin(broker: NodeBroker, topic: str, group: str, start: str = "earliest") -> None:
    """Messages in each partition, of which the group has received two of the first one's."""
    await broker.groups.put_group(group, {"start": start})
    for partition in range(PARTITIONS):
        batch = encode_batch([Record(b"v") for _ in range(STORED)])
        await broker.records.append(topic, partition, batch, deadline_s=30)
    found = await broker.queue.receive(
        group, [topic], claim=NOBODY, limit=2, wait_s=1, visibility_ms=None, partitions=[0]
    )
    await broker.receipts.settle([SettleRequest(message.receipt, "ack") for message in found])


async def told(node: NodeAssembly, path: str) -> str:
    url = f"http://127.0.0.1:{node.front.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200, (path, await answer.text())
        return await answer.text()


async def of_metrics(nodes: ThreeNodes, group: str) -> int:
    """What alerts add up: over all nodes."""
    pattern = rf'goqueue_consumergroup_group_sum_lag{{group="{group}"}} (\S+)'
    texts = [await told(node, "/metrics") for node in nodes.running.values()]
    return round(sum(float(found[1]) for text in texts for found in re.finditer(pattern, text)))


async def of_console(node: NodeAssembly, group: str) -> int:
    page = await told(node, f"/ui/groups/{group}")
    found = re.search(r"<dt>Lag</dt><dd>([\d,\s]+)<", page)
    assert found is not None, page
    return int(re.sub(r"\D", "", found[1]))


async def come_to(look: Callable[[], Awaitable[object]], wanted: object) -> None:
    """Metrics are kept for a moment, and who takes part is looked up once a second."""
    found: object = None
    for _ in range(200):
        found = await look()
        if found == wanted:
            return
        await asyncio.sleep(0.1)
    assert found == wanted


async def test_all_sources_tell_the_same_lag_of_a_group_that_has_begun_one_partition() -> None:
    async with three_nodes() as nodes:
        broker = nodes.broker("n1")
        await broker.topics.create_topic("t", {"partitions": PARTITIONS})
        await begin(broker, "t", "billing")
        lag = PARTITIONS * STORED - 2

        for node in nodes.running.values():
            rows = await node.broker.positions.lag("billing")
            assert sum(row.lag for row in rows) == lag
            view = await node.broker.groups.group("billing")
            assert sum(place.lag for place in view.partitions) == lag
            await come_to(lambda node=node: of_console(node, "billing"), lag)  # type: ignore[misc]
        await come_to(lambda: of_metrics(nodes, "billing"), lag)


async def test_a_group_that_begins_with_the_latest_is_not_behind_in_older_messages() -> None:
    async with three_nodes() as nodes:
        broker = nodes.broker("n1")
        await broker.topics.create_topic("t", {"partitions": PARTITIONS})
        await begin(broker, "t", "late", "latest")

        rows = await broker.positions.lag("late")

        assert [row.lag for row in rows] == [0] * PARTITIONS
        await come_to(lambda: of_metrics(nodes, "late"), 0)


async def test_partitions_that_are_elsewhere_are_learnt_from_their_nodes_at_level_2() -> None:
    async with three_nodes() as nodes:
        broker = nodes.broker("n1")
        await broker.topics.create_topic("t", {"partitions": PARTITIONS, "replication_factor": 1})
        await begin(broker, "t", "billing")
        begun_only = STORED - 2
        parts = [node.broker.traces._parts.taking_part for node in nodes.running.values()]
        for one in parts:
            await one.refresh()
        before = await of_metrics(nodes, "billing")

        await broker.upgrade.finish_level()
        await eventually(lambda: all(one.upgrade.version().level == 2 for one in nodes.brokers))
        for one in parts:
            await one.refresh()

        await come_to(lambda: of_metrics(nodes, "billing"), PARTITIONS * STORED - 2)
        assert begun_only <= before < PARTITIONS * STORED - 2
