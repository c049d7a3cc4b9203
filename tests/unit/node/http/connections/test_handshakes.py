"""HTTPS connections count from accept on: who never ends a handshake holds few, and not long."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.broker.node import NodeBroker
from node.http.budget.limits import HttpLimits
from node.http.connections.listener import TOLD_AT_ONCE
from node.http.server.app import Entrance, HttpFront
from node.security.certificates import server_context
from tests.certificates import LOOPBACK, Authority
from tests.ports import free_ports

HOST, OTHER_HOST = "127.0.0.1", "127.0.0.2"
CONNECTIONS, FROM_ADDRESS = 20, 12
HELLO_BEGUN = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
NO_LINGER = struct.pack("ii", 1, 0)


@pytest.fixture
def limits() -> HttpLimits:
    return HttpLimits(connections_max=CONNECTIONS, connections_per_address_max=CONNECTIONS)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def front(broker: NodeBroker, limits: HttpLimits, authority: Authority):
    certificate, key = authority.issue("localhost", *LOOPBACK)
    context = server_context(str(certificate), str(key))
    front = HttpFront(broker, port=0, limits=limits, entrance=Entrance(ssl_context=context))
    await front.start()
    yield front
    await front.stop()


class Silent:
    """Connections that send nothing by themselves."""

    def __init__(self) -> None:
        self.held: list[socket.socket] = []

    def open(self, front: HttpFront, source: str = HOST) -> socket.socket:
        """The kernel accepts it; the front does once the loop runs."""
        made = socket.create_connection((HOST, front.port), 5, (source, 0))
        made.setblocking(False)
        self.held.append(made)
        return made

    def close(self) -> None:
        for made in self.held:
            made.close()
        self.held.clear()

    @property
    def open_count(self) -> int:
        return sum(not is_closed(made) for made in self.held)


def is_closed(made: socket.socket) -> bool:
    """Whether the other side closed it."""
    try:
        return not made.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def end_handshake(authority: Authority, tcp: socket.socket) -> ssl.SSLSocket:
    return authority.trust().wrap_socket(tcp, server_hostname="localhost")


@pytest.fixture
def silent() -> Iterator[Silent]:
    made = Silent()
    yield made
    made.close()


class Client:
    """A TLS connection that is used again and again."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, front: HttpFront, authority: Authority, source: str = HOST) -> Client:
        opening = asyncio.open_connection(
            HOST, front.port, ssl=authority.trust(), local_addr=(source, 0)
        )
        return cls(*await asyncio.wait_for(opening, 30))

    async def status(self) -> int:
        with contextlib.suppress(ConnectionError):  # refused, and told why
            self.writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 30)
        await self.reader.readexactly(int(head.partition(b"Content-Length: ")[2].split(b"\r")[0]))
        return int(head.split()[1])

    def close(self) -> None:
        self.writer.close()


async def test_connections_that_send_nothing_are_bounded_and_others_served(
    front, authority, silent, eventually
) -> None:
    working = await Client.connect(front, authority)
    assert await working.status() == 200

    for _ in range(10 * CONNECTIONS):
        silent.open(front)
    await eventually(lambda: silent.open_count + 1 == CONNECTIONS + TOLD_AT_ONCE)

    assert front.connections == CONNECTIONS + TOLD_AT_ONCE
    assert not any(map(is_closed, silent.held[-CONNECTIONS:])), "the oldest make room"
    late = await Client.connect(front, authority)
    assert await late.status() == 200
    assert await working.status() == 200, "a working connection is not harmed"

    for client in (working, late):
        client.close()
    silent.close()
    await eventually(lambda: front.connections == 0)


async def test_burst_holds_no_more_files_than_the_cap(front, silent) -> None:
    for _ in range(10 * CONNECTIONS):
        silent.open(front)
    last_to_go = silent.held[-CONNECTIONS - TOLD_AT_ONCE - 1]
    before, most = len(os.listdir("/dev/fd")), 0
    loop = asyncio.get_running_loop()
    over_s = loop.time() + 30

    while not is_closed(last_to_go) and loop.time() < over_s:
        most = max(most, len(os.listdir("/dev/fd")) - before)
        await asyncio.sleep(0)

    assert is_closed(last_to_go)
    assert most <= CONNECTIONS + TOLD_AT_ONCE + 4, "those being closed are some"


async def test_where_all_are_in_use_the_next_is_told_so_and_none_is_cut(
    front, authority, eventually
) -> None:
    working = [await Client.connect(front, authority) for _ in range(CONNECTIONS)]
    assert [await client.status() for client in working] == [200] * CONNECTIONS

    refused = await Client.connect(front, authority)
    assert await refused.status() == 503

    refused.close()
    assert [await client.status() for client in working] == [200] * CONNECTIONS
    for client in working:
        client.close()
    await eventually(lambda: front.connections == 0)


