"""Receiving and peeking: what is leased, to whom, how long it waits, and what gives it back."""

from __future__ import annotations

import asyncio
import json

import pytest

from node.api.claims import Claim
from node.api.queue import Received
from node.queue.service import QueueService

RECEIVE = "/groups/workers/receive"
HOUR_MS = 3_600_000


async def test_a_receive_leases_messages_and_shows_all_of_them(client, clock, put):
    await put(
        b"first",
        keys=[b"k"],
        headers=[(("trace", b"t"),)],
        message_ids=["m-1"],
        lanes=[1],
        expires_at_ms=[clock.now_ms + HOUR_MS],
    )

    answer = await client.post(RECEIVE, {"topic": "orders", "limit": 5})

    assert answer.status == 200
    assert answer.json["group"] == "workers"
    (message,) = answer.json["messages"]
    receipt = message.pop("receipt")
    assert len(receipt) > 40
    assert message == {
        "id": "orders:0:0",
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp": "2025-01-14T15:00:00.000Z",
        "value": "first",
        "priority": "high",
        "key": "k",
        "headers": {"trace": "t"},
        "message_id": "m-1",
        "receipt_handle": receipt,
        "attempt": 1,
        "visible_until": "2025-01-14T15:00:30.000Z",
        "expires_at": "2025-01-14T16:00:00.000Z",
    }


async def test_what_is_leased_is_not_received_again_but_other_groups_get_it(client, put, take):
    await put(b"a", b"b")
    await take()

    again = await take()
    other = await client.post("/groups/others/receive", {"topic": "orders"})

    assert again == []
    assert [message["value"] for message in other.json["messages"]] == ["a", "b"]


async def test_values_keys_and_headers_that_are_not_text_come_as_base64(put, take):
    await put(b"\xff", keys=[b"\xfe"], headers=[(("h", b"\xfd"),)])

    (message,) = await take()

    assert (message["value"], message["value_encoding"]) == ("/w==", "base64")
    assert (message["key"], message["key_encoding"]) == ("/g==", "base64")
    assert (message["headers"], message["header_encodings"]) == ({"h": "/Q=="}, {"h": "base64"})


async def test_an_expired_lease_comes_back_with_its_attempt_and_reason(clock, put, take):
    await put(b"v")
    await take(visibility="2s")
    clock.now_ms += 2000

    (message,) = await take(wait="30s")

    assert message["attempt"] == 2
    assert message["last_reason"] == "visibility timeout"


async def test_a_redriven_message_says_so_in_a_header_of_its_own(client, put, take):
    await put(b"v", headers=[(("mine", b"1"),)])
    (dead,) = await take()
    await client.post("/groups/workers/reject", {"receipt": dead["receipt"]})
    await client.post("/groups/workers/dlq/redrive", {"topic": "orders"})

    (message,) = await take(wait="30s")

    assert message["headers"] == {"mine": "1", "goqueue-redrives": "1"}
    assert message["redrives"] == 1


async def test_limits_topics_and_partitions_narrow_what_is_received(client, broker, put, take):
    await put(b"a", b"b", partition=1)
    await put(b"c", partition=2)
    await broker.topics.create_topic("other", {})

    first = await take(partitions=[1], max_messages=1)
    rest = await client.post(RECEIVE, {"topics": ["other", "orders", "orders"], "limit": 1000})

    assert [(m["partition"], m["value"]) for m in first] == [(1, "a")]
    assert sorted(m["value"] for m in rest.json["messages"]) == ["b", "c"]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "topic is required"),
        ({"topic": "orders", "topics": ["orders"]}, "not both"),
        ({"topics": []}, "topic is required"),
        ({"topic": "no such name!"}, "bad topic name"),
        ({"topic": "orders.dlq"}, "reserved"),
        ({"topic": "orders", "limit": 0}, "limit"),
        ({"topic": "orders", "limit": 1001}, "limit"),
        ({"topic": "orders", "limit": 5, "max_messages": 6}, "limit and max_messages"),
        ({"topic": "orders", "wait": "soon"}, "wait"),
        ({"topic": "orders", "wait": -1}, "wait"),
        ({"topic": "orders", "visibility": "12h1ms"}, "visibility: longer than 12 hours"),
        ({"topic": "orders", "visibility": "1s", "visibility_timeout": "2s"}, "visibility"),
        ({"topic": "orders", "partitions": [-1]}, "partitions"),
        ({"topic": "orders", "partitions": []}, "partitions names none"),
        ({"topic": "orders", "partitions": "all"}, "partitions"),
        ({"topic": "orders", "member": "m" * 257}, "member"),
    ],
)
async def test_a_receive_that_makes_no_sense_is_a_400_that_says_why(client, put, body, problem):
    await put(b"v")

    answer = await client.post(RECEIVE, body)
    after = await client.post(RECEIVE, {"topic": "orders"})

    assert answer.status == 400
    assert problem in answer.json["error"]
    assert len(after.json["messages"]) == 1


