"""PublishStream: each message has its own answer, in order, and all of them come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from node.http.budget.memory import Kind
from node.listeners.grpc.limits import GrpcLimits
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from tests.one_node import eventually
from tests.unit.node.listeners.grpc.client import Served, refusal, served


@pytest.fixture
async def node() -> AsyncIterator[Served]:
    async with served() as found:
        yield found


async def sent(node: Served, *messages: dict[str, Any]) -> list[Any]:
    """The answers to these, after which nothing more is said."""
    call = node.client.stream("PublishStream")
    for number, fields in enumerate(messages):
        given = {"correlation_id": str(number), "topic": "orders", "value": b"v", **fields}
        await call.write(pb.PublishStreamRequest(**given))
    await call.done_writing()
    return [answer async for answer in call]


async def test_answers_of_a_partition_come_in_order_with_their_offsets(node: Served) -> None:
    answers = await sent(node, *({"partition": 1, "value": b"%d" % n} for n in range(200)))

    assert [answer.correlation_id for answer in answers] == [str(n) for n in range(200)]
    assert [answer.offset for answer in answers] == list(range(200))
    assert {answer.topic for answer in answers} == {"orders"}


async def test_messages_of_a_key_share_a_partition_and_batches_hold_many(node: Served) -> None:
    answers = await sent(node, *({"key": b"k", "value": b"v"} for _ in range(200)))

    (partition,) = {answer.partition for answer in answers}
    found = await node.broker.records.read(
        "orders", partition, 0, max_records=1000, max_bytes=1 << 20, wait_s=0
    )
    assert len(answers) == 200
    assert len(found.batches) < 150


async def test_a_message_that_can_t_be_stored_fails_alone(node: Served) -> None:
    answers = await sent(
        node,
        {"partition": 1},
        {"topic": "or ders"},
        {"partition": 9},
        {"value": bytes((1 << 20) + 1)},
        {"partition": 1},
    )

    by_id = {answer.correlation_id: answer for answer in answers}
    codes = [by_id[str(n)].error.details.get("code") for n in range(5)]
    assert codes == [None, "invalid_name", "unknown_partition", "payload_too_large", None]
    assert (by_id["0"].offset, by_id["4"].offset) == (0, 1)


async def test_a_producer_s_messages_are_stored_once_and_in_order(node: Served) -> None:
    id, epoch = await node.broker.records.init_producer(None)
    mine = {"partition": 1, "producer_id": id, "producer_epoch": epoch}

    first = await sent(node, *({**mine, "sequence": n} for n in range(5)))
    again = await sent(node, *({**mine, "sequence": n} for n in range(7)), {**mine, "sequence": 9})

    assert [answer.offset for answer in first] == list(range(5))
    assert [answer.offset for answer in again[:7]] == list(range(7))
    assert again[7].error.code == pb.ERROR_CODE_UNSPECIFIED
    assert again[7].error.details["code"] == "out_of_order"


async def test_what_is_no_message_ends_the_stream(node: Served) -> None:
    raw = node.client.channel.stream_stream("/goqueue.v1.PublishService/PublishStream")()
    await raw.write(b"\xff\xff")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await raw.read()

    assert refusal(caught.value).code == "bad_request"


async def test_no_more_is_read_than_may_be_unanswered() -> None:
    limits = GrpcLimits(unanswered_max=10)
    async with served(limits=limits) as node:
        hold = asyncio.Event()
        taken = 0
        append = node.broker.records.append

        async def held_up(*given: Any, **named: Any) -> Any:
            nonlocal taken
            await hold.wait()
            return await append(*given, **named)

        node.broker.records.append = held_up  # type: ignore[method-assign]
        call = node.client.stream("PublishStream")
        for number in range(100):
            await call.write(
                pb.PublishStreamRequest(correlation_id=str(number), topic="orders", value=b"v")
            )
        await call.done_writing()
        bodies = node.parts.budgets[Kind.BODIES]
        window = limits.open_call_bytes
        await eventually(lambda: bodies.used > window + 2560)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert bodies.used < window + 10 * 400

        hold.set()
        answers = [answer async for answer in call]

    assert len(answers) == 100
    assert bodies.used == 0


async def test_a_stream_that_is_cut_gives_back_all_that_it_holds(node: Served) -> None:
    call = node.client.stream("PublishStream")
    await call.write(pb.PublishStreamRequest(topic="orders", value=b"v"))
    await call.read()
    call.cancel()

    await eventually(lambda: node.parts.budgets[Kind.BODIES].used == 0)


async def test_a_node_that_stops_answers_what_it_has_taken_and_says_so(node: Served) -> None:
    call = node.client.stream("PublishStream")
    await call.write(pb.PublishStreamRequest(correlation_id="a", topic="orders", value=b"v"))
    assert (await call.read()).correlation_id == "a"

    node.parts.stopping.set()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()

    refused = refusal(caught.value)
    assert (refused.status, refused.family) == ("UNAVAILABLE", "BROKER_NOT_AVAILABLE")
    assert refused.error.retry_after.seconds == 1
