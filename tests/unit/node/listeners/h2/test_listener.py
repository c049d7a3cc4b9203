"""Requests over HTTP/2 to a real node: who may, how much, how fast, and what it is told."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from h2.errors import ErrorCodes

from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import Unauthenticated
from goqueue.wire.types import Offset
from node.api.auth.access import Access
from node.api.auth.key_verifier import Origin
from node.api.auth.principal import Principal, Role
from node.api.records import AppendResult
from node.broker.node import NodeBroker
from node.http.auth.admission import Admission
from node.http.budget.limits import HttpLimits
from node.http.budget.memory import Bounds, Budgets, Kind, Owner
from node.http.connections.crowd import Crowd
from node.listeners.h2.bounds import H2Bounds
from node.listeners.h2.listener import H2Listener
from node.listeners.parts import ListenerParts, Tls
from node.security.certificates import h2_context
from tests.certificates import LOOPBACK, Authority
from tests.one_node import Clock, TimedLoop, eventually
from tests.unit.node.listeners.h2.talk import Answer, Talker, h2_node, port_of, talking
from tests.unit.node.listeners.h2.test_transcripts import speaks_http2

ROOT = Path(__file__).resolve().parents[5]
TOKENS = {
    "producer.0123456789abcdef": Principal("producer", Role.PRODUCER, ("foo",)),
    "consumer.0123456789abcdef": Principal("consumer", Role.CONSUMER, ("foo",)),
}


FOR_EVER_S = 1e6


def later(listener: H2Listener, seconds: float) -> None:
    """It looks after its connections as if so much time had passed."""
    listener.look(asyncio.get_running_loop().time() + seconds)


class Keys:
    """A `KeyVerifier` that knows `TOKENS`, until they are revoked."""

    def __init__(self) -> None:
        self.revoked: set[str] = set()

    def known(self, token: str) -> Principal | None:
        return None if token in self.revoked else TOKENS.get(token)

    async def prove(self, token: str, origin: Origin) -> Principal:
        raise Unauthenticated("no such key", reason="unknown")

    def refused(self, result: str) -> None:
        return None

    def denied(self, missing: str) -> None:
        return None


@asynccontextmanager
async def listening(
    broker: NodeBroker,
    *,
    bounds: H2Bounds | None = None,
    tls: Tls | None = None,
    keys: Keys | None = None,
    budgets: Budgets | None = None,
    accesses: list[Access] | None = None,
    **limits: Any,
) -> AsyncIterator[H2Listener]:
    """A listener of its own over a node's broker."""
    chosen = HttpLimits(**{"stream_silence_s": FOR_EVER_S, "drain_s": FOR_EVER_S, **limits})
    parts = ListenerParts(
        broker,
        limits=chosen,
        budgets=budgets or Budgets(),
        crowd=Crowd(chosen),
        admission=Admission(keys),
        on_access=None if accesses is None else accesses.append,
    )
    listener = H2Listener(parts, "127.0.0.1", 0, tls, bounds)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop()


async def refused(talker: Talker, path: str, value: bytes = b"", *fields: tuple[str, str]) -> Any:
    """What a request is told that is not done."""
    answer = await talker.ask("POST", path, *fields)
    await talker.send(answer, value, is_last=True)
    await talker.ended(answer)
    told = json.loads(answer.text)
    assert told["status"] == answer.status
    return answer.status, told["code"]


async def test_keys_are_asked_for_as_over_http_and_looked_at_again() -> None:
    keys, accesses = Keys(), list[Access]()
    producer, consumer = (("authorization", f"Bearer {one}") for one in TOKENS)
    async with (
        h2_node() as node,
        listening(node.broker, keys=keys, accesses=accesses) as listener,
        talking(listener.port) as talker,
    ):
        assert await refused(talker, "/publish/foo") == (401, "unauthenticated")
        wrong = ("x-api-key", "nobody.0123456789abcdef")
        assert await refused(talker, "/publish/foo", b"", wrong) == (401, "unauthenticated")
        assert await refused(talker, "/subscribe/foo", b"", producer) == (403, "forbidden")
        assert await refused(talker, "/publish/foo", b"", consumer) == (403, "forbidden")
        assert await refused(talker, "/publish/bar", b"", producer) == (403, "forbidden")
        assert (await talker.publish("foo", b"one", producer)).status == 201

        answer = await talker.ask("POST", "/subscribe/foo", consumer)
        await talker.say(answer, "INIT")
        assert await talker.message(answer) == ("one", 0)
        keys.revoked.add("consumer.0123456789abcdef")
        later(listener, 11)
        assert (await talker.line(answer))["code"] == "unauthenticated"
        assert await talker.line(answer) is None

    told = [(one.method, one.operation, one.target, one.status, one.code) for one in accesses]
    assert told[0] == ("h2", "publish", "foo", 401, "unauthenticated")
    assert ("h2", "publish", "foo", 200, "") in told
    assert ("h2", "streamGroup", "foo", 200, "") in told


