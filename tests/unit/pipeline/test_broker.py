"""The pipeline's access to a cluster: what there is, and the way round a dead end."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest

from goqueue import AsyncClient
from goqueue.errors import UnknownPartition, UnknownTopic
from goqueue.transport.http import join
from goqueue.wire.batch import RecordBatch
from node.broker.records import NodeRecords
from pipeline.broker import Broker, Span
from pipeline.broker_access import Access
from tests.lagging import Lagging
from tests.one_node import one_node, serving
from tests.ports import free_ports

T = TypeVar("T")


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with serving() as url:
        yield url


async def ask(access: Access, question: Callable[[Broker], T]) -> T:
    """Off the loop, as the server runs on it; over a broker that has travelled to an executor."""

    def asked() -> T:
        with pickle.loads(pickle.dumps(Broker(access))) as broker:
            return question(broker)

    return await asyncio.to_thread(asked)


async def fill(url: str, topic: str, values: list[str]) -> list[int]:
    """The log's times of these messages, all in partition 0 of two."""
    async with AsyncClient(url) as client:
        await client.create_topic(topic, partitions=2)
        for value in values:
            await client.publish(topic, value, partition=0)
            await asyncio.sleep(0.002)
        return [message.timestamp_ms for message in await client.read(topic, 0)]


async def test_it_tells_topics_and_where_their_partitions_begin_and_end(url: str) -> None:
    await fill(url, "orders", ["a", "b", "c"])
    await fill(url, "others", [])
    access = Access((url,))

    names = await ask(access, lambda broker: (broker.topics(), broker.topics_like("or.*")))
    facts = await ask(access, lambda broker: broker.topic("orders"))
    spans = await ask(access, lambda broker: broker.spans("orders", [0, 1]))

    assert names == (["orders", "others"], ["orders"])
    assert (facts.name, facts.partitions, facts.is_compacted) == ("orders", 2, False)
    assert facts.leader(7) is None
    assert spans == {0: Span(0, 3), 1: Span(0, 0)}


async def test_one_question_tells_where_all_partitions_end(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(url, "orders", ["a"])
    asked: list[str] = []
    gather = NodeRecords.end_offsets

    async def counted(records: NodeRecords, topic: str) -> Any:
        asked.append(topic)
        return await gather(records, topic)

    monkeypatch.setattr(NodeRecords, "end_offsets", counted)

    found = await ask(Access((url,)), lambda broker: broker.spans("orders", [1, 0]))

    assert (asked, found) == (["orders"], {0: Span(0, 1), 1: Span(0, 0)})


async def test_it_finds_the_first_message_at_or_after_a_time(url: str) -> None:
    times = await fill(url, "orders", ["a", "b", "c"])
    access = Access((url,))

    found = [
        await ask(access, lambda broker, at=at: broker.offsets_at("orders", [0, 1], at))
        for at in (0, times[1], times[2], times[2] + 1)
    ]

    assert [places[0] for places in found] == [
        0,
        times.index(times[1]),
        times.index(times[2]),
        None,
    ]
    assert {places[1] for places in found} == {None}


async def test_what_does_not_exist_is_the_librarys_error(url: str) -> None:
    await fill(url, "orders", [])

    with pytest.raises(UnknownTopic):
        await ask(Access((url,)), lambda broker: broker.topic("nothing"))
    with pytest.raises(UnknownPartition):
        await ask(Access((url,)), lambda broker: broker.spans("orders", [0, 5]))


async def test_a_leader_that_is_not_reached_is_gone_round_by_the_given_servers(url: str) -> None:
    await fill(url, "orders", ["a", "b"])
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"

    page = await ask(Access((url,)), lambda broker: broker.read("orders", 0, 1, leader=nowhere))

    (frame,) = page.frames()
    assert RecordBatch.parse(frame.batch).values() == [b"b"]
    assert (page.next_offset, page.log_start, page.end_offset) == (2, 0, 2)


async def test_anything_else_is_asked_over_the_same_connections(url: str) -> None:
    answer = await ask(
        Access((url,)), lambda broker: broker.request("GET", join("topics"), repeatable=True)
    )

    assert answer.body == b'{"topics":[]}'


async def test_the_first_message_of_a_time_is_not_missed_where_a_replica_lags() -> None:
    """An empty page that no leader has confirmed does not say that there is none."""
    async with one_node() as node:
        url = f"http://127.0.0.1:{node.front.port}"
        times_ms = await fill(url, "orders", ["a", "b", "c"])
        Lagging(node.broker).hide(2, answers=2)
        last_ms = times_ms[-1]

        found = await ask(Access((url,)), lambda broker: broker.offset_at("orders", 0, last_ms))

    assert found == 2
