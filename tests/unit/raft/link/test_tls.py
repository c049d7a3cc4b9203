"""Mutual TLS between peers, with certificates made here."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from goqueue.wire.types import NodeId
from log.levels import Spoken
from raft.link import LEVELS, PeerTls
from raft.link.tls import certificate_nodes
from tests import certificates
from tests.unit.raft.link.conftest import GROUP, QUICK, Cluster, eventually

A, B = NodeId("a"), NodeId("b")


class Authority(certificates.Authority):
    """Issues what a mesh takes."""

    def peer(self, common_name: str, *alternatives: x509.GeneralName) -> PeerTls:
        certificate, key = self.issue(common_name, *alternatives)
        return PeerTls(str(certificate), str(key), str(self.path))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def test_certificates_replace_the_secret(cluster: Cluster, authority: Authority) -> None:
    cluster.reserve("a", "b")
    a = cluster.node("a", secret=b"one", tls=authority.peer("x", x509.DNSName("a.peers.svc")))
    b = cluster.node(
        "b",
        secret=b"two",
        tls=authority.peer("y", x509.UniformResourceIdentifier("goqueue://node/b")),
        incarnation=9,
    )
    await a.mesh.start()
    await b.mesh.start()
    await eventually(lambda: a.is_up(b) and b.is_up(a))

    assert a.mesh.connected()[B] == {"name": "b", "incarnation": 9, LEVELS: Spoken()}
    assert a.mesh.send(B, GROUP, [bytes(3_000_000)])
    await eventually(lambda: [len(f) for _, _, f in b.frames] == [3_000_000])


async def test_traffic_is_encrypted(cluster: Cluster, authority: Authority) -> None:
    cluster.reserve("a", "b")
    seen = bytearray()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward_writer = await asyncio.open_connection(*cluster.addresses[B])

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(4096):
                seen.extend(data)
                sink.write(data)
            sink.close()

        await asyncio.gather(pump(reader, onward_writer), pump(onward_reader, writer))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    a = cluster.node("a", tls=authority.peer("a"), peers={B: server.sockets[0].getsockname()})
    b = cluster.node("b", tls=authority.peer("b"), peers={A: ("127.0.0.1", 1)})
    await b.mesh.start()
    await a.mesh.start()
    await eventually(lambda: a.is_up(b) and b.is_up(a))

    a.mesh.send(B, GROUP, [b"a confidential record"])
    await eventually(lambda: len(b.frames) == 1)

    assert len(seen) > 500
    assert b"confidential" not in seen
    assert b"GQPEER" not in seen
    server.close()


async def test_certificate_of_another_node_is_refused(
    cluster: Cluster, authority: Authority
) -> None:
    cluster.reserve("a", "b")
    a = cluster.node("a", tls=authority.peer("a", x509.DNSName("a")))
    impostor = cluster.node("b", tls=authority.peer("c", x509.DNSName("c")))
    await a.mesh.start()
    await impostor.mesh.start()

    complaints = (a.mesh._peer(B), impostor.mesh._peer(A))
    await eventually(lambda: any("does not stand for b" in p.complaint for p in complaints))
    assert not a.events and not impostor.events


async def test_certificate_of_another_authority_is_refused(
    cluster: Cluster, authority: Authority, tmp_path: Path
) -> None:
    cluster.reserve("a", "b")
    a = cluster.node("a", tls=authority.peer("a"))
    stranger = cluster.node("b", tls=Authority(tmp_path, "stranger").peer("b"))
    await a.mesh.start()
    await stranger.mesh.start()

    await eventually(lambda: "certificate" in a.mesh._peer(B).complaint.lower())
    assert not a.events and not stranger.events


async def test_client_without_a_certificate_or_without_tls_gets_nothing(
    cluster: Cluster, authority: Authority
) -> None:
    a = cluster.node("a", tls=authority.peer("a"))
    await a.mesh.start()
    bare = ssl.create_default_context(cafile=str(authority.path))
    bare.check_hostname = False

    for context in (bare, None):
        with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError)):
            reader, writer = await asyncio.open_connection(*a.mesh.address, ssl=context)
            writer.write(bytes(300))
            await asyncio.wait_for(reader.readexactly(1), 30)

    assert not a.events


async def test_missing_certificate_file_fails_the_start(
    cluster: Cluster, authority: Authority
) -> None:
    node = cluster.node("a", tls=PeerTls("/nowhere.pem", "/nowhere.key", "/nowhere.ca"))

    with pytest.raises(OSError):
        await node.mesh.start()


def test_certificate_stands_for_its_alternative_names() -> None:
    subject = ((("commonName", "node-0"),),)

    assert certificate_nodes({"subject": subject}) == {"node-0"}
    assert certificate_nodes(
        {"subject": subject, "subjectAltName": (("DNS", "q-1.peers.svc"), ("DNS", "*.peers.svc"))}
    ) == {"q-1", "q-1.peers.svc"}
    assert certificate_nodes({"subjectAltName": (("URI", "goqueue://node/q-2"),)}) == {"q-2"}
    assert certificate_nodes({"subjectAltName": (("IP Address", "10.0.0.1"),)}) == frozenset()
    assert certificate_nodes(None) == frozenset()


async def test_flood_of_connections_that_never_finish_tls_is_bounded(
    cluster: Cluster, authority: Authority
) -> None:
    cluster.reserve("a", "b")
    slow = dataclasses.replace(QUICK, handshake_s=60.0)
    a = cluster.node("a", tls=authority.peer("a"), limits=slow)
    b = cluster.node("b", tls=authority.peer("b"), limits=slow)
    await a.mesh.start()
    listener = a.mesh._listener
    assert listener is not None

    streams = [await asyncio.open_connection(*a.mesh.address) for _ in range(300)]
    await eventually(lambda: sum(r.at_eof() for r, _ in streams) >= 300 - QUICK.unauthenticated_max)
    assert listener.preparing_count <= QUICK.unauthenticated_max
    await b.mesh.start()

    await eventually(lambda: a.is_up(b) and b.is_up(a))
    for _, writer in streams:
        writer.close()


async def test_connection_that_never_finishes_tls_is_dropped_in_time(
    cluster: Cluster, authority: Authority
) -> None:
    a = cluster.node("a", tls=authority.peer("a"))
    await a.mesh.start()
    reader, writer = await asyncio.open_connection(*a.mesh.address)

    async with asyncio.timeout(30):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()
