"""Subscribe and AckService: a member of a group as long as the stream lasts, and its receipts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from coordinator.brokers.registry import DRAINING
from goqueue.wire.batch import encode_columns
from goqueue.wire.errors import StaleGeneration
from node.api.claims import NOBODY
from node.api.queue import QueuedMessage, SettleRequest
from node.listeners.grpc import subscribe
from node.listeners.grpc.limits import GrpcLimits
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from tests.one_node import cluster_of, eventually, until
from tests.unit.node.listeners.grpc.client import Served, refusal, served

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"group_id": "no way"}, "invalid_name"),
    ({"topics": []}, "bad_request"),
    ({"topics": ["no way"]}, "invalid_name"),
    ({"topics": ["nowhere"]}, "unknown_topic"),
    ({"topics": [f"t{n}" for n in range(101)]}, "bad_request"),
    ({"start_position": 2}, "bad_request"),
    ({"session_timeout": Duration(nanos=-1)}, "bad_request"),
    ({"session_timeout": Duration(seconds=1 << 40)}, "bad_request"),
    ({"max_messages": -1}, "bad_request"),
    ({"heartbeat_interval": Duration(seconds=-1)}, "bad_request"),
]


@pytest.fixture
async def node() -> AsyncIterator[Served]:
    async with served() as found:
        await found.broker.topics.create_topic("orders", {"partitions": 2})
        yield found


async def put(node: Served, *values: bytes, partition: int = 0) -> None:
    batch = encode_columns(list(values), None)
    await node.broker.records.append("orders", partition, batch, deadline_s=30)


def subscribed(node: Served, **fields: Any) -> Any:
    return node.client.stream("Subscribe", **{"topics": ["orders"], "group_id": "g", **fields})


async def received(node: Served) -> list[QueuedMessage]:
    """What is ready for whoever comes. A member that has left may be a partition's for a moment."""
    while True:
        with suppress(StaleGeneration):
            return await node.broker.queue.receive(
                "g", ["orders"], claim=NOBODY, limit=10, wait_s=0, visibility_ms=None
            )
        await asyncio.sleep(0.01)


async def heard(call: Any, kind: str) -> Any:
    """The next of this kind."""
    while (told := await call.read()).WhichOneof("payload") != kind:
        pass
    return getattr(told, kind)


