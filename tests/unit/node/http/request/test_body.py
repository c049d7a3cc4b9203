"""Bodies are charged as they arrive, to whoever sends them; nobody's upload refuses another's."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import zlib

import pytest

from goqueue.wire.errors import BadRequest
from node.http.auth.authenticator import Authenticator
from node.http.budget.limits import HttpLimits
from node.http.budget.memory import MIB, Bounds, Budgets, Kind
from node.http.request.body import SLICE_BYTES, Inflation
from node.http.server.app import Entrance, HttpFront
from tests.one_node import Keys

NODE, HOLDER = 4 * MIB, MIB


@pytest.fixture
def budgets() -> Budgets:
    bodies = Bounds(NODE, HOLDER, HOLDER, reserve=MIB, small=64 * 1024)
    forms = Bounds(node=4096, holder=2048, connection=2048, reserve=1024, small=512)
    return Budgets({Kind.BODIES: bodies, Kind.FORMS: forms})


@pytest.fixture
def limits() -> HttpLimits:
    return HttpLimits(lingering_s=0.1, body_grace_s=60.0)


@pytest.fixture
async def front(broker, limits, keys, budgets):
    front = HttpFront(
        broker,
        port=0,
        limits=limits,
        budgets=budgets,
        entrance=Entrance(authenticator=Authenticator(keys.checks), keys=keys),
    )
    await front.start()
    yield front
    await front.stop()


async def key(keys: Keys, name: str) -> str:
    made = await keys.create_key(name, name="", role="producer", prefixes=("",), expires_ms=0)
    return made.secret


class Upload:
    """A chunked publish that goes on and on."""

    def __init__(self, reader, writer) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def begin(cls, front, token: str) -> Upload:
        upload = cls(*await asyncio.open_connection("127.0.0.1", front.port))
        upload.writer.write(
            b"POST /topics/orders/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
            b"\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer %s\r\n\r\n" % token.encode()
        )
        return upload

    def send(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    async def answer(self) -> tuple[int, dict]:
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 30)
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
        return int(head.split()[1]), json.loads(await self.reader.readexactly(length))


async def publish(client, token: str, size: int = 1):
    headers = {"Authorization": f"Bearer {token}"}
    return await client.post("/topics/orders/messages", {"value": "v" * size}, headers=headers)


async def test_trickled_uploads_hold_what_has_arrived(
    front, keys, client, orders, budgets, eventually
) -> None:
    greedy, other = await key(keys, "greedy"), await key(keys, "other")
    uploads = [await Upload.begin(front, greedy) for _ in range(20)]
    for upload in uploads:
        upload.send(b" " * 1000)

    await eventually(lambda: budgets[Kind.BODIES].held_by("key greedy") == 20_000)

    assert (await publish(client, greedy)).status == 200, "16 MiB each are reserved by none"
    assert (await publish(client, other, 700_000)).status == 200
    for upload in uploads:
        upload.writer.close()
    await eventually(lambda: budgets[Kind.BODIES].used == 0)


async def test_uploads_of_one_key_are_refused_at_its_bound_and_others_are_served(
    front, keys, client, orders, budgets, eventually
) -> None:
    greedy, other = await key(keys, "greedy"), await key(keys, "other")
    uploads = [await Upload.begin(front, greedy) for _ in range(8)]
    for upload in uploads:
        upload.send(b" " * 200_000)
    answers = [asyncio.create_task(upload.answer()) for upload in uploads]

    await eventually(lambda: sum(one.done() for one in answers) >= 3)

    for one in answers:
        if one.done():
            status, body = one.result()
            assert (status, body["code"]) == (429, "over_budget")
            assert (body["kind"], body["bound"]) == ("bodies", "holder")
        one.cancel()
    assert (await publish(client, other, 100_000)).status == 200
    for upload in uploads:
        upload.writer.close()
    await eventually(lambda: budgets[Kind.BODIES].used == 0)


FORM = b"POST /ui/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"


class TestForms:
    @pytest.mark.parametrize(
        "sender",
        [b"", b"Origin: http://y\r\n", b"Origin: http://x\r\n", b"Cookie: goqueue_console=x\r\n"],
    )
    async def test_form_from_elsewhere_is_refused_before_it_is_read(
        self, broker, limits, keys, sender: bytes, client
    ) -> None:
        sessions = _Sessions()
        front = HttpFront(
            broker,
            port=0,
            limits=limits,
            entrance=Entrance(authenticator=Authenticator(keys.checks, sessions=sessions)),
        )
        await front.start()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
            writer.write(FORM + sender + b"Content-Length: 4000\r\n\r\nx")

            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)

            assert int(head.split()[1]) == 403
            writer.close()
        finally:
            await front.stop()

    async def test_forms_have_a_budget_of_their_own(
        self, broker, limits, keys, budgets, orders, eventually
    ) -> None:
        authenticator = Authenticator(keys.checks, sessions=_Sessions())
        front = HttpFront(
            broker,
            port=0,
            limits=limits,
            budgets=budgets,
            entrance=Entrance(authenticator=authenticator),
        )
        await front.start()
        sender = b"Origin: http://x\r\nCookie: goqueue_console=" + b"v" * 22 + b"\r\n"
        opened = []
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
            writer.write(FORM + sender + b"Content-Length: 1000\r\n\r\n" + b"x" * 500)
            opened.append((reader, writer))
        refused = [asyncio.create_task(reader.readuntil(b"\r\n\r\n")) for reader, _ in opened]

        await eventually(lambda: sum(one.done() for one in refused) == 16)

        assert {one.result().split()[1] for one in refused if one.done()} == {b"429"}
        assert budgets[Kind.FORMS].used == 4 * 500
        assert budgets[Kind.BODIES].used == 0
        for one in refused:
            one.cancel()
        for _, writer in opened:
            writer.close()
        await eventually(lambda: budgets[Kind.FORMS].used == 0)
        await front.stop()


class _Sessions:
    form_key = b"k" * 32

    def begin(self, token):
        raise AssertionError

    def principal(self, session):
        raise AssertionError


class TestInflation:
    @pytest.mark.parametrize("at_once", [1, 1000, 2**20])
    @pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
    def test_what_arrives_is_inflated_a_slice_at_a_time(self, pack, at_once: int) -> None:
        plain = b"\0" * 3_000_000 + os.urandom(2000) + b"the end"
        packed, inflation = pack(plain), Inflation()
        pieces = [
            piece
            for at in range(0, len(packed), at_once)
            for piece in inflation.pieces(packed[at : at + at_once])
        ]
        inflation.finish()

        assert b"".join(pieces) == plain
        assert max(map(len, pieces)) <= SLICE_BYTES

    @pytest.mark.parametrize("size", [0, 1, SLICE_BYTES - 1, SLICE_BYTES, 2 * SLICE_BYTES])
    def test_ends_are_found_at_the_bounds_of_slices(self, size: int) -> None:
        inflation = Inflation()

        assert b"".join(inflation.pieces(gzip.compress(b"x" * size))) == b"x" * size
        inflation.finish()

    def test_what_ends_early_or_goes_on_is_refused(self) -> None:
        packed = gzip.compress(b"some text")
        inflation = Inflation()
        list(inflation.pieces(packed[:-1]))
        with pytest.raises(BadRequest):
            inflation.finish()
        list(inflation.pieces(packed[-1:]))
        inflation.finish()
        with pytest.raises(BadRequest):
            list(inflation.pieces(b"x"))
        with pytest.raises(BadRequest):
            list(Inflation().pieces(packed + b"x"))
