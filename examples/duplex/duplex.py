"""Work through a topic over one request of HTTP/2: messages come down, and acks go up, at once.

By the `h2` library: clients that send a whole body before they read an answer can't do this.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import ssl
import sys
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)


class Refused(Exception):
    """The server has not done it, and says why."""


class Duplex:
    """One request on a connection of its own, whose body and answer go on side by side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._h2.initiate_connection()
        self._stream = self._h2.get_next_available_stream_id()
        self._text = b""
        self._is_over = False
        self.status = 0
        self.head: dict[str, str] = {}
        """Of the answer, once it has begun."""

    @classmethod
    async def ask(
        cls, method: str, url: str, *, key: str | None = None, ca: str | None = None
    ) -> Duplex:
        """Sends the head; the body is what is said next."""
        place = urlsplit(url)
        context = None
        if place.scheme == "https":
            context = ssl.create_default_context(cafile=ca)
            context.set_alpn_protocols(["h2"])
        duplex = cls(*await asyncio.open_connection(place.hostname, place.port, ssl=context))
        target = f"{place.path}?{place.query}" if place.query else place.path
        fields = [
            (":method", method),
            (":scheme", place.scheme),
            (":authority", place.netloc),
            (":path", target),
        ]
        if key is not None:
            fields.append(("authorization", f"Bearer {key}"))
        duplex._h2.send_headers(duplex._stream, fields)
        await duplex._flush()
        return duplex

    async def say(self, data: bytes, *, is_last: bool = False) -> None:
        """A piece of the body. A command is far smaller than any window; a large body waits."""
        while data or is_last:
            room = min(
                self._h2.local_flow_control_window(self._stream),
                self._h2.max_outbound_frame_size,
            )
            if data and not room:
                await self._hear()
                continue
            piece, data = data[:room], data[room:]
            self._h2.send_data(self._stream, piece, end_stream=is_last and not data)
            if not data:
                break
        await self._flush()

    async def lines(self) -> AsyncIterator[dict[str, Any]]:
        """What the server says, each line as it comes; ends when the server has said all."""
        while True:
            line, newline, rest = self._text.partition(b"\n")
            if newline:
                self._text = rest
                yield json.loads(line)
            elif self._is_over:
                return
            else:
                await self._hear()

    async def whole(self) -> bytes:
        """All of an answer."""
        while not self._is_over:
            await self._hear()
        return self._text

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def _hear(self) -> None:
        data = await self._reader.read(1 << 16)
        if not data:
            raise ConnectionError("the server has hung up")
        for event in self._h2.receive_data(data):
            self._take(event)
        await self._flush()

    def _take(self, event: Event) -> None:
        if isinstance(event, ResponseReceived):
            self.head = {str(name): str(value) for name, value in event.headers or []}
            self.status = int(self.head[":status"])
        elif isinstance(event, DataReceived):
            self._text += event.data
            # the window is the credit: what is not acknowledged here is not sent any more
            self._h2.acknowledge_received_data(event.flow_controlled_length or 0, self._stream)
        elif isinstance(event, StreamEnded):
            self._is_over = True
        elif isinstance(event, StreamReset | ConnectionTerminated) and not self._is_over:
            raise ConnectionError(f"the server has ended it: {event.error_code}")

    async def _flush(self) -> None:
        self._writer.write(self._h2.data_to_send())
        await self._writer.drain()


async def publish(options: argparse.Namespace, text: str) -> None:
    url = f"{options.server}/publish/{options.topic}"
    duplex = await Duplex.ask("POST", url, key=options.key, ca=options.ca)
    try:
        await duplex.say(text.encode(), is_last=True)
        told = await duplex.whole()
        if duplex.status != 201:
            raise Refused(told.decode())
    finally:
        await duplex.close()


async def work(options: argparse.Namespace) -> int:
    """Acks as many messages as are asked for; one that fails comes again, later each time."""
    url = f"{options.server}/subscribe/{options.topic}?credit={options.credit}"
    duplex = await Duplex.ask("POST", url, key=options.key, ca=options.ca)
    done = 0
    try:
        await duplex.say(b'"INIT"')
        async for line in duplex.lines():
            if "msg" not in line:
                raise Refused(line["error"])
            text, dacks = base64.b64decode(line["msg"]).decode(), line.get("dackCount", 0)
            if options.fail and options.fail in text and dacks < options.failures:
                print(f"{text}: again in {2**dacks} s", flush=True)
                await duplex.say(json.dumps(f"DACK {2**dacks}").encode())
                continue
            print(text, flush=True)
            done += 1
            await duplex.say(b'"ACK"', is_last=done == options.count)
            if done == options.count:
                await duplex.whole()  # the last ack is done when the server ends its side
                break
    finally:
        await duplex.close()
    return done


async def run(options: argparse.Namespace) -> int:
    for text in options.publish:
        await publish(options, text)
    if options.count:
        await work(options)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("--publish", nargs="*", default=[], help="messages to publish first")
    parser.add_argument("--count", type=int, default=0, help="stop after so many acks")
    parser.add_argument("--credit", type=int, default=1, help="messages at hand at a time")
    parser.add_argument("--fail", default="", help="what has this in it fails at first")
    parser.add_argument("--failures", type=int, default=2, help="so often")
    parser.add_argument("--server", default="http://127.0.0.1:8081")
    parser.add_argument("--key", help="an API key, id.secret")
    parser.add_argument("--ca", help="a file with the authority of the server's certificate")
    try:
        return asyncio.run(run(parser.parse_args()))
    except (Refused, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
