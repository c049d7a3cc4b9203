"""Sends messages in batches and tells where each of them stands."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from cli.lines import Message
from cli.session import Json, Session
from goqueue.errors import GoQueueError
from goqueue.http import join

BATCH_MESSAGES_MAX = 500
BATCH_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Receipt:
    """A message's place in the log; it is as durable as the topic promises."""

    partition: int
    offset: int


Acked = Callable[[Receipt], None]


class Publisher:
    """Publishes to one topic in the order given. Use as `async with`; `flush` before the end."""

    def __init__(self, session: Session, topic: str) -> None:
        self._session = session
        self._topic = topic
        self._waiting: list[tuple[Json, Acked]] = []
        self._bytes = 0

    async def __aenter__(self) -> Publisher:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._waiting.clear()

    async def publish(self, message: Message, acked: Acked) -> None:
        """Accept a message; `acked` is called once it is stored."""
        self._waiting.append((_body(message), acked))
        self._bytes += len(message.value)
        if len(self._waiting) >= BATCH_MESSAGES_MAX or self._bytes >= BATCH_BYTES_MAX:
            await self.flush()

    async def flush(self) -> None:
        """Wait until all accepted messages are stored; raises the first error."""
        if not self._waiting:
            return
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        answer = await self._session.request(
            "POST",
            join("topics", self._topic, "messages"),
            body={"messages": [body for body, _ in waiting]},
        )
        for result, (_, acked) in zip(answer["results"], waiting, strict=True):
            if result.get("error"):
                raise GoQueueError.from_body(result)
            acked(Receipt(int(result["partition"]), int(result["offset"])))


def _body(message: Message) -> Json:
    body: Json = {}
    try:
        body["value"] = message.value.decode()
    except UnicodeDecodeError:
        body["value"] = base64.b64encode(message.value).decode()
        body["value_encoding"] = "base64"
    if message.key is not None:
        body["key"] = message.key.decode()
    if message.headers:
        body["headers"] = {name: value.decode() for name, value in message.headers}
    if message.partition is not None:
        body["partition"] = message.partition
    if message.priority is not None:
        body["priority"] = message.priority
    return body
