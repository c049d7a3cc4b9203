"""Delays, expiry and message ids of a publish: what is stored of them, and what is answered."""

from __future__ import annotations

import pytest

from goqueue.wire.batch import BATCH_MEDIA_TYPE, RecordBatch, encode_columns
from goqueue.wire.layout import RELATIVE_BELOW
from node.api.times import format_time
from tests.one_node import NOW_MS

MESSAGES = "/topics/orders/messages"
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def front_clock(monkeypatch):
    """The front's own clock stands where log time does."""
    monkeypatch.setattr("node.http.messages.publish._now_ms", lambda: NOW_MS)


@pytest.fixture
async def one(broker, front_clock):
    """A topic of one partition, `orders`."""
    await broker.topics.create_topic("orders", {"partitions": 1})


async def cells(broker):
    """(deliver-at, expires-at, message id) as stored of every message."""
    found = await broker.records.read("orders", 0, 0, max_records=10**6, max_bytes=10**9, wait_s=0)
    return [
        (record.deliver_at_ms, record.expires_at_ms, record.message_id)
        for stored in found.batches
        for record in RecordBatch.parse(stored.batch).records()
    ]


async def publish(client, *messages, **options):
    answer = await client.post(MESSAGES, {"messages": list(messages)}, **options)
    return answer.json["results"]


# delays


@pytest.mark.parametrize(
    ("delay", "delay_ms"),
    [
        ("30s", 30_000),
        ("5m", 300_000),
        ("1d", DAY_MS),
        ("1h30m", 5_400_000),
        ("500ms", 500),
        ("250", 250),
        (1500, 1500),
        (0.5, 1),
    ],
)
async def test_a_delay_is_stored_as_it_is_and_answered_as_a_moment_of_log_time(
    client, one, broker, clock, delay, delay_ms
):
    clock.now_ms += 7  # the front's clock differs

    [result] = await publish(client, {"value": "v", "delay": delay})

    assert await cells(broker) == [(delay_ms, None, None)]
    assert result["delayed"] is True
    assert result["deliverAt"] == format_time(clock.now_ms + delay_ms)


@pytest.mark.parametrize("name", ["deliverAt", "deliver_at"])
@pytest.mark.parametrize("moment", ["2025-01-14T15:00:30Z", NOW_MS + 30_000, str(NOW_MS + 30_000)])
async def test_a_moment_is_stored_as_it_stands(client, one, broker, name, moment):
    [result] = await publish(client, {"value": "v", name: moment})

    assert await cells(broker) == [(NOW_MS + 30_000, None, None)]
    assert result == {
        "partition": 0,
        "offset": 0,
        "delayed": True,
        "deliverAt": "2025-01-14T15:00:30.000Z",
    }


@pytest.mark.parametrize(
    ("message", "stored"),
    [
        ({"deliverAt": "2020-01-01T00:00:00Z"}, 1_577_836_800_000),
        ({"deliverAt": NOW_MS}, NOW_MS),
        ({"deliverAt": "1970-01-02T00:00:00Z"}, None),  # its number would read as a day's delay
        ({"deliverAt": RELATIVE_BELOW - 1}, None),
        ({"deliverAt": 0}, None),
        ({"deliverAt": ""}, None),
        ({"delay": 0}, None),
        ({"delay": "0s"}, None),
        ({"delay": ""}, None),
        ({"delay": None, "deliverAt": None, "ttl": None}, None),
    ],
)
async def test_what_is_past_or_no_delay_is_delivered_now(client, one, broker, message, stored):
    [result] = await publish(client, {"value": "v", **message})

    assert [deliver_at for deliver_at, _, _ in await cells(broker)] == [stored]
    assert result == {"partition": 0, "offset": 0}


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"delay": "1s", "deliverAt": "2030-01-01T00:00:00Z"}, "bad_message"),
        ({"delay": 0, "deliver_at": NOW_MS}, "bad_message"),
        ({"deliverAt": NOW_MS + 1, "deliver_at": NOW_MS + 2}, "bad_message"),
        ({"delay": "168h1ms"}, "delay_too_long"),
        ({"deliverAt": NOW_MS + 7 * DAY_MS + 1}, "delay_too_long"),
        ({"delay": "10s", "ttl": "10s"}, "bad_message"),
        ({"deliverAt": NOW_MS + 10_000, "ttl": "9s"}, "bad_message"),
    ],
)
async def test_a_message_that_cannot_be_delayed_so_costs_its_neighbours_nothing(
    client, one, broker, message, code
):
    results = await publish(
        client, {"value": "a", "delay": "1s"}, {"value": "b", **message}, {"value": "c"}
    )

    assert [result.get("code") for result in results] == [None, code, None]
    assert [result["offset"] for result in results] == [0, -1, 1]
    assert (results[1]["status"], results[1]["outcome"]) == (400, "none")
    alone = await client.post(MESSAGES, {"value": "b", **message})
    assert (alone.status, alone.json["code"]) == (400, code)
    assert len(await cells(broker)) == 2


async def test_the_horizon_is_the_topics_own(client, one, broker):
    await broker.topics.alter_topic("orders", {"delay_ms_max": 1000})

    results = await publish(client, {"value": "v", "delay": 1000}, {"value": "v", "delay": 1001})

    assert [result.get("code") for result in results] == [None, "delay_too_long"]
    assert results[1]["limit_ms"] == 1000