async def test_what_is_not_there_is_404_and_bad_names_are_400(client, orders):
    topic = await client.post(RECEIVE, {"topic": "nope"})
    partition = await client.post(RECEIVE, {"topic": "orders", "partitions": [9]})
    group = await client.post("/groups/-bad-/receive", {"topic": "orders"})
    peek = await client.post("/groups/workers/peek", {"topic": "nope"})

    assert (topic.status, topic.json["code"]) == (404, "unknown_topic")
    assert (partition.status, partition.json["code"]) == (404, "unknown_partition")
    assert (group.status, group.json["code"]) == (400, "invalid_name")
    assert (peek.status, peek.json["code"]) == (404, "unknown_topic")


async def test_nulls_read_as_missing(put, take):
    await put(b"v")
    nothing = dict.fromkeys(
        ["limit", "max_messages", "wait", "timeout", "visibility", "member", "partitions", "topics"]
    )

    assert len(await take(**nothing)) == 1


async def test_too_many_in_flight_is_429_and_a_halted_group_409(client, put, take):
    await put(b"a", b"b")
    halts = {"halt_percent": 1, "halt_window": 1}
    await client("PUT", "/groups/workers", {"in_flight_max": 1, **halts})
    (taken,) = await take(limit=1)

    full = await client.post(RECEIVE, {"topic": "orders", "partitions": [0]})
    await client.post("/groups/workers/reject", {"receipt": taken["receipt"]})
    (taken,) = await take(limit=1)
    await client.post("/groups/workers/reject", {"receipt": taken["receipt"]})
    halted = await client.post(RECEIVE, {"topic": "orders", "partitions": [0]})
    resumed = await client.post("/groups/workers/resume", {"topic": "orders"})

    assert (full.status, full.json["code"]) == (429, "too_many_in_flight")
    assert full.headers["Retry-After"]
    assert (halted.status, halted.json["code"]) == (409, "group_halted")
    assert resumed.json == {"group": "workers", "resumed": 1}


async def test_a_peek_takes_nothing_and_has_no_receipt(client, put, take):
    await put(b"a", b"b")
    await take(limit=1)

    peeked = await client.post("/groups/workers/peek", {"topic": "orders"})

    (message,) = peeked.json["messages"]
    assert message["value"] == "b"
    assert message["attempt"] == 1
    assert "receipt" not in message
    assert [m["value"] for m in await take()] == ["b"]


# long polls


async def test_a_receive_waits_for_a_message_and_answers_at_once_when_it_comes(
    front, put, take, eventually
):
    waiting = asyncio.ensure_future(take(wait="30s"))
    await eventually(lambda: front.requests_in_flight)
    assert not waiting.done()

    await put(b"v")
    found = await asyncio.wait_for(waiting, 30)

    assert [message["value"] for message in found] == ["v"]


async def test_a_wait_without_a_message_ends_with_an_empty_answer(take, broker, orders):
    receive, waited_s = broker.queue.receive, []

    async def noted(*arguments, wait_s, **options):
        found = await receive(*arguments, wait_s=wait_s, **options)
        waited_s.append(wait_s)
        return found

    broker.queue.receive = noted

    assert await take(timeout="100ms") == []
    assert waited_s == [0.1]


async def test_a_wait_is_cut_at_a_minute_not_at_thirty_seconds(client, broker, orders):
    asked = []

    async def receive(*_, wait_s, **__):
        asked.append(wait_s)
        return Received()

    broker.queue.receive = receive
    for wait in ("45s", "60s", "10m", 59_000):
        await client.post(RECEIVE, {"topic": "orders", "wait": wait})

    assert asked == [45, 60, 60, 59]


async def test_a_receive_tells_which_partitions_did_not_answer(client, broker, put):
    await put(b"a")
    receive = broker.queue.receive

    async def in_part(*arguments, **options):
        return Received(await receive(*arguments, **options), [("orders", 3)])

    whole = await client.post(RECEIVE, {"topic": "orders"})
    broker.queue.receive = in_part
    part = await client.post(RECEIVE, {"topic": "orders"})

    assert "unanswered" not in whole.json
    assert part.json["unanswered"] == [{"topic": "orders", "partition": 3}]


