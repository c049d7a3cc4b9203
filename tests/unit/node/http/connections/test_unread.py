"""What a client leaves of an answer that is written: little, charged while it is more, and never
for good."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp import StreamReader

from node.http.budget.limits import KIB, HttpLimits
from node.http.budget.memory import Kind
from node.http.connections.protocol import UNSENT_BYTES_MAX
from tests.unit.node.http.connections.unread import ask

READ = "/topics/orders/partitions/0/messages"


@pytest.fixture
def limits():
    return HttpLimits(keepalive_s=0.05, write_stall_s=30.0)


@pytest.fixture
def left(front, put, eventually):
    """A connection whose answer is written, and taken but for its end, once it is to close."""

    async def make():
        await put(b"x" * 15 * KIB)
        link = await ask(front, READ)
        await eventually(lambda: any(one.unsent_bytes for one in front._server.connections))
        (connection,) = front._server.connections
        await eventually(lambda: connection.transport is None)
        assert connection.unsent_bytes
        return connection, link

    return make


async def test_who_leaves_the_end_of_an_answer_is_cut_off(front, left, eventually):
    connection, link = await left()
    server = front._server
    now_s = server.loop.time()

    server.sweep(now_s)
    server.sweep(now_s)  # as much is unsent as before
    server.sweep(now_s + 29)
    assert server.connections == [connection]
    server.sweep(now_s + 31)

    await eventually(lambda: not server.connections)
    assert server.crowd.open_count == 0
    link.close()


async def test_one_that_is_to_close_makes_room_at_once(front, left, eventually):
    connection, link = await left()
    front._server.crowd.idle.add(connection, connection.address)

    assert front._server.crowd.make_room()

    await eventually(lambda: not front._server.connections)
    assert front._server.crowd.open_count == 0
    link.close()


async def test_who_takes_some_now_and_then_is_not_cut_off(front, left):
    connection, link = await left()
    server = front._server
    now_s, unsent = server.loop.time(), connection.unsent_bytes

    server.sweep(now_s)
    server.sweep(now_s)  # as much is unsent as before
    connection.unsent_seen_bytes = unsent + 1  # as it was then
    server.sweep(now_s + 29)
    server.sweep(now_s + 31)

    assert server.connections == [connection]
    link.close()


async def test_all_but_the_end_of_an_answer_is_charged(front, put, eventually):
    await put(b"x" * 60 * KIB)
    answers = front.budgets[Kind.ANSWERS]
    link = await ask(front, READ)

    await eventually(lambda: any(one.writing_paused for one in front._server.connections))
    (connection,) = front._server.connections
    assert connection.unsent_bytes > UNSENT_BYTES_MAX
    assert answers.used >= connection.unsent_bytes

    link.close()
    await eventually(lambda: not answers.used)


async def test_what_the_parser_kept_of_a_body_is_charged_until_it_is_read(
    front, orders, eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, paused = StreamReader.readany, list[bool]()

    async def slow(reader: StreamReader) -> bytes:
        await eventually(lambda: reader._protocol._reading_paused or reader.is_eof())
        paused.append(reader._protocol._reading_paused)
        return await real(reader)

    monkeypatch.setattr(StreamReader, "readany", slow)
    body = b'{"value":"%s"}' % (b"v" * 700_000)
    head = b"POST /topics/orders/messages HTTP/1.1\r\nHost: x\r\n"
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    loop, link = asyncio.get_running_loop(), socket.socket()
    link.setblocking(False)
    await loop.sock_connect(link, ("127.0.0.1", front.port))

    for _ in range(3):
        await loop.sock_sendall(link, request)
        answer = b""
        while b"durability" not in answer:
            answer += await loop.sock_recv(link, 1 << 16)
        (connection,) = front._server.connections
        await eventually(lambda one=connection: not one._request_in_progress)
        assert {budget.kind: budget.used for budget in front.budgets.all if budget.used} == {}

    assert any(paused)
    link.close()