async def test_a_delay_without_a_ttl_and_a_ttl_alone_are_no_delay(client, one, broker):
    results = await publish(
        client, {"value": "a", "ttl": "1m"}, {"value": "b", "ttl": 5, "delay": 1}
    )

    assert await cells(broker) == [(None, 60_000, None), (1, 5, None)]
    assert [result.get("delayed") for result in results] == [None, True]


async def test_a_single_delayed_message_is_told_when_it_is_due(client, one):
    answer = await client.post(MESSAGES, {"value": "v", "delay": "30s", "priority": "high"})

    assert answer.json["delayed"] is True
    assert answer.json["deliverAt"] == "2025-01-14T15:00:30.000Z"
    assert answer.json["results"][0]["deliverAt"] == "2025-01-14T15:00:30.000Z"
    plain = await client.post(MESSAGES, {"value": "v"})
    assert "delayed" not in plain.json and "deliverAt" not in plain.json


async def test_delays_stay_with_their_messages_over_partitions(client, broker, orders, front_clock):
    messages = [{"key": f"k{n}", "value": "v", "delay": n or None} for n in range(20)]

    results = (await client.post(MESSAGES, {"messages": messages})).json["results"]

    for n, result in enumerate(results):
        found = (
            await client.get(f"/messages/orders:{result['partition']}:{result['offset']}")
        ).json
        assert (found["key"], found.get("deliver_at")) == (f"k{n}", result.get("deliverAt"))


# message ids


async def test_a_repeated_id_gets_the_offset_of_its_original(client, one, broker):
    await publish(client, {"value": "x"}, {"value": "a", "message_id": "m-1"})

    results = await publish(
        client,
        {"value": "b", "message_id": "m-2", "priority": "high"},
        {"value": "a", "message_id": "m-1", "priority": "high"},
        {"value": "c"},
    )

    assert results == [
        {"partition": 0, "offset": 2, "priority": "high"},
        {"partition": 0, "offset": 1, "duplicate": True, "priority": "high"},
        {"partition": 0, "offset": 3},
    ]
    assert [message_id for _, _, message_id in await cells(broker)] == [None, "m-1", "m-2", None]


async def test_a_repeated_single_message_gets_the_offset_of_its_original(client, one):
    first = await client.post(MESSAGES, {"value": "a", "message_id": "m-1"})
    again = await client.post(MESSAGES, {"value": "a", "message_id": "m-1", "delay": "5s"})

    assert (first.json["offset"], first.json["duplicate"]) == (0, False)
    assert (again.json["offset"], again.json["duplicate"], again.json["id"]) == (
        0,
        True,
        "orders:0:0",
    )
    assert "deliverAt" not in again.json  # the original has its own


async def test_an_idempotency_key_is_the_id_of_a_single_message(client, one, broker):
    header = {"Idempotency-Key": "pay-7"}

    first = await client.post(MESSAGES, {"value": "a"}, headers=header)
    again = await client.post(MESSAGES, {"messages": [{"value": "a"}]}, headers=header)
    same = await client.post(MESSAGES, {"value": "a", "message_id": "pay-7"}, headers=header)

    assert first.json["duplicate"] is False
    assert again.json["results"] == [{"partition": 0, "offset": 0, "duplicate": True}]
    assert same.json["duplicate"] is True
    assert [message_id for _, _, message_id in await cells(broker)] == ["pay-7"]


async def test_an_idempotency_key_chooses_the_partition_as_its_message_id_does(client, orders):
    by_key = [
        (await client.post(MESSAGES, {"value": "a"}, headers={"Idempotency-Key": "k"})).json
        for _ in range(4)
    ]

    assert len({(answer["partition"], answer["offset"]) for answer in by_key}) == 1


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({"messages": [{"value": "a"}, {"value": "b"}]}, "k"),
        ({"value": "a", "message_id": "other"}, "k"),
        ({"value": "a"}, "k" * 257),
        ({"value": "a"}, ""),
    ],
)
async def test_an_idempotency_key_that_fits_no_message_is_refused(client, one, broker, body, key):
    answer = await client.post(MESSAGES, body, headers={"Idempotency-Key": key})

    assert answer.status == 400
    assert await cells(broker) == []


# record batches


async def test_a_record_batch_is_told_which_rows_were_stored_before(client, one):
    def batch(*ids):
        return encode_columns([b"v"] * len(ids), message_ids=ids)

    kind = {"Content-Type": BATCH_MEDIA_TYPE}
    path = "/topics/orders/partitions/0/messages"
    first = await client("POST", path, data=batch("a", "b"), headers=kind)
    again = await client("POST", path, data=batch("c", "b", None), headers=kind)

    assert "rows" not in first.json["results"][0]
    [result] = again.json["results"]
    assert (result["offset"], result["count"], result["duplicate"]) == (2, 3, False)
    assert result["rows"] == [{"offset": 2}, {"offset": 1, "duplicate": True}, {"offset": 3}]
    refused = await client("POST", path, data=batch("d"), headers={**kind, "Idempotency-Key": "k"})
    assert refused.status == 400
