"""Publishing in JSON: where messages go, what comes back, and whose fault an error is."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json

import pytest

from goqueue.wire.batch import BATCH_MEDIA_TYPE, RecordBatch, encode_columns
from goqueue.wire.errors import NoQuorum, OutcomeUnknown
from goqueue.wire.partitioner import partition_for
from node.broker import sticky
from node.http.budget.memory import Bounds, Kind

MESSAGES = "/topics/orders/messages"


async def records(broker, partition, topic="orders"):
    found = await broker.records.read(
        topic, partition, 0, max_records=10**6, max_bytes=10**9, wait_s=0
    )
    return [r for stored in found.batches for r in RecordBatch.parse(stored.batch).records()]


def failing(error):
    """An append that is refused."""

    async def append(*_, **__):
        raise error

    return append


async def all_records(broker, topic="orders"):
    count = broker.topics.partition_count(topic)
    return [record for p in range(count) for record in await records(broker, p, topic)]


async def test_results_stand_in_the_order_of_the_messages(client, orders):
    messages = [{"key": f"k{n % 7}", "value": str(n)} for n in range(50)]

    results = (await client.post(MESSAGES, {"messages": messages})).json["results"]

    for n, result in enumerate(results):
        key = f"k{n % 7}".encode()
        assert result["partition"] == partition_for(key, 3)
        path = f"/messages/orders:{result['partition']}:{result['offset']}"
        stored = (await client.get(path)).json
        assert (stored["value"], stored["key"]) == (str(n), f"k{n % 7}")


async def test_keyless_messages_of_a_request_stay_together_and_requests_take_turns(
    client, orders, monkeypatch
):
    monkeypatch.setattr(sticky, "STAY_S", 0.0)
    used = []
    for _ in range(6):
        body = {
            "messages": [{"value": "a"}, {"value": "b", "key": None}, {"value": "c", "key": ""}]
        }
        results = (await client.post(MESSAGES, body)).json["results"]
        assert len({result["partition"] for result in results}) == 1
        used.append(results[0]["partition"])

    assert sorted(used) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(("is_current", "status"), [(True, 200), (False, 503)])
async def test_a_partition_that_another_node_has_just_added_is_looked_for(
    client, orders, broker, monkeypatch, is_current, status
):
    """In the broker's cached state there is one; in what it catches up with, if it does, three."""
    topic = broker.topics.topic

    async def view(name):
        found = await topic(name)
        known = found.partitions if is_current else found.partitions[:1]
        return dataclasses.replace(found, partitions=known, is_current=is_current)

    monkeypatch.setattr(broker.topics, "partition_count", lambda _topic: 1)
    monkeypatch.setattr(broker.topics, "topic", view)

    published = await client.post(MESSAGES, {"messages": [{"value": "v", "partition": 2}]})

    assert published.status == status
    if is_current:
        assert len(await records(broker, 2)) == 1
    else:
        assert published.json["outcome"] == "none"


async def test_an_explicit_partition_wins_over_the_key(client, orders, broker):
    other = (partition_for(b"k", 3) + 1) % 3

    await client.post(MESSAGES, {"messages": [{"value": "v", "key": "k", "partition": other}]})

    assert [record.key for record in await records(broker, other)] == [b"k"]


async def test_a_message_id_without_a_key_chooses_the_partition(client, orders, broker):
    message = {"value": "v", "message_id": "m-1"}

    first = (await client.post(MESSAGES, {"messages": [message]})).json["results"][0]
    again = (await client.post(MESSAGES, {"messages": [message]})).json["results"][0]

    assert first["partition"] == again["partition"] == partition_for(b"m-1", 3)
    assert [record.message_id for record in await all_records(broker)] == ["m-1"]


async def test_lane_headers_and_key_are_stored(client, orders, broker):
    message = {"value": "v", "key": "k", "priority": "critical", "headers": {"a": "1", "b": "ü"}}

    answer = await client.post(MESSAGES, {"messages": [message, {"value": "w", "priority": 3}]})

    assert [result.get("priority") for result in answer.json["results"]] == ["critical", "low"]
    stored = {record.value: record for record in await all_records(broker)}
    assert stored[b"v"].headers == (("a", b"1"), ("b", "ü".encode()))
    assert stored[b"v"].lane == 0
    assert stored[b"w"].lane == 3


