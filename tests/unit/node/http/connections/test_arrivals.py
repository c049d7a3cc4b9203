"""What a connection has sent and nobody has read: bounded, charged, and given back."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from node.http.budget.limits import HttpLimits
from node.http.budget.memory import MIB, Bounds, Budgets, Kind
from node.http.connections.arrivals import Piece, rest_after
from node.http.server.app import Entrance, HttpFront

REQUEST = b"GET /health HTTP/1.1\r\nHost: x\r\n"
HEAD_BYTES_MAX = 32 * 1024
HEADER = b"X-Padding-%d: " + b"p" * 1000 + b"\r\n"
UNFINISHED = REQUEST + b"".join(HEADER % n for n in range(20))
ONE_HOLDERS = 10
"""Unfinished heads that the bounds below have room for."""
COST = 2 * len(UNFINISHED) + 22 * 256


@pytest.fixture
def budgets() -> Budgets:
    heads = Bounds(node=4 * MIB, holder=ONE_HOLDERS * COST, connection=MIB, reserve=0, small=0)
    bodies = Bounds(node=4 * MIB, holder=2 * MIB, connection=MIB, reserve=MIB, small=65536)
    return Budgets({Kind.HEADS: heads, Kind.BODIES: bodies})


@pytest.fixture
def limits() -> HttpLimits:
    return HttpLimits(lingering_s=0.1)


@pytest.fixture
async def front(broker, limits, keys, budgets):
    front = HttpFront(broker, port=0, limits=limits, budgets=budgets, entrance=Entrance(keys=keys))
    await front.start()
    yield front
    await front.stop()


async def connect(front):
    return await asyncio.open_connection("127.0.0.1", front.port)


async def answer_of(reader):
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
    return int(head.split()[1]), json.loads(await reader.readexactly(length) or b"null")


class TestHeads:
    @pytest.mark.parametrize(
        ("at_once", "size"), [(300, HEAD_BYTES_MAX + 1), (2**20, HEAD_BYTES_MAX + 1), (2**20, None)]
    )
    async def test_head_over_32_kib_in_all_is_431_however_it_comes(
        self, front, budgets, eventually, at_once: int, size: int | None
    ) -> None:
        reader, writer = await connect(front)
        head = (REQUEST + b"".join(HEADER % n for n in range(40)) + b"\r\n")[:size]

        for at in range(0, len(head), at_once):
            writer.write(head[at : at + at_once])
            await asyncio.sleep(0)
        status, body = await answer_of(reader)

        assert (status, body["code"]) == (431, "head_too_large")
        assert body["limit"] == HEAD_BYTES_MAX
        writer.close()
        await eventually(lambda: not any(budget.used for budget in budgets.all))

    async def test_head_just_below_the_bound_is_served(self, front) -> None:
        reader, writer = await connect(front)

        writer.write(REQUEST + b"".join(HEADER % n for n in range(30)) + b"\r\n")

        assert (await answer_of(reader))[0] == 200
        writer.close()

    async def test_unfinished_heads_are_charged_up_to_a_bound_and_others_are_served(
        self, front, budgets, client, eventually
    ) -> None:
        flood = [await connect(front) for _ in range(3 * ONE_HOLDERS)]
        for _, writer in flood:
            writer.write(UNFINISHED)
        refused = [asyncio.create_task(answer_of(reader)) for reader, _ in flood]
        await eventually(lambda: sum(one.done() for one in refused) == 2 * ONE_HOLDERS)

        told = [one.result() for one in refused if one.done()]
        assert {(status, body["code"]) for status, body in told} == {(429, "over_budget")}
        assert told[0][1]["kind"] == "heads"
        assert budgets[Kind.HEADS].used == ONE_HOLDERS * COST
        assert (await client.get("/health")).status == 200

        for one in refused:
            one.cancel()
        for _, writer in flood:
            writer.close()
        await eventually(lambda: budgets[Kind.HEADS].used == 0)

    async def test_requests_one_behind_the_other_are_charged_nothing_once_answered(
        self, front, orders, budgets, eventually
    ) -> None:
        rng = random.Random(5)
        post = b"POST /topics/orders/messages HTTP/1.1\r\nHost: x\r\n"
        post += b"Content-Type: application/json\r\n"
        body = b'{"value":"%s"}' % (b"v\\r\\n" * 1000)
        chunks = b"".join(
            b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:9], body[9:100], body[100:])
        )
        kinds = [
            REQUEST + b"\r\n",
            post + b"Content-Length: %d\r\n\r\n" % len(body) + body,
            post + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n",
        ]
        asked = [rng.choice(kinds) for _ in range(60)]
        stream = b"".join(asked)
        reader, writer = await connect(front)

        at = 0
        while at < len(stream):
            size = rng.choice([1, 7, 100, 1000, 20_000])
            writer.write(stream[at : at + size])
            at += size
            await asyncio.sleep(0)
        for _ in asked:
            assert (await answer_of(reader))[0] == 200

        await eventually(lambda: not any(budget.used for budget in budgets.all))
        (connection,) = front._server.connections
        assert connection.arrivals.head_bytes == 0
        writer.close()


class TestBodies:
    async def test_bodies_behind_a_long_poll_are_charged_and_given_back(
        self, front, orders, budgets, eventually
    ) -> None:
        reader, writer = await connect(front)
        writer.write(
            b"GET /topics/orders/partitions/0/messages?wait=60s HTTP/1.1\r\nHost: x\r\n\r\n"
            b"POST /topics/orders/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
            b"\r\nContent-Length: 500000\r\n\r\n"
        )
        writer.write(b"x" * 400_000)
        bodies = budgets[Kind.BODIES]

        await eventually(lambda: bodies.used >= 400_000)

        front.begin_stop()
        assert (await answer_of(reader))[0] == 200
        writer.close()
        await eventually(lambda: bodies.used == 0)

    async def test_requests_behind_a_long_poll_are_charged_and_answered(
        self, front, orders, budgets, eventually
    ) -> None:
        head = REQUEST + b"".join(HEADER % n for n in range(8)) + b"\r\n"
        reader, writer = await connect(front)
        writer.write(
            b"GET /topics/orders/partitions/0/messages?wait=60s HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        bodies = budgets[Kind.BODIES]
        queued_bytes = 32 * (2 * 8 * 1000 + 8 * 256)  # as many as are parsed ahead

        writer.write(head * 50)
        await eventually(lambda: bodies.used > queued_bytes)
        (connection,) = front._server.connections
        connection.settle()

        assert bodies.used > queued_bytes, "what is not parsed yet is counted"
        front.begin_stop()
        for _ in range(51):
            assert (await answer_of(reader))[0] in (200, 503)
        await eventually(lambda: bodies.used == 0)
        writer.close()

    async def test_unread_bodies_of_one_address_are_bounded(
        self, front, orders, budgets, eventually
    ) -> None:
        flood = []
        for _ in range(20):
            reader, writer = await connect(front)
            writer.write(
                b"GET /topics/orders/partitions/0/messages?wait=60s HTTP/1.1\r\nHost: x\r\n"
                b"Content-Length: 1000000\r\n\r\n"
            )
            writer.write(b"x" * 400_000)
            flood.append((reader, writer))
        refused = [asyncio.create_task(answer_of(reader)) for reader, _ in flood]

        await eventually(lambda: sum(one.done() for one in refused) >= 15)

        assert budgets[Kind.BODIES].used <= budgets[Kind.BODIES].bounds.holder
        for one in refused:
            if one.done() and one.exception() is None:
                assert one.result()[0] == 429
            one.cancel()
        for _, writer in flood:
            writer.close()
        await eventually(lambda: budgets[Kind.BODIES].used == 0)


HEAD = b"GET / HTTP/1.1\r\n\r\n"
NEXT = b"GET /nex"


@pytest.mark.parametrize(
    ("data", "pieces", "tail"),
    [
        (HEAD, [Piece(0)], b""),
        (HEAD * 3, [Piece(0)] * 3, b""),
        (HEAD + b"a\r\n\r\nb", [Piece(6)], b""),
        (HEAD + b"a\r\n\r\nb" + HEAD, [Piece(6), Piece(0)], b""),
        (b"\n" + b"body", [Piece(4)], b"\r\n\r"),
        (b"the end of a body" + HEAD, [Piece(17, has_head=False), Piece(0)], b""),
        (b"3\r\nabc\r\n0\r\n\r\n", [Piece(3, True, False)], b""),
        (HEAD + b"3\r\nabc\r\n0\r\n\r\n" + HEAD, [Piece(3, True), Piece(0)], b""),
        (HEAD + b"3\r\nabc\r\n0\r\nTrailer: x\r\n\r\n", [Piece(3, True)], b""),
    ],
)
def test_next_head_begins_behind_whole_requests(data: bytes, pieces, tail: bytes) -> None:
    assert rest_after(data, pieces, tail) == len(data)
    assert rest_after(data + NEXT, pieces, tail) == len(data)


def test_blank_lines_within_a_body_in_chunks_are_not_its_end() -> None:
    chunks = b"2\r\n\r\n\r\n" * 20_000
    data = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    pieces = [Piece(40_000, is_chunked=True)]

    assert rest_after(data, pieces) == len(data)
    assert rest_after(data + NEXT, pieces) == len(data)
