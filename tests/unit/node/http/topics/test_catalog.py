"""Topics over HTTP: GoQueue's fields, ours beside them, and clear refusals."""

from __future__ import annotations

import pytest


async def test_create_answers_what_goqueue_answers_and_the_whole_configuration(client):
    answer = await client.post("/topics", {"name": "orders", "num_partitions": 3})

    assert answer.status == 201
    assert answer.json["name"] == "orders"
    assert answer.json["partitions"] == 3
    assert answer.json["created"] is True
    assert answer.json["config"]["retention_ms"] == 168 * 3600 * 1000


async def test_every_spelling_of_a_setting_reaches_the_broker(client):
    settings = {
        "name": "t",
        "partitions": 2,
        "replicationFactor": 1,
        "retention_hours": 1.5,
        "config": {"retention.bytes": "1000", "durability": "relaxed"},
        "labels": {"team": "a"},
    }

    config = (await client.post("/topics", settings)).json["config"]

    assert config["partitions"] == 2
    assert config["replication_factor"] == 1
    assert config["retention_ms"] == 5_400_000
    assert config["retention_bytes"] == 1000
    assert config["durability"] == "relaxed"
    assert config["labels"] == {"team": "a"}


async def test_nulls_leave_the_defaults(client):
    answer = await client.post("/topics", {"name": "t", "num_partitions": None, "labels": None})

    assert answer.status == 201
    assert answer.json["partitions"] == 6


async def test_a_topic_that_exists_is_a_conflict(client, orders):
    answer = await client.post("/topics", {"name": orders})

    assert answer.status == 409
    assert answer.json["code"] == "topic_exists"
    assert answer.json["retriable"] is False


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": None},
        {"name": 5},
        {"name": ["a"]},
        {"name": "t", "num_partitions": 0},
        {"name": "t", "num_partitions": -1},
        {"name": "t", "num_partitions": 1.5},
        {"name": "t", "num_partitions": "3"},
        {"name": "t", "num_partitions": 10**30},
        {"name": "t", "num_partitions": 100_000},
        {"name": "t", "num_partitions": 2, "partitions": 3},
        {"name": "t", "labels": ["a"]},
        {"name": "t", "labels": {"a": 1}},
        {"name": "t", "retention_hours": "soon"},
        {"name": "t", "config": {"no.such": 1}},
        {"name": "t", "config": {"labels": "x"}},
        {"name": "t", "config": {"retention.ms": "abc"}},
        {"name": "t", "config": {"retention.ms": "9" * 5000}},
        {"name": ""},
        {"name": "../../evil"},
        {"name": "a/b"},
        {"name": "."},
        {"name": "-a"},
        {"name": "a" * 250},
        {"name": "a\x00b"},
        {"name": "topic\n"},
        {"name": "ünïcode"},
        {"name": "orders.dlq"},
    ],
)
async def test_bad_settings_and_names_are_400_and_create_nothing(client, broker, body):
    answer = await client.post("/topics", body)

    assert answer.status == 400
    assert answer.json["code"] in ("bad_request", "invalid_config", "invalid_name", "unknown_field")
    assert broker.topics.list_topics() == []


@pytest.mark.parametrize("name", ["%2e%2e%2fevil", "..%2f..%2fevil", "a%00b", "%C3%BC", "a%2Fb"])
@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH"])
async def test_encoded_names_in_paths_are_refused_as_names(client, method, name):
    answer = await client(method, f"/topics/{name}", {})

    assert answer.status == 400
    assert answer.json["code"] == "invalid_name"


async def test_names_lists_all(client, orders):
    assert (await client.get("/topics")).json == {"topics": ["orders"]}


