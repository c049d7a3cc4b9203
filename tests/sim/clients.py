"""Clients of the simulated cluster: they publish, lose answers, ask elsewhere, send again."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from goqueue.wire.batch import RecordBatch, encode_columns
from goqueue.wire.types import NodeId, PartitionId, TopicId
from tests.sim.loop import Timer
from tests.sim.requests import Answer, Identity, Publish, Stored

if TYPE_CHECKING:
    from tests.sim.world import World

REQUEST_S = 0.001
PATIENCE_S = (0.3, 1.5)
"""How long a client waits for an answer before it asks another node."""
PAUSE_S = 0.08
ONCE_S = (0.5, 6.0)
"""How long one waits that sends once: mostly until its node tells what has become of it."""


class Sending:
    """One batch, sent until it is acked; or once, and then its outcome is taken as told."""

    def __init__(self, client: Client, partition_id: PartitionId, publish: Publish) -> None:
        self.client = client
        self.publish = publish
        self.partition_id = partition_id
        self.over = False
        self.attempts = 0
        self._timer: Timer | None = None

    def send(self) -> None:
        if self.over or self.client.world.is_over:
            return
        self.attempts += 1
        attempt = self.attempts
        node = self.client.pick()

        def replied(answer: Answer) -> None:
            self._replied(node, attempt, answer)

        client = self.client
        client.world.ask(
            node,
            Publish(self.partition_id, self.publish.batch, self.publish.request_id, replied),
            REQUEST_S,
        )
        patience = client.rng.uniform(*(ONCE_S if client.sends_once else PATIENCE_S))
        self._timer = client.world.loop.call_later(patience, self._unanswered, attempt)

    def _replied(self, node: NodeId, attempt: int, answer: Answer) -> None:
        checks = self.client.world.checks
        identity = self.publish.identity
        if isinstance(answer, Stored):
            checks.acked(node, self.partition_id, identity, answer.base_offset, answer.duplicate)
            self.end()
            return
        if attempt != self.attempts or self.over:
            return
        if self.client.sends_once:
            if not answer.unknown:
                checks.refused(self.partition_id, identity)
            self.end()
        else:
            self._again(PAUSE_S)

    def _unanswered(self, attempt: int) -> None:
        if attempt != self.attempts or self.over:
            return
        if self.client.sends_once:
            self.end()
        else:
            self._again(0.0)

    def _again(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.client.world.loop.call_later(delay_s, self.send)

    def end(self) -> None:
        if not self.over:
            self.over = True
            if self._timer is not None:
                self._timer.cancel()
            self.client.done(self)


class Client:
    """Publishes to random groups, a few batches at a time.

    With a producer id it numbers its batches and repeats identical bytes; without one it repeats
    under a request id, as a node does for its clients; one that `sends_once` repeats nothing.
    """

    def __init__(self, world: World, number: int, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.number = number
        self.sends_once = number % 4 == 3
        self._producer_id = number + 1 if number % 2 == 0 else 0
        self._sequences: defaultdict[PartitionId, int] = defaultdict(int)
        self._epochs: defaultdict[PartitionId, int] = defaultdict(int)
        self._depth = rng.choice((1, 1, 2, 4))
        self._pause_s = rng.choice((0.02, 0.05, 0.1)) * world.shape.slower
        self._sending: dict[Sending, None] = {}
        self._count = 0
        self._next: Timer | None = None

    @property
    def idle(self) -> bool:
        return not self._sending

    def start(self) -> None:
        self.world.loop.call_later(self.rng.uniform(0, 0.1), self._publish)

    def pick(self) -> NodeId:
        """Any node: that one finds who leads."""
        return self.rng.choice(self.world.nodes)

    def done(self, sending: Sending) -> None:
        del self._sending[sending]

    def give_up(self, is_deleted: Callable[[TopicId], bool]) -> None:
        """What was sent to such topics will not be answered."""
        for sending in list(self._sending):
            if is_deleted(sending.partition_id.topic):
                sending.end()

    def lost(self, partition_id: PartitionId) -> None:
        """What its producer has sent there may be gone: it begins a new epoch, as one does that is
        told of a gap before its next batch, and gives up what it was sending."""
        if self._producer_id:
            self._epochs[partition_id] += 1
            self._sequences[partition_id] = 0
            for sending in [one for one in self._sending if one.partition_id == partition_id]:
                sending.end()

    def publish(self, partition_id: PartitionId) -> None:
        """Send one new batch."""
        sending = self._make(partition_id)
        self._sending[sending] = None
        sending.send()

    def _publish(self) -> None:
        world = self.world
        if world.is_quiet:
            return
        if len(self._sending) < self._depth and world.partition_ids:
            self.publish(self.rng.choice(world.partition_ids))
        pause = self._pause_s * self.rng.uniform(0.2, 2.0)
        world.loop.call_later(pause, self._publish)

    def _make(self, partition_id: PartitionId) -> Sending:
        count = self.rng.choice((1, 1, 2, 5))
        values = []
        for _ in range(count):
            self._count += 1
            values.append(b"%d:%d" % (self.number, self._count))
        columns = self._columns(values)
        if self._producer_id:
            sequence = self._sequences[partition_id]
            self._sequences[partition_id] = sequence + count
            buffer = encode_columns(
                *columns,
                producer_id=self._producer_id,
                producer_epoch=self._epochs[partition_id],
                base_sequence=sequence,
            )
            request_id = 0
        else:
            buffer = encode_columns(*columns)
            request_id = self.rng.getrandbits(64) | 1
        publish = Publish(partition_id, RecordBatch.parse(buffer), request_id, _nobody)
        return Sending(self, partition_id, publish)

    def _columns(
        self, values: list[bytes]
    ) -> tuple[Sequence[bytes | None], Sequence[bytes] | None]:
        """Values and keys; keys where the topic is compacted."""
        compaction = self.world.compaction
        return (values, None) if compaction is None else compaction.columns(self.rng, values)


def _nobody(_answer: Answer) -> None:
    raise AssertionError("a template is not answered")


__all__ = ["Client", "Identity", "Sending"]