@pytest.mark.parametrize(
    ("message", "value"),
    [
        ({"value": 'text ü \u0000 "q"'}, 'text ü \u0000 "q"'.encode()),
        ({"value": ""}, b""),
        ({"payload": "alias"}, b"alias"),
        ({"value": {"b": 1, "a": [1.50, 1e3]}}, b'{"b": 1, "a": [1.50,1e3]}'),
        ({"value": [1, 2]}, b"[1,2]"),
        ({"value": 12.50}, b"12.5"),
        ({"value": True}, b"true"),
        ({"value": "AP8=", "value_encoding": "base64"}, b"\x00\xff"),
        ({"value": "AP8=", "value_encoding": None}, b"AP8="),
    ],
)
async def test_values_keep_the_bytes_that_came(client, orders, broker, message, value):
    body = json.dumps({"messages": [message]}, ensure_ascii=False)
    if isinstance(message.get("value"), dict):
        body = '{"messages":[{"value":{"b": 1, "a": [1.50,1e3]}}]}'
    elif isinstance(message.get("value"), list):
        body = body.replace(", ", ",")

    answer = await client.post(
        MESSAGES, data=body.encode(), headers={"Content-Type": "application/json"}
    )

    assert "error" not in answer.json["results"][0]
    assert [record.value for record in await all_records(broker)] == [value]


async def test_readme_publish_takes_base64_values(client, orders, broker):
    value = base64.b64encode(b'{"order_id":123}').decode()

    answer = await client.post("/v1/topics/orders/publish", {"key": "order-123", "value": value})

    assert answer.status == 200
    assert answer.json["topic"] == "orders"
    assert answer.json["id"] == f"orders:{answer.json['partition']}:0"
    assert [record.value for record in await all_records(broker)] == [b'{"order_id":123}']


async def test_a_single_object_is_one_message_with_its_fields_on_top(client, orders):
    answer = await client.post(MESSAGES, {"value": "v", "partition": 2, "priority": "high"})

    assert answer.json["partition"] == 2
    assert answer.json["offset"] == 0
    assert answer.json["results"] == [
        {"partition": 2, "offset": 0, "duplicate": False, "priority": "high"}
    ]


async def test_batch_route_and_prefix_do_the_same(client, orders, broker):
    for path in (MESSAGES + "/batch", "/v1" + MESSAGES, "/v1" + MESSAGES + "/batch"):
        answer = await client.post(path, {"messages": [{"payload": path}]})
        assert answer.status == 200

    assert len(await all_records(broker)) == 3