async def test_refused_ones_that_never_say_goodbye_hold_few_files(
    front, authority, silent, eventually
) -> None:
    working = [await Client.connect(front, authority) for _ in range(CONNECTIONS)]
    assert [await client.status() for client in working] == [200] * CONNECTIONS

    for _ in range(TOLD_AT_ONCE):  # a plain SSLSocket answers the end of TLS only where asked to
        tcp = socket.create_connection((HOST, front.port), 5)
        silent.held.append(await asyncio.to_thread(end_handshake, authority, tcp))
    with pytest.raises((OSError, EOFError)):
        await Client.connect(front, authority)

    assert front.connections == CONNECTIONS + TOLD_AT_ONCE
    assert [await client.status() for client in working] == [200] * CONNECTIONS
    for client in working:
        client.close()
    silent.close()
    await eventually(lambda: front.connections == 0)


class TestAddresses:
    @pytest.fixture
    def limits(self) -> HttpLimits:
        return HttpLimits(
            connections_max=10 * CONNECTIONS, connections_per_address_max=FROM_ADDRESS
        )

    async def test_flood_from_one_address_takes_no_room_of_another(
        self, front, authority, silent, eventually
    ) -> None:
        other = silent.open(front)
        flood = Silent()

        for _ in range(10 * FROM_ADDRESS):
            flood.open(front, OTHER_HOST)
        await eventually(lambda: flood.open_count == FROM_ADDRESS + TOLD_AT_ONCE)

        assert not is_closed(other)
        client = await Client.connect(front, authority, OTHER_HOST)
        assert await client.status() == 200
        client.close()
        flood.close()
        await eventually(lambda: front.connections == 1)


class TestDeadline:
    @pytest.fixture
    def limits(self) -> HttpLimits:
        return HttpLimits(tls_handshake_s=0.2)

    async def test_handshake_has_a_deadline_however_it_dribbles(
        self, front, silent, eventually
    ) -> None:
        for _ in range(5):
            silent.open(front)
        dribbling = silent.open(front)

        for at in range(100):
            with contextlib.suppress(ConnectionError):
                dribbling.send(HELLO_BEGUN[at : at + 1] or b"\0")
            if is_closed(dribbling):
                break
            await asyncio.sleep(0.02)

        await eventually(lambda: silent.open_count == 0)
        await eventually(lambda: front.connections == 0)

    async def test_connection_outlives_the_deadline(self, front, authority) -> None:
        client = await Client.connect(front, authority)
        await asyncio.sleep(0.4)

        assert await client.status() == 200
        client.close()


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize(
    "said", [b"", HELLO_BEGUN, b"GET / HTTP/1.1\r\n\r\n"], ids=["silent", "begun", "plain"]
)
async def test_client_that_vanishes_in_its_handshake_is_not_counted_any_more(
    front, silent, eventually, said: bytes, is_reset: bool
) -> None:
    for _ in range(5):
        made = silent.open(front)
        made.send(said)
        if is_reset:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    early = silent.held.pop()
    early.close()  # before it was accepted
    await eventually(lambda: front.connections == 4 or said.startswith(b"GET"))

    silent.close()

    await eventually(lambda: front.connections == 0)
    assert not len(front._server.crowd.handshakes)


async def test_stop_closes_what_is_in_its_handshake_and_the_port(front, silent, eventually) -> None:
    for _ in range(5):
        silent.open(front)
    await eventually(lambda: front.connections == 5)
    port = front.port

    await asyncio.wait_for(front.stop(), 30)

    await eventually(lambda: silent.open_count == 0)
    with pytest.raises(OSError):
        socket.create_connection((HOST, port), 5)


async def test_port_that_is_taken_is_told_and_nothing_stays_open(broker, front, authority) -> None:
    context = server_context(*map(str, authority.issue("other", *LOOPBACK)))
    before = len(os.listdir("/dev/fd"))

    with pytest.raises(OSError):
        await HttpFront(broker, port=front.port, entrance=Entrance(ssl_context=context)).start()

    assert len(os.listdir("/dev/fd")) == before


async def test_all_addresses_of_a_host_are_served(broker, authority) -> None:
    certificate, key = authority.issue("localhost", *LOOPBACK)
    context = server_context(str(certificate), str(key))
    front = HttpFront(
        broker, host="", port=free_ports(1)[0], entrance=Entrance(ssl_context=context)
    )
    await front.start()
    try:
        client = await Client.connect(front, authority, OTHER_HOST)
        assert await client.status() == 200
        client.close()
    finally:
        await front.stop()
