"""What is published: values of an exact size, from real lines or made up, and their fingerprint.

The fingerprint of many values is the sum of their 64-bit hashes, so it doesn't depend on the
order in which connections took turns, and a lost, doubled or changed value shows.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from benchmarks.connection import post
from goqueue.wire.batch import BATCH_MEDIA_TYPE, LANES
from goqueue.wire.encoding import encode_columns

MASK = (1 << 64) - 1
BODIES = 32


@dataclass(frozen=True, slots=True)
class Body:
    """One request, ready to send, with what it adds to the count and the fingerprint."""

    request: bytes
    count: int
    print: int


@dataclass(frozen=True, slots=True)
class Sent:
    """So many messages, whatever their order, and their fingerprint."""

    count: int = 0
    print: int = 0

    def plus(self, other: Sent) -> Sent:
        return Sent(self.count + other.count, (self.print + other.print) & MASK)


def fingerprint(values: Iterable[bytes]) -> int:
    total = 0
    for value in values:
        total += int.from_bytes(blake2b(value, digest_size=8).digest(), "little")
    return total & MASK


def sample(size: int, count: int) -> list[bytes]:
    """`count` ASCII values of exactly `size` bytes: real lines cut or joined, else made up."""
    text = "".join(_lines())
    step = size * 7 + 1
    return [(text[(n * step) % (len(text) - size) :][:size]).encode("ascii") for n in range(count)]


def numbered(size: int, count: int) -> list[bytes]:
    """`count` values of `size` bytes that begin with their number, 12 digits: no two are equal."""
    endings = sample(size - 12, 32)
    return [b"%012d" % number + endings[number % 32] for number in range(count)]


def json_bodies(topic: str, size: int, batch: int, *, keyed: bool = False) -> list[Body]:
    """Requests of `batch` messages in JSON, values of `size` bytes."""
    bodies = []
    for number in range(BODIES if batch <= 100 else 8):
        values = sample(size, batch * (number + 1))[-batch:]
        messages = [{"value": value.decode()} for value in values]
        for row, message in enumerate(messages) if keyed else ():
            message["key"] = f"key-{number * batch + row}"
        body = json.dumps({"messages": messages}, separators=(",", ":")).encode()
        request = post(f"/v1/topics/{topic}/messages", body, "application/json")
        bodies.append(Body(request, batch, fingerprint(values)))
    return bodies


def batch_bodies(
    topic: str, size: int, batch: int, partitions: int, *, lanes: bool = False
) -> list[Body]:
    """Requests of one record batch each; they go round the partitions."""
    bodies = []
    for number in range(max(8, partitions)):
        values = sample(size, batch * (number + 1))[-batch:]
        column = [row % len(LANES) for row in range(batch)] if lanes else 2
        encoded = encode_columns(values, timestamps_ms=1_736_937_000_000, lanes=column)
        path = f"/v1/topics/{topic}/partitions/{number % partitions}/messages"
        bodies.append(Body(post(path, encoded, BATCH_MEDIA_TYPE), batch, fingerprint(values)))
    return bodies


def _lines() -> list[str]:
    folder = os.environ.get("GOQUEUE_SAMPLE_DATA")
    files = sorted(Path(folder).glob("*.jsonl")) if folder else []
    lines = [
        str(json.loads(line)["value"].get("content", ""))
        for file in files
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    kept = [line.encode("ascii", "ignore").decode().replace('"', "'") for line in lines]
    kept = [line.replace("\\", "/").replace("\t", " ") + " " for line in kept]
    if sum(map(len, kept)) > 200_000:
        return kept
    words = ["accept", "batch", "commit", "durable", "entry", "fsync", "leader", "replica"]
    chance = random.Random(1)
    return [f"{chance.choice(words)} {chance.randrange(10**6)} " for _ in range(40_000)]
