"""GoQueue's traces, as its published clients read them."""

from __future__ import annotations

import msgspec
import pytest

from node.http.compat.trace_ids import own_trace_id, place_of
from node.http.messages.trace_context import is_trace_id
from tests.one_node import until
from tests.unit.node.http.compat.published_client import connect, load

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01".encode()


@pytest.fixture
async def published(front, orders):
    async with connect(f"http://127.0.0.1:{front.port}") as client:
        yield client


async def test_the_newest_messages_are_listed_with_their_trace_ids(client, clock, put):
    await put(b"0", headers=[(("traceparent", PARENT),)])
    clock.now_ms += 5
    await put(b"1")

    listed = (await client.get("/traces?limit=5")).json

    assert listed["total"] == 2
    assert [trace["trace_id"] for trace in listed["traces"]] == [
        own_trace_id("orders", 0, 1),
        TRACE,
    ]
    assert [trace["status"] for trace in listed["traces"]] == ["in_progress", "in_progress"]
    assert all(trace["span_count"] == 3 for trace in listed["traces"])


async def test_a_trace_is_found_by_its_id_with_all_messages_that_carry_it(client, clock, put):
    await put(b"0", headers=[(("traceparent", PARENT),)])
    clock.now_ms += 5
    await put(b"1", headers=[(("traceparent", PARENT),)], partition=1)

    trace = (await client.get(f"/v1/traces/{TRACE.upper()}")).json

    assert trace["messages"] == ["orders:0:0", "orders:1:0"]
    assert (trace["topic"], trace["partition"], trace["offset"]) == ("orders", 0, 0)
    assert trace["duration_ms"] == 5
    assert {span["partition"] for span in trace["spans"]} == {0, 1}
    assert len({span["span_id"] for span in trace["spans"]}) == 6
    assert [event["event_type"] for event in trace["events"]].count("PUBLISHED") == 2
    assert all(event["details"] == event["attributes"] for event in trace["events"])
    gos = await client.get(f"/v1/traces/{TRACE}", headers={"User-Agent": "Go-http-client/1.1"})
    assert all("details" not in event for event in gos.json["events"])
    texts = [value for span in trace["spans"] for value in span["attributes"].values()]
    assert all(isinstance(text, str) for text in texts)


async def test_a_message_without_a_trace_context_has_an_id_of_its_own(client, put):
    await put(b"0", b"1")

    trace = (await client.get(f"/traces/{own_trace_id('orders', 0, 1)}")).json

    assert trace["messages"] == ["orders:0:1"]
    assert (await client.get(f"/traces/{own_trace_id('orders', 0, 2)}")).status == 404
    assert (await client.get(f"/traces/{own_trace_id('orders', 9, 0)}")).status == 404
    assert (await client.get(f"/traces/{TRACE}")).status == 404


@pytest.mark.parametrize("text", ["x", "0" * 32, "g" * 32, TRACE[:-1], TRACE + "0"])
async def test_what_is_no_trace_id_is_refused(client, orders, text):
    assert (await client.get(f"/traces/{text}")).status == 400


async def test_statuses_follow_the_group_that_is_named(client, put, take):
    await put(b"0", b"1", b"2")
    first, second, _third = await take()
    await client.post("/groups/workers/ack", {"receipts": [first["receipt"]]})
    await client.post("/groups/workers/reject", {"receipts": [second["receipt"]], "reason": "no"})

    async def offsets(query: str) -> list[int]:
        answer = (await client.get(f"/traces/search?topic=orders&{query}")).json
        return [trace["offset"] for trace in answer["traces"]]

    assert await offsets("status=completed") == [0]
    assert await offsets("consumer_group=workers&status=error") == [1]
    assert await offsets("consumer_group=workers&status=pending") == [2]
    assert await offsets("consumer_group=workers&state=dead") == [1]


async def test_stats_are_figures_of_what_is_stored(client, put, take):
    await put(b"0", b"1", message_ids=["a", "b"])
    (first, *_rest) = await take()
    await client.post("/groups/workers/ack", {"receipts": [first["receipt"]]})

    answer = await until(lambda: client.get("/traces/stats"), lambda a: a.json["traces_indexed"])
    stats = answer.json

    assert stats["traces_total"] == 2
    assert stats["traces_indexed"] == 2
    assert stats["traces_completed"] == 1
    assert stats["enabled"] is True


async def test_the_published_client_reads_lists_traces_and_stats(published, put):
    await put(b"0", headers=[(("traceparent", PARENT),)])
    types = load("types")

    listed = await published.tracing.list(limit=10)
    searched = await published.tracing.search({"topic": "orders", "status": "pending"})
    trace = await published.tracing.get(listed["traces"][0]["trace_id"])
    stats = await published.tracing.stats()

    assert [one["trace_id"] for one in searched["traces"]] == [TRACE]
    assert searched["query"]["status"] == "pending"
    assert trace["events"][0]["event_type"] == "PUBLISHED"
    msgspec.convert(stats, types.TracerStats)
    assert set(types.TracerStats.__optional_keys__) <= set(stats)
    assert set(types.Trace.__optional_keys__) <= set(trace)
    for event in trace["events"]:
        msgspec.convert(event, types.TraceEvent)


def test_a_messages_own_trace_id_says_where_it_is():
    own = own_trace_id("orders", 3, 12345)

    assert is_trace_id(own)
    place = place_of(own, ["payments", "orders"])
    assert str(place) == "orders:3:12345"
    assert place_of(own, ["payments"]) is None
    assert place_of(TRACE, ["orders"]) is None


async def test_searches_in_goqueues_words_are_answered_in_them(client, orders):
    await client.post("/topics/orders/messages", {"value": "v"})

    found = (await client.get("/traces/search?topic=orders&status=pending")).json["traces"]
    ours = (await client.get("/traces/search?topic=orders&status=in_progress")).json["traces"]

    assert [one["status"] for one in found] == ["pending"]
    assert [one["status"] for one in ours] == ["in_progress"]


async def test_a_cancelled_delayed_message_is_called_so(client, orders):
    sent = (await client.post("/topics/orders/messages", {"value": "v", "delay": "1h"})).json
    await client("DELETE", f"/topics/orders/delayed/{sent['partition']}/{sent['offset']}")

    found = (await client.get("/traces/search?topic=orders&status=cancelled")).json["traces"]
    failed = (await client.get("/traces/search?topic=orders&status=error")).json["traces"]

    assert [one["status"] for one in found] == ["cancelled"]
    assert failed == []
