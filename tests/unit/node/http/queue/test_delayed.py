"""Delayed messages and recurring schedules over HTTP."""

from __future__ import annotations

import pytest

from tests.one_node import until

DELAYED = "/topics/orders/delayed"
SCHEDULE = {"name": "nightly", "topic": "orders", "cron": "0 0 3 * * *", "value": "tidy"}


async def test_delayed_messages_are_listed_soonest_first_in_pages(client, clock, put):
    await put(b"a", b"b", b"plain", deliver_at_ms=[clock.now_ms + 60_000, 30_000, None])
    await put(b"c", keys=[b"k"], lanes=[0], message_ids=["m"], partition=1, deliver_at_ms=[500])

    everything = await client.get(DELAYED)
    page = await client.get(DELAYED + "?limit=1&skip=1")

    assert [(m["partition"], m["offset"]) for m in everything.json["messages"]] == [
        (1, 0),
        (0, 1),
        (0, 0),
    ]
    assert everything.json["count"] == everything.json["total"] == 3
    assert everything.json["messages"][0] == {
        "id": "orders:1:0",
        "topic": "orders",
        "partition": 1,
        "offset": 0,
        "deliver_at": "2025-01-14T15:00:00.500Z",
        "time_remaining": "0.5s",
        "remaining_ms": 500,
        "state": "pending",
        "priority": "critical",
        "key": "k",
        "message_id": "m",
    }
    assert [m["offset"] for m in page.json["messages"]] == [1]
    assert (page.json["count"], page.json["limit"], page.json["skip"]) == (1, 1, 1)


async def test_a_delayed_message_is_found_by_offset_and_by_place_also_when_due(client, clock, put):
    await put(b"a", partition=1, deliver_at_ms=[1000])

    anywhere = await client.get(DELAYED + "/0")
    narrowed = await client.get(DELAYED + "/0?partition=1")
    elsewhere = await client.get(DELAYED + "/0?partition=2")
    clock.now_ms += 2000
    due = await until(lambda: client.get(DELAYED + "/1/0"), lambda a: a.json["state"] != "pending")

    assert anywhere.json["partition"] == narrowed.json["partition"] == 1
    assert elsewhere.status == 404
    assert (due.json["state"], due.json["time_remaining"]) == ("delivered", "0s")


async def test_a_message_is_either_cancelled_or_delivered(client, clock, put, take):
    await put(b"a", b"b", deliver_at_ms=[1000, 1000])

    cancelled = await client("DELETE", DELAYED + "/0/0")
    twice = await client("DELETE", DELAYED + "/0/0")
    clock.now_ms += 1000
    late = await client("DELETE", DELAYED + "/0/1")

    assert cancelled.status == 200
    assert twice.json == cancelled.json
    assert (late.status, late.json["code"]) == (409, "already_due")
    assert [message["value"] for message in await take(wait="30s")] == ["b"]
    assert (await client.get(DELAYED + "/0/0")).json["state"] == "cancelled"


async def test_a_delayed_message_is_not_received_before_it_is_due(clock, put, take):
    await put(b"a", deliver_at_ms=[1000])
    clock.now_ms += 999
    early = await take()
    clock.now_ms += 1

    (message,) = await take(wait="30s")

    assert early == []
    assert message["deliver_at"] == "2025-01-14T15:00:01.000Z"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (DELAYED + "?limit=0", 400),
        (DELAYED + "?skip=-1", 400),
        (DELAYED + "/x", 400),
        (DELAYED + "/0?partition=x", 400),
        (DELAYED + "/99999999999999999999", 400),
        (DELAYED + "/0", 404),
        (DELAYED + "/9/0", 404),
        (DELAYED + "/99999999999/0", 404),
        (DELAYED + "/x/0", 400),
        ("/topics/nope/delayed", 404),
        ("/topics/nope/delayed/0", 404),
    ],
)
async def test_what_is_not_delayed_is_not_found(client, put, path, status):
    await put(b"plain")

    assert (await client.get(path)).status == status
    if path.count("/") == 5:
        assert (await client("DELETE", path)).status == status


