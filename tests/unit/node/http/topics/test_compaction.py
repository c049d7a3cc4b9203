"""Compacted topics over HTTP: settings under both names, keys, null values, dry runs."""

from __future__ import annotations

import pytest

from tests.one_node import until


@pytest.fixture
async def table(client):
    created = await client.post(
        "/topics", {"name": "table", "partitions": 1, "config": {"cleanup.policy": "compact"}}
    )
    assert created.status == 201
    return "table"


async def test_settings_have_kafkas_names_too(client):
    config = {
        "cleanup.policy": "compact, delete",
        "delete.retention.ms": "1000",
        "min.compaction.lag.ms": 2000,
        "min.cleanable.dirty.ratio": "0.1",
    }
    answer = await client.post("/topics", {"name": "t", "config": config})

    found = answer.json["config"]
    assert (found["cleanup"], found["delete_retention_ms"]) == ("compact,delete", 1000)
    assert (found["min_compaction_lag_ms"], found["min_cleanable_ratio"]) == (2000, 0.1)


async def test_a_null_value_deletes_and_is_read_as_null(client, table):
    stored = await client.post(f"/topics/{table}/messages", {"key": "a", "value": None})
    read = await client.get(f"/topics/{table}/partitions/0/messages")

    assert stored.status == 201 or stored.status == 200
    (message,) = read.json["messages"]
    assert (message["key"], message["value"]) == ("a", None)


async def test_each_message_without_a_key_is_refused_by_itself(client, table):
    answer = await client.post(
        f"/topics/{table}/messages", {"messages": [{"value": "x"}, {"value": "y", "key": "k"}]}
    )

    first, second = answer.json["results"]
    assert (first["code"], first["status"]) == ("key_required", 400)
    assert second["offset"] == 0


async def test_null_values_are_for_compacted_topics_only(client, orders):
    answer = await client.post("/topics/orders/messages", {"key": "a", "value": None})

    assert answer.status == 400
    assert "compacted topics only" in answer.json["error"]


async def test_a_dry_run_tells_what_would_go_in_each_partition(client, clock, table):
    for value in ("1", "2", None):
        await client.post(f"/topics/{table}/messages", {"key": "a", "value": value})
    # a segment is a day long, and the newest is left alone; no round of maintenance is due for it
    clock.set_ahead(25 * 3_600_000)
    await client.post(f"/topics/{table}/messages", {"key": "b", "value": "3"})

    # it goes to its segment after it was acknowledged: the one before is sealed then
    told = await until(
        lambda: client.post(f"/topics/{table}/compaction", {"dry_run": True}),
        lambda answer: answer.json["partitions"][0]["outcome"] != "nothing",
    )
    stands = await client.get(f"/topics/{table}/compaction")

    assert (told.status, told.json["dry_run"]) == (200, True)
    row = told.json["partitions"][0]
    assert (row["outcome"], row["run_dropped"], row["run_tombstones"]) == ("done", 2, 1)
    assert stands.json["partitions"][0]["state"] == "idle"
    assert stands.json["partitions"][0]["dirty_bytes"] > 0


async def test_a_topic_that_is_not_compacted_is_a_conflict(client, orders):
    answer = await client.post("/topics/orders/compaction", {})

    assert (answer.status, answer.json["code"]) == (409, "conflict")
