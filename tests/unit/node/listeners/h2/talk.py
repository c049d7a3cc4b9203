"""A client of HTTP/2: h2's own, on a socket, that takes what it is told unless it must not."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.settings import SettingCodes

from log.disk.memory import MemoryDisk
from node.assembly import NodeAssembly
from tests.one_node import Clock, one_node

HEARD_S = 20.0
QUIET_TURNS = 30


@dataclass
class Answer:
    """What was heard on one stream."""

    stream: int
    fields: dict[str, str] = field(default_factory=dict[str, str])
    text: bytes = b""
    is_ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int:
        return int(self.fields.get(":status", "0"))


class Talker:
    """One connection. With `window` the answers' windows begin with so many bytes, and are opened
    by `take` only."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, window: int | None
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.answers: dict[int, Answer] = {}
        self.gone: ConnectionTerminated | None = None
        self.is_closed = False
        self._takes = window is None
        self._changed = asyncio.Event()
        self.h2.initiate_connection()
        if window is not None:
            self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.flush()

    async def ask(
        self, method: str, path: str, *fields: tuple[str, str], is_last: bool = False
    ) -> Answer:
        stream = self.h2.get_next_available_stream_id()
        named = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "x")]
        self.h2.send_headers(stream, [*named, *fields], end_stream=is_last)
        self.flush()
        return self.answers.setdefault(stream, Answer(stream))

    async def say(self, answer: Answer, *commands: str, is_last: bool = False) -> None:
        """Commands, as JSON strings."""
        await self.send(
            answer, b"".join(json.dumps(one).encode() for one in commands), is_last=is_last
        )

    async def send(self, answer: Answer, data: bytes, *, is_last: bool = False) -> None:
        while len(data) > 0:
            await self.until(lambda: self._room(answer) > 0)
            room = self._room(answer)
            self.h2.send_data(answer.stream, data[:room])
            data = data[room:]
            self.flush()
        if is_last:
            self.h2.end_stream(answer.stream)
            self.flush()

    async def publish(self, topic: str, value: bytes, *fields: tuple[str, str]) -> Answer:
        answer = await self.ask("POST", f"/publish/{topic}", *fields)
        await self.send(answer, value, is_last=True)
        return await self.ended(answer)

    async def subscribe(self, topic: str, query: str = "") -> Answer:
        """Of which the head is here, and INIT said."""
        answer = await self.ask("POST", f"/subscribe/{topic}{query}")
        await self.say(answer, "INIT")
        await self.until(lambda: answer.status)
        return answer

    async def line(self, answer: Answer) -> Any:
        """The next line of an answer; None where it has ended."""
        await self.until(
            lambda: b"\n" in answer.text or answer.is_ended or answer.reset is not None
        )
        line, newline, rest = answer.text.partition(b"\n")
        if not newline:
            return None
        answer.text = rest
        return json.loads(line)

    async def message(self, answer: Answer) -> tuple[str, int]:
        """The next line, which is a message: its text and dackCount."""
        line = await self.line(answer)
        assert line and "msg" in line, (line, answer)
        return base64.b64decode(line["msg"]).decode(), line.get("dackCount", 0)

    async def ended(self, answer: Answer) -> Answer:
        await self.until(lambda: answer.is_ended or answer.reset is not None)
        return answer

    async def quiet(self, answer: Answer) -> bool:
        """Whether nothing comes for a while of the loop's turns."""
        for _ in range(QUIET_TURNS):
            await asyncio.sleep(0.001)
        return not answer.text

    def take(self, answer: Answer, size: int) -> None:
        """So many bytes more may come."""
        self.h2.increment_flow_control_window(size, answer.stream)
        self.flush()

    def reset(self, answer: Answer) -> None:
        self.h2.reset_stream(answer.stream, ErrorCodes.CANCEL)
        self.flush()

    async def until(self, holds: Callable[[], object]) -> None:
        """Raises ConnectionError where it never will, as the connection is over."""
        async with asyncio.timeout(HEARD_S):
            while not holds():
                if self.is_closed:
                    raise ConnectionResetError(f"closed: {self.gone}")
                self._changed.clear()
                await self._changed.wait()

    async def closed(self) -> ConnectionTerminated | None:
        """How the node has ended the connection."""
        async with asyncio.timeout(HEARD_S):
            while not self.is_closed:
                self._changed.clear()
                await self._changed.wait()
        return self.gone

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())

    async def listen(self) -> None:
        """Until the connection is closed."""
        try:
            while data := await self.reader.read(1 << 16):
                for event in self.h2.receive_data(data):
                    self._take(event)
                self.flush()
                self._changed.set()
        except ConnectionError:
            pass
        finally:
            self.is_closed = True
            self._changed.set()

    def _take(self, event: Event) -> None:
        if isinstance(event, ConnectionTerminated):
            self.gone = event
            return
        answer = self.answers.get(getattr(event, "stream_id", 0) or 0)
        if answer is None:
            return
        if isinstance(event, ResponseReceived):
            answer.fields = {str(name): str(value) for name, value in event.headers or ()}
        elif isinstance(event, DataReceived):
            answer.text += event.data
            if self._takes:
                self.h2.acknowledge_received_data(event.flow_controlled_length or 0, answer.stream)
        elif isinstance(event, StreamEnded):
            answer.is_ended = True
        elif isinstance(event, StreamReset):
            answer.reset = int(event.error_code or 0)

    def _room(self, answer: Answer) -> int:
        room = self.h2.local_flow_control_window(answer.stream)
        return min(room, self.h2.max_outbound_frame_size)


@asynccontextmanager
async def talking(
    port: int, *, window: int | None = None, context: ssl.SSLContext | None = None
) -> AsyncIterator[Talker]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    talker = Talker(reader, writer, window)
    listening = asyncio.ensure_future(talker.listen())
    try:
        yield talker
    finally:
        writer.close()
        await listening


@asynccontextmanager
async def h2_node(
    clock: Clock | None = None, disk: MemoryDisk | None = None, **settings: Any
) -> AsyncIterator[NodeAssembly]:
    """A node of the highest level that listens for HTTP/2, and creates topics when they are first
    used: of one partition."""
    chosen = {
        "listeners.h2.enabled": True,
        "listeners.h2.port": 0,
        "broker.autoCreateTopics": True,
        "defaults.topic.partitions": 1,
        **settings,
    }
    async with one_node(clock, disk, **chosen) as node:
        await node.broker.upgrade.finish_level()
        yield node


def port_of(node: NodeAssembly) -> int:
    return node.listeners.of["h2"].port
