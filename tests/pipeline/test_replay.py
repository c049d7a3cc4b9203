"""Replay past retention over a real cluster: archive and log are one stream, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from goqueue import Client, Message
from tests.cluster.processes import Cluster
from tests.pipeline.archive_writer import archive_topic
from tests.pipeline.messages import by_partition, publish, trim

COUNT = 3000
"""Of about 500 bytes, in two partitions: more than a segment each."""


@pytest.fixture
def client(servers: str) -> Iterator[Client]:
    with Client(servers) as client:
        yield client


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
