"""Dead letters over HTTP: listed, counted, redriven, purged, and read as a topic."""

from __future__ import annotations

import asyncio

import pytest

from goqueue.wire.batch import BATCH_MEDIA_TYPE, RecordBatch
from goqueue.wire.stream import decode_frames
from tests.one_node import until

DLQ = "/groups/workers/dlq"


@pytest.fixture
def kill(client):
    """Rejects everything a group can get, for a reason each."""

    async def reject(*reasons, group="workers"):
        taken = await client.post(
            f"/groups/{group}/receive", {"topic": "orders", "limit": len(reasons), "wait": "30s"}
        )
        settles = [
            {"receipt": message["receipt"], "action": "reject", "reason": reason}
            for message, reason in zip(taken.json["messages"], reasons, strict=True)
        ]
        answer = await client.post(f"/groups/{group}/settle", {"settles": settles})
        assert answer.json["settled"] == len(reasons)

    return reject


def is_done(answer):
    """Whether no redrive goes on."""
    return all(one["state"] == "done" for one in answer.json["redrives"])


async def test_a_dead_letter_is_listed_whole_with_its_history(client, clock, put, take):
    await put(b"v", keys=[b"k"], headers=[(("h", b"1"),)], message_ids=["m-1"])
    for reason in ("busy", "still busy", "no"):
        (message,) = await take()
        await client.post(
            "/messages/nack", {"receipt_handle": message["receipt"], "reason": reason}
        )
        clock.now_ms += 1000

    answer = await client.get(DLQ + "?topic=orders")

    assert answer.status == 200
    assert answer.json == {
        "group": "workers",
        "topic": "orders",
        "messages": [
            {
                "id": "orders:0:0",
                "original_id": "orders:0:0",
                "topic": "orders",
                "partition": 0,
                "offset": 0,
                "timestamp": "2025-01-14T15:00:00.000Z",
                "value": "v",
                "priority": "normal",
                "key": "k",
                "headers": {"h": "1"},
                "message_id": "m-1",
                "reason": "no",
                "died_at": "2025-01-14T15:00:02.000Z",
                "attempts": 3,
                "redrives": 0,
                "history": [
                    {"time": "2025-01-14T15:00:00.000Z", "reason": "busy"},
                    {"time": "2025-01-14T15:00:01.000Z", "reason": "still busy"},
                    {"time": "2025-01-14T15:00:02.000Z", "reason": "no"},
                ],
            }
        ],
        "next": None,
        "total": 1,
        "by_reason": {"no": 1},
    }


async def test_pages_follow_each_other_without_a_gap(client, put, kill):
    await put(*[b"v"] * 5)
    await put(*[b"w"] * 2, partition=2)
    await kill(*["bad"] * 7)

    found, after = [], ""
    while after is not None:
        page = (await client.get(f"{DLQ}?topic=orders&limit=3&after={after}")).json
        found += [message["id"] for message in page["messages"]]
        after = page["next"]

    assert found == [*(f"orders:0:{n}" for n in range(5)), "orders:2:0", "orders:2:1"]


async def test_filters_narrow_a_list_and_counts_count_all(client, clock, put, kill):
    await put(b"a", b"b", b"c", keys=[b"x", b"y", b"x"])
    await kill("timeout in db", "bad json")
    clock.now_ms += 60_000
    await kill("timeout in api")

    async def ids(query):
        answer = await client.get(f"{DLQ}?topic=orders&{query}")
        assert answer.status == 200, answer.body
        return [message["offset"] for message in answer.json["messages"]]

    counts = await client.get(DLQ + "/counts?topic=orders")

    assert await ids("reason=timeout") == [0, 2]
    assert await ids("key=x") == [0, 2]
    assert await ids("key=x&to_time=2025-01-14T15:00:30Z") == [0]
    assert await ids("from_time=1736866830000") == [2]
    assert await ids("partition=1") == []
    assert counts.json == {
        "group": "workers",
        "topic": "orders",
        "total": 3,
        "by_reason": {"timeout in db": 1, "bad json": 1, "timeout in api": 1},
    }


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("?topic=orders.dlq", 400),
        ("?topic=orders&after=5", 400),
        ("?topic=orders&after=a:b", 400),
        ("?topic=orders&limit=0", 400),
        ("?topic=orders&from_time=yesterday", 400),
        ("?topic=orders&partition=x", 400),
        ("?topic=nope", 404),
    ],
)
async def test_a_list_that_makes_no_sense_is_refused(client, orders, query, status):
    await client("PUT", "/groups/workers")

    assert (await client.get(DLQ + query)).status == status
    assert (await client.get("/groups/nobody/dlq?topic=orders")).status == 404


