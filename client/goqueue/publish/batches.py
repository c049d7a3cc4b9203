"""What a producer has accepted and not yet sent: batches that fill, and a bound on all of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from goqueue.models.messages import Published
from goqueue.wire.encoding import encode_columns
from goqueue.wire.layout import LANE_NORMAL
from goqueue.wire.records import Headers

RECORD_OVERHEAD_BYTES = 64
"""Counted for each message beside its bytes: columns, and what it costs in memory."""


@dataclass(slots=True)
class Accepted:
    """One message as the producer took it, its place in memory and its result to come."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    lane: int
    timestamp_ms: int
    message_id: str | None
    deliver_at_ms: int | None
    expires_at_ms: int | None
    delivery: asyncio.Future[Published]
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        size = len(self.value or b"") + RECORD_OVERHEAD_BYTES
        if self.key is not None:
            size += len(self.key)
        for name, value in self.headers:
            size += len(name) + len(value)
        self.size_bytes = size


@dataclass(slots=True)
class Identity:
    """A producer id and epoch, and the sequence that the next new batch of a partition gets."""

    producer_id: int
    epoch: int
    next_sequence: int = 0


@dataclass(slots=True)
class Batch:
    """Messages of one partition that travel together.

    `encoded` is set when it is first sent, and the same bytes are sent ever after. A named batch
    has only messages with ids, by which the topic knows them again for `repeats_for_s`; it carries
    no producer's identity, which would stand in for the ids.
    """

    started_s: float
    repeats_for_s: float = 0.0
    accepted: list[Accepted] = field(default_factory=list[Accepted])
    size_bytes: int = 0
    encoded: bytes | None = None
    attempts_unknown: int = 0

    @property
    def is_named(self) -> bool:
        return self.repeats_for_s > 0

    def add(self, message: Accepted) -> None:
        self.accepted.append(message)
        self.size_bytes += message.size_bytes

    def encode(self, identity: Identity | None, codec: str, level: int) -> bytes:
        """The bytes to send; the first call decides them, and takes its run of sequences."""
        if self.encoded is None:
            rows = self.accepted
            lanes = [row.lane for row in rows]
            headers = [row.headers for row in rows]
            self.encoded = encode_columns(
                [row.value for row in rows],
                [row.key for row in rows],
                timestamps_ms=[row.timestamp_ms for row in rows],
                lanes=lanes if any(lane != LANE_NORMAL for lane in lanes) else LANE_NORMAL,
                headers=headers if any(headers) else None,
                deliver_at_ms=[row.deliver_at_ms for row in rows],
                expires_at_ms=[row.expires_at_ms for row in rows],
                message_ids=[row.message_id for row in rows],
                codec=codec,
                level=level,
                producer_id=identity.producer_id if identity else 0,
                producer_epoch=identity.epoch if identity else 0,
                base_sequence=identity.next_sequence if identity else 0,
            )
            if identity is not None:
                identity.next_sequence += len(rows)
        return self.encoded

    def halves(self) -> tuple[Batch, Batch]:
        """The same messages in two batches, neither sent yet; for one that was too large."""
        middle = len(self.accepted) // 2
        first = Batch(self.started_s, self.repeats_for_s)
        second = Batch(self.started_s, self.repeats_for_s)
        for half, messages in ((first, self.accepted[:middle]), (second, self.accepted[middle:])):
            for message in messages:
                half.add(message)
        return first, second

    def deliver(self, published: Sequence[Published]) -> None:
        """Tell every message where it stands."""
        for message, result in zip(self.accepted, published, strict=True):
            if not message.delivery.done():  # its caller may have given up
                message.delivery.set_result(result)

    def fail(self, error: Exception) -> None:
        """Tell every message that it is not known to be stored."""
        for message in self.accepted:
            if not message.delivery.done():
                message.delivery.set_exception(error)
                message.delivery.exception()  # `flush` tells it too: no warning if only that asks


class Budget:
    """A bound on bytes, with those who wait for room served in their order.

    Something larger than the whole budget passes when it is alone.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def used_bytes(self) -> int:
        return self._used

    def _fits(self, size_bytes: int) -> bool:
        return self._used == 0 or self._used + size_bytes <= self._bytes_max

    async def take(self, size_bytes: int) -> None:
        """Wait for room. Cancelling gives up the place in the queue."""
        if not self._waiting and self._fits(size_bytes):
            self._used += size_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(size_bytes)  # cancelled after its turn came
            raise

    def give(self, size_bytes: int) -> None:
        """Return room, and let in whoever fits now."""
        self._used -= size_bytes
        while self._waiting:
            size_bytes, turn = self._waiting[0]
            if turn.done():  # cancelled
                self._waiting.popleft()
                continue
            if not self._fits(size_bytes):
                return
            self._waiting.popleft()
            self._used += size_bytes
            turn.set_result(None)
