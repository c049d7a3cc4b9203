"""The blocking producer: the asynchronous one, run on the client's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from goqueue.blocking.loop_thread import LoopThread
from goqueue.models.messages import OutgoingMessage, Published
from goqueue.models.options import Priority
from goqueue.models.times import Duration, Time
from goqueue.publish.outgoing import Text
from goqueue.publish.producer import Producer
from goqueue.wire.errors import GoQueueError

_CHUNK_MESSAGES = 500


class BlockingProducer:
    """As `Producer`, blocking; from `Client.producer`."""

    def __init__(self, thread: LoopThread, producer: Producer) -> None:
        self._thread = thread
        self._producer = producer

    def __enter__(self) -> BlockingProducer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except GoQueueError:
            if error is None:
                raise

    def send(
        self,
        topic: str,
        value: Text | None,
        *,
        key: Text | None = None,
        headers: Mapping[str, Text] | None = None,
        partition: int | None = None,
        priority: Priority | int = "normal",
        message_id: str | None = None,
        delay: Duration | None = None,
        deliver_at: Time | None = None,
        ttl: Duration | None = None,
    ) -> Future[Published]:
        """Accept one message; blocks while the buffer is full. The future tells where it stands."""
        accepted: Future[Published] = Future()
        self._thread.run(
            self._accept(
                accepted,
                topic,
                value,
                {
                    "key": key,
                    "headers": headers,
                    "partition": partition,
                    "priority": priority,
                    "message_id": message_id,
                    "delay": delay,
                    "deliver_at": deliver_at,
                    "ttl": ttl,
                },
            )
        )
        return accepted

    def send_many(self, topic: str, messages: Iterable[OutgoingMessage | Text]) -> None:
        """Accept messages in their order: much cheaper than `send` for each. `flush` tells
        whether all were stored."""
        chunk: list[OutgoingMessage] = []
        for message in messages:
            chunk.append(
                message if isinstance(message, OutgoingMessage) else OutgoingMessage(message)
            )
            if len(chunk) == _CHUNK_MESSAGES:
                self._thread.run(self._accept_many(topic, chunk))
                chunk = []
        if chunk:
            self._thread.run(self._accept_many(topic, chunk))

    def flush(self) -> None:
        """Wait until all accepted messages are stored; raises the first failure."""
        self._thread.run(self._producer.flush())

    def close(self) -> None:
        """Flush, then stop. Idempotent."""
        self._thread.run(self._producer.close())

    async def _accept(
        self, accepted: Future[Published], topic: str, value: Text | None, options: dict[str, Any]
    ) -> None:
        delivery = await self._producer.send(topic, value, **options)

        def tell(delivery: asyncio.Future[Published]) -> None:
            error = None if delivery.cancelled() else delivery.exception()
            if delivery.cancelled():
                accepted.cancel()
            elif error is not None:
                accepted.set_exception(error)
            else:
                accepted.set_result(delivery.result())

        delivery.add_done_callback(tell)

    async def _accept_many(self, topic: str, messages: Sequence[OutgoingMessage]) -> None:
        for message in messages:
            await self._producer.send(
                topic,
                message.value,
                key=message.key,
                headers=message.headers,
                partition=message.partition,
                priority=message.priority,
                message_id=message.message_id,
                delay=message.delay,
                deliver_at=message.deliver_at,
                ttl=message.ttl,
            )