async def test_what_comes_is_charged_to_the_key_as_soon_as_it_is_known() -> None:
    budgets = Budgets({Kind.BODIES: Bounds(10_000, 1000, 10_000, 0, 0)})
    bodies, key = budgets[Kind.BODIES], ("authorization", f"Bearer {next(iter(TOKENS))}")
    async with (
        h2_node() as node,
        listening(node.broker, keys=Keys(), budgets=budgets) as listener,
        talking(listener.port) as talker,
    ):
        held = budgets.hold(Kind.BODIES, Owner("key producer", "another"), 950)
        answer = await talker.ask("POST", "/publish/foo", key, ("content-length", "100"))
        await talker.send(answer, b"5 are")  # it waits for room for all of it
        await eventually(lambda: bodies.held_by("key producer") == 955)
        assert bodies.used == 955

        held.release()
        await talker.send(answer, bytes(95), is_last=True)
        assert (await talker.ended(answer)).status == 201
        await eventually(lambda: not bodies.used)


async def test_a_key_without_room_for_what_has_come_is_refused() -> None:
    budgets = Budgets({Kind.BODIES: Bounds(10_000, 1000, 10_000, 0, 0)})
    keys, key = Keys(), ("authorization", f"Bearer {next(iter(TOKENS))}")
    async with (
        h2_node() as node,
        listening(node.broker, keys=keys, budgets=budgets, room_wait_s=0.0) as listener,
        talking(listener.port) as talker,
    ):
        held = budgets.hold(Kind.BODIES, Owner("key producer", "another"), 998)
        assert await refused(talker, "/publish/foo", b"begun", key) == (429, "over_budget")
        held.release()
        assert budgets[Kind.BODIES].used == 0


async def test_bodies_are_bounded_by_size_speed_and_memory() -> None:
    tight = {Kind.BODIES: Bounds(200_000, 200_000, 100_000, 0, 0)}
    async with (
        h2_node() as node,
        listening(
            node.broker, body_bytes_max=150_000, budgets=Budgets(tight), room_wait_s=0.0
        ) as listener,
        talking(listener.port) as talker,
    ):
        announced = await talker.ask("POST", "/publish/foo", ("content-length", "150001"))
        await talker.ended(announced)  # before anything of it was sent
        assert announced.status == 413
        assert (await talker.publish("foo", b"x" * 80_000)).status == 201
        assert await refused(talker, "/publish/foo", b"x" * 140_000) == (429, "over_budget")

    async with (
        h2_node() as node,
        listening(node.broker, body_bytes_max=50_000) as listener,
        talking(listener.port) as talker,
    ):
        assert await refused(talker, "/publish/foo", b"x" * 60_000) == (413, "payload_too_large")
        slow = await talker.ask("POST", "/publish/foo")
        await talker.send(slow, b"x" * 100)
        await eventually(lambda: listener._parts.budgets[Kind.BODIES].used)
        later(listener, 9)
        await talker.ended(slow)
        assert slow.status == 408
        assert (await talker.publish("foo", b"one")).status == 201
        await eventually(lambda: not listener._parts.budgets[Kind.BODIES].used)


async def test_what_is_published_is_what_comes() -> None:
    values = [b"", bytes(range(256)), b"x" * 100_000, "ü\n".encode()]
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    async with h2_node() as node, talking(port_of(node)) as talker:
        for number, value in enumerate(values):
            answer = await talker.publish("foo", value, ("traceparent", parent))
            assert answer.fields["x-message-id"] == f"foo:0:{number}"
        answer = await talker.subscribe("foo")
        for value in values:
            line = await talker.line(answer)
            assert base64.b64decode(line["msg"]) == value
            await talker.say(answer, "ACK")


async def test_requests_beyond_the_bound_are_refused_and_resets_make_no_room() -> None:
    async with (
        h2_node() as node,
        listening(node.broker, bounds=H2Bounds(streams_max=3)) as listener,
        talking(listener.port) as talker,
    ):
        waiting = [await talker.subscribe("foo") for _ in range(3)]
        await talker.until(lambda: talker.h2.remote_settings.max_concurrent_streams == 3)
        talker.h2.remote_settings[3] = 100  # MAX_CONCURRENT_STREAMS: it is not kept to
        talker.h2.remote_settings.acknowledge()
        await talker.ask("POST", "/subscribe/foo")
        ended = await talker.closed()

        assert ended is not None and ended.error_code != ErrorCodes.NO_ERROR
        assert len(waiting) == 3
        await eventually(lambda: not listener._open)