async def test_bad_messages_have_their_own_errors_and_cost_their_neighbours_nothing(
    client, orders, broker
):
    bad = [
        ({"value": "v", "partition": 3}, "unknown_partition"),
        ({"value": "v", "partition": -1}, "unknown_partition"),
        ({"value": "v", "partition": 10**40}, "unknown_partition"),
        ({"value": "v", "partition": "1"}, "bad_message"),
        ({"value": "v", "partition": 1.5}, "bad_message"),
        ({"value": "v" * (2**20 + 1)}, "payload_too_large"),
        ({"value": "v", "key": "k" * 70_000}, "payload_too_large"),
        ({"value": "v", "headers": {"h": "x" * 70_000}}, "payload_too_large"),
        ({"value": "v", "headers": {"": "x"}}, "bad_message"),
        ({"value": "v", "headers": ["x"]}, "bad_message"),
        ({"value": "v", "headers": {"h": 1}}, "bad_message"),
        ({"value": "!!", "value_encoding": "base64"}, "bad_message"),
        ({"value": "YQ", "value_encoding": "base64"}, "bad_message"),
        ({"value": {"a": 1}, "value_encoding": "base64"}, "bad_message"),
        ({"value": "v", "value_encoding": "rot13"}, "bad_message"),
        ({"value": "v", "key": 5}, "bad_message"),
        ({"value": "v", "priority": "urgent"}, "bad_message"),
        ({"value": "v", "priority": 5}, "bad_message"),
        ({"value": "v", "priority": -1}, "bad_message"),
        ({"value": "v", "priority": {}}, "bad_message"),
        ({"value": "v", "message_id": ""}, "bad_message"),
        ({"value": "v", "message_id": "m" * 257}, "bad_message"),
        ({"value": "v", "delay": "soon"}, "bad_request"),
        ({"value": "v", "delay": "-5s"}, "bad_request"),
        ({"value": "v", "delay": True}, "bad_message"),
        ({"value": "v", "deliverAt": "tomorrow"}, "bad_request"),
        ({"value": "v", "deliverAt": -1}, "bad_request"),
        ({"value": "v", "ttl": "eternal"}, "bad_request"),
        ({"key": "no value"}, "bad_message"),
        ({"value": None}, "bad_message"),
        (5, "bad_message"),
        (None, "bad_message"),
        ([], "bad_message"),
    ]
    messages = [{"value": "first"}, *(message for message, _ in bad), {"value": "last"}]

    answer = await client.post(MESSAGES, {"messages": messages})

    assert answer.status == 200
    results = answer.json["results"]
    assert [result.get("code") for result in results] == [None, *(code for _, code in bad), None]
    for result in results[1:-1]:
        assert result["offset"] == -1
        assert result["error"]
        assert result["outcome"] == "none"
    assert [record.value for record in await all_records(broker)] == [b"first", b"last"]


async def test_each_bad_message_alone_is_refused_too(client, orders, broker):
    for message in ({"value": "v", "priority": "urgent"}, {"value": "v", "delay": "1 s"}, {"a": 1}):
        answer = await client.post(MESSAGES, message)
        assert answer.status == 400, message

    assert await all_records(broker) == []


async def test_fields_that_are_null_count_as_not_given(client, orders, broker):
    message = dict.fromkeys(
        ("key", "partition", "delay", "deliverAt", "priority", "headers", "message_id", "ttl")
    )

    answer = await client.post(MESSAGES, {"messages": [{"value": "v", **message}]})

    assert "error" not in answer.json["results"][0]
    assert len(await all_records(broker)) == 1


@pytest.mark.parametrize("body", [{}, {"messages": []}, {"messages": None}, {"messages": 5}])
async def test_bodies_without_messages_are_400(client, orders, body):
    answer = await client.post(MESSAGES, body)

    assert answer.status == 400
    assert answer.json["error"]


@pytest.mark.parametrize("settings", [{"broker.autoCreateTopics": True}])
async def test_topics_are_created_on_first_publish_where_that_is_on(client, broker):
    answer = await client.post("/topics/new/messages", {"messages": [{"value": "v"}]})

    assert answer.status == 200
    assert broker.topics.partition_count("new") == 6


async def test_unknown_topics_are_404_where_it_is_off(client):
    answer = await client.post("/topics/new/messages", {"messages": [{"value": "v"}]})

    assert (answer.status, answer.json["code"]) == (404, "unknown_topic")


async def test_no_quorum_is_503_with_retry_after_and_a_result_for_each_message(
    client, orders, broker, monkeypatch
):
    monkeypatch.setattr(broker.records, "append", failing(NoQuorum()))

    answer = await client.post(MESSAGES, {"messages": [{"value": "a"}, {"value": "b"}]})

    assert answer.status == 503
    assert answer.headers["Retry-After"] == "1"
    assert answer.json["code"] == "no_quorum"
    assert answer.json["outcome"] == "none"
    assert [result["code"] for result in answer.json["results"]] == ["no_quorum"] * 2


