"""Events of a partition over HTTP: in columns, read on from where one stopped, waited for."""

from __future__ import annotations

import asyncio
import base64

import msgspec
import pytest

from goqueue.wire.events import EVENTS_MEDIA_TYPE, EventsPage

PATH = "/topics/orders/partitions/0/events"


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
    assert (page["topic"], page["partition"], page["first"], page["end"]) == ("orders", 0, 1, 2)
    assert (page["next"], page["next_offset"], page["exact"]) == (2, None, True)
    assert page["topic_id"] == (await client.get("/topics/orders")).json["id"]
    events = page["events"]
    assert events["event_type"] == ["PUBLISHED"] * 3
    assert list(zip(events["index"], events["offset"], strict=True)) == [(1, 0), (1, 1), (2, 2)]
    assert events["lane"] == ["normal", "normal", "low"]
    assert events["message_id"] == ["a", "b", None]
    assert events["key"] == [
        base64.b64encode(b"k-a").decode(),
        base64.b64encode(b"k-b").decode(),
        None,
    ]


async def test_reading_goes_on_within_an_entry(client, stored):
    first = (await client.get(PATH + "?limit=1")).json
    assert (first["next"], first["next_offset"]) == (0, 0)

    rest = (await client.get(PATH + "?after=0&after_offset=0")).json

    assert rest["events"]["offset"] == [1, 2]


async def test_until_bounds_what_is_told(client, stored):
    page = (await client.get(PATH + "?until=1")).json

    assert (page["events"]["offset"], page["next"]) == ([0, 1], 1)


async def test_who_asks_for_it_has_messagepack(client, stored):
    answer = await client.get(PATH, headers={"Accept": EVENTS_MEDIA_TYPE})

    page = msgspec.msgpack.decode(answer.body, type=EventsPage)
    assert answer.headers["Content-Type"] == EVENTS_MEDIA_TYPE
    assert page.events.key == [b"k-a", b"k-b", None]


async def test_an_event_is_waited_for(client, stored):
    waiting = asyncio.create_task(client.get(PATH + "?after=2&timeout=5s"))
    await asyncio.sleep(0)
    await client.post("/topics/orders/messages", {"value": "d", "partition": 0})

    assert (await waiting).json["events"]["offset"] == [3]


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
