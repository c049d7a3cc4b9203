"""Groups over HTTP: settings in and out, positions, and keys parked by hand."""

from __future__ import annotations

import pytest

GROUP = "/groups/workers"
DEFAULTS = {
    "visibility_timeout": "30s",
    "max_attempts": 3,
    "ordering": "none",
    "start": "earliest",
    "lane_max_wait": "30s",
    "lane_share": 5,
    "backoff": "0s",
    "backoff_max": "1m",
    "on_poison": "dead",
    "halt_percent": 0,
    "halt_window": 100,
    "redrives_max": 5,
    "in_flight_max": 10_000,
    "dead_max": 100_000,
    "mode": "exclusive",
    "assignor": "sticky",
    "session_timeout": "30s",
    "rebalance_timeout": "1m",
}


async def test_a_put_creates_a_group_with_defaults_and_changes_what_it_names(client):
    created = await client("PUT", GROUP)
    changed = await client("PUT", GROUP, {"visibility_timeout": "90s", "maxRetries": 5})

    assert created.status == 200
    assert created.json["settings"] == DEFAULTS
    assert created.json["name"] == created.json["id"] == created.json["group_id"] == "workers"
    assert created.json["created_at"] == "2025-01-14T15:00:00.000Z"
    assert changed.json["settings"] == {
        **DEFAULTS,
        "visibility_timeout": "90s",
        "max_attempts": 5,
    }


async def test_settings_that_were_shown_can_be_sent_back(client):
    wanted = {
        "visibility_timeout": "1500ms",
        "lane_max_wait": "2m",
        "backoff": "1s",
        "backoff_max": "2h",
        "ordering": "key",
        "on_poison": "park",
        "start": "latest",
    }
    shown = (await client("PUT", GROUP, wanted)).json["settings"]

    again = await client("PUT", "/groups/others", shown)

    assert {name: shown[name] for name in wanted} == wanted
    assert again.json["settings"] == shown


async def test_a_put_with_problems_names_all_of_them_and_changes_nothing(client):
    answer = await client(
        "PUT",
        GROUP,
        {
            "visibility_timeout": "13h",
            "max_attempts": -1,
            "ordering": "random",
            "lane_share": "5",
            "halt_percent": 101,
            "backoff": True,
            "colour": "red",
        },
    )

    assert answer.status == 400
    assert len(answer.json["problems"]) == 7
    for name in ("visibility_timeout", "max_attempts", "ordering", "lane_share", "colour"):
        assert name in answer.json["error"]
    assert (await client.get(GROUP)).status == 404


async def test_settings_of_more_than_a_slice_are_not_read(client):
    told = await client("PUT", "/groups/workers", {"a": [[]] * 25_000})

    assert (told.status, told.json["code"]) == (413, "payload_too_large")
    assert (await client.get("/groups/workers")).status == 404


async def test_one_setting_under_two_names_must_agree(client):
    same = await client("PUT", GROUP, {"max_attempts": 4, "maxRetries": 4})
    other = await client("PUT", GROUP, {"max_attempts": 4, "maxRetries": 5})

    assert same.json["settings"]["max_attempts"] == 4
    assert other.status == 400


async def test_a_patch_changes_a_group_that_is_there_and_no_other(client):
    missing = await client("PATCH", GROUP, {"max_attempts": 1})
    await client("PUT", GROUP)
    nothing = await client("PATCH", GROUP, {"max_attempts": None})
    changed = await client("PATCH", GROUP, {"max_attempts": 1})

    assert (missing.status, missing.json["code"]) == (404, "unknown_group")
    assert nothing.status == 400
    assert changed.json["settings"]["max_attempts"] == 1


