"""Sends messages through the library's producer and tells where each of them stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType

from cli.lines import Message
from cli.session import Session
from goqueue import GoQueueError, OutgoingMessage, Published, PublishFailed
from goqueue.errors import UnknownTopic
from goqueue.wire.batch import LANES

LINGER_MS = 5.0
Acked = Callable[[Published], None]


class Publisher:
    """Publishes to one topic, in order within a key. Use as `async with`; `flush` in the end.

    What is sent carries a producer's identity and is repeated after a lost answer without being
    stored twice.
    """

    def __init__(self, session: Session, topic: str) -> None:
        self._client = session.client
        self._topic = topic
        self._producer = session.client.producer(
            linger_ms=LINGER_MS, delivery_timeout_s=session.timeout_s
        )

    async def __aenter__(self) -> Publisher:
        await self._producer.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._producer.__aexit__(kind, error, trace)

    async def publish(self, message: Message, acked: Acked) -> None:
        """Accept a message, waiting while too many are on the way; `acked` follows once it is
        stored. Raises at once for a message that can never be."""
        try:
            delivery = await self._producer.send(
                self._topic,
                message.value,
                key=message.key,
                headers=dict(message.headers) or None,
                partition=message.partition,
                lane=message.priority or "normal",
            )
        except UnknownTopic:
            acked(await self._create_by_publishing(message))
            return
        delivery.add_done_callback(partial(_tell, acked))

    async def flush(self) -> None:
        """Wait until all accepted messages are stored; raises the first failure."""
        await self._producer.flush()

    async def _create_by_publishing(self, message: Message) -> Published:
        """A server that creates topics on the first publish does so for one in JSON; any other
        answers that the topic is unknown."""
        outgoing = OutgoingMessage(
            message.value,
            message.key,
            dict(message.headers) or None,
            LANES.index(message.priority or "normal"),
            message.partition,
        )
        try:
            (published,) = await self._client.publish_many(self._topic, [outgoing], json=True)
        except PublishFailed as failed:
            raise next(e for e in failed.results if isinstance(e, GoQueueError)) from None
        return published


def _tell(acked: Acked, delivery: asyncio.Future[Published]) -> None:
    if not delivery.cancelled() and delivery.exception() is None:
        acked(delivery.result())