# schedules


async def test_a_schedule_is_created_shown_paused_resumed_and_deleted(client, orders):
    created = await client.post("/schedules", {**SCHEDULE, "headers": {"h": "1"}, "key": "k"})
    shown = await client.get("/schedules/nightly")
    paused = await client.post("/schedules/nightly/pause")
    resumed = await client.post("/schedules/nightly/resume")
    listed = await client.get("/schedules")
    deleted = await client("DELETE", "/schedules/nightly")

    assert created.status == 201
    assert created.json == shown.json == resumed.json == listed.json["schedules"][0]
    assert created.json["cron"] == "0 0 3 * * *"
    assert created.json["every"] is None
    assert (created.json["timezone"], created.json["missed"]) == ("UTC", "once")
    assert (created.json["value"], created.json["key"]) == ("tidy", "k")
    assert created.json["headers"] == {"h": "1"}
    assert (created.json["runs"], created.json["last_at"]) == (0, None)
    assert created.json["next_at"]
    assert (created.json["state"], paused.json["state"]) == ("active", "paused")
    assert deleted.json == {"deleted": True, "name": "nightly"}
    assert (await client.get("/schedules")).json["schedules"] == []


@pytest.mark.parametrize(
    ("timing", "every"),
    [({"every": "10s"}, "10s"), ({"every": 1500}, "1500ms"), ({"cron": "@every 1h30m"}, "90m")],
)
async def test_a_schedule_may_run_every_so_often(client, orders, timing, every):
    answer = await client.post("/schedules", {**SCHEDULE, "cron": None, **timing})

    assert (answer.json["every"], answer.json["cron"]) == (every, None)


async def test_a_schedules_value_is_a_message_like_any_other(client, orders):
    objects = await client.post("/schedules", {**SCHEDULE, "value": {"a": [1]}, "priority": "high"})
    binary = await client.post(
        "/schedules", {**SCHEDULE, "value": "/w==", "value_encoding": "base64"}
    )

    assert objects.json["value"] == '{"a": [1]}'
    assert objects.json["priority"] == "high"
    assert (binary.json["value"], binary.json["value_encoding"]) == ("/w==", "base64")


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({"name": "bad name"}, ["bad schedule name"]),
        ({"name": None}, ["name"]),
        ({"topic": "orders.dlq"}, ["reserved"]),
        ({"cron": None}, ["give cron or every"]),
        ({"every": "10s"}, ["give cron or every"]),
        ({"cron": "* * *"}, ["cron"]),
        ({"value": None}, ["value is required"]),
        ({"missed": "never"}, ["missed"]),
        ({"priority": "urgent"}, ["priority"]),
        ({"cron": None, "every": "often"}, ["every"]),
        ({"missed": "x", "value": None, "priority": 9}, ["missed", "value", "priority"]),
    ],
)
async def test_a_bad_schedule_is_refused_with_every_problem(client, orders, changes, problems):
    answer = await client.post("/schedules", {**SCHEDULE, **changes})

    assert answer.status == 400
    for problem in problems:
        assert problem in answer.json["error"]
    assert (await client.get("/schedules")).json["schedules"] == []


async def test_schedules_of_what_is_not_there_are_404(client, orders):
    topic = await client.post("/schedules", {**SCHEDULE, "topic": "nope"})

    assert (topic.status, topic.json["code"]) == (404, "unknown_topic")
    for method, path in [
        ("GET", "/schedules/nightly"),
        ("DELETE", "/schedules/nightly"),
        ("POST", "/schedules/nightly/pause"),
        ("POST", "/schedules/nightly/resume"),
    ]:
        assert (await client(method, path)).status == 404
    assert (await client.get("/schedules/-x")).status == 400
