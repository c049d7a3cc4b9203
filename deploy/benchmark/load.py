"""Publishes to a cluster for some seconds, reads all of it back, and prints both rates.

python load.py [--seconds 15] [--connections 8] [--batch 100] [--bytes 100] [--api-key-file FILE]

Where the cluster is comes from the environment, as for `goqueue-cli`. The topic is made, and
deleted in the end. The exit code is 1 when what is read back is not what was acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
import time
from pathlib import Path

from goqueue import AsyncClient

READ_LIMIT = 1000


async def main(given: argparse.Namespace) -> int:
    topic = given.topic or f"benchmark-{secrets.token_hex(4)}"
    server = os.environ.get("GOQUEUE_SERVER", "http://127.0.0.1:8080")
    async with AsyncClient(server, api_key=api_key(given.api_key_file)) as client:
        await client.create_topic(topic, partitions=given.partitions)
        try:
            return await measure(client, topic, given)
        finally:
            await client.delete_topic(topic)


async def measure(client: AsyncClient, topic: str, given: argparse.Namespace) -> int:
    took_ms: list[float] = []
    began_s = time.monotonic()
    counts = await asyncio.gather(
        *(
            publish(client, topic, given.batch, "x" * given.bytes, began_s + given.seconds, took_ms)
            for _ in range(given.connections)
        )
    )
    acked, published_s = sum(counts), time.monotonic() - began_s
    took_ms.sort()
    print(
        f"published {acked} messages of {given.bytes} B in batches of {given.batch}"
        f" on {given.connections} connections: {acked / published_s:,.0f} msg/s,"
        f" request p50 {took_ms[len(took_ms) // 2]:.1f} ms,"
        f" p99 {took_ms[len(took_ms) * 99 // 100]:.1f} ms"
    )
    began_s = time.monotonic()
    found = sum(
        await asyncio.gather(*(read(client, topic, one) for one in range(given.partitions)))
    )
    read_s = time.monotonic() - began_s
    print(f"read back {found} messages: {found / read_s:,.0f} msg/s")
    if found < acked:
        print(f"{acked - found} acknowledged messages are missing", file=sys.stderr)
        return 1
    return 0


async def publish(
    client: AsyncClient, topic: str, batch: int, value: str, end_s: float, took_ms: list[float]
) -> int:
    """Answers how many were acknowledged."""
    acked = 0
    while time.monotonic() < end_s:
        began_s = time.monotonic()
        await client.publish_many(topic, [value] * batch)
        took_ms.append(1000 * (time.monotonic() - began_s))
        acked += batch
    return acked


async def read(client: AsyncClient, topic: str, partition: int) -> int:
    """Answers how many messages the partition has."""
    found, offset = 0, 0
    while True:
        page = await client.read(topic, partition, offset, limit=READ_LIMIT)
        if not page.messages:
            return found
        found, offset = found + len(page.messages), page.next_offset


def api_key(file: Path | None) -> str | None:
    return os.environ.get("GOQUEUE_API_KEY") if file is None else file.read_text().strip()


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--topic", default="", help="a new one")
    parser.add_argument("--api-key-file", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(options())))
