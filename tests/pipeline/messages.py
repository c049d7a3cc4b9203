"""Messages of every shape in topics of two partitions, and retention that takes their heads."""

from __future__ import annotations

import time

from goqueue import Client, Message, OutgoingMessage
from tests.cluster.processes import eventually

IN_SEGMENTS_S = 0.3
"""What was published is in segments by then, which is what retention looks at: it takes in one look
what it does, and no rest in the next one, while the archive runs."""


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
    """Have retention take the head of every partition, at once, and wait for it."""
    time.sleep(IN_SEGMENTS_S)
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
