"""The way to a directory that this very process has open: without requests, by the caller's thread.

Each call tells whether it could go this way: else, and where it was refused for now without having
happened, the same is asked of the client, which repeats what may be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, cast

from goqueue.blocking.client import Client
from goqueue.blocking.received import BlockingReceived
from goqueue.local.directory import DirectoryChannel
from goqueue.local.engine import Engine, EngineMessage, EngineSettled
from goqueue.models.messages import Published
from goqueue.models.options import Action, Position
from goqueue.models.queued import Leased
from goqueue.models.settles import Settled, SettleResult
from goqueue.models.times import Duration, visibility_s
from goqueue.transport.spans import SPANS
from goqueue.wire.encoding import encode_columns
from goqueue.wire.errors import GoQueueError
from goqueue.wire.records import Headers

ACK: Final = "ack"


class AtHand:
    """Puts, takes and acks of one topic and group, where the directory is this process's. Any
    thread. Also settles the messages that it gave."""

    def __init__(
        self, client: Client, topic: str, group: str, visibility: Duration | None = None
    ) -> None:
        self._client = client
        channel = client.transport.channel
        self._channel = channel if isinstance(channel, DirectoryChannel) else None
        self._timeout_s = client.transport.timeout_s
        self._topic = topic
        self._group = group
        self._visibility_ms = None if visibility is None else round(visibility_s(visibility) * 1000)

    def put(
        self, values: Sequence[bytes], headers: Sequence[Headers] | None
    ) -> list[Published] | None:
        """Store values together, or none of them; None where the client is to do it. Raises
        GoQueueError."""
        engine = self._engine
        if engine is None:
            return None
        batch = encode_columns(
            cast("list[bytes | None]", values),
            timestamps_ms=time.time_ns() // 1_000_000,
            headers=headers,
        )
        try:
            stored = engine.append(self._topic, batch, self._timeout_s)
        except GoQueueError as error:
            _raise_unless_passing(error)
            return None
        if stored is None:
            return None
        partition, told = stored
        topic, first, durability = self._topic, told.base_offset, told.durability
        return [
            Published(topic, partition, offset, False, None, durability)
            for offset in range(first, first + len(values))
        ]

    def take(self, limit: int, wait_s: float) -> list[BlockingReceived] | None:
        """Lease up to `limit` messages, waiting for the first; None where the client is to do it.
        Raises GoQueueError."""
        engine = self._engine
        if engine is None:
            return None
        try:
            found = engine.take(
                self._group,
                self._topic,
                limit,
                wait_s,
                self._visibility_ms,
                self._timeout_s + wait_s,
            )
        except GoQueueError as error:
            _raise_unless_passing(error)
            return None
        return [self._received(message) for message in found]

    def ack(self, messages: Sequence[Leased]) -> list[SettleResult] | None:
        """Each one's end; None where the client is to do it. Raises GoQueueError."""
        engine = self._engine
        if engine is None or any(message.group != self._group for message in messages):
            return None
        receipts = [message.receipt for message in messages]
        try:
            ends = engine.settle(self._group, receipts, ACK, self._timeout_s)
        except GoQueueError as error:
            _raise_unless_passing(error)
            return None
        if any(isinstance(end, GoQueueError) and _is_passing(end) for end in ends):
            return None
        return list(map(_settled, receipts, ends))

    def settle_one(
        self,
        message: Leased,
        action: Action,
        *,
        reason: str = "",
        delay: Duration | None = None,
        position: Position | None = None,
        visibility: Duration | None = None,
    ) -> Settled:
        """What a message that came this way asks for. Raises its error."""
        if action == ACK:
            ends = self.ack([message])
            if ends is not None:
                if isinstance(ends[0], GoQueueError):
                    raise ends[0]
                return ends[0]
        return self._client.settle_one(
            message, action, reason=reason, delay=delay, position=position, visibility=visibility
        )

    @property
    def _engine(self) -> Engine | None:
        """None also where spans are recorded: requests carry them."""
        return None if self._channel is None or SPANS.is_active() else self._channel.engine

    def _received(self, message: EngineMessage) -> BlockingReceived:
        return BlockingReceived(
            self._topic,
            message.partition,
            message.offset,
            message.time_ms,
            message.value,
            message.key,
            message.headers,
            message.lane,
            0,
            message.message_id,
            message.deliver_at_ms,
            message.expires_at_ms,
            message.is_null,
            message.attempt,
            message.reason,
            message.redrives,
            self._group,
            message.receipt,
            message.deadline_ms,
            self,
        )


def _is_passing(error: GoQueueError) -> bool:
    return error.retriable and error.outcome == "none"


def _raise_unless_passing(error: GoQueueError) -> None:
    if not _is_passing(error):
        raise error


def _settled(receipt: str, end: EngineSettled | GoQueueError) -> SettleResult:
    if isinstance(end, GoQueueError):
        return end
    return Settled(
        receipt,
        ACK,
        end.outcome,
        end.topic,
        end.partition,
        end.offset,
        end.attempts,
        None,
        end.committed_offset,
        end.in_flight,
    )