async def test_a_reader_that_stands_still_is_cut_off_and_nobody_elses_messages_wait() -> None:
    async with (
        h2_node() as node,
        listening(node.broker) as listener,
        talking(listener.port, window=20) as slow,
        talking(listener.port) as talker,
    ):
        await talker.publish("foo", b"x" * 1000)
        answer = await slow.subscribe("foo")
        await slow.until(lambda: answer.text)  # with part of a line
        later(listener, 29)
        assert answer.reset is None
        later(listener, 31)
        await slow.ended(answer)
        assert answer.reset == ErrorCodes.ENHANCE_YOUR_CALM
        assert len(answer.text) == 20

        other = await talker.subscribe("foo")
        assert (await talker.message(other))[0] == "x" * 1000
        await talker.say(other, "ACK")
        budgets = listener._parts.budgets
        await eventually(lambda: not budgets[Kind.ANSWERS].used)


async def test_many_messages_on_one_request_are_settled_once_each() -> None:
    count = 60
    async with h2_node() as node, talking(port_of(node)) as talker:
        published = [await talker.ask("POST", "/publish/foo") for _ in range(40)]
        for number, answer in enumerate(published):
            await talker.send(answer, b"%d" % number, is_last=True)
        for answer in published:
            assert (await talker.ended(answer)).status == 201
        for number in range(40, count):
            await talker.publish("foo", b"%d" % number)
        answer = await talker.subscribe("foo", "?credit=20")
        seen = []
        for number in range(count):
            seen.append(int((await talker.message(answer))[0]))
            await talker.say(answer, "ACK", is_last=number == count - 1)
        await talker.ended(answer)

        assert sorted(seen) == list(range(count))
        left = await node.broker.queue.peek("foo.miniqueue", ["foo"], limit=10, partitions=None)
        assert left == []


async def test_more_partitions_are_received_from_and_a_deleted_topic_ends_it() -> None:
    async with (
        h2_node() as node,
        listening(node.broker) as listener,
        talking(listener.port) as talker,
    ):
        answer = await talker.subscribe("foo")
        await node.broker.placement.add_partitions("foo", 3, [])
        later(listener, 11)
        for number in range(6):
            await talker.publish("foo", b"%d" % number)
        seen = set()
        for _ in range(6):
            seen.add((await talker.message(answer))[0])
            await talker.say(answer, "ACK")
        assert seen == set("012345")
        await talker.ended(await talker.ask("DELETE", "/foo", is_last=True))
        later(listener, 30)
        assert (await talker.line(answer))["code"] == "unknown_topic"
        assert await talker.line(answer) is None


async def test_connections_that_ask_nothing_are_closed_and_those_beyond_the_cap_told() -> None:
    async with (
        h2_node() as node,
        listening(node.broker) as listener,
        talking(listener.port) as talker,
    ):
        await talker.publish("foo", b"one")
        later(listener, 76)
        ended = await talker.closed()
        assert ended is not None and ended.error_code == ErrorCodes.NO_ERROR

    async with (
        h2_node() as node,
        listening(node.broker, connections_max=1) as listener,
        talking(listener.port) as talker,
    ):
        await talker.publish("foo", b"one")  # it is known: it makes no room
        async with talking(listener.port) as second:
            ended = await second.closed()
            assert ended is not None and b"too many connections" in (ended.additional_data or b"")


async def test_a_stop_lets_publishes_finish_and_ends_connections() -> None:
    async with (
        h2_node() as node,
        listening(node.broker) as listener,
        talking(listener.port) as talker,
    ):
        answer = await talker.ask("POST", "/publish/foo")
        await talker.send(answer, b"on")
        await eventually(lambda: any(map(len, listener._open)))
        stopping = asyncio.ensure_future(listener.stop())
        await asyncio.sleep(0)
        await talker.send(answer, b"e", is_last=True)
        assert (await talker.ended(answer)).status == 201
        ended = await talker.closed()
        assert ended is not None and ended.error_code == ErrorCodes.NO_ERROR
        await stopping


