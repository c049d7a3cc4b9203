"""A topic's compression: JSON messages are stored with it, record batches with their own."""

from __future__ import annotations

import pytest

from goqueue.wire.batch import BATCH_MEDIA_TYPE, RecordBatch, encode_columns
from goqueue.wire.compression import COMPRESSION_BYTES_MIN, Codec

LARGE = "a" * (4 * COMPRESSION_BYTES_MIN)


@pytest.fixture
async def codecs(broker) -> list[Codec]:
    """Of what the broker was given, in order."""
    await broker.upgrade.finish_level()
    found, append = [], broker.records.append

    async def watched(topic, partition, batch, **options):
        found.append(RecordBatch.parse(batch).codec)
        return await append(topic, partition, batch, **options)

    broker.records.append = watched
    return found


@pytest.mark.parametrize("codec", ["zstd", "lz4", "gzip"])
async def test_json_messages_are_stored_with_the_topics_codec(client, orders, codecs, codec):
    changed = await client("PATCH", "/topics/orders", {"compression": codec})
    await client.post("/topics/orders/messages", {"value": LARGE, "partition": 0})
    await client.post("/topics/orders/messages", {"value": "tiny", "partition": 0})

    assert changed.json["config"]["compression"] == codec
    assert codecs == [Codec.named(codec), Codec.NONE]
    read = (await client.get("/topics/orders/partitions/0/messages")).json["messages"]
    assert [message["value"] for message in read] == [LARGE, "tiny"]


async def test_record_batches_keep_their_producers_codec(client, orders, codecs):
    await client("PATCH", "/topics/orders", {"compression": "zstd"})
    for codec in ("none", "lz4"):
        batch = encode_columns([LARGE.encode()], codec=codec)
        await client(
            "POST",
            "/topics/orders/partitions/0/messages",
            data=batch,
            headers={"Content-Type": BATCH_MEDIA_TYPE},
        )

    assert codecs == [Codec.NONE, Codec.LZ4]


async def test_a_topic_compresses_nothing_unless_it_is_told_to(client, orders, codecs):
    await client.post("/topics/orders/messages", {"value": LARGE, "partition": 0})

    assert codecs == [Codec.NONE]
