"""What a command is: its name, how many words it takes, whose policy it is held against."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from node.listeners.redis import words
from node.listeners.redis.client import Client
from node.listeners.redis.replies import Reply

Run = Callable[[Client, list[bytes]], Awaitable[Reply]]
"""Given the arguments behind the name. Raises GoQueueError, of which RedisError is one."""

NO_KEY = -1
WITHOUT_END = 1 << 30


@dataclass(frozen=True, slots=True)
class Command:
    """`name` is one word, or two for one of a family such as `XGROUP CREATE`; it is its label in
    metrics. `operation` is the HTTP operation whose policy it is held against. It takes `least` to
    `most` arguments; the one at `key_at` names the topic that the key must reach."""

    name: str
    run: Run
    operation: str
    least: int = 0
    most: int = WITHOUT_END
    key_at: int = NO_KEY
    may_wait: bool = False
    is_write: bool = False

    async def answer(self, client: Client, arguments: list[bytes]) -> Reply:
        """Counted, judged, and done. Raises GoQueueError."""
        target = ""
        if NO_KEY < self.key_at < len(arguments):
            target = arguments[self.key_at].decode(errors="backslashreplace")[:300]
        with client.observed(self.name, self.operation, target):
            if not self.least <= len(arguments) <= self.most:
                raise words.wrong_number(self.name)
            topic = words.topic(arguments[self.key_at]) if target else None
            await client.admit(self.operation, topic)
            return await self.run(client, arguments)
