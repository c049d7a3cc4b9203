"""Settles of one message each, made at the same time: few requests, and to each its own result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Any

import pytest

from goqueue import AsyncClient, Received, Settled, SettleFailed
from goqueue.errors import BadRequest, Busy, Closed, GoQueueError, NoQuorum, NotInFlight
from tests.one_node import eventually
from tests.unit.goqueue.conftest import QUICK
from tests.unit.goqueue.counted import Counted
from tests.unit.goqueue.queue_cluster import QueueCluster
from tests.unit.goqueue.queue_server import Cut, ScriptedServer, received, settled

RECEIVE = "/groups/billing/receive"
SETTLE = "/groups/billing/settle"
CALLERS = 64


class Settles(Counted):
    """A client that settles what it received."""

    async def received(self, count: int, topic: str = "orders") -> list[Received]:
        """So many messages are published and received; what that asks is not counted."""
        await self.client.publish_many(topic, [str(n) for n in range(count)])
        messages = await self.client.receive("billing", topic, limit=count)
        self.requests.clear()
        return messages


@pytest.fixture
async def node() -> AsyncIterator[Settles]:
    async with QueueCluster().serve() as url, AsyncClient(url) as client:
        await client.create_topic("orders", partitions=1)
        yield Settles(client)


async def told(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    return await asyncio.gather(*calls, return_exceptions=True)


# over a real node


async def test_acks_at_the_same_time_share_their_requests(node: Settles) -> None:
    messages = await node.received(CALLERS)

    results = await asyncio.gather(*(message.ack() for message in messages))

    assert [(one.offset, one.state) for one in results] == [(n, "acked") for n in range(CALLERS)]
    assert node.requests == ["POST /v1/groups/billing/settle"] * 2
    assert max(one.committed_offset for one in results) == CALLERS


async def test_a_lone_ack_is_a_request_at_once(node: Settles) -> None:
    (message,) = await node.received(1)

    await node.client.ack(message)

    assert len(node.requests) == 1


async def test_calls_for_one_message_share_whatever_they_do(node: Settles) -> None:
    messages = await node.received(6)

    results = await told(
        [
            messages[0].extend("1m"),
            messages[0].ack(),
            messages[1].nack("later", delay="1m"),
            messages[2].reject("never"),
            node.client.ack(messages[3]),
            node.client.release(messages[4]),
            node.client.settle_one(messages[5], "ack"),
        ]
    )

    states = [one.state if isinstance(one, Settled) else one[0].state for one in results]
    assert states == ["extended", "acked", "requeued", "dead", "acked", "released", "acked"]
    assert len(node.requests) == 2


async def test_a_settle_that_is_refused_fails_only_its_call(node: Settles) -> None:
    messages = await node.received(8)
    await messages[3].ack()

    results = await told(
        [
            *(message.ack() for message in messages),
            node.client.ack(messages[3]),
            node.client.settle_one(messages[5], "nack", position="middle"),
        ]
    )

    failed = {n: type(one) for n, one in enumerate(results) if isinstance(one, Exception)}
    assert failed == {3: NotInFlight, 8: SettleFailed, 9: BadRequest}
    assert isinstance(results[8], SettleFailed)
    assert isinstance(results[8].results[0], NotInFlight)


async def test_what_can_not_be_meant_is_refused_at_once(node: Settles) -> None:
    (message,) = await node.received(1)

    with pytest.raises(BadRequest):
        await node.client.settle_one(message, "forget")
    with pytest.raises(BadRequest):
        await message.extend("soon")

    assert node.requests == []


async def test_partitions_do_not_wait_for_each_other(node: Settles) -> None:
    await node.client.create_topic("wide", partitions=2)
    messages = [*await node.received(4, "wide"), *await node.received(4, "wide")]

    await asyncio.gather(*(message.ack() for message in messages))

    assert {message.partition for message in messages} == {0, 1}
    assert len(node.requests) == 4


async def test_long_reasons_are_sent_within_a_servers_bound(node: Settles) -> None:
    messages = await node.received(20)

    results = await asyncio.gather(*(message.nack("\x00" * 50_000) for message in messages))

    assert {one.state for one in results} == {"requeued"}
    assert len(node.requests) == 11


# over a server that misbehaves


@pytest.fixture
async def client(server: tuple[ScriptedServer, str]) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server[1], retry=QUICK, attempt_timeout_s=20.0) as client:
        yield client


async def three(scripted: ScriptedServer, client: AsyncClient) -> list[Received]:
    scripted.script("POST", RECEIVE, {"messages": [received(n) for n in range(3)]})
    messages = await client.receive("billing", "orders")
    scripted.asked.clear()
    return messages


@pytest.mark.parametrize("fault", [Busy(), NoQuorum(), Cut.NOW], ids=str)
async def test_a_shared_request_that_failed_for_now_is_repeated(
    scripted: ScriptedServer, client: AsyncClient, fault: GoQueueError | Cut
) -> None:
    messages = await three(scripted, client)
    others = {"results": [settled(1), settled(2)], "settled": 2}
    scripted.script("POST", SETTLE, {"results": [settled(0)], "settled": 1}, fault, others)

    results = await asyncio.gather(*(message.ack() for message in messages))

    assert [one.offset for one in results] == [0, 1, 2]
    assert len(scripted.asked) == 3


async def test_what_may_have_been_settled_by_a_lost_request_is_of_unknown_outcome(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    messages = await three(scripted, client)
    gone = {**NotInFlight().to_body(), "receipt": "r1", "success": False, "action": "ack"}
    scripted.script(
        "POST",
        SETTLE,
        {"results": [settled(0)], "settled": 1},
        Cut.NOW,
        {"results": [gone, settled(2)], "settled": 1},
    )

    results = await told(message.ack() for message in messages)

    assert isinstance(results[1], NotInFlight)
    assert results[1].outcome == "unknown"
    assert isinstance(results[2], Settled)


async def test_who_is_refused_for_good_has_an_error_of_its_own(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    messages = await three(scripted, client)
    scripted.script("POST", SETTLE, Busy())

    results = await told(message.ack() for message in messages)

    assert [type(one) for one in results] == [Busy] * 3
    assert len(set(map(id, results))) == 3
    assert len(scripted.asked) == 2 * QUICK.attempts_max


async def test_a_cancelled_caller_takes_nothing_from_the_others(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    messages = await three(scripted, client)
    scripted.script(
        "POST", SETTLE, {"results": [settled(0)]}, {"results": [settled(1)]}, {"results": []}
    )
    scripted.hold.clear()
    calls = [asyncio.ensure_future(message.ack()) for message in messages]
    await eventually(lambda: scripted.asked)

    calls[2].cancel()
    scripted.hold.set()
    results = await told(calls)

    assert [type(one) for one in results] == [Settled, Settled, asyncio.CancelledError]
    assert [len(asked.body["settles"]) for asked in scripted.asked] == [1, 1]


async def test_calls_that_wait_when_the_client_is_closed_fail_as_closed(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    messages = await three(scripted, client)
    scripted.hold.clear()
    calls = [asyncio.ensure_future(message.ack()) for message in messages]
    await eventually(lambda: scripted.asked)

    await client.close()
    results = await told(calls)
    scripted.hold.set()

    assert isinstance(results[0], GoQueueError)
    assert [type(one) for one in results[1:]] == [Closed] * 2
    assert [one.outcome for one in results[1:]] == ["none"] * 2
    assert len(scripted.asked) == 1


async def test_a_client_that_is_closed_has_no_shared_settle_on_its_way(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    messages = await three(scripted, client)
    scripted.hold.clear()
    calls = [asyncio.ensure_future(message.ack()) for message in messages]
    await eventually(lambda: len(scripted.asked) == 1)
    calls[0].cancel()
    await eventually(lambda: len(scripted.asked) == 2)

    await client.close()

    assert not [task for task in asyncio.all_tasks() if "SharedRequests" in str(task.get_coro())]
    results = await told(calls)
    assert [type(one) for one in results] == [asyncio.CancelledError, Closed, Closed]
    scripted.hold.set()
