"""Reports of archives over HTTP: what is taken, what is refused by which code, what is shown."""

from __future__ import annotations

import pytest

HERE = "s3://bucket/archive"


@pytest.fixture
async def stored(client, orders):
    """Three messages of partition 0."""
    for value in ("a", "b", "c"):
        await client.post("/topics/orders/messages", {"value": value, "partition": 0})
    return "orders"


async def report(client, positions, **more):
    body = {"archive": HERE, "positions": positions, **more}
    return await client.post("/topics/orders/archived", body)


async def test_a_report_is_answered_and_shown_by_partition(client, stored):
    answer = await report(client, {"0": 2, "1": 0})
    topic = (await client.get("/topics/orders")).json

    first, second = answer.json["partitions"]
    assert (first["partition"], first["archive"], first["position"]) == (0, HERE, 2)
    assert (first["lag"], second["lag"]) == (1, 0)
    assert topic["archive"] == HERE
    assert topic["partition_details"][0]["archive"]["position"] == 2


async def test_a_topic_without_an_archive_shows_none(client, stored):
    topic = (await client.get("/topics/orders")).json

    assert topic["archive"] is None
    assert {row["archive"] for row in topic["partition_details"]} == {None}


async def test_a_smaller_position_is_taken_and_changes_nothing(client, stored):
    await report(client, {"0": 2})
    answer = await report(client, {"0": 1})

    assert answer.status == 200
    assert answer.json["partitions"][0]["position"] == 2


async def test_a_location_is_the_same_with_and_without_a_slash_at_its_end(client, stored):
    await report(client, {"0": 1})
    answer = await report(client, {"0": 2}, archive=HERE + "/")

    assert answer.json["partitions"][0]["archive"] == HERE


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"archive": HERE, "positions": {"0": 4}}, 400, "offset_out_of_range"),
        ({"archive": HERE, "positions": {"0": -1}}, 400, "bad_request"),
        ({"archive": HERE, "positions": {"0": "1"}}, 400, "bad_request"),
        ({"archive": HERE, "positions": {"x": 1}}, 400, "bad_request"),
        ({"archive": HERE, "positions": {}}, 400, "bad_request"),
        ({"archive": "", "positions": {"0": 1}}, 400, "bad_request"),
        ({"archive": "x" * 1025, "positions": {"0": 1}}, 400, "bad_request"),
        ({"positions": {"0": 1}}, 400, "bad_request"),
        ({"archive": HERE, "positions": {"99": 1}}, 404, "unknown_partition"),
        ({"archive": HERE, "positions": {"0": 1}, "topic_id": "1-9"}, 404, "unknown_topic"),
        ({"archive": "/other", "positions": {"0": 3}}, 409, "other_archive"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_a_code(client, stored, body, status, code):
    await report(client, {"0": 1})
    answer = await client.post("/topics/orders/archived", body)

    assert (answer.status, answer.json["code"]) == (status, code)
    topic = (await client.get("/topics/orders")).json
    assert topic["partition_details"][0]["archive"]["position"] == 1


async def test_another_archive_takes_the_place_of_the_first_when_that_is_said(client, stored):
    await report(client, {"0": 3})
    answer = await report(client, {"0": 1}, archive="/other", replace=True)

    assert answer.json["partitions"][0]["archive"] == "/other"
    assert answer.json["partitions"][0]["position"] == 1


async def test_the_topics_id_may_be_told_and_is_held_against_it(client, stored):
    id = (await client.get("/topics/orders")).json["id"]

    assert (await report(client, {"0": 1}, topic_id=id)).status == 200


@pytest.mark.parametrize("value", [True, "true", "True"])
async def test_the_setting_has_a_name_of_kafkas_kind_too(client, value):
    config = {"retention.require_archive": value}
    made = await client.post("/topics", {"name": "t", "config": config})
    changed = await client("PATCH", "/topics/t", {"require_archive": False})

    assert made.json["config"]["require_archive"] is True
    assert changed.json["config"]["require_archive"] is False


async def test_a_setting_that_is_neither_true_nor_false_is_refused(client):
    config = {"retention.require_archive": "1"}
    answer = await client.post("/topics", {"name": "t", "config": config})

    assert (answer.status, answer.json["code"]) == (400, "bad_request")
