"""Consumers that come, go, are cancelled and given up at random: nothing is lost, and nothing is
done twice that was not begun twice."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import suppress

import pytest

from goqueue import AsyncClient, AsyncConsumer, OutgoingMessage, Received, RetryPolicy
from goqueue.errors import GoQueueError
from tests.one_node import serving

MESSAGES = 300
STEPS = 40
QUICK = RetryPolicy(attempts_max=4, backoff_s=0.001, backoff_max_s=0.005)


class Crew:
    """Consumers of one group, and what they did."""

    def __init__(self, client: AsyncClient, chance: random.Random) -> None:
        self.client = client
        self.chance = chance
        self.running: dict[AsyncConsumer, asyncio.Task[None]] = {}
        self.acked: Counter[str] = Counter()
        self.uncertain: set[str] = set()
        """Whose ack was on its way when its handler was cancelled."""
        self.unhandled: list[object] = []

    async def handle(self, message: Received) -> None:
        await asyncio.sleep(self.chance.choice([0, 0, 0.001, 0.01]))
        if self.chance.random() < 0.1:
            raise ValueError("bad luck")
        try:
            await message.ack()
        except GoQueueError:
            return
        except asyncio.CancelledError:
            self.uncertain.add(message.text)
            raise
        self.acked[message.text] += 1

    def add(self) -> None:
        consumer = AsyncConsumer(
            self.client,
            "billing",
            "orders",
            prefetch=self.chance.choice([1, 5, 50]),
            instance_id=None,
            visibility="2s",
        )
        concurrency = self.chance.choice([1, 4])
        task = asyncio.create_task(consumer.run(self.handle, concurrency=concurrency))
        self.running[consumer] = task

    async def step(self) -> None:
        """Something happens to somebody."""
        await asyncio.sleep(self.chance.choice([0, 0.001, 0.02]))
        if not self.running or (len(self.running) < 5 and self.chance.random() < 0.4):
            self.add()
            return
        consumer = self.chance.choice(list(self.running))
        what = self.chance.choice(["close", "cancel", "give up", "pause", "resume", "nothing"])
        if what == "close":
            await self.end(consumer)
        elif what == "cancel":
            self.running[consumer].cancel()
            await self.end(consumer)
        elif what == "give up" and consumer.member_id:
            with suppress(GoQueueError):
                await self.client.leave_group("billing", consumer.member_id)
        elif what == "pause":
            consumer.pause(consumer.assignment[:1])
        elif what == "resume":
            consumer.resume()

    async def end(self, consumer: AsyncConsumer) -> None:
        task = self.running.pop(consumer)
        closing = asyncio.create_task(consumer.close())
        if self.chance.random() < 0.3:
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
        await consumer.close()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("seed", range(6))
async def test_everything_is_done_whatever_happens_to_consumers(seed: int, way: str) -> None:
    chance = random.Random(seed)
    loop = asyncio.get_running_loop()
    async with serving() as url, AsyncClient(url, retry=QUICK) as client:
        if way == "stream":
            await client.admin.finish_upgrade()
        crew = Crew(client, chance)
        loop.set_exception_handler(lambda _, context: crew.unhandled.append(context))
        await client.create_topic("orders", partitions=5)
        await client.put_group(
            "billing", max_attempts=0, mode="shared" if seed % 3 == 2 else "exclusive"
        )
        messages = [
            OutgoingMessage(str(number), partition=number % 5) for number in range(MESSAGES)
        ]
        await client.publish_many("orders", messages)

        for _ in range(STEPS):
            await crew.step()
        for consumer in list(crew.running):
            consumer.resume()
        crew.add()
        ends_s = time.monotonic() + 30.0
        while (await client.lag("billing")).total_lag:
            assert time.monotonic() < ends_s, f"seed {seed}: {MESSAGES - len(crew.acked)} missing"
            await asyncio.sleep(0.02)
        for consumer in list(crew.running):
            await crew.end(consumer)

        assert (await client.admin.members("billing")).members == []
        assert {*crew.acked, *crew.uncertain} == {str(number) for number in range(MESSAGES)}
        assert set(crew.acked.values()) == {1}
        assert crew.unhandled == []
