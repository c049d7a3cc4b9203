"""Let messages die, look why, and try the mended ones again."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import suppress

from goqueue import AsyncClient, DeadFilter, GoQueueError
from goqueue.errors import TopicExists

REASONS = ("the bank does not answer", "no such account", "the bank does not answer")


async def let_die(client: AsyncClient, topic: str, group: str) -> None:
    """Publish three messages, and reject each for its own reason."""
    for number in range(len(REASONS)):
        await client.publish(topic, f"payment {number}", key=f"account-{number}")
    rejected = 0
    while rejected < len(REASONS):
        for message in await client.receive(group, topic, wait=5):
            number = int(message.text.removeprefix("payment "))
            await message.reject(REASONS[number])
            rejected += 1


async def run(topic: str, group: str, server: str) -> int:
    async with AsyncClient(server) as client:
        with suppress(TopicExists):
            await client.create_topic(topic)
        await let_die(client, topic, group)

        print("dead:")
        async for letter in client.dead_letters(group, topic):
            print(f"  {letter.text} after {letter.attempts} attempt: {letter.reason}")

        mended = DeadFilter(reason="the bank")
        count = (await client.admin.redrive(group, topic, mended, dry_run=True)).matched
        print(f"{count} of them would go well now")
        job = await client.admin.redrive(group, topic, mended, rate=100)

        done = 0
        while done < count:
            for message in await client.receive(group, topic, wait=5):
                print(f"again: {message.text} ({message.id}, redriven {message.redrives} time)")
                await message.ack()
                done += 1
        for _ in range(50):
            job = await client.admin.redrive_job(group, job.id)
            if job.state != "running":
                break
            await asyncio.sleep(0.1)
        print(f"redrive {job.state}: {job.moved} moved")

        purged = await client.admin.purge(group, topic)
        print(f"{purged} given up for good")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("--group", default="payments")
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    options = parser.parse_args()
    try:
        return asyncio.run(run(options.topic, options.group, options.server))
    except GoQueueError as error:
        print(error.message, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
