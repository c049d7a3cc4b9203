"""GET /messages: what matches, newest first, in pages; and what could not be searched."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from goqueue.wire.batch import encode_columns
from node.api.search import NotSearched

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01".encode()


async def found(client, query: str) -> list[str]:
    answer = await client.get(f"/messages?{query}")
    assert answer.status == 200, answer.body
    assert answer.json["complete"]
    return [message["id"] for message in answer.json["messages"]]


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("topic=orders&message_id=a%3Ab", ["orders:0:0"]),
        ("message_id=a:b", ["orders:0:0"]),
        ("message_id=a:b&topic=orders&partition=1", []),
        (f"trace_id={TRACE.upper()}", ["orders:1:0"]),
        ("key=k", ["orders:0:0"]),
        (f"key={base64.b64encode(bytes([255])).decode()}&key_encoding=base64", ["orders:1:0"]),
        ("header=source:web", ["orders:0:0"]),
        ("header=source:web&header=other:x", []),
        ("state=ready", ["orders:2:0", "orders:1:0", "orders:0:0"]),
        ("state=delayed,dead", []),
        ("status=pending", ["orders:2:0", "orders:1:0", "orders:0:0"]),
        ("from_time=1736866800000&to_time=1736866800000", []),
        ("start=1736866800000", ["orders:2:0", "orders:1:0", "orders:0:0"]),
    ],
)
async def test_all_conditions_must_hold(client, clock, put, query, ids):
    for step in (stored_0, stored_1, stored_2):
        await step(put)
        clock.now_ms += 1

    assert await found(client, query) == ids


async def stored_0(put):
    await put(b"0", keys=[b"k"], message_ids=["a:b"], headers=[(("source", b"web"),)])


async def stored_1(put):
    await put(b"1", keys=[b"\xff"], partition=1, headers=[(("traceparent", PARENT),)])


async def stored_2(put):
    await put(b"2", partition=2, message_ids=["orders:0:0"])


async def test_a_message_is_told_whole_with_its_states(client, put, take):
    await put(b"v", keys=[b"k"], message_ids=["m"], headers=[(("traceparent", PARENT),)])
    await take()

    (message,) = (await client.get("/v1/messages?message_id=m&events=true")).json["messages"]

    assert message["value"] == "v"
    assert message["trace_id"] == TRACE
    assert message["states"] == {"workers": "in_flight"}
    assert message["status"] == "in_progress"
    assert message["events"][0]["event_type"] == "PUBLISHED"


async def test_next_goes_on_where_the_page_ended(client, put):
    for n in range(7):
        await put(b"%d" % n, partition=n % 3)

    seen, query = [], "topic=orders&limit=3"
    for _ in range(3):
        page = (await client.get(f"/messages?{query}")).json
        seen += [message["id"] for message in page["messages"]]
        query = f"topic=orders&limit=3&next={page.get('next')}"

    assert len(seen) == len(set(seen)) == 7
    assert page["complete"]
    assert "next" not in page


async def test_next_of_all_topics_names_them(client, put):
    await put(b"0", b"1", b"2")

    page = (await client.get("/messages?limit=2")).json
    rest = (await client.get(f"/messages?limit=2&next={page['next']}")).json

    assert page["next"].startswith("orders:0:")
    assert [message["id"] for message in rest["messages"]] == ["orders:0:0"]


async def test_what_was_not_searched_is_named(client, broker, orders, monkeypatch):
    search = broker.lookup.search

    async def in_part(*asked, **options):
        found = await search(*asked, **options)
        return replace(found, not_searched=[NotSearched("orders", 2, "no leader answers")])

    monkeypatch.setattr(broker.lookup, "search", in_part)

    page = (await client.get("/messages?topic=orders&key=k")).json
    lost = await client.get("/messages/some-id/timeline?topic=orders")

    assert page["not_searched"] == [
        {"topic": "orders", "partition": 2, "reason": "no leader answers"}
    ]
    assert not page["complete"]
    assert lost.status == 503
    assert lost.json["retriable"]


@pytest.mark.parametrize(
    "query",
    [
        "trace_id=123",
        "state=lost",
        "status=lost",
        "header=nocolon",
        "limit=0",
        "next=x",
        "next=0:1",
        "from_time=yesterday",
        "message_id=",
        "message_id=" + "x" * 257,
        "group=-",
        "topic=-",
        "key=%25&key_encoding=hex",
        "&".join(["header=a:b"] * 9),
    ],
)
async def test_what_makes_no_sense_is_refused(client, orders, query):
    answer = await client.get(f"/messages?{query}")

    assert answer.status == 400, answer.body


async def test_a_time_that_makes_no_sense_is_refused_by_the_name_it_was_given(client):
    for name in ("from_time", "to_time", "start", "end"):
        answer = await client.get(f"/traces/search?{name}=yesterday")

        assert answer.status == 400
        assert answer.json["error"].startswith(f"{name}: 'yesterday'")


async def test_unknown_names_are_not_found(client, orders):
    assert (await client.get("/messages?topic=nothing")).status == 404
    assert (await client.get("/messages?topic=orders&group=nobody")).status == 404
    assert (await client.get("/messages?topic=orders&partition=3")).status == 404


async def test_a_timeline_is_found_by_a_producers_id_whatever_that_looks_like(client, put):
    await put(b"0", message_ids=["orders:0:7"])
    await put(b"1", message_ids=["plain"], partition=1)

    by_place = await client.get("/v1/messages/orders:0:0/timeline")
    by_id = await client.get("/v1/messages/orders%3A0%3A7/timeline?topic=orders")
    plain = await client.get("/v1/messages/plain/timeline?topic=orders")
    unknown = await client.get("/v1/messages/none/timeline?topic=orders")
    without_topic = await client.get("/v1/messages/plain/timeline")

    assert by_id.json == by_place.json
    assert plain.json["id"] == "orders:1:0"
    assert unknown.status == 404
    assert without_topic.status == 400
    assert "?topic=" in without_topic.json["error"]


async def test_of_several_messages_with_one_id_the_newest_is_meant_and_the_others_named(
    client, clock, broker, orders
):
    for partition in (0, 1):
        batch = encode_columns([b"v"], message_ids=["twice"])
        await broker.records.append("orders", partition, batch, deadline_s=30)
        clock.now_ms += 1

    told = (await client.get("/v1/messages/twice/timeline?topic=orders")).json

    assert told["id"] == "orders:1:0"
    assert told["alike"] == ["orders:0:0"]
