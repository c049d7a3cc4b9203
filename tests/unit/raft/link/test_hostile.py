"""Hostile bytes on the peer port: dropped in time, bounded in memory, nothing executed.

An honest pair of nodes runs beside every attack and must not notice it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import struct
import sys
import tracemalloc
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from goqueue.wire.types import Incarnation, NodeId
from raft.link.config import KIB, MIB
from raft.link.frames import Kind, Outbox, Sealer
from raft.link.handshake import NONCE_BYTES, Dialer, Identity
from tests.unit.raft.link.conftest import QUICK, SECRET, Cluster, Node, eventually

A, B, EVE = NodeId("a"), NodeId("b"), NodeId("eve")
_EXECUTION = ("exec", "pickle.find_class", "marshal.loads", "os.system", "subprocess.Popen")
_BROKEN = (ConnectionError, RuntimeError)  # the latter is uvloop's word for a closed transport
_executed: list[str] = []
_watching = False


def _audit(event: str, _args: object) -> None:
    if _watching and event in _EXECUTION and not _is_import():
        _executed.append(event)


def _is_import() -> bool:
    frame = sys._getframe()
    while frame is not None and "importlib" not in frame.f_code.co_filename:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


sys.addaudithook(_audit)


@pytest.fixture
def nothing_executed() -> Iterator[None]:
    """Fail when the interpreter runs code, unpickles or starts a process during the test."""
    global _watching
    _executed.clear()
    _watching = True
    yield
    _watching = False
    assert _executed == []


@pytest.fixture
async def honest(cluster: Cluster) -> AsyncIterator[tuple[Node, Node]]:
    cluster.reserve("a", "b", "eve")
    a, b = cluster.node("a"), cluster.node("b")
    await a.mesh.start()
    await b.mesh.start()
    await eventually(lambda: a.is_up(b) and b.is_up(a))

    async def echo(_node: NodeId, payload: bytes) -> bytes:
        return payload

    a.mesh.handle("echo", echo)
    yield a, b
    assert await b.mesh.request(A, "echo", b"still here", 5) == b"still here"
    assert ("down", B) not in a.events and ("down", A) not in b.events
    assert not any(event == ("up", EVE) for event in b.events)


async def dropped(reader: asyncio.StreamReader, deadline_s: float = 30.0) -> bytes:
    """What was answered until the connection was closed; fails when it is not in time."""
    answered = b""
    async with asyncio.timeout(deadline_s):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                answered += data
    return answered


async def push(writer: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(*_BROKEN):
        writer.write(data)
        await writer.drain()


class Insider:
    """A connection that holds the secret and then misbehaves."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.outbox = Outbox()
        self.sent = bytearray()

    @classmethod
    async def enter(cls, node: Node, *, hello: bool = True) -> Insider:
        insider = cls(*await asyncio.open_connection(*node.mesh.address))
        me = Identity(EVE, Incarnation(6))
        dialer = Dialer(me, SECRET, os.urandom(NONCE_BYTES), node.id)
        insider.write(dialer.start())
        while dialer.keys is None:
            insider.write(dialer.feed(await insider.reader.read(65536)))
        insider.sealer = Sealer(dialer.keys.send)
        if hello:
            insider.outbox.put_urgent(Kind.STATUS, msgspec.msgpack.encode({}))
            insider.flush()
            await eventually(lambda: EVE in node.mesh.connected())
        return insider

    sealer: Sealer

    def write(self, data: bytes) -> None:
        self.sent += data
        self.writer.write(data)

    def flush(self) -> None:
        while (body := self.outbox.take_body()) is not None:
            self.write(b"".join(self.sealer.seal(body)))

    def say(self, kind: int, payload: bytes) -> None:
        body = struct.pack("<IB", len(payload), kind) + payload
        self.write(b"".join(self.sealer.seal(body)))


@pytest.mark.usefixtures("nothing_executed")
async def test_random_bytes_are_dropped_at_once(honest: tuple[Node, Node]) -> None:
    a, _ = honest
    rng = random.Random(1)
    for _ in range(150):
        reader, writer = await asyncio.open_connection(*a.mesh.address)
        await push(writer, b"\xff" + rng.randbytes(rng.randrange(2, 5000)))
        await dropped(reader)
        writer.close()


@pytest.mark.usefixtures("nothing_executed")
async def test_other_protocols_are_dropped(honest: tuple[Node, Node]) -> None:
    a, _ = honest
    pickled = b"cos\nsystem\n(S'touch /tmp/owned'\ntR."
    for greeting in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(512),
        struct.pack("<i", len(pickled)) + pickled,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection(*a.mesh.address)
        await push(writer, greeting)
        assert b"root" not in await dropped(reader)
        writer.close()