async def test_stopping_ends_a_wait_with_an_empty_answer(front, take, eventually):
    waiting = asyncio.ensure_future(take(wait="60s"))
    await eventually(lambda: front.requests_in_flight)

    front.begin_stop()
    found = await asyncio.wait_for(waiting, 30)

    assert found == []
    assert await take(wait="60s") == []


@pytest.fixture
def on_its_way(monkeypatch):
    """Leases are granted, and their answers come once it is set."""
    come, granted, take = asyncio.Event(), asyncio.Event(), QueueService.take

    async def held(service, request):
        answer = await take(service, request)
        if answer.taken:
            granted.set()
            await come.wait()
        return answer

    monkeypatch.setattr(QueueService, "take", held)
    return come, granted


async def test_what_is_leased_as_a_node_stops_is_answered(front, put, take, on_its_way):
    come, granted = on_its_way
    await put(b"a")
    taking = asyncio.ensure_future(take(wait="60s"))
    await granted.wait()

    front.begin_stop()
    for _ in range(10):
        await asyncio.sleep(0)
    come.set()

    (message,) = await asyncio.wait_for(taking, 30)
    assert (message["value"], message["attempt"]) == ("a", 1)


async def test_an_answer_that_does_not_come_holds_up_no_stop(
    front, broker, put, take, on_its_way, monkeypatch
):
    monkeypatch.setattr("node.http.request.long_poll.FINISH_S", 0.05)
    come, granted = on_its_way
    await put(b"a")
    taking = asyncio.ensure_future(take(wait="60s"))
    await granted.wait()

    front.begin_stop()

    assert await asyncio.wait_for(taking, 30) == []
    come.set()
    again = await broker.queue.receive(
        "workers", ["orders"], claim=Claim(), limit=1, wait_s=30.0, visibility_ms=None
    )
    assert [message.attempt for message in again] == [1], "it was given back"


def request_bytes(body):
    encoded = json.dumps(body).encode()
    head = (
        f"POST {RECEIVE} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(encoded)}\r\n\r\n"
    )
    return head.encode() + encoded


@pytest.mark.parametrize("abruptly", [False, True])
async def test_a_client_that_hangs_up_leaves_nothing_leased(
    front, broker, put, take, eventually, abruptly
):
    taken, receive = [], broker.queue.receive

    async def watched(*arguments, **options):
        taken.append("begun")
        try:
            return await receive(*arguments, **options)
        except asyncio.CancelledError:
            taken.append("cancelled")
            raise

    broker.queue.receive = watched
    _, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(request_bytes({"topic": "orders", "wait": "60s"}))
    await eventually(lambda: taken == ["begun"])

    writer.transport.abort() if abruptly else writer.close()
    await eventually(lambda: taken == ["begun", "cancelled"])
    await put(b"v")

    assert [message["attempt"] for message in await take()] == [1]


async def test_what_was_granted_to_a_client_that_is_gone_is_given_back(
    front, broker, put, take, eventually
):
    await put(b"v")
    granted, gone, released = asyncio.Event(), asyncio.Event(), []
    receive, settle = broker.queue.receive, broker.receipts.settle

    async def slow(*arguments, **options):
        found = await receive(*arguments, **options)
        granted.set()
        await gone.wait()
        return found

    async def watched(requests, group=None):
        released.extend(request.action for request in requests)
        return await settle(requests, group)

    broker.queue.receive, broker.receipts.settle = slow, watched
    _, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(request_bytes({"topic": "orders"}))
    await granted.wait()

    writer.close()
    await eventually(lambda: all(c.transport is None for c in front._server.connections))
    gone.set()
    await eventually(lambda: released == ["release"])

    broker.queue.receive = receive
    assert [message["attempt"] for message in await take(wait="30s")] == [1]


async def test_many_waits_at_once_are_all_served(front, put, take, eventually):
    waits = [asyncio.ensure_future(take(wait="30s", limit=1)) for _ in range(50)]
    await eventually(lambda: front.connections == 50)

    await put(*[b"v"] * 50)
    found = await asyncio.wait_for(asyncio.gather(*waits), 30)

    assert sorted(message["offset"] for messages in found for message in messages) == [*range(50)]


@pytest.mark.parametrize("expires_at_ms", [1_900_000_000_000_000, 2**62])
async def test_a_message_that_ends_beyond_all_calendars_is_received_with_its_neighbours(
    client, put, take, expires_at_ms
):
    """Its producer may have counted in microseconds."""
    await put(b"a", b"b", expires_at_ms=[None, expires_at_ms])

    first, second = await take()

    assert (first["value"], second["value"]) == ("a", "b")
    assert second["expires_at"] == "9999-12-31T23:59:59.999Z"
    found = await client.get("/messages?topic=orders")
    assert (found.status, len(found.json["messages"])) == (200, 2)
