"""Record batches over HTTP: stored byte for byte, or refused whole."""

from __future__ import annotations

import pytest

from goqueue.wire.batch import BATCH_MEDIA_TYPE, RecordBatch, encode_columns
from goqueue.wire.errors import Busy, NoQuorum, OutcomeUnknown

PATH = "/topics/orders/partitions/1/messages"
BATCH = {"Content-Type": BATCH_MEDIA_TYPE}


async def stored(broker, partition):
    found = await broker.records.read(
        "orders", partition, 0, max_records=10**6, max_bytes=10**9, wait_s=0
    )
    return [bytes(stored.batch) for stored in found.batches]


async def test_batches_are_stored_byte_for_byte_in_order(client, orders, broker):
    batches = [encode_columns([b"a", b"b"], codec="zstd"), encode_columns([b"c" * 3000])]

    answer = await client.post(PATH, data=b"".join(batches), headers=BATCH)

    assert [(r["partition"], r["offset"], r["count"]) for r in answer.json["results"]] == [
        (1, 0, 2),
        (1, 2, 1),
    ]
    assert await stored(broker, 1) == batches


async def test_the_partition_may_stand_in_the_query(client, orders, broker):
    path = "/topics/orders/messages"

    answer = await client.post(f"{path}?partition=2", data=encode_columns([b"a"]), headers=BATCH)
    without = await client.post(path, data=encode_columns([b"a"]), headers=BATCH)
    unknown = await client.post(f"{path}?partition=3", data=encode_columns([b"a"]), headers=BATCH)

    assert answer.json["results"][0]["partition"] == 2
    assert without.status == 400
    assert (unknown.status, unknown.json["code"]) == (404, "unknown_partition")


async def test_a_retried_batch_is_a_duplicate_at_its_first_offset(client, orders, broker):
    batch = encode_columns([b"a", b"b"], producer_id=9, producer_epoch=0, base_sequence=0)

    first = (await client.post(PATH, data=batch, headers=BATCH)).json["results"][0]
    again = (await client.post(PATH, data=batch, headers=BATCH)).json["results"][0]

    assert (first["offset"], first["duplicate"]) == (0, False)
    assert (again["offset"], again["duplicate"]) == (0, True)
    assert await stored(broker, 1) == [batch]


@pytest.mark.parametrize(
    "damage",
    [
        lambda batch: b"",
        lambda batch: batch[:-1],
        lambda batch: batch + b"x",
        lambda batch: batch[:10],
        lambda batch: b"\0" * len(batch),
        lambda batch: batch[:80] + bytes([batch[80] ^ 1]) + batch[81:],
        lambda batch: b'{"messages":[{"value":"v"}]}',
    ],
)
async def test_damaged_bodies_are_400_and_append_nothing(client, orders, broker, damage):
    good = encode_columns([b"good"])

    answer = await client.post(PATH, data=damage(encode_columns([b"a" * 50])), headers=BATCH)
    second = await client.post(
        PATH, data=good + damage(encode_columns([b"a" * 50]))[:60] + b"!", headers=BATCH
    )

    assert answer.status == 400
    assert second.status == 400
    assert await stored(broker, 1) == []


async def test_every_flipped_bit_of_a_batch_is_refused(client, orders, broker):
    batch = encode_columns([b"v"], [b"k"])

    for at in range(len(batch)):
        for bit in range(0, 8, 3):
            damaged = bytearray(batch)
            damaged[at] ^= 1 << bit
            answer = await client.post(PATH, data=bytes(damaged), headers=BATCH)
            assert answer.status in (400, 413), (at, bit)

    assert await stored(broker, 1) == []


async def test_a_value_over_the_topics_bound_is_413(client, orders, broker):
    batch = encode_columns([b"a", b"x" * (2**20 + 1)])

    answer = await client.post(PATH, data=batch, headers=BATCH)

    assert (answer.status, answer.json["code"]) == (413, "payload_too_large")
    assert await stored(broker, 1) == []


async def test_json_to_the_batch_route_is_415(client, orders):
    answer = await client.post(PATH, {"messages": []})

    assert answer.status == 415


async def test_what_is_not_known_of_one_batch_is_not_known_of_the_request(
    client, orders, broker, monkeypatch
):
    errors = iter([Busy(), OutcomeUnknown()])

    async def failing(*_args, **_options):
        raise next(errors)

    monkeypatch.setattr(broker.records, "append", failing)

    body = encode_columns([b"a"]) + encode_columns([b"b"])
    answer = await client.post(PATH, data=body, headers=BATCH)

    assert (answer.status, answer.json["outcome"]) == (429, "unknown")


async def test_no_quorum_is_503_with_results(client, orders, broker, monkeypatch):
    async def refused(*_, **__):
        raise NoQuorum

    monkeypatch.setattr(broker.records, "append", refused)

    answer = await client.post(PATH, data=encode_columns([b"a", b"b"]), headers=BATCH)

    assert (answer.status, answer.json["code"]) == (503, "no_quorum")
    assert answer.json["results"][0]["count"] == 2


async def test_what_was_published_in_batches_reads_as_json(client, orders):
    batch = encode_columns([b"a"], [b"k"], headers=[(("h", b"v"),)], lanes=[1])
    await client.post(PATH, data=batch, headers=BATCH)

    message = (await client.get(PATH)).json["messages"][0]

    assert message["value"] == "a"
    assert message["key"] == "k"
    assert message["headers"] == {"h": "v"}
    assert message["priority"] == "high"
    assert RecordBatch.parse(batch).count == 1


def bomb():
    return encode_columns([b"x" * 2**20] * 16, codec="zstd")


async def test_batches_that_decompress_to_too_much_together_are_413(client, orders, broker):
    four = await client.post(PATH, data=bomb() * 4, headers=BATCH)
    five = await client.post(PATH, data=bomb() * 5, headers=BATCH)

    assert four.status == 200
    assert (five.status, five.json["code"]) == (413, "payload_too_large")


async def test_a_read_is_bounded_by_what_it_decompresses_to(client, orders, broker):
    for _ in range(3):
        await broker.records.append("orders", 1, bomb(), deadline_s=30)

    seen, offset = [], 0
    while offset < 48:
        answer = await client.get(f"{PATH}?offset={offset}&limit=1000")
        seen += [message["offset"] for message in answer.json["messages"]]
        assert 1 <= len(answer.json["messages"]) <= 8
        offset = answer.json["next_offset"]

    assert seen == list(range(48))
