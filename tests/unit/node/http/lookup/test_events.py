"""Events of a partition over HTTP: in columns, read on from where one stopped, waited for."""

from __future__ import annotations

import asyncio
import base64

import msgspec
import pytest

from goqueue.wire.events import EVENTS_MEDIA_TYPE, EventsPage

PATH = "/topics/orders/partitions/0/events"
FIRST = 3
"""The entry with the first messages: a leader begins with two of its own."""


@pytest.fixture
async def stored(client, orders):
    """Three messages of partition 0, in two entries."""
    two = [{"value": v, "partition": 0, "key": "k-" + v, "message_id": v} for v in "ab"]
    await client.post("/topics/orders/messages/batch", {"messages": two})
    await client.post("/topics/orders/messages", {"value": "c", "partition": 0, "priority": "low"})


async def test_events_are_told_in_columns(client, stored):
    answer = await client.get(PATH)

    page = answer.json
    assert answer.status == 200
    assert (page["topic"], page["partition"], page["first"], page["end"]) == (
        "orders",
        0,
        1,
        FIRST + 1,
    )
    assert (page["next"], page["next_offset"], page["exact"]) == (FIRST + 1, None, True)
    assert page["topic_id"] == (await client.get("/topics/orders")).json["id"]
    events = page["events"]
    rows = zip(events["event_type"], events["index"], events["offset"], strict=True)
    assert list(rows) == [
        ("PUBLISHED", FIRST, 0),
        ("PUBLISHED", FIRST, 1),
        ("REPLICATED", FIRST + 1, 0),
        ("REPLICATED", FIRST + 1, 1),
        ("PUBLISHED", FIRST + 1, 2),
    ]
    assert [lane for lane in events["lane"] if lane] == ["normal", "normal", "low"]
    assert events["message_id"][:2] == ["a", "b"]
    assert events["key"][:2] == [base64.b64encode(key).decode() for key in (b"k-a", b"k-b")]


async def test_reading_goes_on_within_an_entry(client, stored):
    first = (await client.get(PATH + "?limit=1")).json
    assert (first["next"], first["next_offset"]) == (FIRST - 1, 0)

    rest = (await client.get(f"{PATH}?after={FIRST - 1}&after_offset=0")).json

    assert rest["events"]["offset"] == [1, 0, 1, 2]


async def test_until_bounds_what_is_told(client, stored):
    page = (await client.get(f"{PATH}?until={FIRST}")).json

    assert (page["events"]["offset"], page["next"]) == ([0, 1], FIRST)


async def test_who_asks_for_it_has_messagepack(client, stored):
    answer = await client.get(PATH, headers={"Accept": EVENTS_MEDIA_TYPE})

    page = msgspec.msgpack.decode(answer.body, type=EventsPage)
    assert answer.headers["Content-Type"] == EVENTS_MEDIA_TYPE
    assert page.events.key[:2] == [b"k-a", b"k-b"]


async def test_an_event_is_waited_for(client, stored):
    waiting = asyncio.create_task(client.get(f"{PATH}?after={FIRST + 1}&timeout=30s"))
    await asyncio.sleep(0)
    await client.post("/topics/orders/messages", {"value": "d", "partition": 0})

    assert 3 in (await waiting).json["events"]["offset"]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("after=x", "bad_request"),
        ("after=-1", "bad_request"),
        ("limit=0", "bad_request"),
        ("after=5&until=4", "bad_request"),
        ("timeout=soon", "bad_request"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(client, stored, query, code):
    answer = await client.get(f"{PATH}?{query}")

    assert (answer.status, answer.json["code"]) == (400, code)


async def test_what_is_not_there_has_no_events(client, orders):
    topic = await client.get("/topics/none/partitions/0/events")
    partition = await client.get("/topics/orders/partitions/77/events")

    assert (topic.status, topic.json["code"]) == (404, "unknown_topic")
    assert (partition.status, partition.json["code"]) == (404, "unknown_partition")
