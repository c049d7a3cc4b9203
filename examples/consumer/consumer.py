"""A consumer: a member of a group that shares a topic's partitions with all others who run this."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from contextlib import suppress

from goqueue import AsyncConsumer, GoQueueError, Received, TopicPartition


class Orders:
    """The work, and how much of it was done."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.news = asyncio.Event()

    async def handle(self, message: Received) -> None:
        """Acked when this returns, tried again when it raises; made-up trouble: every 7th order
        fails at first."""
        self.news.set()
        order = json.loads(message.value)
        await asyncio.sleep(0.005)
        if order["order"] % 7 == 0 and message.attempt == 1:
            self.done["failed, comes again"] += 1
            raise RuntimeError("the bank does not answer")
        self.done["done"] += 1

    async def idle(self, seconds: float) -> None:
        """Wait until there was nothing to do for so long."""
        with suppress(TimeoutError):
            while True:
                self.news.clear()
                await asyncio.wait_for(self.news.wait(), seconds)


def told(what: str, partitions: list[TopicPartition]) -> None:
    """What the group gives and takes: here one would load and store what belongs to a partition."""
    print(f"{what}: {', '.join(map(str, partitions))}", flush=True)


async def run(options: argparse.Namespace) -> int:
    orders = Orders()
    async with AsyncConsumer(
        options.server,
        options.group,
        options.topic,
        client_id="example",
        instance_id=options.instance,
        rebalance_on_assign=lambda partitions: told("assigned", partitions),
        rebalance_on_revoke=lambda partitions: told("let go of", partitions),
        rebalance_on_lost=lambda partitions: told("lost", partitions),
    ) as consumer:
        working = asyncio.create_task(consumer.run(orders.handle, concurrency=options.concurrency))
        if options.idle:
            await orders.idle(options.idle)
            consumer.stop()
        await working
    for end, count in sorted(orders.done.items()):
        print(f"{end}: {count}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("--group", default="billing")
    parser.add_argument("--concurrency", type=int, default=8, help="messages worked on at once")
    parser.add_argument("--instance", help="a static member's name: it may restart unnoticed")
    parser.add_argument(
        "--idle", type=float, default=0.0, help="stop after so many seconds with nothing to do"
    )
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    try:
        return asyncio.run(run(parser.parse_args()))
    except GoQueueError as error:
        print(error.message, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
