"""At a cap of connections, the idle ones that nobody knows make room; others are left alone."""

from __future__ import annotations

import asyncio

import pytest

from goqueue.wire.errors import Unavailable
from node.http.auth.authenticator import Authenticator
from node.http.budget.limits import HttpLimits
from node.http.budget.memory import Budgets
from node.http.connections.idle import Idle
from node.http.connections.protocol import FrontServer
from node.http.server.app import Entrance, HttpFront
from tests.one_node import Keys

MOST, MOST_OF_ONE = 12, 8
PROBE = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def limits() -> HttpLimits:
    return HttpLimits(connections_max=MOST, connections_per_address_max=MOST)


@pytest.fixture
async def front(broker, limits, keys):
    front = HttpFront(
        broker,
        port=0,
        limits=limits,
        entrance=Entrance(authenticator=Authenticator(keys.checks), keys=keys),
    )
    await front.start()
    yield front
    await front.stop()


@pytest.fixture
async def token(keys: Keys) -> str:
    made = await keys.create_key("reader", name="", role="readonly", prefixes=("",), expires_ms=0)
    return made.secret


class Opened:
    def __init__(self, reader, writer) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, front) -> Opened:
        return cls(*await asyncio.open_connection("127.0.0.1", front.port))

    async def ask(self, request: bytes) -> int:
        self.writer.write(request)
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 30)
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
        await self.reader.readexactly(length)
        return int(head.split()[1])

    @property
    def is_cut(self) -> bool:
        return self.reader.at_eof() or self.reader.exception() is not None


async def test_newcomers_with_keys_come_in_while_a_flood_holds_idle_connections(
    front, token, eventually
) -> None:
    wanted = f"GET /topics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    known = await Opened.to(front)
    assert await known.ask(wanted) == 200
    flood = [await Opened.to(front) for _ in range(MOST - 1)]
    for number, one in enumerate(flood):  # silent, served without a key, refused, half a head
        if number % 4 == 1:
            assert await one.ask(PROBE) == 200
        elif number % 4 == 2:
            assert await one.ask(wanted.replace(b"Bearer", b"Nobody")) == 401
        elif number % 4 == 3:
            one.writer.write(PROBE[:20])

    newcomers = [await Opened.to(front) for _ in range(4)]
    assert [await one.ask(wanted) for one in newcomers] == [200] * 4

    assert await known.ask(wanted) == 200
    await eventually(lambda: sum(one.is_cut for one in flood) == 4)
    assert front.connections == MOST
    for one in (known, *flood, *newcomers):
        one.writer.close()
    await eventually(lambda: front.connections == 0)
    assert len(front._server.crowd.idle) == 0


async def test_where_all_are_known_the_next_is_told_503(front, token) -> None:
    wanted = f"GET /topics HTTP/1.1\r\nHost: x\r\nX-API-Key: {token}\r\n\r\n".encode()
    known = [await Opened.to(front) for _ in range(MOST)]
    assert {await one.ask(wanted) for one in known} == {200}

    late = await Opened.to(front)
    assert await late.ask(b"") == 503

    assert {await one.ask(wanted) for one in known} == {200}
    for one in (late, *known):
        one.writer.close()


class Wire(asyncio.Transport):
    """A connection from somewhere."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1)})
        self.is_aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True


async def test_an_ipv6_site_is_one_address(monkeypatch) -> None:
    async def serve(request):
        raise AssertionError

    limits = HttpLimits(connections_max=MOST, connections_per_address_max=MOST_OF_ONE)
    server = FrontServer(serve, limits, asyncio.get_running_loop(), Budgets())
    refused: list[Unavailable] = []
    monkeypatch.setattr(
        "node.http.connections.protocol.Connection.refuse", lambda _, error: refused.append(error)
    )
    wires = []

    def come(address: str) -> Wire:
        connection, wire = server(), Wire(address)
        connection.connection_made(wire)
        wires.append(wire)
        return wire

    other = come("2001:db8:0:1::1")
    for host in range(MOST_OF_ONE + 3):
        come(f"2001:db8::{host:x}")

    assert server.crowd.count_from("2001:db8::/64") == MOST_OF_ONE
    assert [wire.is_aborted for wire in wires].count(True) == 3, "its own make room"
    assert not other.is_aborted
    assert server.crowd.open_count == MOST_OF_ONE + 1


def test_the_longest_idle_comes_first_of_an_address_and_of_all() -> None:
    idle = Idle()
    for name, address in (("a", "x"), ("b", "y"), ("c", "x")):
        idle.add(name, address)
    assert (idle.oldest(), idle.oldest("x"), idle.oldest("y")) == ("a", "a", "b")

    idle.add("a", "x")
    idle.remove("b")
    idle.remove("b")

    assert (idle.oldest(), idle.oldest("x"), idle.oldest("y"), len(idle)) == ("c", "c", None, 2)
