"""Which partition takes the messages that may go to any.

Those that reach a node at about the same time go to the same one, so that they share a batch and an
entry (Kafka's sticky partitioner, KIP-480, at the broker). Then the one goes on that has had the
fewest, so each gets its share whatever the sizes of requests. One that nobody leads waits until
somebody does, and is owed nothing for that time.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from goqueue.wire.types import PartitionId, TopicId

STAY_S = 0.005
"""A partition is left after so long."""
SHARE_S = 0.18
"""Of what each gets in a second, the most that it gets at a time. No two partitions are further
apart than that, so a second's shares differ by less than a fifth. Where that is less than one
message, each goes to the next partition."""
PER_S_MIN = 500.0
"""Slower messages share as if there were so many. Shares are promised from 1,000 messages a second
on: three nodes that a third each comes through are further apart by chance than one may be alone,
and hardly ever all in one direction."""
RATE_S = 0.25
"""How long messages are counted for their rate."""
TOPICS_MAX = 10_000
"""Of so many it is remembered who has had how many; one that is forgotten begins anew."""

LedHere = Callable[[PartitionId], bool | None]
"""Whether this node leads a partition; None where nobody is known to."""


@dataclass(slots=True)
class _Topic:
    """How many messages each partition has had, and which one has its turn."""

    partitions: int
    counts: list[tuple[int, bool, int, int]]
    """A heap of all but the present one: messages, whether another node leads, and, of those that
    are alike, how long it is since they had their turn."""
    present: int = -1
    before: int = 0
    """What the present one had had when its turn began."""
    taken: int = 0
    began_s: float = 0.0
    share: int = 0
    """The most messages of a turn; more only where one request has more."""
    counting_since_s: float = 0.0
    counted: int = 0

    def count(self, messages: int, now_s: float) -> None:
        """For the rate, and the share that comes of it."""
        self.counted += messages
        passed_s = now_s - self.counting_since_s
        if passed_s >= RATE_S or not self.share:
            per_s = self.counted / passed_s if passed_s >= RATE_S else 0.0
            self.share = max(1, int(max(PER_S_MIN, per_s) * SHARE_S / self.partitions))
            self.counting_since_s, self.counted = now_s, 0


@dataclass(slots=True)
class StickyPartitions:
    """Of all topics that messages come for through one node. Loop thread only."""

    led_here: LedHere
    chance: random.Random
    _topics: dict[TopicId, _Topic] = field(default_factory=dict[TopicId, _Topic])
    _turns: int = 0

    def pick(self, topic: TopicId, partitions: int, messages: int, now_s: float) -> int:
        """The partition for so many messages that are stored together, at this time of the loop's
        clock. It is counted that they go there."""
        if partitions == 1:
            return 0
        one = self._topics.get(topic)
        if one is None or one.partitions != partitions:
            one = self._begin(topic, partitions, now_s)
        one.count(messages, now_s)
        is_over = now_s >= one.began_s + STAY_S or one.taken + messages > one.share
        if one.present < 0 or (one.taken and is_over):
            self._go_on(topic, one, now_s)
        one.taken += messages
        return one.present

    # -- private

    def _begin(self, topic: TopicId, partitions: int, now_s: float) -> _Topic:
        while len(self._topics) >= TOPICS_MAX:
            del self._topics[next(iter(self._topics))]
        order = list(range(partitions))
        self.chance.shuffle(order)
        one = _Topic(partitions, [], counting_since_s=now_s)
        for partition in order:
            self._put(topic, one, 0, partition)
        self._topics[topic] = one
        return one

    def _go_on(self, topic: TopicId, one: _Topic, now_s: float) -> None:
        """To the one that has had the fewest of those that are led."""
        if one.present >= 0:
            self._put(topic, one, one.before + one.taken, one.present)
        leaderless: list[tuple[int, int]] = []
        while one.counts:
            count, _elsewhere, _turn, partition = heapq.heappop(one.counts)
            if self.led_here(PartitionId(topic, partition)) is not None:
                break
            leaderless.append((count, partition))
        else:
            count, partition = leaderless.pop(0)
        one.present, one.before, one.taken, one.began_s = partition, count, 0, now_s
        for had, waiting in leaderless:
            self._put(topic, one, max(had, count), waiting)

    def _put(self, topic: TopicId, one: _Topic, count: int, partition: int) -> None:
        self._turns += 1
        is_elsewhere = not self.led_here(PartitionId(topic, partition))
        heapq.heappush(one.counts, (count, is_elsewhere, self._turns, partition))
