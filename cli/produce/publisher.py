"""Sends messages through the library's producer and tells where each of them stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType

from cli.output.terminal import note
from cli.produce.lines import Message
from cli.run.session import Session
from goqueue import AsyncClient, GoQueueError, OutgoingMessage, Published, PublishFailed
from goqueue.errors import UnknownTopic

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
            linger_ms=LINGER_MS,
            delivery_timeout_s=session.timeout_s,
            compression=session.compression,
        )

    async def __aenter__(self) -> Publisher:
        await self._producer.__aenter__()
        await self._producer.identify()  # a cluster that takes no writes says so now
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
                priority=message.priority or "normal",
                message_id=message.message_id,
                delay=message.delay,
                deliver_at=message.deliver_at,
                ttl=message.ttl,
            )
        except UnknownTopic:
            # a server that creates topics does so on the first publish; another says it's unknown
            await publish_few(self._client, self._topic, [message], acked)
            return
        delivery.add_done_callback(partial(_tell, acked))

    async def flush(self) -> None:
        """Wait until all accepted messages are stored; raises the first failure."""
        await self._producer.flush()


async def publish_few(
    client: AsyncClient, topic: str, messages: Sequence[Message], acked: Acked
) -> None:
    """Publish without a producer's identity: sooner, and not repeated where it may have happened,
    unless every message has an id of its own.

    Calls `acked` for what is stored, then raises the first error, if any.
    """
    outgoing = [
        OutgoingMessage(
            message.value,
            message.key,
            dict(message.headers) or None,
            message.priority or "normal",
            message.partition,
            message.message_id,
            message.delay,
            message.deliver_at,
            message.ttl,
        )
        for message in messages
    ]
    is_known = await _is_known(client, topic)
    try:
        results: Sequence[Published | GoQueueError] = await client.publish_many(topic, outgoing)
    except PublishFailed as failed:
        results = failed.results
    if not is_known and any(isinstance(result, Published) for result in results):
        note(f"created topic {topic}")
    for result in results:
        if isinstance(result, Published):
            acked(result)
    for result in results:
        if isinstance(result, GoQueueError):
            raise result


async def _is_known(client: AsyncClient, topic: str) -> bool:
    """False only where the cluster says so: publishing asks the same, and finds the answer kept."""
    try:
        await client.known_topics.get(topic)
    except UnknownTopic:
        return False
    except GoQueueError:
        return True
    return True


def _tell(acked: Acked, delivery: asyncio.Future[Published]) -> None:
    if not delivery.cancelled() and delivery.exception() is None:
        acked(delivery.result())
