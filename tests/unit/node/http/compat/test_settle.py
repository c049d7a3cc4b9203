"""GoQueue's published clients settle here: what they send is taken, what they read is there."""

from __future__ import annotations

import pytest

ACK, NACK = "/messages/ack", "/messages/nack"
REJECT, VISIBILITY = "/messages/reject", "/messages/visibility"


@pytest.fixture
def lease(put, take):
    """The receipt of a fresh message."""

    async def fresh() -> str:
        await put(b"v")
        (message,) = await take(limit=1)
        return message["receipt_handle"]

    return fresh


@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_an_ack_answers_what_the_server_and_the_clients_say(client, lease, prefix):
    receipt = await lease()

    # As the Python client writes it: what is not given is null.
    answer = await client.post(prefix + ACK, {"receipt_handle": receipt, "consumer_id": None})

    assert answer.status == 200
    assert answer.json == {
        "success": True,
        "acknowledged": True,
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "committed_offset": 1,
        "offset_advanced": True,
        "in_flight_count": 0,
    }


async def test_an_ack_out_of_order_does_not_advance(client, put, take):
    await put(b"a", b"b")
    first, second = await take()

    later = await client.post(ACK, {"receipt_handle": second["receipt"]})
    earlier = await client.post(ACK, {"receipt_handle": first["receipt"]})

    assert (later.json["committed_offset"], later.json["offset_advanced"]) == (0, False)
    assert (earlier.json["committed_offset"], earlier.json["offset_advanced"]) == (2, True)
    assert later.json["in_flight_count"] == 1


@pytest.mark.parametrize(
    ("body", "visible_at"),
    [
        ({"delay": None}, "2025-01-14T15:00:00.000Z"),  # Python
        ({"delay": "10s", "consumer_id": "c-1"}, "2025-01-14T15:00:10.000Z"),  # Python, JavaScript
        ({"delay": ""}, "2025-01-14T15:00:00.000Z"),  # Go, had it not omitempty
        ({"reason": "database timeout"}, "2025-01-14T15:00:00.000Z"),  # the server's own form
        ({"reason": "busy", "delay": 2500}, "2025-01-14T15:00:02.500Z"),
    ],
)
async def test_a_nack_requeues(client, lease, body, visible_at):
    answer = await client.post(NACK, {"receipt_handle": await lease(), **body})

    assert answer.status == 200
    assert answer.json == {
        "success": True,
        "requeued": True,
        "action": "requeued",
        "state": "requeued",
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "delivery_count": 1,
        "next_visible_at": visible_at,
    }


async def test_the_last_nack_says_dlq(client, put, take):
    await put(b"v")
    answers = []
    for _ in range(3):
        (message,) = await take()
        answers.append((await client.post(NACK, {"receipt_handle": message["receipt"]})).json)

    assert [answer["action"] for answer in answers] == ["requeued", "requeued", "dlq"]
    assert [answer["delivery_count"] for answer in answers] == [1, 2, 3]
    assert answers[2]["dlq_topic"] == "orders.dlq"
    assert answers[2]["requeued"] is False


@pytest.mark.parametrize("reason", [{}, {"reason": None}, {"reason": "invalid order"}])
async def test_a_reject_is_dead_with_or_without_a_reason(client, lease, reason):
    answer = await client.post(REJECT, {"receipt_handle": await lease(), **reason})
    dead = await client.get("/groups/workers/dlq?topic=orders")

    assert answer.status == 200
    assert answer.json == {
        "success": True,
        "rejected": True,
        "action": "rejected",
        "state": "dead",
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "delivery_count": 1,
        "dlq_topic": "orders.dlq",
        "reason": reason.get("reason") or "",
    }
    assert dead.json["total"] == 1