async def test_what_is_not_known_of_one_partition_is_not_known_of_the_request(
    client, orders, broker, monkeypatch
):
    """The first error says that nothing has happened: whoever believes it sends all of it again."""

    async def failing(topic, partition, batch, **options):
        raise NoQuorum() if partition == 0 else OutcomeUnknown()

    monkeypatch.setattr(broker.records, "append", failing)
    messages = [{"value": "a", "partition": 0}, {"value": "b", "partition": 1}]

    answer = await client.post(MESSAGES, {"messages": messages})

    assert (answer.status, answer.json["code"]) == (503, "no_quorum")
    assert [result["outcome"] for result in answer.json["results"]] == ["none", "unknown"]
    assert answer.json["outcome"] == "unknown"


async def test_an_unknown_outcome_says_so(client, orders, broker, monkeypatch):
    monkeypatch.setattr(broker.records, "append", failing(OutcomeUnknown()))

    answer = await client.post(MESSAGES, {"value": "a"})

    assert answer.status == 503
    assert answer.json["outcome"] == "unknown"


async def test_one_failing_partition_fails_only_its_messages(client, orders, broker):
    append = broker.records.append

    async def failing(topic, partition, batch, **options):
        if partition == 1:
            raise NoQuorum()
        return await append(topic, partition, batch, **options)

    broker.records.append = failing
    messages = [{"value": str(n), "partition": n % 3} for n in range(6)]

    answer = await client.post(MESSAGES, {"messages": messages})

    assert answer.status == 200
    codes = [result.get("code") for result in answer.json["results"]]
    assert codes == [None, "no_quorum", None] * 2


async def test_a_retry_by_a_producer_is_answered_with_the_original_offsets(client, orders, broker):
    identity = (await client.post("/producers/init", {})).json
    body = {
        "producer_id": identity["producer_id"],
        "epoch": identity["epoch"],
        "sequence": 0,
        "messages": [{"value": "a", "partition": 1}, {"value": "b", "partition": 1}],
    }

    first = (await client.post(MESSAGES, body)).json["results"]
    again = (await client.post(MESSAGES, body)).json["results"]

    assert [result["offset"] for result in first] == [0, 1]
    assert [result["offset"] for result in again] == [0, 1]
    assert all(result["duplicate"] for result in again)
    assert len(await all_records(broker)) == 2


async def test_a_gap_in_a_producers_sequence_is_409(client, orders):
    body = {"producer_id": 7, "epoch": 0, "value": "a", "partition": 0}
    await client.post(MESSAGES, {**body, "sequence": 0})

    answer = await client.post(MESSAGES, {**body, "sequence": 5})

    assert answer.status == 409
    assert answer.json["code"] == "out_of_order"
    assert (answer.json["expected"], answer.json["got"]) == (1, 5)
    assert (answer.json["first_offset"], answer.json["end_offset"]) == (0, 1)


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"value": "a", "partition": 0}], "producer_id": 1},
        {"messages": [{"value": "a", "partition": 0}], "producer_id": 0, "sequence": 0},
        {"messages": [{"value": "a", "partition": 0}], "producer_id": 2**70, "sequence": 0},
        {"messages": [{"value": "a", "partition": 0}], "producer_id": 1, "sequence": -1},
        {"messages": [{"value": "a", "partition": 0}], "epoch": 1},
        {
            "messages": [{"value": "a", "partition": 0}, {"value": "b", "partition": 1}],
            "producer_id": 1,
            "sequence": 0,
        },
        {
            "messages": [
                {"value": "a", "partition": 0, "sequence": 0},
                {"value": "b", "partition": 0, "sequence": 2},
            ],
            "producer_id": 1,
        },
        {
            "messages": [{"value": "a", "partition": 0}, {"value": "b", "partition": 99}],
            "producer_id": 1,
            "sequence": 0,
        },
    ],
)
async def test_a_producers_request_is_whole_or_nothing(client, orders, broker, body):
    answer = await client.post(MESSAGES, body)

    assert answer.status == 400
    assert await all_records(broker) == []


async def test_each_messages_own_sequence_serves_several_partitions(client, orders, broker):
    messages = [
        {"value": "a", "partition": 0, "sequence": 0},
        {"value": "b", "partition": 1, "sequence": 0},
        {"value": "c", "partition": 0, "sequence": 1},
    ]
    body = {"producer_id": 1, "producer_epoch": 0, "messages": messages}

    await client.post(MESSAGES, body)
    again = (await client.post(MESSAGES, body)).json["results"]

    assert [(r["partition"], r["offset"]) for r in again] == [(0, 0), (1, 0), (0, 1)]
    assert len(await all_records(broker)) == 3


