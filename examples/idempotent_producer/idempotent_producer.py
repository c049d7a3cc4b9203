"""Publish many messages exactly once, whatever dies on the way, and check it by reading back."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from contextlib import suppress
from uuid import uuid4

from goqueue import AsyncClient, GoQueueError, Published
from goqueue.errors import TopicExists


async def publish(client: AsyncClient, topic: str, run: str, count: int) -> list[Published]:
    """Accept all, then wait for all; raises the first failure."""
    async with client.producer(linger_ms=5, compression="zstd") as producer:
        deliveries = [
            await producer.send(topic, f'{{"run":"{run}","number":{n}}}', key=f"account-{n % 100}")
            for n in range(count)
        ]
        await producer.flush()
    return [delivery.result() for delivery in deliveries]


async def check(client: AsyncClient, topic: str, run: str, count: int) -> str | None:
    """What is wrong with what the log holds of this run, or None."""
    seen: set[int] = set()
    last: dict[str | None, int] = {}
    async for message in client.messages(topic):
        body = message.json()
        if body["run"] != run:
            continue
        number, key = body["number"], message.key_text
        if number in seen:
            return f"{number} is there twice"
        if number <= last.get(key, -1):
            return f"{number} is out of order in {key}"
        seen.add(number)
        last[key] = number
    return None if len(seen) == count else f"{count - len(seen)} are missing"


async def run(topic: str, count: int, servers: str) -> int:
    name = uuid4().hex[:8]
    async with AsyncClient(servers) as client:
        with suppress(TopicExists):
            await client.create_topic(topic)
        started_s = time.perf_counter()
        results = await publish(client, topic, name, count)
        took_s = time.perf_counter() - started_s
        repeats = sum(result.duplicate for result in results)
        print(
            f"{count} messages accepted, {len(results)} stored in {took_s:.1f} s, "
            f"{repeats} recognised as repeats"
        )
        problem = await check(client, topic, name, count)
    print(f"read back: {problem or f'{count} messages, each once, in order in its partition'}")
    return 1 if problem else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    options = parser.parse_args()
    try:
        return asyncio.run(run(options.topic, options.count, options.server))
    except GoQueueError as error:
        print(f"{error.message} (outcome: {error.outcome})", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