async def test_a_group_is_described_by_partition_and_by_topic(client, broker, put, take):
    await put(b"a", b"b", b"c", lanes=[0, 2, 2])
    await broker.topics.create_topic("other", {"partitions": 1})
    await take(limit=1)
    await client.post("/groups/workers/receive", {"topic": "other"})

    everywhere = await client.get(GROUP)
    here = await client.get(GROUP + "?topic=orders")

    assert everywhere.json["topics"] == ["orders", "other"]
    assert len(everywhere.json["partitions"]) > len(here.json["partitions"])
    (place,) = [p for p in here.json["partitions"] if p["partition"] == 0]
    assert place["ready"] == 2
    assert place["in_flight"] == 1
    assert place["lag"] == 3
    assert place["committed_offset"] == 0
    assert place["end_offset"] == 3
    assert place["delivered"] == 1
    assert place["halted"] == ""
    assert place["lane_pending"] == [0, 0, 2, 0, 0]


async def test_groups_are_listed_by_name_and_deleted(client):
    await client("PUT", "/groups/b")
    await client("PUT", "/groups/a")

    listed = await client.get("/groups")
    deleted = await client("DELETE", "/groups/a")
    again = await client("DELETE", "/groups/a")

    assert listed.json["groups"] == ["a", "b"]
    assert [detail["name"] for detail in listed.json["details"]] == ["a", "b"]
    assert deleted.json == {"deleted": True, "group": "a", "group_id": "a"}
    assert (again.status, again.json["code"]) == (404, "unknown_group")


async def test_a_deleted_groups_receipts_are_worth_nothing(client, put, take):
    await put(b"v")
    (message,) = await take()
    await client("DELETE", GROUP)
    await client("PUT", GROUP)

    answer = await client.post(GROUP + "/ack", {"receipt": message["receipt"]})

    assert answer.json["results"][0]["status"] == 404


# positions


async def test_a_commit_settles_all_below_it(client, put, take):
    await put(b"a", b"b", b"c")
    (leased,) = await take(limit=1)

    answer = await client.post(GROUP + "/commit", {"topic": "orders", "offsets": {"0": 2}})
    rest = [message["value"] for message in await take()]
    late = await client.post(GROUP + "/ack", {"receipt": leased["receipt"]})

    assert answer.json == {"group": "workers", "topic": "orders", "offsets": {"0": 2}}
    assert rest == ["c"]
    assert late.json["results"][0]["status"] == 404


@pytest.mark.parametrize(
    ("to", "values"),
    [
        ("earliest", ["a", "b", "c"]),
        ("latest", []),
        (1, ["b", "c"]),
        ("2", ["c"]),
        ("2025-01-14T15:00:01Z", ["b", "c"]),
    ],
)
async def test_a_seek_replays_or_skips(client, clock, put, take, to, values):
    for value in (b"a", b"b", b"c"):
        await put(value)
        clock.now_ms += 1000
    for message in await take():
        await client.post(GROUP + "/ack", {"receipt": message["receipt"]})

    answer = await client.post(GROUP + "/seek", {"topic": "orders", "partition": 0, "to": to})

    assert answer.json == {
        "group": "workers",
        "topic": "orders",
        "offsets": {"0": 3 - len(values)},
    }
    assert [message["value"] for message in await take()] == values


async def test_a_seek_takes_epoch_milliseconds_as_time_and_all_partitions(client, clock, put):
    await put(b"a")
    await client("PUT", GROUP)

    answer = await client.post(GROUP + "/seek", {"topic": "orders", "time": clock.now_ms + 1})

    assert answer.json["offsets"] == {"0": 1, "1": 0, "2": 0}


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("commit", {"topic": "orders", "offsets": {}}, "nothing to commit"),
        ("commit", {"topic": "orders", "offsets": {"x": 1}}, "'x' is not a partition"),
        ("commit", {"topic": "orders", "offsets": {"-1": 1}}, "is not a partition"),
        ("commit", {"topic": "orders", "offsets": {"0": -1}}, "is not an offset"),
        ("commit", {"topic": "orders", "offsets": {"0": "1"}}, "offsets"),
        ("commit", {"topic": "orders", "offsets": [1]}, "offsets"),
        ("commit", {"offsets": {"0": 1}}, "topic"),
        ("seek", {"topic": "orders"}, "give either"),
        ("seek", {"topic": "orders", "to": "earliest", "time": 5}, "give either"),
        ("seek", {"topic": "orders", "to": -1}, "is not an offset"),
        ("seek", {"topic": "orders", "to": "yesterday"}, "to"),
        ("seek", {"topic": "orders", "to": "latest", "partition": -1}, "partition"),
        ("seek", {"topic": "orders.dlq", "to": "latest"}, "reserved"),
        ("resume", {"topic": "bad name"}, "bad topic name"),
        ("keys/park", {"topic": "orders", "key": ""}, "key is required"),
        ("keys/park", {"topic": "orders"}, "key"),
        ("keys/release", {"topic": "orders", "key": "!", "key_encoding": "base64"}, "base64"),
        ("keys/park", {"topic": "orders", "key": "k", "key_encoding": "rot13"}, "key_encoding"),
    ],
)
async def test_a_body_that_makes_no_sense_is_a_400(client, orders, path, body, problem):
    answer = await client.post(f"{GROUP}/{path}", body)

    assert answer.status == 400
    assert problem in answer.json["error"]


