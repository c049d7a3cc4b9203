"""Consume: a topic's log from anywhere on, and what says that nothing is there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from goqueue.wire.batch import encode_columns
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from tests.unit.node.listeners.grpc.client import Served, refusal, served

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"topic": "no way"}, "invalid_name", "INVALID_ARGUMENT"),
    ({"topic": "nowhere"}, "unknown_topic", "NOT_FOUND"),
    ({"partitions": [3]}, "unknown_partition", "NOT_FOUND"),
    ({"partitions": [-1]}, "invalid_partition", "INVALID_ARGUMENT"),
    ({"start_position": 9}, "bad_request", "INVALID_ARGUMENT"),
    ({"start_position": 3}, "bad_request", "INVALID_ARGUMENT"),
    ({"start_position": 2, "start_offset": -1}, "bad_request", "INVALID_ARGUMENT"),
    ({"start_position": 2, "start_offset": 7}, "offset_out_of_range", "OUT_OF_RANGE"),
    ({"max_messages": -1}, "bad_request", "INVALID_ARGUMENT"),
    ({"max_wait": Duration(seconds=-1)}, "bad_request", "INVALID_ARGUMENT"),
]


@pytest.fixture
async def node() -> AsyncIterator[Served]:
    async with served() as found:
        await found.broker.topics.create_topic("orders", {"partitions": 3})
        yield found


async def put(node: Served, partition: int, *values: bytes, **columns: Any) -> None:
    batch = encode_columns(list(values), None, **columns)
    await node.broker.records.append("orders", partition, batch, deadline_s=30)


async def taken(call: Any, count: int) -> list[Any]:
    """So many messages, in as many batches as they come."""
    found: list[Any] = []
    while len(found) < count:
        found += (await call.read()).messages.messages
    call.cancel()
    return found


async def test_all_partitions_are_read_from_their_beginning_and_on(node: Served) -> None:
    await put(node, 0, b"a", b"b")
    await put(node, 2, b"c")
    call = node.client.stream("Consume", topic="orders")

    first = [await call.read(), await call.read()]
    await put(node, 1, b"d")
    later = await call.read()
    call.cancel()

    found = {(m.partition, m.offset): m.value for one in first for m in one.messages.messages}
    assert found == {(0, 0): b"a", (0, 1): b"b", (2, 0): b"c"}
    assert sorted(one.messages.high_watermark for one in first) == [1, 2]
    assert [m.value for m in later.messages.messages] == [b"d"]


async def test_a_message_is_shown_with_all_that_it_has(node: Served) -> None:
    headers = (("a", b"x"), ("b", b"\xff"), ("traceparent", PARENT.encode()))
    batch = encode_columns([b"\xff"], [b"k"], lanes=0, headers=[headers], deliver_at_ms=[3_600_000])
    stored = await node.broker.records.append("orders", 1, batch, deadline_s=30)

    (shown,) = await taken(node.client.stream("Consume", topic="orders", partitions=[1]), 1)

    assert (shown.topic, shown.partition, shown.offset) == ("orders", 1, 0)
    assert (shown.key, shown.value, shown.priority) == (b"k", b"\xff", 0)
    assert shown.headers["a"] == "x"
    assert (shown.headers["b"], shown.headers["goqueue-base64-headers"]) == ("/w==", "b")
    assert shown.trace_id == PARENT[3:35]
    assert shown.timestamp.ToMilliseconds() == stored.time_ms
    assert shown.deliver_at.ToMilliseconds() == stored.time_ms + 3_600_000
    assert shown.receipt_handle == "" and shown.retry_count == 0


async def test_reading_begins_where_it_is_asked_to(node: Served) -> None:
    await put(node, 0, b"a", b"b", b"c")
    positions = {
        pb.CONSUME_START_POSITION_EARLIEST: {},
        pb.CONSUME_START_POSITION_OFFSET: {"start_offset": 1},
        pb.CONSUME_START_POSITION_TIMESTAMP: {"start_timestamp": Timestamp(seconds=1)},
    }
    found = {}
    for position, fields in positions.items():
        given = {"topic": "orders", "partitions": [0, 0], "start_position": position, **fields}
        (first, *_) = await taken(node.client.stream("Consume", **given), 2)
        found[position] = first.offset

    assert list(found.values()) == [0, 1, 0]


async def test_the_latest_position_shows_only_what_comes(node: Served) -> None:
    await put(node, 0, b"a")
    call = node.client.stream(
        "Consume",
        topic="orders",
        partitions=[0],
        start_position=pb.CONSUME_START_POSITION_LATEST,
        max_wait=Duration(nanos=100_000_000),
    )
    assert (await call.read()).WhichOneof("payload") == "heartbeat"
    await put(node, 0, b"b")

    (shown,) = await taken(call, 1)

    assert shown.value == b"b"


async def test_batches_are_as_small_as_they_are_asked_to_be(node: Served) -> None:
    await put(node, 0, *(b"%d" % n * 100 for n in range(9)))
    call = node.client.stream("Consume", topic="orders", partitions=[0], max_messages=2)
    sizes = [len((await call.read()).messages.messages) for _ in range(5)]
    call.cancel()
    small = node.client.stream("Consume", topic="orders", partitions=[0], max_bytes=1)
    first = await small.read()
    small.cancel()

    assert sizes == [2, 2, 2, 2, 1]
    assert len(first.messages.messages) == 1


async def test_partitions_that_a_topic_gets_are_read_too() -> None:
    async with served(**{"broker.autoCreateTopics": True}) as node:
        object.__setattr__(node.parts.limits, "tail_keepalive_s", 0.02)
        await node.broker.topics.create_topic("orders", {"partitions": 1})
        call = node.client.stream("Consume", topic="orders")
        await node.broker.placement.add_partitions("orders", 2, ())
        await put(node, 1, b"new")

        (shown,) = await taken(call, 1)

    assert (shown.partition, shown.value) == (1, b"new")


async def test_what_can_t_be_read_is_told(node: Served) -> None:
    for given, code, status in REFUSED:
        refused = await node.client.refused("Consume", **{"topic": "orders", **given})

        assert (refused.code, refused.status) == (code, status)


async def test_a_topic_that_is_deleted_ends_its_readers(node: Served) -> None:
    call = node.client.stream("Consume", topic="orders", max_wait=Duration(nanos=100_000_000))
    await call.read()
    await node.broker.topics.delete_topic("orders")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        while True:
            await call.read()

    assert refusal(caught.value).code in ("unknown_topic", "unavailable")