async def test_a_redrive_by_filter_brings_back_what_matches_for_this_group_alone(
    client, put, kill, take
):
    await put(b"a", b"b", b"c", headers=[(("t", b"1"),), (("t", b"2"),), ()])
    await kill("bad", "bad", "worse")
    await kill("bad", "bad", "worse", group="others")
    wanted = {"topic": "orders", "filter": {"reason": "bad", "headers": {"t": "2"}}}

    dry = await client.post(DLQ + "/redrive", {**wanted, "dry_run": True})
    job = await client.post(DLQ + "/redrive", {**wanted, "rate": 100})
    others = await client.get("/groups/others/dlq/counts?topic=orders")

    assert dry.status == 200
    assert dry.json == {"group": "workers", "topic": "orders", "matched": 1, "dry_run": True}
    assert job.status == 202
    assert job.json["matched"] == 1
    assert others.json["total"] == 3
    found = await take(wait="30s")
    assert [(m["value"], m["attempt"], m["redrives"]) for m in found] == [("b", 1, 1)]
    (done,) = (await client.get(DLQ + "/redrives")).json["redrives"]
    assert (done["job"], done["moved"]) == (job.json["job"], 1)


async def test_redrives_are_listed_looked_up_and_stopped(client, put, kill):
    await put(b"a")
    await kill("bad")
    await client.post(DLQ + "/redrive", {"topic": "orders"})

    listed = await until(lambda: client.get(DLQ + "/redrives"), is_done)
    (job,) = listed.json["redrives"]
    one = await client.get(f"{DLQ}/redrives/{job['job']}")
    stopped = await client("DELETE", f"{DLQ}/redrives/{job['job']}")
    missing = [await client.get(DLQ + "/redrives/9"), await client("DELETE", DLQ + "/redrives/9")]

    assert (listed.json["group"], job["matched"], job["moved"]) == ("workers", 1, 1)
    assert one.json == stopped.json == job
    assert [answer.status for answer in missing] == [404, 404]
    assert (await client.get(DLQ + "/redrives/x")).status == 400


async def test_a_letter_that_dies_again_and_again_is_redriven_only_by_force(client, put, kill):
    await client("PUT", "/groups/workers", {"redrives_max": 1})
    await put(b"a")
    await kill("bad")
    await client.post(DLQ + "/redrive", {"topic": "orders"})
    await kill("bad")

    await client.post(DLQ + "/redrive", {"topic": "orders"})
    refused = await until(lambda: client.get(DLQ + "/redrives"), is_done)
    await client.post(DLQ + "/redrive", {"topic": "orders", "force": True})
    forced = await until(lambda: client.get(DLQ + "/redrives"), is_done)

    ends = {one["job"]: (one["moved"], one["refused"]) for one in forced.json["redrives"]}
    assert len(refused.json["redrives"]) == 2
    assert [ends[job] for job in sorted(ends)] == [(1, 0), (0, 1), (1, 0)]


async def test_a_purge_forgets_what_matches(client, put, kill, take):
    await put(b"a", b"b")
    await kill("bad", "worse")

    dry = await client.post(DLQ + "/purge", {"topic": "orders", "filter": {}, "dry_run": True})
    some = await client.post(DLQ + "/purge", {"topic": "orders", "filter": {"ids": ["orders:0:1"]}})
    rest = await client.post(DLQ + "/purge", {"topic": "orders"})

    assert (dry.json["purged"], dry.json["dry_run"]) == (2, True)
    assert (some.json["purged"], rest.json["purged"]) == (1, 1)
    assert await take() == []