@pytest.mark.parametrize(
    ("body", "extended_by", "deadline"),
    [
        ({"extension_seconds": 60}, 60, "2025-01-14T15:01:00.000Z"),
        ({"timeout": "60s"}, 60, "2025-01-14T15:01:00.000Z"),
        ({"timeout": "90s", "consumer_id": None}, 90, "2025-01-14T15:01:30.000Z"),
        ({"timeout": 1500}, 1.5, "2025-01-14T15:00:01.500Z"),
        ({"extension_seconds": 60, "timeout": "1m"}, 60, "2025-01-14T15:01:00.000Z"),
        ({"extension_seconds": 60, "timeout": None}, 60, "2025-01-14T15:01:00.000Z"),
    ],
)
async def test_visibility_takes_seconds_and_durations(client, lease, body, extended_by, deadline):
    answer = await client.post(VISIBILITY, {"receipt_handle": await lease(), **body})

    assert answer.status == 200
    assert answer.json == {
        "success": True,
        "extended": True,
        "new_deadline": deadline,
        "extended_by": extended_by,
        "topic": "orders",
        "partition": 0,
        "offset": 0,
    }


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"extension_seconds": 0},
        {"extension_seconds": -5},
        {"extension_seconds": 43_201},
        {"timeout": "0s"},
        {"timeout": ""},
        {"timeout": "long"},
        {"timeout": "13h"},
        {"extension_seconds": 60, "timeout": "30s"},
    ],
)
async def test_a_visibility_that_is_none_is_a_400_and_changes_nothing(client, lease, body):
    receipt = await lease()

    refused = await client.post(VISIBILITY, {"receipt_handle": receipt, **body})
    after = await client.post(ACK, {"receipt_handle": receipt})

    assert refused.status == 400
    assert refused.json["error"]
    assert after.status == 200


@pytest.mark.parametrize("path", [ACK, NACK, REJECT])
async def test_a_settled_receipt_is_404_an_expired_one_409_and_rubbish_400(
    client, clock, lease, path
):
    settled, expired = await lease(), await lease()
    await client.post(ACK, {"receipt_handle": settled})
    clock.now_ms += 30_000

    again = await client.post(path, {"receipt_handle": settled})
    late = await client.post(path, {"receipt_handle": expired})
    rubbish = await client.post(path, {"receipt_handle": "orders:0:42:1:a1b2c3d4"})

    assert (again.status, again.json["code"]) == (404, "not_in_flight")
    assert again.json["error"] == "message not found or already processed"
    assert (late.status, late.json["code"]) == (409, "receipt_expired")
    assert (rubbish.status, rubbish.json["code"]) == (400, "invalid_receipt")


@pytest.mark.parametrize("path", [ACK, NACK, REJECT, VISIBILITY])
@pytest.mark.parametrize(
    "body",
    [{}, {"receipt_handle": None}, {"receipt_handle": ""}, {"receipt_handle": 5}, [], None, "x"],
)
async def test_a_missing_receipt_is_a_400(client, orders, path, body):
    if isinstance(body, dict) and path == VISIBILITY:
        body = {**body, "timeout": "60s"}

    answer = await client.post(path, body)

    assert answer.status == 400


async def test_delay_lists_and_cancels_answer_both_spellings(client, clock, put):
    await put(b"v", deliver_at_ms=[clock.now_ms + 60_000])

    listed = await client.get("/topics/orders/delayed?limit=100&skip=0")
    cancelled = await client("DELETE", "/topics/orders/delayed/0/0")

    (message,) = listed.json["messages"]
    assert {"topic", "partition", "offset", "deliver_at", "priority", "state"} <= message.keys()
    assert message["time_remaining"] == "1m0s"
    assert listed.json["count"] == 1
    assert cancelled.json == {
        "canceled": True,
        "cancelled": True,
        "topic": "orders",
        "partition": 0,
        "offset": 0,
    }


async def test_groups_are_names_with_details_beside_them(client, lease):
    await lease()

    listed = await client.get("/groups")
    one = await client.get("/groups/workers")

    assert listed.json["groups"] == ["workers"]
    assert listed.json["details"][0]["id"] == "workers"
    assert {"id", "group_id", "state", "members", "generation", "protocol", "topics"} <= set(
        one.json
    )
    assert one.json["state"] == "empty"
    assert one.json["topics"] == ["orders"]