async def taken(call: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += (await heard(call, "messages")).messages
    return found


async def has(call: Any, count: int) -> Any:
    """Its assignment, when it is of so many partitions."""
    while len((told := await heard(call, "assignment")).partitions) != count:
        pass
    return told


async def members(node: Served) -> int:
    return len((await node.broker.members.membership("g")).members)


async def test_a_member_is_told_its_partitions_and_given_their_messages(node: Served) -> None:
    await put(node, b"a", b"b")
    call = subscribed(node, consumer_id="mine")

    told = await has(call, 2)
    found = await taken(call, 2)

    assert told.member_id.startswith("mine")
    assert [(one.topic, one.partition) for one in told.partitions] == [("orders", 0), ("orders", 1)]
    assert [(m.value, m.offset, m.retry_count) for m in found] == [(b"a", 0, 0), (b"b", 1, 0)]
    assert all(message.receipt_handle for message in found)
    call.cancel()


async def test_a_member_hears_of_a_partition_before_its_messages_however_late_that_is(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(node, b"a")
    members = node.broker.members
    heartbeat, may_come = members.heartbeat, asyncio.Event()

    async def late(*args: Any, **kwargs: Any) -> Any:
        found = await heartbeat(*args, **kwargs)
        await may_come.wait()
        return found

    monkeypatch.setattr(members, "heartbeat", late)
    monkeypatch.setattr(subscribe, "TOLD_S", 60.0)
    call = subscribed(node)
    said = [await call.read()]
    await until(
        lambda: node.broker.groups.group("g"),
        lambda view: sum(one.in_flight for one in view.partitions) == 1,
    )
    may_come.set()

    while said[-1].WhichOneof("payload") != "messages":
        said.append(await call.read())
    call.cancel()
    assert any(len(one.assignment.partitions) == 2 for one in said)


async def test_what_is_acked_does_not_come_again_and_what_is_nacked_does(node: Served) -> None:
    await put(node, b"a", b"b", b"c")
    call = subscribed(node)
    a, b, c = await taken(call, 3)

    acked = await node.client.ask("Ack", group_id="g", receipt_handle=a.receipt_handle)
    nacked = await node.client.ask(
        "Nack", receipt_handle=b.receipt_handle, visibility_timeout=Duration()
    )
    rejected = await node.client.ask(
        "Reject", group_id="g", receipt_handle=c.receipt_handle, reason="broken"
    )
    (again,) = await taken(call, 1)
    twice = await node.client.refused("Ack", group_id="g", receipt_handle=a.receipt_handle)
    call.cancel()

    assert acked.success and nacked.success and nacked.HasField("next_visible_at")
    assert (rejected.dlq_topic, rejected.dlq_partition, rejected.dlq_offset) == ("orders.dlq", 0, 2)
    assert (again.value, again.retry_count) == (b"b", 1)
    assert (twice.status, twice.family) == ("NOT_FOUND", "MESSAGE_NOT_FOUND")


async def test_a_nack_may_wait_and_an_extension_has_a_new_end(node: Served) -> None:
    await put(node, b"a", b"b")
    call = subscribed(node)
    a, b = await taken(call, 2)

    later = await node.client.ask(
        "Nack", receipt_handle=a.receipt_handle, visibility_timeout=Duration(seconds=3600)
    )
    hour = await node.client.ask(
        "ExtendVisibility",
        group_id="g",
        receipt_handle=b.receipt_handle,
        visibility_timeout=Duration(seconds=3600),
    )
    usual = await node.client.ask("ExtendVisibility", group_id="g", receipt_handle=b.receipt_handle)
    call.cancel()

    assert later.next_visible_at.seconds > 0
    gained_s = hour.new_deadline.seconds - usual.new_deadline.seconds
    assert 3600 - 60 <= gained_s <= 3600


async def test_what_settles_nothing_is_refused(node: Served) -> None:
    codes = {}
    for name, fields in {
        "no receipt": {"topic": "orders", "offset": 3},
        "none of ours": {"receipt_handle": "nonsense"},
        "bad group": {"receipt_handle": "nonsense", "group_id": "no way"},
    }.items():
        codes[name] = (await node.client.refused("Ack", **fields)).code
    zero = await node.client.refused(
        "ExtendVisibility", receipt_handle="x", visibility_timeout=Duration()
    )
    long = await node.client.refused(
        "Nack", receipt_handle="x", visibility_timeout=Duration(seconds=86_400)
    )

    assert codes == {
        "no receipt": "invalid_receipt",
        "none of ours": "invalid_receipt",
        "bad group": "invalid_name",
    }
    assert (zero.code, long.code) == ("bad_request", "bad_request")


async def test_a_batch_of_acks_tells_which_failed(node: Served) -> None:
    await put(node, b"a", b"b")
    call = subscribed(node)
    receipts = [message.receipt_handle for message in await taken(call, 2)]

    told = await node.client.ask(
        "BatchAck",
        group_id="g",
        receipt_handles=[*receipts, "nonsense"],
        offsets=[pb.OffsetAck(topic="orders", partition=1, offset=4)],
    )
    empty = await node.client.refused("BatchAck", group_id="g")
    many = await node.client.refused("BatchAck", receipt_handles=["x"] * 10_001)
    call.cancel()

    assert told.success_count == 2
    assert [one.error.code for one in told.failures] == [
        pb.ERROR_CODE_RECEIPT_HANDLE_INVALID,
        pb.ERROR_CODE_RECEIPT_HANDLE_INVALID,
    ]
    assert told.failures[0].receipt_handle == "nonsense"
    assert (told.failures[1].topic, told.failures[1].offset) == ("orders", 4)
    assert (empty.code, many.code) == ("bad_request", "bad_request")


async def test_partitions_are_shared_and_a_rebalance_is_told(node: Served) -> None:
    first = subscribed(node)
    await has(first, 2)
    second = subscribed(node)

    change = await heard(first, "rebalance")
    while change.type != pb.REBALANCE_TYPE_REVOKE:
        change = await heard(first, "rebalance")
    left, right = await has(first, 1), await has(second, 1)
    second.cancel()
    back = await has(first, 2)
    first.cancel()

    assert len(change.partitions) == 1
    assert left.partitions[0] != right.partitions[0]
    assert back.generation > left.generation


async def test_a_stream_that_ends_leaves_its_group(node: Served) -> None:
    call = subscribed(node)
    await has(call, 2)
    assert await members(node) == 1
    call.cancel()

    await until(lambda: members(node), lambda count: count == 0)


async def test_what_a_stream_had_not_settled_is_a_failed_attempt_and_what_it_had_is_done(
    node: Served,
) -> None:
    await put(node, b"a", b"b")
    first = subscribed(node)
    a, _ = await taken(first, 2)
    await node.client.ask("Ack", receipt_handle=a.receipt_handle)
    desk = node.listener._desk
    assert len(desk.given) == 1
    first.cancel()
    await until(lambda: members(node), lambda count: count == 0)

    second = subscribed(node)
    (again,) = await taken(second, 1)
    node.parts.stopping.set()
    await until(lambda: members(node), lambda count: count == 0)
    (found,) = await received(node)

    assert (again.value, again.retry_count) == (b"b", 1)
    assert (found.value, found.attempt) == (b"b", 2)  # the node stopped: that is no failure
    assert desk.given == {}
    assert all(budget.used == 0 for budget in node.parts.budgets.all)


async def test_a_subscription_remembers_the_newest_of_what_it_was_given() -> None:
    async with served(limits=GrpcLimits(given_max=2)) as node:
        await node.broker.topics.create_topic("orders", {"partitions": 2})
        await put(node, b"a", b"b", b"c", b"d")
        call = subscribed(node)
        await taken(call, 4)

        newest = node.listener._desk.given
        await eventually(lambda: [*map(len, newest.values())] == [2, 2])
        call.cancel()


async def test_a_stream_that_has_nothing_to_say_says_so(node: Served) -> None:
    call = subscribed(node, heartbeat_interval=Duration(nanos=100_000_000))

    told = await heard(call, "heartbeat")
    call.cancel()

    assert told.timestamp.seconds > 0


async def test_a_group_that_is_halted_says_why_once_and_goes_on_when_it_is_resumed(
    node: Served,
) -> None:
    await node.broker.topics.create_topic("one", {"partitions": 1})
    await node.broker.groups.put_group("g", {"halt_percent": 1, "halt_window": 1})
    for value in (b"a", b"b", b"c"):
        await node.client.ask("Publish", topic="one", value=value)
    before = subscribed(node, topics=["one"])
    for message in await taken(before, 3):
        await node.client.ask("Reject", receipt_handle=message.receipt_handle)
    before.cancel()
    call = subscribed(node, topics=["one"])

    told = await heard(call, "error")
    await node.broker.queue.resume("g", None)
    found = await taken(call, 1)
    call.cancel()

    assert told.details["code"] == "group_halted"
    assert found[0].receipt_handle


async def test_what_can_t_be_subscribed_to_is_told(node: Served) -> None:
    for given, code in REFUSED:
        fields = {"topics": ["orders"], "group_id": "g", **given}
        assert (await node.client.refused("Subscribe", **fields)).code == code, given.keys()


async def test_a_group_begins_where_its_first_subscriber_says(node: Served) -> None:
    await put(node, b"old")
    call = subscribed(node, start_position=pb.CONSUME_START_POSITION_LATEST)
    await has(call, 2)
    await put(node, b"new")

    (message,) = await taken(call, 1)
    call.cancel()

    assert message.value == b"new"


async def test_a_node_that_stops_ends_its_streams_and_their_members(node: Served) -> None:
    call = subscribed(node)
    await has(call, 2)

    node.parts.stopping.set()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await heard(call, "nothing")

    assert refusal(caught.value).status == "UNAVAILABLE"
    await until(lambda: members(node), lambda count: count == 0)


async def test_a_node_that_is_drained_moves_its_members_once(node: Served) -> None:
    await put(node, b"a")
    brokers = cluster_of(node.broker).state.brokers
    call = subscribed(node)
    await taken(call, 1)

    brokers["node-1"] = replace(brokers["node-1"], state=DRAINING)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await heard(call, "nothing")

    assert (refusal(caught.value).status, "is drained" in caught.value.details()) == (
        "UNAVAILABLE",
        True,
    )
    await until(lambda: members(node), lambda count: count == 0)
    (message,) = await received(node)
    assert message.attempt == 1
    await node.broker.receipts.settle([SettleRequest(message.receipt, "release")], "g")
    again = subscribed(node)  # there is no other node
    await taken(again, 1)
    again.cancel()
