"""What GoQueue's k6 scripts and its administration of compaction send is served."""

from __future__ import annotations

import json

CREATE = {"name": "load", "partitions": 1, "replicationFactor": 1,
          "config": {"retention.ms": "3600000"}}  # fmt: skip
SENT = {"id": "m-1", "timestamp": 1_700_000_000_000, "payload": "x", "metadata": {"vu": 1}}


async def test_a_k6_script_creates_publishes_consumes_and_acks_under_api_v1(client, broker):
    created = await client.post("/api/v1/topics", CREATE)
    published = await client.post("/api/v1/topics/load/messages", SENT)
    taken = await client.get("/api/v1/topics/load/consume?group=k6&timeout=1000&maxMessages=10")
    [message] = taken.json["messages"]
    acked = await client.post(
        "/api/v1/topics/load/ack", {"messageIds": [message["id"]], "group": "k6"}
    )
    nothing = await client.get("/api/v1/topics/load/consume?group=k6&timeout=1&maxMessages=10")

    assert (created.status, published.status, taken.status) == (201, 200, 200)
    assert json.loads(message["value"]) == SENT
    assert isinstance(message["timestamp"], int)
    assert acked.json == {"success": True, "acknowledged": 1}
    assert (nothing.status, nothing.body) == (204, b"")


async def test_under_api_v1_our_own_bodies_mean_what_they_mean_elsewhere(client, orders):
    one = await client.post("/api/v1/topics/orders/messages", {"value": "v", "key": "k"})
    several = await client.post("/api/v1/topics/orders/messages", {"messages": [{"value": "v"}]})
    misspelt = await client.post("/api/v1/topics/orders/messages", {"value": "v", "delai": 1})

    assert (one.status, several.status, misspelt.status) == (200, 200, 400)
    read = (await client.get("/topics/orders/messages")).json["messages"]
    assert [message["value"] for message in read] == ["v", "v"]


async def test_an_ack_that_is_too_late_says_so(client, orders):
    await client("PUT", "/groups/k6")
    answer = await client.post(
        "/topics/orders/ack", {"messageId": "orders:0:42:1:a1b2c3d4", "group": "k6"}
    )
    empty = await client.post("/topics/orders/ack", {"group": "k6"})

    assert (answer.status, answer.json["code"]) == (400, "invalid_receipt")
    assert (empty.status, empty.json["code"]) == (400, "bad_request")


async def test_compaction_is_asked_for_in_goqueues_words(client, orders):
    await client("PATCH", "/topics/orders", {"cleanup": "compact"})

    answer = await client.post("/admin/topics/orders/compact", {"partitions": [0], "dry_run": True})

    assert answer.status == 200
    assert (answer.json["success"], answer.json["topic"]) == (True, "orders")
    [row] = answer.json["results"]
    assert row["partition"] == 0
    assert row["records_before"] - row["records_removed"] == row["records_after"]


async def test_a_topic_is_shown_as_a_queue(client, orders):
    for number in range(4):
        await client.post("/topics/orders/messages", {"value": "v", "partition": number % 2})
    await client.post("/topics/orders/messages", {"value": "later", "delay": "1h"})
    taken = await client.post("/groups/g/receive", {"topic": "orders", "limit": 1})
    await client.post("/groups/g/ack", {"receipt": taken.json["messages"][0]["receipt"]})

    shown = (await client.get("/v1/topics/orders/queue")).json
    nobody = await client.get("/topics/none/queue")

    assert sum(shown["stored_by_lane"]) == 5
    assert (shown["delayed"], shown["scheduled"], shown["stale"]) == (1, 1, False)
    assert (shown["groups"]["g"]["acked"], shown["groups"]["g"]["lag"]) == (1, 3)
    assert len(shown["partitions"]) == 3
    assert (nobody.status, nobody.json["code"]) == (404, "unknown_topic")