@pytest.mark.parametrize("path", ["redrive", "purge"])
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "topic"),
        ({"topic": "orders.dlq"}, "reserved"),
        ({"topic": "orders", "filters": {}}, "filters"),
        ({"topic": "orders", "filter": {"reasons": "x"}}, "reasons"),
        ({"topic": "orders", "filter": {"from_time": "then", "ids": ["x"]}}, "ids"),
        ({"topic": "orders", "filter": {"from_time": "then", "ids": ["x"]}}, "from_time"),
        ({"topic": "orders", "filter": {"ids": ["other:0:1"]}}, "not of topic orders"),
        ({"topic": "orders", "filter": {"ids": []}}, "names nothing"),
        ({"topic": "orders", "filter": {"key": "!", "key_encoding": "base64"}}, "base64"),
        ({"topic": "orders", "filter": {"partition": -1}}, "partition"),
        ({"topic": "orders", "dry_run": "yes"}, "dry_run"),
    ],
)
async def test_a_misspelt_filter_moves_nothing(client, put, kill, path, body, problem):
    await put(b"a")
    await kill("bad")

    answer = await client.post(f"{DLQ}/{path}", body)
    counts = await client.get(DLQ + "/counts?topic=orders")

    assert answer.status == 400
    assert problem in answer.json["error"]
    assert counts.json["total"] == 1


async def test_a_rate_below_nothing_is_refused(client, orders):
    answer = await client.post(DLQ + "/redrive", {"topic": "orders", "rate": -1})

    assert answer.status == 400


# <topic>.dlq


async def test_dead_letters_read_as_a_topic_at_their_own_offsets(client, clock, put, kill):
    await put(b"a", b"b", b"c", headers=[(), (("h", b"1"),), ()])
    await kill("bad")
    await client.post(DLQ + "/redrive", {"topic": "orders"})
    await until(lambda: client.get(DLQ + "/redrives"), is_done)
    await kill("bad", "worse")

    page = await client.get("/topics/orders.dlq/partitions/0/messages?limit=1")
    rest = await client.get(
        f"/topics/orders.dlq/partitions/0/messages?offset={page.json['next_offset']}"
    )
    everything = await client.get("/v1/topics/orders.dlq/messages")

    assert page.json["topic"] == "orders.dlq"
    assert page.json["next_offset"] == 1
    (message,) = page.json["messages"]
    assert message["offset"] == 0
    assert message["headers"] == {
        "goqueue-redrives": "1",
        "dlq.original_id": "orders:0:0",
        "dlq.group": "workers",
        "dlq.reason": "bad",
        "dlq.attempts": "1",
        "dlq.died_at": "2025-01-14T15:00:00.000Z",
    }
    assert [m["offset"] for m in rest.json["messages"]] == [1]
    assert rest.json["messages"][0]["headers"]["h"] == "1"
    assert rest.json["next_offset"] == 2
    assert [m["offset"] for m in everything.json["messages"]] == [0, 1]
    assert everything.json["next_offsets"] == {"0": 2, "1": 0, "2": 0}


async def test_dead_letters_are_read_as_record_batches_too(client, put, kill):
    await put(b"a", b"b", keys=[b"k", None], lanes=[0, 2], headers=[(("h", b"1"),), ()])
    await kill("bad", "worse")

    answer = await client.get(
        "/topics/orders.dlq/partitions/0/messages?limit=5", headers={"Accept": BATCH_MEDIA_TYPE}
    )

    frames = list(decode_frames(answer.body))
    assert [frame.base_offset for frame in frames] == [0, 1]
    (record,) = RecordBatch.parse(frames[0].batch).records()
    assert (record.value, record.key, record.lane) == (b"a", b"k", 0)
    headers = dict(record.headers)
    assert (headers["h"], headers["dlq.reason"]) == (b"1", b"bad")
    assert answer.headers["X-GoQueue-Next-Offset"] == "2"
    assert answer.headers["X-GoQueue-End-Offset"] == "2"


