"""More consumers than partitions, and every key's messages still one after the other."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import defaultdict
from contextlib import suppress

from goqueue import AsyncClient, AsyncConsumer, GoQueueError, OutgoingMessage, Received
from goqueue.errors import TopicExists

KEYS = 24


class Accounts:
    """The work: each key is an account, whose entries must be booked in their order."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.complete = asyncio.Event()
        self.booked: dict[str, list[int]] = defaultdict(list)
        self.busy: set[str] = set()
        self.most = 0

    async def book(self, message: Received) -> None:
        """Raises where two entries of an account are booked at once."""
        key = message.key_text or ""
        if key in self.busy:
            raise RuntimeError(f"{key} is being booked already")
        self.busy.add(key)
        self.most = max(self.most, len(self.busy))
        await asyncio.sleep(0.02)
        self.busy.remove(key)
        self.booked[key].append(int(message.text))
        if sum(map(len, self.booked.values())) >= self.count:
            self.complete.set()

    def in_order(self) -> bool:
        return all(entries == sorted(entries) for entries in self.booked.values())


async def prepare(client: AsyncClient, options: argparse.Namespace) -> None:
    """A topic of two partitions, a group whose members share them, and some entries."""
    with suppress(TopicExists):
        await client.create_topic(options.topic, partitions=2)
    await client.put_group(options.group, mode="shared", ordering="key", start="latest")
    await client.receive(options.group, options.topic)  # the group begins here
    entries = [
        OutgoingMessage(str(number), key=f"account-{number % KEYS}")
        for number in range(options.count)
    ]
    await client.publish_many(options.topic, entries)


async def run(options: argparse.Namespace) -> int:
    accounts = Accounts(options.count)
    async with AsyncClient(options.server) as client:
        await prepare(client, options)
        consumers = [
            AsyncConsumer(client, options.group, options.topic, prefetch=4)
            for _ in range(options.consumers)
        ]
        working = [asyncio.create_task(one.run(accounts.book, concurrency=4)) for one in consumers]
        await accounts.complete.wait()
        for consumer in consumers:
            await consumer.close()
        await asyncio.gather(*working)
        await client.delete_group(options.group)
    order = "in order" if accounts.in_order() else "OUT OF ORDER"
    print(f"{options.count} entries of {len(accounts.booked)} accounts, each account {order}")
    print(f"{options.consumers} consumers on 2 partitions booked up to {accounts.most} at once")
    return 0 if accounts.in_order() else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("--group", default="bookkeeping")
    parser.add_argument("--consumers", type=int, default=5)
    parser.add_argument("--count", type=int, default=240)
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
