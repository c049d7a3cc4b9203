"""Certificates rotated on disk, as cert-manager and the kubelet do it; real TLS on loopback."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from structlog.testing import capture_logs

from goqueue import AsyncClient
from goqueue.errors import GoQueueError
from node.broker.node import NodeBroker
from node.http.auth.csrf_guard import CsrfGuard
from node.http.server.app import Entrance, HttpFront
from node.metrics import Metrics
from node.security.certificate_dates import expiry_s
from node.security.certificates import Certificates, PeerCertificates, server_context
from raft.link import PeerTls
from tests.certificates import LOOPBACK, Authority, Mounted, Pair
from tests.one_node import one_node

DAY_S = 86_400


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path / "tls")


class Door:
    """A front with HTTPS whose files a test rotates."""

    def __init__(
        self, broker: NodeBroker, mounted: Mounted, authority: Authority, *, mutual: bool = False
    ) -> None:
        self.mounted, self.authority = mounted, authority
        self.metrics = Metrics()
        self.rotate(days=30)
        cert, key, ca = self.files
        files = (cert, key, ca if mutual else "")
        self.certificates = Certificates(
            "client", files, (lambda: server_context(*files),), self.metrics, check_s=3600
        )
        self.front = HttpFront(
            broker,
            port=0,
            entrance=Entrance(
                ssl_context=self.certificates.contexts[0],
                csrf_guard=CsrfGuard(needs_certificate=mutual),
            ),
        )

    @property
    def url(self) -> str:
        return f"https://localhost:{self.front.port}"

    def rotate(self, *, days: float, authority: Authority | None = None) -> Pair:
        signer = authority or self.authority
        pair = signer.sign("localhost", *LOOPBACK, days=days)
        self.files = self.mounted.write(pair, signer)
        return pair

    async def served(self, trust: Authority | None = None) -> bytes:
        """The DER of the certificate that a new connection is shown."""
        context = (trust or self.authority).trust()
        _, writer = await asyncio.open_connection("localhost", self.front.port, ssl=context)
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return shown

    def days_left(self) -> float:
        return self._value("goqueue_certificate_days_left")

    def reloads(self, result: str) -> float:
        return self._value("goqueue_certificate_reloads_total", f',result="{result}"')

    def _value(self, name: str, more: str = "") -> float:
        text = self.metrics.render()[0].decode()
        wanted = f'{name}{{door="client"{more}}} '
        return next((float(x[len(wanted) :]) for x in text.splitlines() if x.startswith(wanted)), 0)


Opens = Callable[..., Any]


@pytest.fixture
async def opens(mounted: Mounted, authority: Authority) -> AsyncIterator[Opens]:
    doors: list[Door] = []

    async with one_node() as node:

        async def open_door(**options: Any) -> Door:
            door = Door(node.broker, mounted, authority, **options)
            await door.certificates.start()
            await door.front.start()
            doors.append(door)
            return door

        yield open_door
        for door in doors:
            await door.front.stop()
            await door.certificates.stop()


def der(pair: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.certificate.decode())


async def test_rotated_certificate_serves_the_next_connection_and_cuts_none(opens: Opens) -> None:
    door = await opens()
    assert round(door.days_left()) == 30
    async with aiohttp.ClientSession() as session:
        trust = door.authority.trust()
        async with session.get(f"{door.url}/livez", ssl=trust) as before:
            assert before.status == 200

        fresh = door.rotate(days=90)
        await door.certificates.check()

        assert await door.served() == der(fresh)
        async with session.get(f"{door.url}/livez", ssl=trust) as kept:
            assert kept.status == 200, "the connection from before goes on"
        assert door.front.connections == 1
    assert round(door.days_left()) == 90
    assert door.reloads("taken") == 1


async def test_half_written_pair_keeps_the_old_one_and_says_so_once(opens: Opens) -> None:
    door = await opens()
    before = await door.served()
    one, other = (door.authority.sign("localhost", *LOOPBACK) for _ in range(2))

    for broken in (Pair(one.certificate, other.key), Pair(one.certificate[:200], one.key)):
        door.mounted.write(broken, door.authority)
        with capture_logs() as told:
            for _ in range(3):
                await door.certificates.check()
        assert await door.served() == before
        assert [line["event"] for line in told] == ["certificate_not_usable"]
    assert door.reloads("refused") == 2
    assert round(door.days_left()) == 30

    door.mounted.write(one, door.authority)
    await door.certificates.check()
    assert await door.served() == der(one), "the whole pair is taken"


async def test_files_that_are_gone_keep_the_old_certificate(opens: Opens) -> None:
    door = await opens()
    before = await door.served()
    (door.mounted.folder / "..data").unlink()

    await door.certificates.check()

    assert await door.served() == before


async def test_old_certificate_that_comes_back_after_a_broken_one_is_no_news(opens: Opens) -> None:
    door = await opens()
    good = door.rotate(days=5)
    await door.certificates.check()
    door.mounted.write(Pair(b"", b""), door.authority)
    await door.certificates.check()

    door.mounted.write(good, door.authority)
    await door.certificates.check()

    assert door.reloads("taken") == 1 and door.reloads("refused") == 1


async def test_certificate_that_is_over_counts_below_zero(opens: Opens) -> None:
    door = await opens()
    door.rotate(days=-2)
    await door.certificates.check()

    assert round(door.days_left()) == -2


async def test_plain_http_on_the_port_is_hung_up_on_at_once(opens: Opens) -> None:
    door = await opens()
    reader, writer = await asyncio.open_connection("localhost", door.front.port)
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")

    async with asyncio.timeout(30):
        said = await reader.read()

    assert b"200" not in said and len(said) < 100
    writer.close()
    async with AsyncClient(door.url.replace("https", "http")) as client:
        with pytest.raises(GoQueueError, match="https://"):
            await client.list_topics()


async def test_client_without_a_certificate_gets_probes_only(
    opens: Opens, authority: Authority
) -> None:
    door = await opens(mutual=True)
    certificate, key = authority.issue("reader")
    async with aiohttp.ClientSession() as session:
        for path, status in (("/livez", 200), ("/readyz", 200), ("/topics", 401), ("/ui", 401)):
            async with session.get(door.url + path, ssl=authority.trust()) as answer:
                assert answer.status == status, path
        known = authority.trust()
        known.load_cert_chain(certificate, key)
        async with session.get(f"{door.url}/topics", ssl=known) as answer:
            assert answer.status == 200


async def test_certificate_of_another_authority_is_refused_in_the_handshake(
    opens: Opens, authority: Authority, tmp_path: Path
) -> None:
    door = await opens(mutual=True)
    stranger = authority.trust()
    stranger.load_cert_chain(*Authority(tmp_path, "stranger").issue("reader"))

    async with aiohttp.ClientSession() as session:
        with pytest.raises((aiohttp.ClientError, OSError)):
            await session.get(f"{door.url}/livez", ssl=stranger)


async def test_rotated_authority_decides_whose_clients_are_let_in(
    opens: Opens, authority: Authority, tmp_path: Path
) -> None:
    door = await opens(mutual=True)
    successor = Authority(tmp_path, "successor")
    door.rotate(days=3, authority=successor)
    await door.certificates.check()
    context = successor.trust()
    context.load_cert_chain(*successor.issue("reader"))
    former = successor.trust()
    former.load_cert_chain(*authority.issue("reader"))

    async with aiohttp.ClientSession() as session:
        async with session.get(f"{door.url}/topics", ssl=context) as answer:
            assert answer.status == 200
        with pytest.raises((aiohttp.ClientError, OSError)):
            await session.get(f"{door.url}/topics", ssl=former)


async def test_key_with_a_password_fails_the_start_and_asks_nobody(
    authority: Authority, mounted: Mounted
) -> None:
    locked = serialization.BestAvailableEncryption(b"secret")
    files = mounted.write(authority.sign("localhost", encryption=locked), authority)
    builds = (lambda: server_context(*files[:2]),)

    with pytest.raises(ssl.SSLError, match="encrypted"):
        await Certificates("client", files[:2], builds, Metrics()).start()


async def test_peers_contexts_follow_their_files_in_both_directions(
    authority: Authority, mounted: Mounted
) -> None:
    files = mounted.write(authority.sign("a", x509.DNSName("a")), authority)
    peers = PeerCertificates(PeerTls(*files), Metrics())
    await peers.start()
    serving, dialing = peers.server_context(), peers.client_context()
    fresh = authority.sign("a", x509.DNSName("a"))
    mounted.write(fresh, authority)
    await peers.check()
    await peers.stop()

    shown: list[bytes] = []

    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown.append(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=serving)
    address = server.sockets[0].getsockname()
    reader, writer = await asyncio.open_connection(*address, ssl=dialing, server_hostname="a")
    shown.append(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
    await reader.read()
    writer.close()
    server.close()

    assert shown == [der(fresh)] * 2


@pytest.mark.parametrize("days", [1.0, 400.0, 9000.0, 20_000.0])
def test_end_of_a_certificate_is_read(authority: Authority, days: float) -> None:
    pair = authority.sign("a name of some length", *LOOPBACK, days=days)
    known = x509.load_pem_x509_certificate(pair.certificate).not_valid_after_utc

    assert expiry_s(pair.certificate.decode()) == known.timestamp()
    assert abs(known.timestamp() - datetime.now(UTC).timestamp() - days * DAY_S) < 60


@pytest.mark.parametrize(
    "pem", ["", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----"]
)
def test_what_is_no_certificate_has_no_end(pem: str) -> None:
    with pytest.raises(ValueError, match="certificate"):
        expiry_s(pem)