async def test_handshake_cut_short_is_dropped_after_its_time(honest: tuple[Node, Node]) -> None:
    a, _ = honest
    hello = Dialer(Identity(EVE, Incarnation(1)), SECRET, bytes(NONCE_BYTES), A).start()
    for size in (0, 1, 2, 10, len(hello) - 1, len(hello)):
        reader, writer = await asyncio.open_connection(*a.mesh.address)
        await push(writer, hello[:size])
        await dropped(reader)
        writer.close()
    assert not a.mesh._shaking


async def test_dribbled_handshake_has_a_budget_of_bytes_and_time(
    honest: tuple[Node, Node],
) -> None:
    a, _ = honest
    reader, writer = await asyncio.open_connection(*a.mesh.address)
    dribble = asyncio.create_task(_dribble(writer))
    await dropped(reader)
    dribble.cancel()

    reader, writer = await asyncio.open_connection(*a.mesh.address)
    hello = Dialer(Identity(EVE, Incarnation(1)), SECRET, bytes(NONCE_BYTES), A).start()
    await push(writer, hello + bytes(QUICK.handshake_bytes_max))
    assert b"too many bytes" in await dropped(reader)


async def _dribble(writer: asyncio.StreamWriter) -> None:
    hello = Dialer(Identity(EVE, Incarnation(1)), SECRET, bytes(NONCE_BYTES), A).start()
    for at in range(len(hello)):
        await push(writer, hello[at : at + 1])
        await asyncio.sleep(0.03)


async def test_wrong_secret_learns_nothing_and_is_told_so(honest: tuple[Node, Node]) -> None:
    a, _ = honest
    reader, writer = await asyncio.open_connection(*a.mesh.address)
    dialer = Dialer(Identity(B, Incarnation(1)), b"guess", os.urandom(NONCE_BYTES), A)
    await push(writer, dialer.start())
    await push(writer, dialer.feed(await reader.read(4096)))

    answered = await dropped(reader)

    assert b"another cluster secret" in answered
    assert len(answered) < 100


async def test_node_with_another_secret_never_links(cluster: Cluster) -> None:
    cluster.reserve("a", "b")
    a, b = cluster.node("a"), cluster.node("b", secret=b"another")
    await a.mesh.start()
    await b.mesh.start()

    await eventually(lambda: "another cluster secret" in b.mesh._peers[A].complaint)

    assert not a.events and not b.events


async def test_recorded_session_replayed_is_dropped(honest: tuple[Node, Node]) -> None:
    a, _ = honest
    insider = await Insider.enter(a)
    insider.writer.close()
    await eventually(lambda: ("down", EVE) in a.events)
    ups = a.events.count(("up", EVE))

    for step in (1, 50, 10_000):
        reader, writer = await asyncio.open_connection(*a.mesh.address)
        for at in range(0, len(insider.sent), step):
            await push(writer, bytes(insider.sent[at : at + step]))
        await dropped(reader)
        writer.close()

    assert a.events.count(("up", EVE)) == ups


async def test_reflected_handshake_is_dropped(honest: tuple[Node, Node]) -> None:
    """Everything that the node says is said back to it, on the same and on a second connection."""
    a, _ = honest
    first = await asyncio.open_connection(*a.mesh.address)
    second = await asyncio.open_connection(*a.mesh.address)
    hello = Dialer(Identity(B, Incarnation(1)), b"", os.urandom(NONCE_BYTES), A).start()
    await push(first[1], hello)
    challenge = await first[0].read(4096)
    await push(second[1], challenge)
    await push(first[1], challenge)

    await dropped(first[0])
    await dropped(second[0])


