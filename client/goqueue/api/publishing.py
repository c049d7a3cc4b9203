"""Publishing one message, or a few together; a `Producer` is for streams of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from goqueue.models.failures import PublishFailed
from goqueue.models.messages import OutgoingMessage, ProducerIdentity, Published
from goqueue.models.options import Priority
from goqueue.models.times import Duration, Time
from goqueue.publish.outgoing import Text
from goqueue.publish.request import Publishing
from goqueue.transport.calls import JSON, decode
from goqueue.transport.http import Transport, join
from goqueue.transport.spans import SPANS
from goqueue.wire.errors import GoQueueError


class Publisher:
    """The part of the client that publishes."""

    def __init__(self, transport: Transport, publishing: Publishing) -> None:
        self._transport = transport
        self._publishing = publishing

    async def publish(
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
    ) -> Published:
        """Publish one message and return where it stands, durably.

        Messages with the same key go to the same partition, in order; without key and partition
        they go by `message_id`, or round. Groups receive it after `delay`, or from `deliver_at` on,
        and no longer once `ttl` has passed; a number is seconds.

        A `value` of None is null: it deletes its key in a compacted topic, and others refuse it.

        A call whose outcome is unknown is repeated only with a `message_id`: the topic remembers it
        for a while (5 minutes, unless configured otherwise), and a publish with the same one is
        answered with the first one's place and `duplicate`. A `Producer` repeats safely without
        ids, and is faster for more than a few messages.

        Calls made while a request to the same partition is on its way share the next one. Each has
        its own result or error, and waits for nobody else's timeout.
        """
        message = OutgoingMessage(
            value,
            key,
            dict(headers) if headers else None,
            priority,
            partition,
            message_id,
            delay,
            deliver_at,
            ttl,
        )
        with SPANS.publishing(topic, [message]) as traced:
            (result,) = await self._publishing.publish(topic, traced)
            if isinstance(result, GoQueueError):
                raise result
        return result

    async def publish_many(
        self, topic: str, messages: Iterable[OutgoingMessage | Text], *, json: bool = False
    ) -> list[Published]:
        """Publish messages together, one batch a partition; the results are in their order.

        `json` sends them as JSON and leaves the partitions to the server. Not atomic: raises
        `PublishFailed`, with the result of each message, if any of them was not stored.
        """
        given = [
            message if isinstance(message, OutgoingMessage) else OutgoingMessage(message)
            for message in messages
        ]
        if not given:
            return []
        publish = self._publishing.publish_json if json else self._publishing.publish
        with SPANS.publishing(topic, given) as traced:
            results = await publish(topic, traced)
            published = [result for result in results if isinstance(result, Published)]
            if len(published) < len(results):
                raise PublishFailed(results)
        return published

    async def init_producer(
        self, transactional_id: str | None = None, *, timeout_s: float | None = None
    ) -> ProducerIdentity:
        """An identity from the cluster. The same `transactional_id` gets the same producer id with
        the next epoch, which fences whoever had it before. `timeout_s` bounds the call with all
        its repeats, in place of the client's own bound."""
        body = {} if transactional_id is None else {"transactional_id": transactional_id}
        answer = await self._transport.request(
            "POST",
            join("producers", "init"),
            body=msgspec.json.encode(body),
            headers=JSON,
            repeatable=True,  # an id too many costs nothing
            timeout_s=timeout_s,
        )
        return decode(answer.body, ProducerIdentity)