async def test_a_fault_of_the_node_is_500_without_its_details(client, orders, broker):
    async def broken(*_, **__):
        raise ValueError("secret path /etc/shadow")

    broker.records.append = broken

    answer = await client.post(MESSAGES, {"value": "a"})

    assert answer.status == 500
    assert answer.json["code"] == "internal"
    assert answer.json["outcome"] == "unknown"
    assert b"secret" not in answer.body


@pytest.mark.parametrize("durability", ["majority", "relaxed"])
async def test_every_answer_tells_how_durable_what_it_stored_is(client, broker, durability):
    await broker.topics.create_topic("t", {"partitions": 2, "durability": durability})
    path, binary = "/topics/t/messages", {"Content-Type": BATCH_MEDIA_TYPE}
    bad = {"value": "x", "partition": 9}

    single = await client.post(path, {"value": "a"})
    several = await client.post(path, {"messages": [{"value": "a", "partition": 0}] * 3 + [bad]})
    delayed = await client.post(path, {"messages": [{"value": "a", "delay": "1h"}] * 2})
    batch = await client.post(
        f"{path}?partition=0", data=encode_columns([b"a"]) + encode_columns([b"b"]), headers=binary
    )

    told = [answer.json.get("durability") for answer in (single, several, delayed)]
    told += [result["durability"] for result in batch.json["results"]]
    assert told == [durability] * 5


async def test_where_nothing_was_stored_no_durability_is_told(client, orders, broker, monkeypatch):
    monkeypatch.setattr(broker.records, "append", failing(NoQuorum()))

    answer = await client.post(MESSAGES, {"messages": [{"value": "a"}, {"value": "b"}]})

    assert answer.status == 503
    assert "durability" not in answer.json


@pytest.mark.parametrize("weaker", [0, 1])
async def test_the_weakest_durability_of_a_request_is_told(client, orders, broker, weaker):
    """Partitions of a topic whose durability was altered a moment ago may differ."""
    append = broker.records.append

    async def relaxed_in_one(topic, partition, batch, **options):
        found = await append(topic, partition, batch, **options)
        durability = "relaxed" if partition == weaker else "majority"
        return dataclasses.replace(found, durability=durability)

    broker.records.append = relaxed_in_one
    messages = [{"value": "a", "partition": 0}, {"value": "b", "partition": 1}]

    answer = await client.post(MESSAGES, {"messages": messages})

    assert answer.json["durability"] == "relaxed"


async def test_what_waits_for_the_log_is_charged_to_who_sent_it(
    client, front, broker, orders, eventually
):
    appends, begun, append = front.budgets[Kind.APPENDS], asyncio.Event(), broker.records.append
    appends.bounds = Bounds(100_000, 3000, 3000, 0, 0)

    async def waits(*arguments, **options):
        await begun.wait()
        return await append(*arguments, **options)

    broker.records.append = waits
    first = asyncio.ensure_future(client.post("/topics/orders/messages", {"value": "a" * 2000}))
    await eventually(lambda: appends.used > 2000)

    second = await client.post("/topics/orders/messages", {"value": "b" * 2000})

    assert (second.status, second.json["kind"]) == (429, "appends")
    assert second.json["outcome"] == "none"
    begun.set()
    assert (await first).status == 200
    assert appends.used == 0


async def test_a_long_answer_is_charged_before_anything_is_stored(client, front, broker, orders):
    front.budgets[Kind.ANSWERS].bounds = Bounds(50_000, 50_000, 50_000, 0, 0)

    many = await client.post("/topics/orders/messages", {"messages": [{"value": "a"}] * 1000})

    assert (many.status, many.json["kind"]) == (429, "answers")
    assert [end for _, end in (await broker.records.end_offsets("orders")).values()] == [0, 0, 0]
