"""WebSockets of the transport: opened, refused, closed and broken off."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from goqueue.errors import BadRequest, Busy, GoQueueError, OutcomeUnknown, Timeout
from goqueue.testing.channel import MemoryChannel
from goqueue.transport.http import Transport


class Sockets:
    """A server that says `hello` on each WebSocket, and then what it is told; or refuses it."""

    def __init__(self) -> None:
        self.status = 101
        self.headers: dict[str, str] = {}
        self.asked: list[str] = []
        self.keys: list[str | None] = []
        self.close_codes: list[int | None] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        self.keys.append(request.headers.get("Authorization"))
        if self.status != 101:
            return web.Response(status=self.status, headers=self.headers)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str("hello")
        async for message in socket:
            if message.data == "close":
                await socket.close(code=1012)
            elif message.data == "reset":
                assert request.transport is not None
                request.transport.abort()
            else:
                await socket.send_str(f"{message.data}!")
        self.close_codes.append(socket.close_code)
        return socket


@pytest.fixture
def sockets() -> Sockets:
    return Sockets()


@pytest.fixture
async def transport(sockets: Sockets) -> AsyncIterator[Transport]:
    app = web.Application()
    app.router.add_route("GET", "/{path:.*}", sockets.answer)
    server = TestServer(app)
    await server.start_server(shutdown_timeout=0)
    transport = Transport(str(server.make_url("")).rstrip("/"), api_key="id.secret")
    yield transport
    await transport.close()
    await server.close()


async def test_texts_go_both_ways_with_the_key_and_a_close_waits_for_the_other_side(
    transport: Transport, sockets: Sockets
) -> None:
    async with transport.socket("/v1/s", answer_s=9.0, quiet_s=9.0) as socket:
        assert await socket.receive() == "hello"
        await socket.send(b"a")
        assert await socket.receive() == "a!"

    assert sockets.keys == ["Bearer id.secret"]
    assert sockets.close_codes == [1000]


async def test_it_tells_how_the_server_closed_it_and_what_was_broken_off(
    transport: Transport,
) -> None:
    async with transport.socket("/v1/s", answer_s=9.0, quiet_s=9.0) as socket:
        await socket.receive()
        await socket.send(b"close")
        assert (await socket.receive(), socket.close_code) == (None, 1012)

    with pytest.raises(OutcomeUnknown):
        async with transport.socket("/v1/s", answer_s=9.0, quiet_s=9.0) as socket:
            await socket.receive()
            await socket.send(b"reset")
            await socket.receive()


@pytest.mark.parametrize(
    ("status", "error"),
    [(200, BadRequest), (404, BadRequest), (409, BadRequest), (429, Busy), (503, GoQueueError)],
)
async def test_an_answer_that_opens_none_is_its_error(
    transport: Transport, sockets: Sockets, status: int, error: type[GoQueueError]
) -> None:
    sockets.status = status

    with pytest.raises(error) as refused:
        async with transport.socket("/v1/s", answer_s=9.0, quiet_s=9.0):
            pass

    assert refused.value.http_status == (400 if status == 200 else status)


async def test_no_redirect_is_followed(transport: Transport, sockets: Sockets) -> None:
    sockets.status, sockets.headers = 307, {"Location": "/elsewhere"}

    with pytest.raises(BadRequest):
        async with transport.socket("/v1/s", answer_s=9.0, quiet_s=9.0):
            pass

    assert sockets.asked == ["/v1/s"]


async def test_a_server_that_answers_no_ping_is_gone() -> None:
    """Nothing at all comes once it has been opened."""
    held: list[asyncio.StreamWriter] = []

    async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(line for line in head.split("\r\n") if line.startswith("Sec-WebSocket-Key"))
        accept = _accepted(key.partition(": ")[2])
        lines = ("HTTP/1.1 101 Up", "Upgrade: websocket", "Connection: upgrade", accept, "", "")
        writer.write("\r\n".join(lines).encode())
        held.append(writer)

    server = await asyncio.start_server(hangs, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = Transport(f"http://127.0.0.1:{port}")
    with pytest.raises(Timeout):
        async with transport.socket("/v1/s", answer_s=9.0, quiet_s=0.03) as socket:
            await socket.receive()
    await transport.close()
    for writer in held:
        writer.close()
    server.close()


async def test_what_has_no_sockets_says_so() -> None:
    transport = Transport(MemoryChannel(lambda *_: pytest.fail("asked")))

    with pytest.raises(BadRequest):
        async with transport.socket("/v1/s", answer_s=9.0, quiet_s=9.0):
            pass


def _accepted(key: str) -> str:
    digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    return f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}"
