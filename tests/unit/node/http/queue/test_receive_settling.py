"""A receive settles what came before: each receipt has its end, and mostly it is one entry."""

from __future__ import annotations

from itertools import pairwise

import aiohttp
import pytest

from goqueue.wire.errors import OverBudget
from node.http.queue import receive as receiving
from tests.one_node import partition_of
from tests.unit.node.http.conftest import Client
from tests.unit.node.test_node import batch, eventually
from tests.unit.node.three_nodes import NAMES, three_nodes

RECEIVE = "/groups/workers/receive"


@pytest.fixture
async def finished(broker):
    """The cluster may settle with receives."""
    await broker.upgrade.finish_level()


@pytest.fixture
def receive(client, orders):
    async def receive(*items, **body):
        wanted = {"topic": orders, "limit": 1, **body}
        if items:
            wanted["settle"] = list(items)
        return await client.post(RECEIVE, wanted)

    return receive


def ack(message):
    return {"receipt": message["receipt"], "action": "ack"}


def entries(broker):
    """How many the partitions of `orders` have."""
    return sum(partition_of(broker, "orders", n).raft_group.commit_index for n in range(3))


async def acked(client):
    group = (await client.get("/groups/workers?topic=orders")).json
    return sum(partition["acked"] for partition in group["partitions"])


@pytest.mark.parametrize("wait", ["0s", "20s"])
async def test_what_came_before_is_settled_and_the_next_is_leased_by_one_entry(
    finished, broker, receive, put, client, wait
):
    await put(*(b"%d" % number for number in range(11)))
    (message,) = (await receive()).json["messages"]
    before = entries(broker)

    seen = [message["offset"]]
    for _ in range(10):
        answer = await receive(ack(message), wait=wait)
        assert answer.status == 200
        (result,) = answer.json["settle_results"]
        assert (result["success"], result["state"]) == (True, "acked")
        assert result["offset"] == message["offset"]
        (message,) = answer.json["messages"]
        seen.append(message["offset"])

    assert seen == list(range(11))
    assert await acked(client) == 10
    assert entries(broker) == before + 10


async def test_without_settles_nothing_is_told_of_any(finished, receive, put):
    await put(b"a")

    answer = await receive()

    assert set(answer.json) == {"group", "messages"}


async def test_each_receipt_has_an_end_of_its_own(finished, receive, put):
    await put(b"a", b"b", b"c", b"d")
    first, second, third = (await receive(limit=3)).json["messages"]

    answer = await receive(
        {"receipt": first["receipt"], "action": "nack", "delay": "1h"},
        {"receipt": "nonsense", "action": "ack"},
        {"receipt": second["receipt"], "action": "eat"},
        {"receipt_handle": third["receipt"], "action": "reject", "reason": "bad"},
    )

    results = answer.json["settle_results"]
    assert [result.get("state") or result["code"] for result in results] == [
        "requeued",
        "invalid_receipt",
        "bad_request",
        "dead",
    ]
    assert [message["value"] for message in answer.json["messages"]] == ["d"]


async def test_it_is_settled_though_nothing_comes(finished, receive, put, client):
    await put(b"a")
    (message,) = (await receive()).json["messages"]

    answer = await receive(ack(message), wait="1ms")

    assert answer.json["messages"] == []
    assert answer.json["settle_results"][0]["state"] == "acked"
    assert await acked(client) == 1


async def test_what_is_nacked_with_a_receive_comes_with_it_or_a_later_one(finished, receive, put):
    await put(b"a")
    (message,) = (await receive()).json["messages"]
    nack = {"receipt": message["receipt"], "action": "nack", "delay": "0s"}

    answer = await receive(nack, wait="20s")

    (again,) = answer.json["messages"]
    assert (again["offset"], again["attempt"]) == (message["offset"], 2)


async def test_it_is_settled_where_the_receive_is_refused_and_the_error_tells(
    finished, receive, put, client
):
    await put(b"a")
    (message,) = (await receive()).json["messages"]

    answer = await receive(ack(message), topic="nowhere")

    assert (answer.status, answer.json["code"]) == (404, "unknown_topic")
    assert answer.json["settle_results"][0]["state"] == "acked"
    assert await acked(client) == 1


