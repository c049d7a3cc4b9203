"""Replay past retention over a real cluster: archive and log are one stream, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from goqueue import Client, Message, OutgoingMessage
from tests.cluster.processes import Cluster, eventually
from tests.pipeline.archive_writer import archive_topic

COUNT = 3000
"""Of about 500 bytes, in two partitions: more than a segment each."""


@pytest.fixture
def client(servers: str) -> Iterator[Client]:
    with Client(servers) as client:
        yield client


def publish(client: Client, topic: str, first: int, count: int) -> None:
    """Messages of every shape, to both partitions."""
    for start in range(first, first + count, 100):
        client.publish_many(topic, [_message(number) for number in range(start, start + 100)])


def _message(number: int) -> OutgoingMessage:
    keys = (None, b"", b"key-%d" % (number % 7), b"\xff\xfe%d" % number)
    return OutgoingMessage(
        b"" if number % 50 == 0 else b"%d:" % number + bytes(range(256)) * 2,
        keys[number % 4],
        {"n": str(number), "raw": b"\x00\xff"} if number % 3 == 0 else None,
        priority=number % 5,
        partition=number % 2,
        message_id=f"id-{number}" if number % 5 == 0 else None,
        delay="5d" if number % 97 == 0 else None,
        ttl="90d" if number % 11 == 0 else None,
    )


def trim(client: Client, topic: str, keep_bytes: int) -> None:
    """Have retention take the head of every partition, and wait for it."""
    before = [one.earliest for one in client.partitions(topic)]
    client.alter_topic(topic, retention_bytes=keep_bytes)

    def is_trimmed() -> bool:
        return all(
            one.earliest > start
            for one, start in zip(client.partitions(topic), before, strict=True)
        )

    eventually("retention has taken the head", is_trimmed)


def by_partition(messages: list[Message]) -> dict[int, list[Message]]:
    return {n: [one for one in messages if one.partition == n] for n in (0, 1)}


def test_a_trimmed_topic_replays_byte_for_byte_while_a_broker_dies_and_retention_goes_on(
    cluster: Cluster, client: Client, tmp_path: Path
) -> None:
    topic = "replayed"
    client.create_topic(topic, partitions=2, replication_factor=3)
    publish(client, topic, 0, COUNT)
    published = list(client.messages(topic))
    archive_topic(client, topic, tmp_path, upto=COUNT // 6)
    trim(client, topic, 600_000)
    assert all(0 < one.earliest < COUNT // 6 for one in client.partitions(topic))
    killed = cluster.leader(topic, 0)

    def disturb(count: int) -> None:
        if count == 100:  # the archive grows, and what the reader was to read in the log goes
            archive_topic(client, topic, tmp_path, upto=COUNT // 2 - 10)
            trim(client, topic, 1)
        if count == 500:
            killed.kill()

    replayed: list[Message] = []
    try:
        for message in client.replay(topic, archive=str(tmp_path)):
            replayed.append(message)
            disturb(len(replayed))
    finally:
        if not killed.is_running():
            killed.start()
            cluster.wait_until_ready()

    assert by_partition(replayed) == by_partition(published)
    assert all(a.timestamp_ms <= b.timestamp_ms for a, b in pairwise(replayed))
    assert min(one.earliest for one in client.partitions(topic)) > COUNT // 6


def test_following_goes_through_the_seam_to_what_is_published_next(
    client: Client, tmp_path: Path
) -> None:
    topic = "replay-followed"
    client.create_topic(topic, partitions=2)
    publish(client, topic, 0, 2000)
    published = list(client.messages(topic))
    archive_topic(client, topic, tmp_path)
    trim(client, topic, 1)

    messages = client.replay(topic, archive=f"file://{tmp_path}", follow=True)
    old = [next(messages) for _ in published]
    publish(client, topic, 2000, 100)
    new = [next(messages) for _ in range(100)]
    messages.close()  # type: ignore[attr-defined]

    assert by_partition(old) == by_partition(published)
    assert {(one.partition, one.offset) for one in new} == {
        (partition, offset) for partition in (0, 1) for offset in range(1000, 1050)
    }
