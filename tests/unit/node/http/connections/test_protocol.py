"""Slow and greedy clients: cut within their deadline, while others are served."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging

import pytest

from node.http.budget.limits import HttpLimits

DEADLINE_S = 0.4


@pytest.fixture
def limits():
    return HttpLimits(
        header_deadline_s=DEADLINE_S,
        body_grace_s=DEADLINE_S,
        body_bytes_per_s_min=1000,
        lingering_s=0.1,
        connections_max=20,
        connections_per_address_max=10,
    )


async def connect(front):
    return await asyncio.open_connection("127.0.0.1", front.port)


async def answer_of(reader):
    """The status and body of the answer, after which the server hangs up."""
    answer = b""
    with contextlib.suppress(ConnectionResetError):  # it did not read all that was sent
        while piece := await asyncio.wait_for(reader.read(1 << 16), 30):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    assert len(body) == int(head.partition(b"Content-Length: ")[2].split(b"\r")[0])
    return int(head.split()[1]), body


async def dribble(writer, data):
    """Whether all of it went before the server hung up."""
    try:
        for at in range(len(data)):
            writer.write(data[at : at + 1])
            await writer.drain()
            await asyncio.sleep(0.05)
    except ConnectionError:
        return False
    return True


async def test_headers_that_dribble_are_cut_with_408(front):
    reader, writer = await connect(front)

    sending = asyncio.ensure_future(dribble(writer, b"GET /health HTTP/1.1\r\nX: " + b"a" * 1000))
    status, body = await answer_of(reader)

    assert status == 408
    assert json.loads(body)["code"] == "request_timeout"
    assert not (sending.done() and sending.result())
    sending.cancel()
    writer.close()


async def test_connections_that_say_nothing_are_cut(front):
    reader, writer = await connect(front)

    status, _ = await answer_of(reader)

    assert status == 408
    writer.close()


async def test_dribbling_after_a_good_request_is_cut_too(front):
    reader, writer = await connect(front)
    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.partition(b"Content-Length: ")[2].split(b"\r")[0]))

    sending = asyncio.ensure_future(dribble(writer, b"GET /health HTTP/1.1\r\nX: " + b"a" * 1000))
    status, _ = await answer_of(reader)

    assert status == 408
    sending.cancel()
    writer.close()


async def test_bodies_that_dribble_are_cut_with_408(front, orders):
    reader, writer = await connect(front)
    writer.write(
        b"POST /topics/orders/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100000\r\n\r\n"
    )

    sending = asyncio.ensure_future(dribble(writer, b"a" * 1000))
    status, body = await answer_of(reader)

    assert status == 408
    assert json.loads(body)["retriable"] is True
    assert front.bytes_in_flight == 0
    sending.cancel()
    writer.close()


async def test_chunked_bodies_that_dribble_are_cut(front, orders):
    reader, writer = await connect(front)
    writer.write(
        b"POST /topics/orders/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )

    sending = asyncio.ensure_future(dribble(writer, b"1\r\na\r\n" * 200))
    status, _ = await answer_of(reader)

    assert status == 408
    sending.cancel()
    writer.close()


async def test_a_body_at_an_honest_rate_is_taken_after_the_grace(front, orders):
    reader, writer = await connect(front)
    body = b'{"value":"' + b"x" * 20_000 + b'"}'
    writer.write(
        b"POST /topics/orders/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    for at in range(0, len(body), 2500):  # twice the deadline of a body without a rate
        writer.write(body[at : at + 2500])
        await asyncio.sleep(DEADLINE_S / 4)

    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)

    assert head.startswith(b"HTTP/1.1 200")
    writer.close()


async def test_connections_over_the_cap_are_told_503(front):
    held = [await connect(front) for _ in range(10)]
    for reader, writer in held:  # nobody makes room for others who was served
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)

    reader, writer = await connect(front)
    status, body = await answer_of(reader)

    assert status == 503
    assert json.loads(body)["code"] == "unavailable"
    for _, other in [*held, (reader, writer)]:
        other.close()


async def test_others_are_served_while_slow_clients_hold_on(front, client):
    slow = [await connect(front) for _ in range(8)]
    for _, writer in slow:
        writer.write(b"GET /health HT")

    assert (await client.get("/health")).status == 200
    for _, writer in slow:
        writer.close()


async def test_a_client_that_takes_nothing_of_its_answer_is_dropped(
    front, broker, orders, eventually
):
    from goqueue.wire.batch import BATCH_MEDIA_TYPE, encode_columns

    batch = encode_columns([b"x" * 2**20] * 8)
    await broker.records.append("orders", 0, batch, deadline_s=30)
    reader, writer = await connect(front)
    reader._transport.pause_reading()
    request = (
        f"GET /topics/orders/partitions/0/messages HTTP/1.1\r\nHost: x\r\n"
        f"Accept: {BATCH_MEDIA_TYPE}\r\n\r\n"
    )
    writer.write(request.encode())
    server = front._server
    await eventually(lambda: any(c.writing_paused for c in server.connections))

    now_s = asyncio.get_running_loop().time()
    server.sweep(now_s)
    server.sweep(now_s + 29)
    assert front.connections == 1
    server.sweep(now_s + 31)
    await eventually(lambda: front.connections == 0)

    writer.close()


async def test_expect_continue_is_answered_before_the_body_comes(front, orders):
    reader, writer = await connect(front)
    writer.write(
        b"POST /topics/orders/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Expect: 100-continue\r\nContent-Length: 13\r\n\r\n"
    )
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30) == (
        b"HTTP/1.1 100 Continue\r\n\r\n"
    )

    writer.write(b'{"value":"v"}')

    assert (await asyncio.wait_for(reader.readline(), 30)).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_pipelined_requests_are_answered_in_order(front):
    reader, writer = await connect(front)
    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /nope HTTP/1.1\r\nHost: x\r\n\r\n")

    statuses = []
    for _ in range(2):
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        statuses.append(int(head.split()[1]))
        await reader.readexactly(int(head.partition(b"Content-Length: ")[2].split(b"\r")[0]))

    assert statuses == [200, 404]
    writer.close()


@pytest.mark.parametrize("path", [b"/x", b"/v1/topics"])
async def test_request_line_without_a_version_is_answered_once_and_leaves_no_traceback(
    front, caplog, path
):
    reader, writer = await connect(front)

    writer.write(b"GET " + path + b"\r\n\r\n")
    status, body = await answer_of(reader)

    assert status == 400
    assert "version" in json.loads(body)["error"]
    assert [record for record in caplog.records if record.levelno >= logging.INFO] == []


async def test_client_that_goes_away_within_its_body_leaves_no_traceback(front, orders, caplog):
    _, writer = await connect(front)

    writer.write(
        b"POST /topics/orders/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n{"
    )
    await writer.drain()
    async with asyncio.timeout(30):
        while not front.requests_in_flight:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        writer.transport.abort()
        while front.requests_in_flight:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