async def test_describe_counts_messages_and_shows_offsets_as_goqueue_does(client, orders):
    await client.post("/topics/orders/messages", {"messages": [{"value": "v", "partition": 1}]})

    described = (await client.get("/topics/orders")).json

    assert described["partitions"] == 3
    assert described["total_messages"] == 1
    assert described["partition_offsets"]["0"] == {"earliest": 0, "latest": -1}
    assert described["partition_offsets"]["1"] == {"earliest": 0, "latest": 0}
    assert described["partition_details"][1]["next"] == 1
    assert described["retention_hours"] == 168


async def test_unknown_topics_are_404_with_a_code(client):
    for method, path in (
        ("GET", "/topics/nope"),
        ("DELETE", "/topics/nope"),
        ("GET", "/topics/nope/partitions"),
        ("POST", "/topics/nope/flush"),
        ("POST", "/topics/nope/trim"),
        ("GET", "/topics/nope/partitions/0/messages"),
        ("GET", "/topics/nope/messages"),
    ):
        answer = await client(method, path)
        assert (answer.status, answer.json["code"]) == (404, "unknown_topic"), path


async def test_patch_and_put_alter_and_refuse_what_cannot_change(client, orders):
    altered = await client("PATCH", "/topics/orders", {"retention_hours": 24})
    also = await client("PUT", "/topics/orders", {"durability": "relaxed"})
    refused = await client("PATCH", "/topics/orders", {"partitions": 9})
    empty = await client("PATCH", "/topics/orders", {})

    assert altered.json["retention_hours"] == 24
    assert also.json["config"]["durability"] == "relaxed"
    assert also.json["config"]["retention_ms"] == 24 * 3600 * 1000
    assert refused.status == 400
    assert empty.status == 400


async def test_delete_removes_the_topic(client, orders, broker):
    assert (await client("DELETE", "/topics/orders")).json == {"deleted": True, "name": "orders"}
    assert broker.topics.list_topics() == []


async def test_a_trim_tells_what_went_and_is_refused_below_level_2(client, orders, broker):
    refused = await client.post("/topics/orders/trim")
    await broker.upgrade.finish_level()
    await client.post("/topics/orders/messages", {"messages": [{"value": "v", "partition": 1}]})
    received = (await client.post("/v1/groups/g/receive", {"topics": ["orders"]})).json["messages"]

    held = (await client.post("/topics/orders/trim")).json["partitions"]
    await client.post("/v1/groups/g/ack", {"receipts": [one["receipt"] for one in received]})
    trimmed = (await client.post("/topics/orders/trim")).json

    assert (refused.status, refused.json["code"]) == (409, "level_not_finished")
    assert [row["kept_for"] for row in held] == [None, "g", None]
    assert (trimmed["topic"], trimmed["messages"], trimmed["bytes"] > 0) == ("orders", 1, True)
    assert [(row["messages"], row["earliest"]) for row in trimmed["partitions"]] == [
        (0, 0),
        (1, 1),
        (0, 0),
    ]


async def test_flush_and_partitions_answer(client, orders):
    assert (await client.post("/topics/orders/flush")).json == {"flushed": True, "name": "orders"}

    partitions = (await client.get("/v1/topics/orders/partitions")).json["partitions"]

    assert [partition["partition"] for partition in partitions] == [0, 1, 2]
    assert partitions[0]["leader"] == "node-1"
    assert partitions[0]["isr"] == ["node-1"]


async def test_current_ends_are_told_by_leaders_or_not_at_all(client, orders, broker, monkeypatch):
    ends = {0: (2, 5), 1: (0, 0), 2: (1, 1)}

    async def told(topic):
        return ends

    monkeypatch.setattr(broker.records, "end_offsets", told)
    found = await client.get("/topics/orders/partitions?current=true")
    del ends[1]
    unknown = await client.get("/topics/orders/partitions?current=true")

    rows = [(row["earliest"], row["next"], row["messages"]) for row in found.json["partitions"]]
    assert rows == [(2, 5, 3), (0, 0, 0), (1, 1, 0)]
    assert (unknown.status, unknown.json["code"]) == (503, "unavailable")