async def test_a_message_with_all_the_headers_it_may_have_is_read_dead(client, put, kill):
    await put(b"a", headers=[(("h", b"x" * 65_000),)])
    await kill("bad" * 80)

    answer = await client.get(
        "/topics/orders.dlq/partitions/0/messages", headers={"Accept": BATCH_MEDIA_TYPE}
    )

    (frame,) = decode_frames(answer.body)
    (record,) = RecordBatch.parse(frame.batch).records()
    assert dict(record.headers)["dlq.reason"] == b"bad" * 80


async def test_a_read_of_dead_letters_waits_for_one(client, put, kill, monkeypatch):
    monkeypatch.setattr("node.http.queue.dead_topic.LOOK_AGAIN_S", 0.01)
    await put(b"a")
    path = "/topics/orders.dlq/partitions/0/messages"
    waiting = asyncio.ensure_future(client.get(path + "?wait=30s"))
    empty = await client.get(path + "?wait=20ms")

    await kill("bad")
    answer = await asyncio.wait_for(waiting, 30)

    assert empty.json["messages"] == []
    assert [message["value"] for message in answer.json["messages"]] == ["a"]


async def test_the_group_must_be_said_where_several_have_dead_letters(client, put, kill):
    await put(b"a")
    await kill("bad")
    await kill("bad", group="others")
    path = "/topics/orders.dlq/partitions/0/messages"

    unsaid = await client.get(path)
    said = await client.get(path + "?group=others")
    nobody = await client.get(path + "?group=nobody")
    described = await client.get("/topics/orders.dlq")
    narrowed = await client.get("/topics/orders.dlq?group=workers")

    assert (unsaid.status, unsaid.json["code"]) == (400, "group_required")
    assert unsaid.json["groups"] == ["others", "workers"]
    assert said.json["messages"][0]["headers"]["dlq.group"] == "others"
    assert (nobody.status, nobody.json["code"]) == (404, "unknown_group")
    assert described.json["total_messages"] == 2
    assert described.json["groups"]["others"] == {"total": 1, "by_reason": {"bad": 1}}
    assert narrowed.json["total_messages"] == 1


async def test_a_dead_topic_without_dead_letters_is_empty(client, orders):
    described = await client.get("/topics/orders.dlq")
    read = await client.get("/topics/orders.dlq/partitions/0/messages")

    assert described.json["name"] == "orders.dlq"
    assert described.json["partitions"] == 3
    assert described.json["total_messages"] == 0
    assert described.json["partition_offsets"]["0"] == {"earliest": 0, "latest": -1}
    assert read.json["messages"] == []


async def test_a_dead_topic_is_as_there_as_its_source(client, orders):
    assert (await client.get("/topics/nope.dlq")).status == 404
    assert (await client.get("/topics/nope.dlq/messages")).status == 404
    assert (await client.get("/topics/orders.dlq/partitions/9/messages")).status == 404
    assert (await client.get("/topics/orders.dlq/partitions/0/messages?offset=x")).status == 400
    assert (await client.get("/topics/orders.dlq.dlq")).status == 400
    assert (await client.get("/topics/.dlq")).status == 400


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/topics", {"name": "orders.dlq"}),
        ("POST", "/topics/orders.dlq/messages", {"value": "v"}),
        ("POST", "/topics/orders.dlq/publish", {"value": "dg=="}),
        ("DELETE", "/topics/orders.dlq", None),
        ("PATCH", "/topics/orders.dlq", {"retention_hours": 1}),
        ("GET", "/topics/orders.dlq/delayed", None),
    ],
)
async def test_a_dead_topic_is_not_made_published_to_or_changed(client, orders, method, path, body):
    answer = await client(method, path, body)

    assert (answer.status, answer.json["code"]) == (400, "invalid_name")
    assert "reserved" in answer.json["error"]
    assert (await client.get("/topics")).json["topics"] == ["orders"]
