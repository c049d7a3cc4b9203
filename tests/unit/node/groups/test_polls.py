"""Polls of members on a whole node in this process: from whatever they have as it changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from goqueue.wire.errors import StaleGeneration, UnknownMember
from log.disk.memory import MemoryDisk
from node.api.claims import Claim
from node.api.queue import QueuedMessage, SettleRequest, SettleView
from node.broker.node import NodeBroker
from tests.unit.node.groups.test_members import (
    ALL,
    beat,
    consume_assignment,
    join,
    poll,
    publish,
    values,
)
from tests.unit.node.test_node import running


@pytest.fixture
async def broker() -> AsyncIterator[NodeBroker]:
    async with running(MemoryDisk()) as started:
        await started.broker.topics.create_topic("t", {"partitions": 4})
        yield started.broker


async def ack(broker: NodeBroker, *messages: QueuedMessage) -> None:
    ends = await broker.receipts.settle(
        [SettleRequest(message.receipt, "ack") for message in messages]
    )
    assert not any(isinstance(end, Exception) for end in ends), ends


async def test_a_poll_waits_for_what_is_published_to_any_of_its_partitions(
    broker: NodeBroker,
) -> None:
    told = await join(broker)
    polling = asyncio.ensure_future(poll(broker, told, wait_s=30))
    await asyncio.sleep(0.05)
    assert not polling.done()

    await publish(broker, 3, "a")

    assert [(m.value, m.partition, m.attempt) for m in await polling] == [(b"a", 3, 1)]


async def test_a_poll_that_waits_goes_on_with_what_its_member_gets(broker: NodeBroker) -> None:
    first = await join(broker)
    behaving = asyncio.ensure_future(consume_assignment(broker, first))
    second = await join(broker)
    behaving.cancel()
    (lost, *_) = [number for _, number in ALL if ("t", number) not in second.assigned]
    polling = asyncio.ensure_future(poll(broker, second, wait_s=30))
    await publish(broker, lost, "a")
    await asyncio.sleep(0.05)
    assert not polling.done()

    await broker.members.leave("g", first.member)

    assert values(await polling) == ["a"]


async def test_a_poll_that_waits_is_told_that_its_member_is_gone(broker: NodeBroker) -> None:
    told = await join(broker)
    polling = asyncio.ensure_future(poll(broker, told, wait_s=30))
    await asyncio.sleep(0.05)

    await broker.members.leave("g", told.member)

    with pytest.raises(UnknownMember):
        await polling


async def test_nothing_comes_from_partitions_that_are_to_be_let_go_of(broker: NodeBroker) -> None:
    first = await join(broker)
    joining = asyncio.ensure_future(join(broker, wait_s=30))
    asked = await beat(broker, first)
    for _, number in ALL:
        await publish(broker, number, str(number))

    found = await poll(broker, asked)
    await beat(broker, asked, let_go=asked.revoking)
    second = await joining
    rest = await poll(broker, second)

    assert {("t", m.partition) for m in found} == set(asked.assigned)
    assert {("t", m.partition) for m in rest} == set(asked.revoking)
    assert {m.attempt for m in rest} == {1}


async def test_a_poll_of_a_generation_before_all_that_the_member_has_is_refused(
    broker: NodeBroker,
) -> None:
    first = await join(broker)
    behaving = asyncio.ensure_future(consume_assignment(broker, first))
    second = await join(broker)
    behaving.cancel()
    for _, number in ALL:
        await publish(broker, number, str(number))

    with pytest.raises(StaleGeneration):
        await poll(broker, second, generation=first.generation)
    kept = await poll(broker, first, generation=first.generation)
    await broker.members.leave("g", first.member)
    told = second
    while len(told.assigned) < 4:
        told = await beat(broker, told)
    rest = await poll(broker, second, generation=second.generation)

    assert len(kept) == 2
    assert {("t", m.partition) for m in rest} == set(ALL)


async def test_members_of_a_shared_group_poll_all_partitions_and_hand_none_over(
    broker: NodeBroker,
) -> None:
    first = await join(broker, settings={"mode": "shared"})
    second = await join(broker, settings={"mode": "shared"})
    for _, number in ALL:
        await publish(broker, number, f"{number}-a", f"{number}-b")

    some = await poll(broker, first, limit=3)
    rest = await poll(broker, second)
    await ack(broker, *some, *rest)

    assert list(first.assigned) == list(second.assigned) == ALL
    assert len(some) == 3
    assert len({*values(some), *values(rest)}) == len(some) + len(rest) == 8
    assert (await broker.members.membership("g")).totals.moved == 0


async def test_members_of_a_shared_group_may_name_the_generation_that_they_were_told(
    broker: NodeBroker,
) -> None:
    told = await join(broker, settings={"mode": "shared"})
    claim = Claim(told.member, told.generation)
    await publish(broker, 0, "a", "b")

    found = await broker.queue.receive(
        "g", (), claim=claim, limit=1, wait_s=5.0, visibility_ms=None, places=told.assigned
    )
    (settled,) = await broker.receipts.settle([SettleRequest(found[0].receipt, "ack")], None, claim)
    await broker.positions.commit("g", "t", {0: 2}, claim)

    assert values(found) == ["a"]
    assert isinstance(settled, SettleView)
    assert settled.outcome == "acked"
    assert await poll(broker, told) == []


async def test_a_poll_that_is_cancelled_while_its_share_changes_leases_nothing(
    broker: NodeBroker,
) -> None:
    told = await join(broker)
    found: list[QueuedMessage] = []
    for number in range(20):
        polling = asyncio.ensure_future(poll(broker, told, wait_s=30))
        await asyncio.sleep(0.01)
        joining = asyncio.ensure_future(join(broker, "other", wait_s=0))
        await publish(broker, number % 4, str(number))
        polling.cancel()
        with suppress(asyncio.CancelledError):
            found += await polling
        await broker.members.leave("g", (await joining).member)

    async with asyncio.timeout(30):
        while len(found) < 20:
            found += await poll(broker, told, wait_s=0.5)
    assert [m.attempt for m in found] == [1] * 20


async def test_what_a_member_has_in_flight_is_waited_for_where_it_does_not_let_go_itself(
    broker: NodeBroker,
) -> None:
    first = await join(broker, lets_go=False)
    for _, number in ALL:
        await publish(broker, number, str(number))
    in_flight = await poll(broker, first)
    assert len(in_flight) == 4

    second = await join(broker, wait_s=0.3)
    assert list(second.assigned) == []
    await ack(broker, *in_flight)
    while len(second.assigned) < 2:
        second = await beat(broker, second)

    view = await broker.members.membership("g")
    assert [(m.in_flight, m.fenced) for m in view.rebalances[-1].moves] == [(0, False)] * 2


async def test_a_member_that_does_not_let_go_in_time_is_fenced_there_and_stays_elsewhere(
    broker: NodeBroker,
) -> None:
    first = await join(broker, rebalance_timeout_ms=1000)
    for _, number in ALL:
        await publish(broker, number, str(number))
    in_flight = await poll(broker, first)

    second = await join(broker, wait_s=30)
    again = await poll(broker, second, wait_s=30)
    ends = await broker.receipts.settle([SettleRequest(m.receipt, "ack") for m in in_flight])

    assert len(second.assigned) == 2
    assert {(m.attempt, m.reason) for m in again} == {(2, "consumer lost")}
    refused = [
        ("t", m.partition)
        for m, end in zip(in_flight, ends, strict=True)
        if isinstance(end, StaleGeneration)
    ]
    assert sorted(refused) == list(second.assigned)
    assert [m.fenced for m in (await broker.members.membership("g")).rebalances[-1].moves] == [
        True
    ] * 2
