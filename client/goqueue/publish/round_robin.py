"""Whose turn it is: the partitions that messages without key and id go to, one after the other."""

from __future__ import annotations

import random

TOPICS_MAX = 10_000
"""Turns of so many topics are remembered; a topic that is forgotten begins anew."""
FIRST_BELOW = 1 << 32
"""Far more than a topic has partitions, so that each is as likely as any other."""


class RoundRobin:
    """Counts turns for each topic, from one at random on: many short-lived programs that publish a
    message each reach all partitions, and not the first one alone."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()
        self._now: dict[str, int] = {}

    def now(self, topic: str) -> int:
        """The turn, as a number that is taken modulo the count of partitions."""
        if topic not in self._now:
            while len(self._now) >= TOPICS_MAX:
                del self._now[next(iter(self._now))]
            self._now[topic] = self._chance.randrange(FIRST_BELOW)
        return self._now[topic]

    def pass_on(self, topic: str) -> None:
        """The next partition's turn, if the topic has had one."""
        if topic in self._now:
            self._now[topic] += 1

    def take(self, topic: str) -> int:
        """The turn; the next caller has the next one."""
        turn = self.now(topic)
        self.pass_on(topic)
        return turn
