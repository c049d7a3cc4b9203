"""Handshakes that fail are counted by kind, and logged at a bounded rate."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from goqueue.wire.types import Incarnation, NodeId
from raft.link.failed import FailedHandshakes, Failure
from raft.link.handshake import NONCE_BYTES, Dialer, Identity
from tests.unit.raft.link.conftest import Cluster, Node, eventually
from tests.unit.raft.link.test_tls import Authority

EVE = NodeId("eve")


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def lines(logs: list[Any]) -> list[Any]:
    return [line for line in logs if line["event"] == "peer_handshake_failed"]


def test_flood_is_one_line_a_minute_of_each_kind_that_tells_how_many() -> None:
    clock = Clock()
    failed = FailedHandshakes(clock)

    with capture_logs() as logs:
        for second in range(121):
            clock.now_s = 1000.0 + second
            for _ in range(50):
                failed.add(Failure.PROOF, "another secret", ("10.0.0.9", 4711), "n2")
            failed.add(Failure.TLS, "x" * 4000, ("10.0.0.8", 4711))

    told = [line for line in lines(logs) if line["failure"] == "proof"]
    assert [line["count"] for line in told] == [1, 3000, 3000]
    assert (told[0]["address"], told[0]["claims"]) == ("10.0.0.9", "n2")
    assert told[0]["log_level"] == "warning"
    assert len(lines(logs)) == 6
    assert all(len(line["reason"]) <= 200 for line in lines(logs))
    assert failed.counts == {
        "tls": 121, "proof": 6050, "malformed": 0, "refused": 0, "unfinished": 0,
    }  # fmt: skip


async def knock(node: Node, data: bytes, secret: bytes = b"") -> None:
    """Sends that, or a whole handshake with a secret, until the node hangs up."""
    reader, writer = await asyncio.open_connection(*node.mesh.address)
    dialer = Dialer(Identity(EVE, Incarnation(6)), secret, os.urandom(NONCE_BYTES), node.id)
    writer.write(data or dialer.start())
    with contextlib.suppress(ConnectionError, RuntimeError):
        async with asyncio.timeout(30):
            while received := await reader.read(65536):
                with contextlib.suppress(Exception):
                    writer.write(dialer.feed(received))
    writer.close()


async def test_stranger_is_counted_and_named_in_the_log(cluster: Cluster) -> None:
    node = cluster.node("a")
    await node.mesh.start()
    counts = node.mesh.failed_handshakes.counts

    with capture_logs() as logs:
        for _ in range(3):
            await knock(node, b"", b"a guess at the secret")
            await knock(node, b"GET / HTTP/1.1\r\n\r\n")
        _, writer = await asyncio.open_connection(*node.mesh.address)
        writer.close()
        await eventually(lambda: sum(counts.values()) == 7)

    assert (counts["proof"], counts["malformed"], counts["unfinished"]) == (3, 3, 1)
    told = {line["failure"]: line for line in lines(logs)}
    assert told["proof"]["address"] == "127.0.0.1"
    assert told["proof"]["claims"] == EVE
    assert "another cluster secret" in told["proof"]["reason"]
    assert len(lines(logs)) == 3


async def test_tls_that_fails_is_counted(cluster: Cluster, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    node = cluster.node("a", tls=authority.peer("a"))
    await node.mesh.start()
    counts = node.mesh.failed_handshakes.counts
    bare = ssl.create_default_context(cafile=str(authority.path))
    bare.check_hostname = False

    with capture_logs() as logs:
        with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError)):
            reader, writer = await asyncio.open_connection(*node.mesh.address, ssl=bare)
            writer.write(bytes(300))
            await asyncio.wait_for(reader.readexactly(1), 30)
        await eventually(lambda: counts["tls"] == 1)

    assert lines(logs)[0]["address"] == "127.0.0.1"


async def test_peer_that_is_proven_and_not_let_in_is_counted(cluster: Cluster) -> None:
    cluster.reserve("a", "b")
    node = cluster.node("a", peers={})
    stranger = cluster.node("b")
    await node.mesh.start()
    await stranger.mesh.start()

    await eventually(lambda: node.mesh.failed_handshakes.counts["refused"] > 0)
    await eventually(lambda: stranger.mesh.failed_handshakes.counts["refused"] > 0)


async def test_links_of_honest_peers_fail_no_handshake(cluster: Cluster) -> None:
    nodes = await cluster.started("a", "b", "c")

    for node in nodes:
        counts = node.mesh.failed_handshakes.counts
        assert sum(counts.values()) == counts["unfinished"]