async def test_it_is_settled_where_there_is_no_room_to_wait(
    finished, receive, put, client, monkeypatch
):
    async def refused(_call, work, held_bytes):
        work.close()
        raise OverBudget("polls", "node", 1)

    await put(b"a", b"b")
    (message,) = (await receive()).json["messages"]
    monkeypatch.setattr(receiving, "long_poll", refused)

    answer = await receive(ack(message), wait="20s")

    assert (answer.status, answer.json["code"]) == (429, "over_budget")
    assert answer.json["outcome"] == "unknown"
    assert answer.json["settle_results"][0]["state"] == "acked"
    assert await acked(client) == 1


async def test_before_the_level_is_finished_it_is_refused_and_nothing_is_done(
    receive, put, client, broker
):
    await put(b"a", b"b")
    (message,) = (await receive()).json["messages"]

    answer = await receive(ack(message))

    assert (answer.status, answer.json["code"]) == (409, "level_not_finished")
    assert await acked(client) == 0
    await broker.upgrade.finish_level()
    assert (await receive(ack(message))).json["settle_results"][0]["state"] == "acked"


@pytest.mark.parametrize(
    "settle", [{"receipt": "x"}, [1], [{"receipt": 1, "action": "ack"}], [{"ack": "x"}]]
)
async def test_what_is_no_list_of_settles_is_refused(finished, client, orders, settle):
    answer = await client.post(RECEIVE, {"topic": orders, "settle": settle})

    assert answer.status == 400
    assert answer.json["code"] in ("bad_request", "unknown_field")


async def test_a_consumer_that_stays_in_a_partition_leaves_the_others_not_for_long(
    finished, receive, put
):
    for partition in range(3):
        await put(*(b"%d" % number for number in range(200)), partition=partition)
    (message,) = (await receive()).json["messages"]
    partitions = [message["partition"]]

    while len(partitions) < 200 or (len(partitions) < 590 and len(set(partitions)) < 3):
        (message,) = (await receive(ack(message))).json["messages"]
        partitions.append(message["partition"])

    moves = sum(one != other for one, other in pairwise(partitions))
    assert set(partitions) == {0, 1, 2}, "one is left by chance, 1 of 16 times"
    assert moves < 0.3 * len(partitions)


async def test_the_next_of_a_key_that_waits_for_its_settle_comes_with_it(
    finished, client, receive, put, orders
):
    await client("PUT", "/groups/workers", {"ordering": "key"})
    await put(b"1", b"2", keys=[b"k", b"k"])
    (message,) = (await receive()).json["messages"]

    answer = await receive(ack(message), wait="20s")

    assert [one["value"] for one in answer.json["messages"]] == ["2"]


async def test_it_is_mostly_one_entry_where_another_node_leads_too() -> None:
    """Two frames carry the settle and the receive: the leader may read one of them later."""
    async with three_nodes() as nodes, aiohttp.ClientSession() as session:
        node = nodes.running["n1"]
        await node.broker.upgrade.finish_level()
        await node.broker.topics.create_topic("orders", {"partitions": 1})
        await eventually(lambda: _leader(nodes) is not None)
        leader = _leader(nodes)
        (front,) = [nodes.running[name].front for name in NAMES if name != leader][:1]
        client = Client(session, front)
        for number in range(11):
            await node.broker.records.append("orders", 0, batch(str(number)), deadline_s=30)
        host = partition_of(nodes.running[leader].broker, "orders", 0)
        wanted = {"topic": "orders", "limit": 1, "wait": "20s"}
        (message,) = (await client.post(RECEIVE, wanted)).json["messages"]
        before = host.raft_group.commit_index

        for _ in range(10):
            answer = await client.post(RECEIVE, {**wanted, "settle": [ack(message)]})
            assert [result["state"] for result in answer.json["settle_results"]] == ["acked"]
            (message,) = answer.json["messages"]

        assert message["offset"] == 10
        assert before + 10 <= host.raft_group.commit_index <= before + 15


def replicas_of(broker):
    return broker.topics._replicas.all()


def _leader(nodes) -> str | None:
    leading = [
        name
        for name, node in nodes.running.items()
        if any(one.topic == "orders" and one.is_leader for one in replicas_of(node.broker))
    ]
    return leading[0] if leading else None
