"""Tails: a topic's messages as they are written, over one stream that reconnects by itself."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any, Literal

import msgspec

from goqueue.models.messages import Message
from goqueue.models.times import Duration, Time, datetime_ms, duration_text, time_text
from goqueue.transport.http import Transport, join
from goqueue.transport.pages import each
from goqueue.transport.sse import Event, Events
from goqueue.wire.errors import GoQueueError, ServerError, Unavailable
from goqueue.wire.layout import LANE_NORMAL, LANES
from goqueue.wire.unreadable import UNREADABLE

QUIET_S = 30.0
"""A server tells every 10 s that it is there: one that says nothing for longer is gone."""
_LANES = {name: lane for lane, name in enumerate(LANES)}

log = logging.getLogger(__name__)


class Tailing:
    """The part of the client that tails."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def tail(
        self,
        topic: str,
        partition: int | None = None,
        *,
        offset: int | Literal["latest", "earliest"] = "latest",
        offsets: Mapping[int, int] | None = None,
        from_time: Time | None = None,
        key: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait: Duration | None = None,
    ) -> AsyncGenerator[Message, None]:
        """Iterate over the messages of a partition, or of a whole topic, as they are stored: each
        once, in the order of their offsets within a partition, and for ever.

        It begins at the end; `offset` and `from_time` say where else, `offsets` by partition. Only
        messages with this `key` and all these `headers` come. `wait` ends it once no message came
        for so long. A stream that breaks goes on behind the last message at another server, for the
        client's `timeout_s` without any; then what went wrong is raised. Messages that retention
        deletes before they are read are passed over, with a warning in the log.
        """
        runs = self.tail_runs(
            topic,
            partition,
            offset=offset,
            offsets=offsets,
            from_time=from_time,
            key=key,
            headers=headers,
            wait=wait,
        )
        return each(runs)

    async def tail_runs(
        self,
        topic: str,
        partition: int | None = None,
        *,
        offset: int | Literal["latest", "earliest"] = "latest",
        offsets: Mapping[int, int] | None = None,
        from_time: Time | None = None,
        key: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait: Duration | None = None,
    ) -> AsyncGenerator[list[Message], None]:
        """As `tail`, a list at a time: what has come together."""
        params = [] if partition is None else [("partition", str(partition))]
        if from_time is None or offset != "latest":
            params.append(("offset", str(offset)))
        if offsets:
            places = ",".join(f"{number}:{at}" for number, at in offsets.items())
            params.append(("offsets", places))
        if from_time is not None:
            params.append(("from_time", time_text(from_time)))
        if key is not None:
            encoded = key.encode() if isinstance(key, str) else key
            params.append(("key", base64.b64encode(encoded).decode()))
            params.append(("key_encoding", "base64"))
        params += (("header", f"{name}:{value}") for name, value in (headers or {}).items())
        if wait is not None:
            params.append(("wait", duration_text(wait, "wait")))
        stream = _Stream(self._transport, topic, params)
        async with aclosing(stream.runs()) as runs:
            async for run in runs:
                yield run


class _Stream:
    """One tail, over as many connections as it takes."""

    def __init__(self, transport: Transport, topic: str, params: list[tuple[str, str]]) -> None:
        self._transport = transport
        self._topic = topic
        self._params = params
        self._last_id = ""
        self._attempt = 0
        self._until_s = 0.0
        self._is_over = False

    async def runs(self) -> AsyncGenerator[list[Message], None]:
        while not self._is_over:
            try:
                async with aclosing(self._once()) as runs:
                    async for run in runs:
                        yield run
            except GoQueueError as error:
                if not error.retriable:
                    raise
                await self._pause(error)

    async def _once(self) -> AsyncGenerator[list[Message], None]:
        """One connection, to its end. Raises what has ended it, unless that was `wait`."""
        path, events = join("topics", self._topic, "tail"), Events()
        resumed = {"Last-Event-ID": self._last_id} if self._last_id else {}
        async with self._transport.stream(
            path, params=self._params, headers=resumed, quiet_s=QUIET_S
        ) as pieces:
            blocks = 0
            async for piece in pieces:
                run, end = list[Message](), None
                for event in events.feed(piece):
                    blocks += 1
                    self._last_id = event.id or self._last_id
                    if event.kind == b"message" and event.data:
                        run.append(_message(self._topic, event.data))
                    elif event.kind == b"skipped":
                        log.warning("%s: deleted before it was read: %s", self._topic, event.data)
                    elif event.kind == b"end":
                        end = event
                if blocks > 1:  # the first one is told by any that is reached
                    self._attempt = 0
                if run:
                    yield run
                if end is not None:
                    self._end(end)
                    return
        raise Unavailable(f"the stream of {self._topic} has broken off")

    def _end(self, event: Event) -> None:
        """What the server says last. Raises its error, where asking again is of no use."""
        told = _decoded(event.data)
        if told.get("reconnect"):
            self._transport.turn_away()
            raise Unavailable(str(told.get("error", "the server ends the stream")))
        if told.get("code") != "waited":
            raise GoQueueError.from_body(told)
        self._is_over = True

    async def _pause(self, error: GoQueueError) -> None:
        """Before another server is asked. Raises the error where that has gone on for too long."""
        now_s = asyncio.get_running_loop().time()
        if not self._attempt:
            self._until_s = now_s + self._transport.timeout_s
        self._attempt += 1
        pause_s = self._transport.pause_s(self._attempt)
        if now_s + pause_s > self._until_s:
            raise error
        await asyncio.sleep(pause_s)


class _View(msgspec.Struct, gc=False):
    """A message as servers show it."""

    offset: int
    timestamp: datetime
    value: str | None
    partition: int
    priority: str = LANES[LANE_NORMAL]
    key: str | None = None
    headers: dict[str, str] | None = None
    message_id: str | None = None
    deliver_at: datetime | None = None
    expires_at: datetime | None = None
    value_encoding: str | None = None
    key_encoding: str | None = None
    header_encodings: dict[str, str] | None = None


_VIEW = msgspec.json.Decoder(_View)


def _message(topic: str, data: bytes) -> Message:
    """Raises ServerError on an event of another shape."""
    try:
        view = _VIEW.decode(data)
        encodings = view.header_encodings or {}
        return Message(
            topic,
            view.partition,
            view.offset,
            datetime_ms(view.timestamp),
            _bytes(view.value or "", view.value_encoding),
            None if view.key is None else _bytes(view.key, view.key_encoding),
            tuple(
                (name, _bytes(text, encodings.get(name)))
                for name, text in (view.headers or {}).items()
            ),
            _LANES[view.priority],
            message_id=view.message_id,
            deliver_at_ms=None if view.deliver_at is None else datetime_ms(view.deliver_at),
            expires_at_ms=None if view.expires_at is None else datetime_ms(view.expires_at),
            is_null=view.value is None,
        )
    except (*UNREADABLE, KeyError) as error:
        raise ServerError(f"an event that is not understood: {error}") from None


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except UNREADABLE as error:
        raise ServerError(f"an event that is not understood: {error}") from None


def _bytes(text: str, encoding: str | None) -> bytes:
    return base64.b64decode(text) if encoding else text.encode()
