"""The library's own client: publishes with ids, and a consumer that is pushed its messages over a
WebSocket."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import ClassVar

from goqueue import Client, Consumer, GoQueueError, OutgoingMessage
from goqueue.errors import PublishFailed
from goqueue.models.messages import Published
from tests.protocols.client import ANSWER_S, STREAM_S, WAIT_S, Door, Line, Told, Unreachable
from tests.protocols.ledger import Ledger


class Library:
    """A topic's publisher or consumer."""

    stores_once: ClassVar[bool] = True
    sees_values: ClassVar[bool] = True

    def __init__(self, topic: str, group: str, number: int) -> None:
        self._topic, self._group, self._name = topic, group, f"library-{number}"

    def publish(self, door: Door, lines: Sequence[Line]) -> Told:
        told = Told()
        messages = [OutgoingMessage(line.value, message_id=str(line.number)) for line in lines]
        with Client(_url(door), timeout_s=ANSWER_S) as client:
            try:
                results = list[Published | GoQueueError](client.publish_many(self._topic, messages))
            except PublishFailed as error:
                results = list(error.results)
            except GoQueueError as error:
                results = [error] * len(lines)
        for line, result in zip(lines, results, strict=True):
            if isinstance(result, Published):
                told.stored[line.number] += 1
                told.places[line.number] = (result.partition, result.offset)
            else:
                told.refused[result.code] += 1
                if result.outcome == "unknown":
                    told.unknown[line.number] += 1
        return told

    def consume(self, door: Door, ledger: Ledger, is_over: threading.Event) -> None:
        ends_s = time.monotonic() + STREAM_S
        try:
            with (
                Client(_url(door), timeout_s=ANSWER_S) as client,
                Consumer(client, self._group, self._topic, client_id=self._name) as consumer,
            ):
                while not is_over.is_set() and time.monotonic() < ends_s:
                    message = consumer.next(WAIT_S)
                    if message is None:
                        continue
                    number = ledger.give(message.value)
                    try:
                        message.ack()
                    except GoQueueError:
                        ledger.ack_unanswered([number])
                    else:
                        ledger.ack(number)
        except GoQueueError as error:
            raise Unreachable(str(error)) from None


def _url(door: Door) -> str:
    return f"http://{door.host}:{door.http}"