async def test_positions_of_what_is_not_there_are_404(client, orders):
    await client("PUT", GROUP)

    topic = await client.post(GROUP + "/commit", {"topic": "nope", "offsets": {"0": 1}})
    partition = await client.post(GROUP + "/commit", {"topic": "orders", "offsets": {"7": 1}})
    group = await client.post("/groups/nobody/resume", {})

    assert (topic.status, topic.json["code"]) == (404, "unknown_topic")
    assert (partition.status, partition.json["code"]) == (404, "unknown_partition")
    assert (group.status, group.json["code"]) == (404, "unknown_group")


async def test_a_parked_key_waits_while_others_flow_until_it_is_released(client, put, take):
    await client("PUT", GROUP, {"ordering": "key"})
    await put(b"1", b"2", b"3", keys=[b"bad", b"good", b"bad"])

    parked = await client.post(GROUP + "/keys/park", {"topic": "orders", "key": "bad"})
    flowing = [message["value"] for message in await take()]
    listed = await client.get(GROUP + "/keys/parked?topic=orders")
    released = await client.post(
        GROUP + "/keys/release", {"topic": "orders", "key": "YmFk", "key_encoding": "base64"}
    )
    after = [message["value"] for message in await take()]

    assert parked.json == {
        "group": "workers",
        "topic": "orders",
        "key": "bad",
        "parked": True,
        "waiting": 2,
    }
    assert flowing == ["2"]
    waiting = [key for key in listed.json["parked"] if key["waiting"]]
    assert waiting == [{"topic": "orders", "partition": 0, "key": "bad", "waiting": 2}]
    assert released.json["parked"] is False
    assert after == ["1"]


async def test_what_becomes_due_waits_for_its_keys_message_in_flight(client, clock, put, take):
    await client("PUT", GROUP, {"ordering": "key"})
    await put(b"late", b"now", keys=[b"k", b"k"], deliver_at_ms=[clock.now_ms + 1000, None])

    now = [message["value"] for message in await take()]
    clock.now_ms += 1000
    meanwhile = await take()

    assert now == ["now"]
    assert meanwhile == []


async def test_keys_are_parked_only_where_they_are_kept_in_order(client, orders):
    await client("PUT", GROUP)
    body = {"topic": "orders", "key": "k"}

    refused = await client.post(GROUP + "/keys/park", body)
    released = await client.post(GROUP + "/keys/release", body)

    assert refused.status == 400
    assert "ordering: key" in refused.json["error"]
    assert released.status == 200


@pytest.mark.parametrize(
    ("what", "body"),
    [("seek", {"topic": "orders", "to": "latest"}), ("peek", {"topics": ["orders"]})],
)
async def test_a_peek_or_seek_of_a_group_that_nobody_made_makes_none(client, orders, what, body):
    answer = await client.post(f"/groups/typo/{what}", body)

    assert (answer.status, answer.json["code"]) == (404, "unknown_group")
    assert (await client.get("/groups")).json["groups"] == []
