"""Stories of gRPC: calls after `> `, what each one comes to beneath.

`python -m tests.unit.node.listeners.grpc.transcripts FILE...` writes the files anew with what is
true now. A real node of one, a channel, and streams by name. A call is `Method field=value ...`:
`value` is JSON where it can be, `$name` a receipt that was taken; numbers that differ in each run
are left out.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass

from node.listeners.grpc.protocol import goqueue_pb2 as pb
from tests.transcripts import played, write_anew
from tests.unit.node.listeners.grpc.client import METHODS, Served, refusal, served

TOPIC = "orders"
LEFT_OUT = ("timestamp", "receipt_handle", "member_id", "next_visible_at", "new_deadline")
HEARD_S = 30.0


class Player:
    """The node, and the streams that are open."""

    def __init__(self, node: Served) -> None:
        self._node = node
        self._streams: dict[str, Any] = {}
        self._passed = dict[str, list[Any]]()
        """What a stream told before what was waited for."""
        self._receipts: dict[str, str] = {}
        """By the value of the message."""

    async def run(self, command: str) -> list[str]:
        """What a command prints."""
        verb, *words = shlex.split(command)
        own: Callable[..., Any] | None = getattr(self, f"do_{verb}", None)
        if own is not None:
            return list(await own(*words))
        if verb in METHODS:
            return await self._ask(verb, words)
        name, (act, *rest) = verb, words
        return list(await getattr(self, f"of_{act}")(name, *rest))

    async def close(self) -> None:
        for call in self._streams.values():
            call.cancel()

    # what happens at the node

    async def do_topic(self, name: str, partitions: str = "1") -> list[str]:
        await self._node.broker.topics.create_topic(name, {"partitions": int(partitions)})
        return []

    async def do_stop(self) -> list[str]:
        self._node.parts.stopping.set()
        return []

    async def do_raw(self, path: str, text: str = "") -> list[str]:
        """Bytes that need not be a request."""
        return await self._told(self._node.client.channel.unary_unary(path)(text.encode()))

    # what clients do

    async def _ask(self, method: str, words: list[str]) -> list[str]:
        return await self._told(self._node.client.stub(method)(self._request(method, words)))

    async def of_opens(self, name: str, method: str, *words: str) -> list[str]:
        stub = self._node.client.stub(method)
        if METHODS[method][1].client_streaming:
            self._streams[name] = stub()
        else:
            self._streams[name] = stub(self._request(method, list(words)))
        return []

    async def of_says(self, name: str, *words: str) -> list[str]:
        request = pb.PublishStreamRequest()
        ParseDict(self._fields(words), request)
        await self._streams[name].write(request)
        return []

    async def of_hears(self, name: str, kind: str = "") -> list[str]:
        """The next answer, or the next of a kind; of messages their values."""
        async with asyncio.timeout(HEARD_S):
            while True:
                try:
                    told = await self._next(name)
                except grpc.aio.AioRpcError as error:
                    return [_refused(error)]
                if told is grpc.aio.EOF:
                    return ["the end"]
                if not isinstance(told, pb.ConsumeResponse):
                    return [_shown(told)]
                if told.WhichOneof("payload") == kind:
                    return self._heard(told, kind)

    async def of_has(self, name: str, count: str) -> list[str]:
        """It is told its partitions until they are so many; messages may come before."""
        passed = list[Any]()
        while True:
            told = await self._next(name)
            if len(told.assignment.partitions) == int(count):
                self._passed[name] = passed
                return []
            if told.WhichOneof("payload") == "messages":
                passed.append(told)

    async def of_ends(self, name: str) -> list[str]:
        """It has said all."""
        await self._streams[name].done_writing()
        return []

    async def of_goes(self, name: str) -> list[str]:
        self._streams.pop(name).cancel()
        return []

    # private

    async def _next(self, name: str) -> Any:
        passed = self._passed.get(name)
        return passed.pop(0) if passed else await self._streams[name].read()

    def _heard(self, told: pb.ConsumeResponse, kind: str) -> list[str]:
        if kind != "messages":
            return [_shown(getattr(told, kind))]
        lines = []
        for one in told.messages.messages:
            value = one.value.decode()
            self._receipts[value] = one.receipt_handle
            times = f", delivered {one.retry_count} times before" if one.retry_count else ""
            lines.append(f"{one.topic}:{one.partition}:{one.offset} {value}{times}")
        return lines

    async def _told(self, call: Any) -> list[str]:
        try:
            told = await call
        except grpc.aio.AioRpcError as error:
            return [_refused(error)]
        return [_shown(told)]

    def _request(self, method: str, words: list[str]) -> Any:
        request = GetMessageClass(METHODS[method][1].input_type)()
        return ParseDict(self._fields(words), request)

    def _fields(self, words: tuple[str, ...] | list[str]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for word in words:
            name, _, text = word.partition("=")
            value: Any = text
            if text.startswith("$"):
                value = self._receipts[text[1:]]
            elif name not in ("value", "key", "correlation_id"):
                with suppress(ValueError):
                    value = json.loads(text)
            if name in ("value", "key"):
                value = _base64(text)
            fields[name] = value
        return fields


def _base64(text: str) -> str:
    import base64

    return base64.b64encode(text.encode()).decode()


def _shown(told: Any) -> str:
    if not hasattr(told, "DESCRIPTOR"):
        return str(told)
    shown = MessageToDict(
        told, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    for name in LEFT_OUT:
        shown.pop(name, None)
    return json.dumps(_cut(shown), ensure_ascii=False)


def _cut(shown: Any) -> Any:
    """Errors by their family and code; what is nothing is left out."""
    if isinstance(shown, dict):
        if set(shown) >= {"code", "message", "details"}:
            return f"{shown['details'].get('code')}: {shown['message']}"
        cut = {name: _cut(value) for name, value in shown.items() if name not in LEFT_OUT}
        return {name: value for name, value in cut.items() if value not in ("", [], {}, None)}
    return [_cut(one) for one in shown] if isinstance(shown, list) else shown


def _refused(error: grpc.aio.AioRpcError) -> str:
    refused = refusal(error)
    code = f" {refused.code}" if refused.error.details else ""
    return f"{refused.status}{code}: {error.details()}"


async def play(text: str) -> str:
    """The transcript as its commands come out now; comments and blank lines stay."""
    async with served() as node:
        player = Player(node)
        try:
            return await played(text, player.run)
        finally:
            await player.close()


if __name__ == "__main__":
    write_anew(play)
