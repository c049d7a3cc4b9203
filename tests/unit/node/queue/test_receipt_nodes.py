"""Receipts of whole nodes: before level 2 is finished, and after."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coordinator.access.receipt_keys import ROTATED_MS
from delivery.config import VISIBILITY_MS_MAX
from goqueue.wire.batch import Record, encode_batch
from goqueue.wire.errors import BadReceipt, ReceiptExpired
from node.api.claims import Claim
from node.api.queue import QueuedMessage, SettleRequest, SettleView
from node.broker.node import NodeBroker
from node.queue.receipt import decode_receipt, encode_receipts
from tests.unit.node.test_node import eventually
from tests.unit.node.three_nodes import ThreeNodes, three_nodes


@pytest.fixture
async def nodes() -> AsyncIterator[ThreeNodes]:
    async with three_nodes() as started:
        await eventually(lambda: all(one.node.ready().ready for one in started.brokers), 30)
        await started.broker("n1").topics.create_topic(
            "t", {"partitions": 1, "replication_factor": 3}
        )
        yield started


def keys(broker: NodeBroker) -> int:
    return len(broker.topics._cluster.state.receipt_keys.all)


async def finish(nodes: ThreeNodes) -> None:
    await nodes.broker("n1").upgrade.finish_level()
    await eventually(lambda: all(keys(broker) == 1 for broker in nodes.brokers), 30)


async def receive(nodes: ThreeNodes, count: int = 1, member: str = "m") -> list[QueuedMessage]:
    records = [Record(b"v") for _ in range(count)]
    await nodes.broker("n1").records.append("t", 0, encode_batch(records), deadline_s=30)
    return await nodes.broker("n2").queue.receive(
        "g", ["t"], claim=Claim(member), limit=count, wait_s=20, visibility_ms=60_000
    )


async def ack(broker: NodeBroker, *receipts: str) -> list[object]:
    ends = await broker.receipts.settle([SettleRequest(text, "ack") for text in receipts])
    return [end.outcome if isinstance(end, SettleView) else type(end) for end in ends]


async def test_below_level_two_receipts_are_as_they_were(nodes: ThreeNodes) -> None:
    (message,) = await receive(nodes)

    assert all(keys(broker) == 0 for broker in nodes.brokers)
    held = decode_receipt(message.receipt)
    assert (len(message.receipt), held.mac) == (64, b"")
    assert await ack(nodes.broker("n3"), message.receipt) == ["acked"]


async def test_any_node_knows_the_clusters_receipts_and_nobody_elses(nodes: ThreeNodes) -> None:
    (early,) = await receive(nodes)
    await finish(nodes)
    mine, others = await receive(nodes), await receive(nodes, 3, member="other")

    # given all that a member can know or guess of what another one holds
    held = decode_receipt(others[0].receipt)
    place = held.partition.pack(), held.group, held.delivery, held.offset
    own = decode_receipt(mine[0].receipt)
    moved = mine[0].receipt[:88] + others[0].receipt[88:]
    for broker in nodes.brokers:
        broker.queue._receipts._now_ms = lambda: 1 << 50
    assert own.head != held.head

    # then neither a checksum nor a code of another delivery will do
    for broker in nodes.brokers:
        assert await ack(broker, *encode_receipts(*place[:3], place[3:])) == [ReceiptExpired]
        assert await ack(broker, moved) == [BadReceipt]
    assert await ack(nodes.broker("n1"), *(one.receipt for one in others)) == ["acked"] * 3
    assert await ack(nodes.broker("n3"), mine[0].receipt, early.receipt) == [
        "acked",
        ReceiptExpired,
    ]


async def test_receipts_that_were_out_when_the_level_was_finished_are_settled(
    nodes: ThreeNodes,
) -> None:
    (early,) = await receive(nodes)

    await finish(nodes)

    assert VISIBILITY_MS_MAX < ROTATED_MS
    assert await ack(nodes.broker("n2"), early.receipt) == ["acked"]
