"""Calls with one message each, made at the same time: few requests, and to each its own result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any, cast

import pytest

from goqueue import AsyncClient, Client, OutgoingMessage, Published, PublishFailed
from goqueue.errors import (
    BatchError,
    Busy,
    Closed,
    GoQueueError,
    NoQuorum,
    PayloadTooLarge,
    Timeout,
)
from goqueue.publish.round_robin import RoundRobin
from goqueue.publish.singles import REQUEST_MESSAGES_MAX, Single, Singles
from goqueue.wire.errors import NullValue
from tests.one_node import eventually, serving
from tests.unit.goqueue.conftest import QUICK
from tests.unit.goqueue.counted import Counted
from tests.unit.goqueue.server import FakeCluster, Fault

CALLERS = 64


class Publishes(Counted):
    """A client that publishes, and what it asked for."""

    @property
    def publishes(self) -> list[str]:
        return [request for request in self.requests if request.startswith("POST")]

    async def values(self) -> list[str]:
        return [message.text async for message in self.client.messages("orders")]


@pytest.fixture
async def node() -> AsyncIterator[Publishes]:
    """With a topic of three partitions."""
    async with serving() as url, AsyncClient(url) as client:
        await client.create_topic("orders", partitions=3)
        yield Publishes(client)


async def at_once(calls: Iterable[Awaitable[Published]]) -> list[Published | BaseException]:
    return await asyncio.gather(*calls, return_exceptions=True)


async def all_of(calls: Iterable[Awaitable[Published]]) -> list[Published]:
    return list(await asyncio.gather(*calls))


def shared_requests() -> list[str]:
    """Those on their way in tasks of their own."""
    tasks = [str(task.get_coro()) for task in asyncio.all_tasks()]
    return [task for task in tasks if "SharedRequests" in task]


# over a real node


async def test_callers_at_the_same_time_share_their_requests(node: Publishes) -> None:
    published = await all_of(node.client.publish("orders", str(n)) for n in range(CALLERS))

    assert len({one.id for one in published}) == CALLERS
    assert sorted(await node.values()) == sorted(map(str, range(CALLERS)))
    assert node.requests[0] == "GET /v1/topics/orders"
    assert len(node.publishes) == 2, node.requests  # the first, and all that came meanwhile


async def test_a_lone_call_makes_one_request(node: Publishes) -> None:
    await node.client.publish("orders", "first")
    node.requests.clear()

    await node.client.publish("orders", "second")

    assert len(node.requests) == 1


async def test_calls_of_a_key_are_stored_in_their_order(node: Publishes) -> None:
    keys = [f"k{n % 16}" for n in range(CALLERS * 4)]

    published = await all_of(
        node.client.publish("orders", str(n), key=key) for n, key in enumerate(keys)
    )

    assert len(node.publishes) <= 6
    for key in set(keys):
        offsets = [one.offset for one, its in zip(published, keys, strict=True) if its == key]
        assert offsets == sorted(offsets)


async def test_a_topic_of_one_partition_stores_all_calls_in_their_order(node: Publishes) -> None:
    await node.client.create_topic("line", partitions=1)

    published = await all_of(
        node.client.publish("line", str(n), key=None if n % 3 else "k") for n in range(CALLERS)
    )

    assert [one.offset for one in published] == list(range(CALLERS))


async def test_calls_of_one_message_share_whichever_call_it_is(node: Publishes) -> None:
    calls = [node.client.publish("orders", "a", partition=1) for _ in range(8)]
    many = [
        node.client.publish_many("orders", [OutgoingMessage("b", partition=1)]) for _ in range(8)
    ]

    await asyncio.gather(*calls, *many)

    assert len(node.publishes) == 2


async def test_a_message_that_is_refused_fails_only_its_call(node: Publishes) -> None:
    values: list[str | None] = [str(n) for n in range(20)]
    values[7] = values[13] = None  # the topic is not compacted

    told = await at_once(node.client.publish("orders", value, partition=0) for value in values)

    assert [n for n, one in enumerate(told) if isinstance(one, NullValue)] == [7, 13]
    stored = [one.offset for one in told if isinstance(one, Published)]
    assert stored == list(range(18))
    assert await node.values() == [value for value in values if value is not None]


async def test_a_message_too_large_for_its_topic_fails_only_its_call(node: Publishes) -> None:
    values = [b"x"] * 10
    values[4] = bytes((1 << 20) + 1)

    told = await at_once(node.client.publish("orders", value, partition=0) for value in values)

    assert [type(one) for one in told] == [
        PayloadTooLarge if n == 4 else Published for n in range(10)
    ]


async def test_what_can_not_be_encoded_fails_only_its_call(node: Publishes) -> None:
    messages = [OutgoingMessage(str(n), partition=0) for n in range(8)]
    messages[3] = OutgoingMessage("x", partition=0, message_id="")
    messages[5] = OutgoingMessage("\ud800", partition=0)

    told = await at_once(
        node.client.publish(
            "orders", message.value, partition=message.partition, message_id=message.message_id
        )
        for message in messages
    )

    assert isinstance(told[3], BatchError)
    assert isinstance(told[5], UnicodeEncodeError)
    assert await node.values() == ["0", "1", "2", "4", "6", "7"]


async def test_what_is_no_message_takes_nothing_from_those_it_comes_with(node: Publishes) -> None:
    pairs: Any = (("a", b"b"),)  # of a message that was read; to be published they are a mapping
    odd = [
        OutgoingMessage("pairs", partition=0, headers=pairs),
        OutgoingMessage("nan", partition=0, ttl=cast(Any, Decimal("NaN"))),
    ]
    calls = [node.client.publish("orders", str(n), partition=0) for n in range(4)]
    calls[2:2] = [
        cast(Awaitable[Published], node.client.publish_many("orders", [one])) for one in odd
    ]

    told = await at_once(calls)

    assert isinstance(told[2], AttributeError)
    assert isinstance(told[3], ArithmeticError)
    assert await node.values() == ["0", "1", "2", "3"]
    assert await node.client.publish("orders", "after", partition=0)


async def test_halves_of_a_refused_request_are_not_sent_after_its_time() -> None:
    sent: list[int] = []

    async def send(*_: Any, **__: Any) -> list[Published | GoQueueError]:
        sent.append(1)
        return [NullValue("a test")] * 8

    singles = Singles(send, lambda *_: b"", RoundRobin(), 30.0)
    messages = [Single(OutgoingMessage(str(n)), 0, False) for n in range(8)]

    told = await singles._send_to("orders", 0, messages, -1.0)

    assert len(sent) == 1
    assert [(type(one), one.outcome) for one in told if isinstance(one, GoQueueError)] == [
        (Timeout, "none")
    ] * 8


async def test_a_lone_call_that_can_not_be_encoded_raises_why(node: Publishes) -> None:
    with pytest.raises(UnicodeEncodeError):
        await node.client.publish("orders", "\ud800")
    with pytest.raises(PayloadTooLarge):
        await node.client.publish_many("orders", [OutgoingMessage("x", key=bytes(70_000))])
    assert node.publishes == []


async def test_repeats_of_an_id_are_found_within_a_shared_request(node: Publishes) -> None:
    published = await all_of(
        node.client.publish("orders", "x", message_id=f"m{n % 4}", partition=0) for n in range(16)
    )

    assert len({one.offset for one in published}) == 4
    assert sum(one.duplicate for one in published) == 12
    assert len(await node.values()) == 4


async def test_delayed_messages_do_not_share(node: Publishes) -> None:
    published = await all_of(
        node.client.publish("orders", "x", delay=60, partition=0) for _ in range(4)
    )

    assert all(one.deliver_at_ms for one in published)
    assert len(node.publishes) == 4


async def test_more_than_a_request_holds_is_sent_in_several(node: Publishes) -> None:
    count = REQUEST_MESSAGES_MAX + 2

    await all_of(node.client.publish("orders", "x", partition=0) for _ in range(count))
    await all_of(node.client.publish("orders", bytes(600_000), partition=1) for _ in range(3))

    paths = [path.split("/")[-2] for path in node.publishes]
    assert paths == ["0"] * 3 + ["1"] * 3


# over a server that misbehaves


@pytest.mark.parametrize("fault", [Busy(), NoQuorum()], ids=str)
async def test_a_shared_request_refused_for_now_is_repeated(
    client: AsyncClient, cluster: FakeCluster, fault: GoQueueError
) -> None:
    cluster.create("orders", 1)
    cluster.faults.extend([fault, fault, fault])

    published = await all_of(client.publish("orders", str(n)) for n in range(CALLERS))

    assert [one.offset for one in published] == list(range(CALLERS))
    assert len(cluster.bodies) == 5


async def test_who_is_refused_for_good_has_an_error_of_its_own(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.faults.extend([Busy() for _ in range(100)])

    told = await at_once(client.publish("orders", str(n)) for n in range(CALLERS))

    assert len({id(one) for one in told if isinstance(one, Busy)}) == CALLERS
    assert {one.outcome for one in told if isinstance(one, Busy)} == {"none"}
    assert len(cluster.bodies) == 2 * QUICK.attempts_max


async def test_a_lost_request_without_ids_is_of_unknown_outcome_and_not_repeated(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.answers.append([{"partition": 0, "offset": 0}])
    cluster.faults.append(Fault.CUT_AFTER)

    told = await at_once(client.publish("orders", str(n)) for n in range(4))

    assert isinstance(told[0], Published)
    assert [one.outcome for one in told if isinstance(one, GoQueueError)] == ["unknown"] * 3
    assert len(cluster.bodies) == 2


async def test_a_lost_request_of_messages_with_ids_is_repeated_and_stored_once(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    (partition,) = cluster.create("orders", 1)
    cluster.faults.extend([NoQuorum(), Fault.CUT_AFTER])

    published = await all_of(client.publish("orders", str(n), message_id=f"m{n}") for n in range(4))

    assert [one.offset for one in published] == [0, 1, 2, 3]
    assert partition.values() == [b"0", b"1", b"2", b"3"]


async def test_messages_with_and_without_ids_share_no_request(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    (partition,) = cluster.create("orders", 1)

    await all_of(
        client.publish("orders", str(n), message_id=f"m{n}" if n in (2, 3) else None)
        for n in range(6)
    )

    assert partition.values() == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert len(cluster.bodies) == 4


async def test_a_partition_that_does_not_answer_holds_up_only_what_was_sent_to_it(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 3)
    cluster.faults.append(Fault.HANG)
    stuck = asyncio.ensure_future(client.publish("orders", "stuck"))
    await cluster.asked.wait()

    published = [await client.publish("orders", str(n)) for n in range(6)]

    hanging = {0, 1, 2} - {one.partition for one in published}
    assert len(hanging) == 1
    stuck.cancel()


async def test_a_cancelled_caller_takes_nothing_from_the_others(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    (partition,) = cluster.create("orders", 1)
    cluster.holding.clear()
    calls = [asyncio.ensure_future(client.publish("orders", str(n))) for n in range(4)]
    await cluster.asked.wait()

    calls[2].cancel()
    cluster.holding.set()
    told = await at_once(calls)

    assert isinstance(told[2], asyncio.CancelledError)
    assert partition.values() == [b"0", b"1", b"3"]


async def test_calls_that_wait_when_the_client_is_closed_fail_as_closed(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.holding.clear()
    calls = [asyncio.ensure_future(client.publish("orders", str(n))) for n in range(4)]
    await cluster.asked.wait()

    await client.close()
    told = await at_once(calls)

    assert isinstance(told[0], GoQueueError)
    assert told[0].outcome == "unknown"
    assert [type(one) for one in told[1:]] == [Closed] * 3
    assert [one.outcome for one in told[1:] if isinstance(one, Closed)] == ["none"] * 3
    cluster.holding.set()
    assert len(cluster.bodies) == 1


async def test_a_client_that_is_closed_has_no_shared_request_on_its_way(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.holding.clear()
    calls = [
        asyncio.ensure_future(client.publish("orders", str(n), message_id=f"m{n}"))
        for n in range(4)
    ]
    await cluster.asked.wait()
    calls[0].cancel()
    await eventually(lambda: len(cluster.bodies) == 2)

    await client.close()

    assert shared_requests() == []
    told = await at_once(calls)
    assert [one.outcome for one in told[1:] if isinstance(one, GoQueueError)] == ["unknown"] * 3
    cluster.holding.set()


async def test_calls_that_no_server_answers_end_in_time(url: str, cluster: FakeCluster) -> None:
    cluster.create("orders", 1)
    cluster.faults.extend([Fault.HANG] * 10)  # each request that any of them sends
    async with AsyncClient(url, retry=QUICK, timeout_s=0.2) as client:
        told = await at_once(client.publish("orders", str(n)) for n in range(4))
        with pytest.raises(PublishFailed) as failed:
            await client.publish_many("orders", ["x"])

    assert [type(one) for one in told] == [Timeout] * 4
    assert isinstance(told[0], Timeout)
    assert told[0].outcome == "unknown"
    assert failed.value.outcome == "unknown"


async def test_many_who_want_to_know_a_topic_ask_once(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 3)

    await all_of(client.publish("orders", str(n)) for n in range(CALLERS))

    assert cluster.paths("GET") == ["/v1/topics/orders"]


async def test_calls_of_many_threads_share_their_requests(cluster: FakeCluster, url: str) -> None:
    cluster.create("orders", 1)
    cluster.holding.clear()

    with ThreadPoolExecutor(CALLERS) as pool:
        client = Client(url)
        calls = [
            asyncio.wrap_future(pool.submit(client.publish, "orders", str(n)))
            for n in range(CALLERS)
        ]
        lanes = client._twin._publishing._singles._shared._lanes
        await eventually(lambda: [len(lane.waiting) for lane in lanes.values()] == [CALLERS - 1])
        cluster.holding.set()
        published = await all_of(calls)
        await asyncio.to_thread(client.close)

    assert sorted(one.offset for one in published) == list(range(CALLERS))
    assert len(cluster.bodies) == 2
