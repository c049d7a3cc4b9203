"""Publish over gRPC: what is stored, where, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from goqueue.wire.batch import RecordBatch
from goqueue.wire.partitioner import partition_for
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from tests.unit.node.listeners.grpc.client import Client, Served, served

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"topic": "or ders"}, "invalid_name", "UNSPECIFIED"),
    ({"topic": ""}, "invalid_name", "UNSPECIFIED"),
    ({"partition": 6}, "unknown_partition", "PARTITION_NOT_FOUND"),
    ({"partition": -1}, "invalid_partition", "INVALID_PARTITION"),
    ({"priority": 5}, "bad_message", "INVALID_MESSAGE"),
    ({"priority": -1}, "bad_message", "INVALID_MESSAGE"),
    ({"headers": {"": "x"}}, "bad_message", "INVALID_MESSAGE"),
    ({"headers": {str(n): "" for n in range(1001)}}, "bad_message", "INVALID_MESSAGE"),
    ({"producer_id": -1}, "bad_message", "INVALID_MESSAGE"),
    ({"value": bytes((1 << 20) + 1)}, "payload_too_large", "MESSAGE_TOO_LARGE"),
    ({"delay": Duration(seconds=-1)}, "bad_request", "UNSPECIFIED"),
    ({"delay": Duration(nanos=-1)}, "bad_request", "UNSPECIFIED"),
    ({"deliver_at": Timestamp(seconds=-1)}, "bad_request", "UNSPECIFIED"),
    (
        {"delay": Duration(seconds=1), "deliver_at": Timestamp(seconds=1)},
        "bad_message",
        "INVALID_MESSAGE",
    ),
]


@pytest.fixture
async def node() -> AsyncIterator[Served]:
    async with served() as found:
        yield found


async def stored(node: Served, partition: int, topic: str = "orders") -> list[Any]:
    found = await node.broker.records.read(
        topic, partition, 0, max_records=100, max_bytes=1 << 20, wait_s=0
    )
    return [record for one in found.batches for record in RecordBatch.parse(one.batch).records()]


async def test_a_message_is_stored_with_all_that_it_says(node: Served) -> None:
    told = await node.client.ask(
        "Publish",
        topic="orders",
        key=b"\x00key",
        value=b"\xff\x00",
        headers={"a": "ä", "b": ""},
        priority=0,
    )

    (record,) = await stored(node, told.partition)
    assert (told.topic, told.offset) == ("orders", 0)
    assert told.partition == partition_for(b"\x00key", 6)
    assert (record.key, record.value, record.lane) == (b"\x00key", b"\xff\x00", 0)
    assert dict(record.headers) == {"a": "ä".encode(), "b": b""}
    assert told.timestamp.seconds > 0 and not told.HasField("error")


async def test_every_ack_mode_is_answered_once_the_message_is_stored(node: Served) -> None:
    for mode in pb.AckMode.values():
        told = await node.client.ask("Publish", topic="orders", value=b"v", ack_mode=mode)

        assert (await stored(node, told.partition))[told.offset].value == b"v"


async def test_partition_zero_without_a_key_is_any_and_another_is_that_one(node: Served) -> None:
    await node.client.ask("Publish", topic="orders", value=b"first", partition=2, key=b"k")
    chosen = await node.client.ask("Publish", topic="orders", value=b"any")

    assert [record.value for record in await stored(node, 2)][:1] == [b"first"]
    assert [r.value for r in await stored(node, chosen.partition)][-1] == b"any"


async def test_a_priority_that_is_not_given_is_normal(node: Served) -> None:
    told = await node.client.ask("Publish", topic="orders", value=b"v")

    (record,) = await stored(node, told.partition)
    assert record.lane == 2


async def test_a_delay_counts_from_the_log_s_time_and_a_moment_is_one(node: Served) -> None:
    moment = Timestamp(seconds=4_000_000_000 // 2 + 10**8)
    await node.client.ask(
        "Publish", topic="orders", value=b"a", partition=1, delay=Duration(nanos=1)
    )
    late = await node.client.refused(
        "Publish", topic="orders", value=b"b", partition=1, deliver_at=moment
    )

    (record,) = await stored(node, 1)
    assert record.deliver_at_ms == 1
    assert (late.code, late.family) == ("delay_too_long", "INVALID_MESSAGE")


async def test_what_is_no_message_is_refused_with_a_code(node: Served) -> None:
    for given, code, family in REFUSED:
        fields = {"topic": "orders", "value": b"v", **given}
        refused = await node.client.refused("Publish", **fields)

        assert (refused.code, refused.family) == (code, family), given.keys()
        assert refused.status in ("INVALID_ARGUMENT", "NOT_FOUND")
        assert refused.error.details["outcome"] == "none"
        assert not refused.error.HasField("retry_after")


async def test_a_topic_that_is_not_there_is_told_so() -> None:
    async with served(**{"broker.autoCreateTopics": False}) as node:
        refused = await node.client.refused("Publish", topic="nowhere", value=b"v")

    assert (refused.status, refused.family) == ("NOT_FOUND", "TOPIC_NOT_FOUND")
    assert refused.error.details["topic"] == "nowhere"


async def test_a_compacted_topic_asks_for_a_key(node: Served) -> None:
    await node.broker.topics.create_topic("latest", {"cleanup": "compact"})

    refused = await node.client.refused("Publish", topic="latest", value=b"v")

    assert refused.code == "key_required"


async def test_a_producer_s_message_is_stored_once(node: Served) -> None:
    id, epoch = await node.broker.records.init_producer(None)
    given = {
        "topic": "orders",
        "value": b"v",
        "partition": 1,
        "producer_id": id,
        "producer_epoch": epoch,
    }

    first = await node.client.ask("Publish", **given, sequence=0)
    again = await node.client.ask("Publish", **given, sequence=0)
    gap = await node.client.refused("Publish", **given, sequence=5)

    assert (first.offset, again.offset) == (0, 0)
    assert (gap.status, gap.code, gap.error.details["expected"]) == ("ABORTED", "out_of_order", "1")


async def test_a_call_s_trace_reaches_its_message_unless_it_has_one(node: Served) -> None:
    client = Client(node.client.channel)
    client.metadata = (("traceparent", PARENT), ("tracestate", "a=b"))
    own = PARENT.replace("0af7", "1af7")

    await client.ask("Publish", topic="orders", value=b"v", partition=1)
    await client.ask(
        "Publish", topic="orders", value=b"v", partition=1, headers={"traceparent": own}
    )

    stamped, kept = await stored(node, 1)
    assert dict(stamped.headers) == {"traceparent": PARENT.encode(), "tracestate": b"a=b"}
    assert dict(kept.headers) == {"traceparent": own.encode()}


async def test_bytes_that_are_no_request_are_refused(node: Served) -> None:
    raw = node.client.channel.unary_unary("/goqueue.v1.PublishService/Publish")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await raw(b"\xff\xff\xff")

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "this is no PublishRequest"
