"""Work through a topic as a member of a group: ack what is done, try again what failed for now."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from goqueue import AsyncClient, GoQueueError, Received
from goqueue.errors import NotInFlight, ReceiptExpired


class Unavailable(Exception):
    """What this order needs is down: it may go well later."""


class Impossible(Exception):
    """This order can never go well."""


async def charge(order: dict[str, object], attempt: int) -> None:
    """The work. Made-up trouble: every 7th order fails at first."""
    await asyncio.sleep(0.001)
    number = order.get("order")
    if not isinstance(number, int):
        raise Impossible("an order without its number")
    if number % 7 == 0 and attempt == 1:
        raise Unavailable("the bank does not answer")


async def handle(message: Received, retry_after: str) -> str:
    """Do the work of one message and settle it; what became of it."""
    try:
        await charge(json.loads(message.value), message.attempt)
    except Unavailable as error:
        return (await message.nack(str(error), delay=retry_after)).state
    except (Impossible, ValueError, AttributeError) as error:
        return (await message.reject(str(error))).state
    return (await message.ack()).state


async def work(client: AsyncClient, options: argparse.Namespace) -> dict[str, int]:
    """Receive until nothing came for a while; how many messages ended how."""
    ends: dict[str, int] = {}
    while messages := await client.receive(
        options.group, options.topic, limit=10, wait=options.idle, visibility="30s"
    ):
        for message in messages:
            try:
                end = await handle(message, options.retry_after)
            except ReceiptExpired:
                end = "too late"  # the work took longer than 30 s: it is done again
            except NotInFlight as error:
                if error.outcome != "unknown":
                    raise
                end = "acked"  # by an answer that was lost; if not, it comes again
            ends[end] = ends.get(end, 0) + 1
    return ends


async def run(options: argparse.Namespace) -> int:
    async with AsyncClient(options.server) as client:
        await client.put_group(options.group, max_attempts=5)
        ends = await work(client, options)
    for end, count in sorted(ends.items()):
        print(f"{end}: {count}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("--group", default="billing")
    parser.add_argument("--idle", default="2s", help="stop when nothing came for so long")
    parser.add_argument("--retry-after", default="1s", help="when a failed order is tried again")
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