def test_what_each_is_told_is_counted() -> None:
    async def counted() -> str:
        async with h2_node(Clock(loop=asyncio.get_running_loop())) as node:
            async with talking(port_of(node)) as talker:
                await talker.publish("foo", b"one")
                await refused(talker, "/nothing/here")
                answer = await talker.subscribe("foo")
                await talker.message(answer)
                await talker.say(answer, "ACK", is_last=True)
                await talker.ended(answer)
            return node.metrics.render()[0].decode()

    with asyncio.Runner(loop_factory=TimedLoop) as runner:
        told = runner.run(counted())
    for operation, code in {
        "publish": "ok",
        "unmatched": "not_found",
        "settle": "ok",
        "deliver": "ok",
        "subscribe": "ok",
    }.items():
        labels = f'code="{code}",operation="{operation}",protocol="h2"'
        assert f"goqueue_listener_requests_total{{{labels}}} 1.0" in told


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls_of(authority: Authority, *, asks: bool = False) -> Tls:
    certificate, key = authority.issue("node", *LOOPBACK)
    ca_file = str(authority.path) if asks else ""
    context = h2_context(str(certificate), str(key), ca_file)
    return Tls(context, context, ca_file=ca_file)


@pytest.mark.skipif(not speaks_http2(), reason="no curl with HTTP/2")
async def test_over_tls_clients_choose_http2_and_the_example_works(authority: Authority) -> None:
    async with h2_node() as node, listening(node.broker, tls=tls_of(authority)) as listener:
        url = f"https://127.0.0.1:{listener.port}"
        told = await ran(
            *("curl", "-sS", "--cacert", str(authority.path), "-X", "POST", f"{url}/publish/foo"),
            *("--data", "helloworld", "-w", "%{http_version} %{http_code}"),
        )
        assert told == "2 201"
        told = await ran(
            *(sys.executable, "examples/duplex/duplex.py", "foo", "--server", url),
            *("--ca", str(authority.path), "--publish", "two", "--count", "2"),
        )
        assert told == "helloworld\ntwo\n"
        told = await ran(
            *("curl", "-sS", "--cacert", str(authority.path), "--http1.1", f"{url}/publish/foo")
        )
        assert json.loads(told)["code"] == "not_http2"

    context = authority.trust()
    context.set_alpn_protocols(["h2"])
    async with (
        h2_node() as node,
        listening(node.broker, tls=tls_of(authority, asks=True)) as listener,
        talking(listener.port, context=context) as talker,
    ):
        ended = await talker.closed()
        assert ended is not None and ended.error_code == ErrorCodes.INADEQUATE_SECURITY


async def ran(*command: str, code: int | None = 0) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, problem = await process.communicate()
    assert code is None or process.returncode == code, problem.decode()
    return out.decode()


async def test_the_ids_of_messages_do_not_fill_the_table_of_headers() -> None:
    async with h2_node() as node, talking(port_of(node)) as talker:
        answers = [await talker.publish("foo", b"x") for _ in range(5)]

    assert [one.fields["x-message-id"] for one in answers] == [f"foo:0:{n}" for n in range(5)]
    assert not talker.h2.decoder.header_table.dynamic_entries


async def test_what_is_published_in_one_turn_is_stored_together_and_answered_one_by_one() -> None:
    values = [b"%d" % number for number in range(8)]
    async with h2_node() as node, talking(port_of(node)) as talker:
        await talker.publish("foo", b"first")
        append, counts = node.broker.records.append, list[int]()

        async def counted(topic: str, partition: int, batch: bytes, **more: Any) -> AppendResult:
            counts.append(RecordBatch.parse(batch).count)
            return await append(topic, partition, batch, **more)

        node.broker.records.append = counted  # type: ignore[method-assign, assignment]
        answers = list[Answer]()
        for value in values:  # nothing is flushed before all is said
            stream = talker.h2.get_next_available_stream_id()
            named = [(":method", "POST"), (":path", "/publish/foo"), (":scheme", "http")]
            talker.h2.send_headers(stream, [*named, (":authority", "x")])
            talker.h2.send_data(stream, value, end_stream=True)
            answers.append(talker.answers.setdefault(stream, Answer(stream)))
        talker.flush()
        for answer in answers:
            await talker.ended(answer)

        assert sum(counts) == len(values) > len(counts)
        told = [answer.fields["x-message-id"] for answer in answers]
        assert told == [f"foo:0:{1 + number}" for number in range(len(values))]
        found = await node.broker.records.read(
            "foo", 0, Offset(1), max_records=100, max_bytes=1 << 20, wait_s=0
        )
        stored = [value for one in found.batches for value in RecordBatch.parse(one.batch).values()]
        assert stored == values