async def test_impersonator_on_a_peers_address_gets_no_link_and_no_proof(
    cluster: Cluster,
) -> None:
    cluster.reserve("a", "b")
    heard = bytearray()

    async def bounce(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            heard.extend(data)
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(bounce, *cluster.addresses[B])
    a = cluster.node("a")
    await a.mesh.start()
    await eventually(lambda: a.mesh._peers[B].complaint != "")

    assert not a.events
    assert SECRET not in heard
    server.close()


@pytest.mark.usefixtures("nothing_executed")
async def test_valid_entry_then_junk_cuts_that_connection_only(
    honest: tuple[Node, Node],
) -> None:
    a, _ = honest
    rng = random.Random(2)
    for _ in range(30):
        insider = await Insider.enter(a)
        insider.writer.write(rng.randbytes(rng.randrange(20, 3000)))
        await dropped(insider.reader)
        insider.writer.close()
        await eventually(lambda: EVE not in a.mesh.connected())


@pytest.mark.usefixtures("nothing_executed")
async def test_sealed_junk_of_an_insider_cuts_that_connection_only(
    honest: tuple[Node, Node],
) -> None:
    a, _ = honest
    nested = b"\x81\xa1x" * 100_000
    for kind, payload in (
        (Kind.STATUS, b"\xc1"),
        (Kind.STATUS, msgspec.msgpack.encode([1])),
        (Kind.STATUS, nested[:60_000]),
        (Kind.STATUS, nested),
        (Kind.RAFT, b"short"),
        (Kind.REQUEST, b"\x01"),
        (Kind.REQUEST, struct.pack("<IIB", 1, 1, 255) + b"x"),
        (Kind.ANSWER, b"\x01"),
        (Kind.FAILURE, b"\x01"),
        (Kind.CHUNK, b"\x01"),
        (Kind.CHUNK, struct.pack("<IB", 0xFFFFFFFF, Kind.RAFT) + b"x"),
        (99, b""),
    ):
        insider = await Insider.enter(a)
        insider.say(kind, payload)
        await dropped(insider.reader)
        insider.writer.close()
        await eventually(lambda: EVE not in a.mesh.connected())


@pytest.mark.usefixtures("nothing_executed")
async def test_unknown_request_is_answered_and_runs_nothing(honest: tuple[Node, Node]) -> None:
    a, _ = honest
    insider = await Insider.enter(a)

    for method in (b"__import__('os').system('x')", b"\xff\xfe", b"", b"_tell_status", b"stop"):
        insider.say(Kind.REQUEST, struct.pack("<IIB", 1, 1000, len(method)) + method + b"{}")
    answered = b""
    async with asyncio.timeout(30):
        while answered.count(b"no method") < 5:
            answered += await insider.reader.read(65536)

    insider.writer.close()


async def test_message_before_the_first_status_cuts(honest: tuple[Node, Node]) -> None:
    a, _ = honest
    insider = await Insider.enter(a, hello=False)
    insider.say(Kind.RAFT, bytes(30))

    await dropped(insider.reader)
    assert not any(node == EVE for node, _, _ in a.frames)


async def test_silence_after_the_handshake_is_cut(honest: tuple[Node, Node]) -> None:
    a, _ = honest
    half = await Insider.enter(a, hello=False)
    await dropped(half.reader)
    whole = await Insider.enter(a)
    await dropped(whole.reader)

    await eventually(lambda: EVE not in a.mesh.connected())
    half.writer.close()
    whole.writer.close()


async def test_chunk_flood_holds_no_more_than_the_largest_message(
    honest: tuple[Node, Node],
) -> None:
    a, _ = honest
    insider = await Insider.enter(a)
    chunk = struct.pack("<IB", QUICK.message_bytes_max, Kind.RAFT) + bytes(250 * KIB)
    tracemalloc.start()

    for _ in range(300):
        with contextlib.suppress(*_BROKEN):
            insider.say(Kind.CHUNK, chunk)
            insider.sent.clear()
            await insider.writer.drain()
    await dropped(insider.reader)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < QUICK.message_bytes_max * 1.25 + 8 * MIB
    insider.writer.close()


async def test_flood_of_unfinished_connections_is_bounded(honest: tuple[Node, Node]) -> None:
    a, b = honest
    link = a.mesh._peers[B].link
    connections = []
    tracemalloc.start()

    for _ in range(1000):
        connections.append(await asyncio.open_connection(*a.mesh.address))
        assert len(a.mesh._shaking) <= QUICK.unauthenticated_max + 2
    snapshot = tracemalloc.take_snapshot()
    tracemalloc.stop()
    ours = snapshot.filter_traces([tracemalloc.Filter(True, "*/raft/link/*")])
    held = sum(statistic.size for statistic in ours.statistics("filename"))

    assert held < 2 * MIB
    assert await b.mesh.request(A, "echo", b"amid the flood", 2) == b"amid the flood"
    for reader, _ in connections:
        await dropped(reader)
    for _, writer in connections:
        writer.close()
    assert a.mesh._peers[B].link is link


async def test_link_comes_up_amid_a_flood(cluster: Cluster) -> None:
    cluster.reserve("a", "b")
    a, b = cluster.node("a"), cluster.node("b")
    await a.mesh.start()
    flooding = True
    writers = []

    async def flood() -> None:
        while flooding:
            _, writer = await asyncio.open_connection(*a.mesh.address)
            writers.append(writer)

    task = asyncio.create_task(flood())
    await eventually(lambda: len(writers) > 100)
    await b.mesh.start()
    await eventually(lambda: a.is_up(b) and b.is_up(a))

    flooding = False
    await task
    for writer in writers:
        writer.close()


async def test_stuck_reader_that_asks_much_is_cut_at_the_backlog_limit(
    honest: tuple[Node, Node],
) -> None:
    a, _ = honest
    insider = await Insider.enter(a)
    payload = bytes(200 * KIB)
    head = struct.pack("<IIB", 1, 5000, 4) + b"echo"

    with contextlib.suppress(*_BROKEN, TimeoutError):
        async with asyncio.timeout(30):
            while EVE in a.mesh.connected():
                insider.say(Kind.REQUEST, head + payload)
                insider.sent.clear()
                await insider.writer.drain()
                assert a.mesh.backlog_bytes(EVE) <= QUICK.backlog_bytes_max
                await asyncio.sleep(0)

    await eventually(lambda: EVE not in a.mesh.connected())
    insider.writer.close()
