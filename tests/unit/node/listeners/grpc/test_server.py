"""What every call passes: its key, its bounds, its deadline, and who is told of it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from goqueue.wire.errors import Unauthenticated
from node.api.auth.access import Access
from node.api.auth.key_verifier import Origin
from node.api.auth.principal import Principal, Role
from node.api.spans import Work
from node.http.auth.admission import Admission
from node.http.budget.limits import HttpLimits
from node.http.budget.memory import Bounds, Budgets, Kind
from node.listeners.grpc.call import address_of, token_of
from node.listeners.grpc.limits import GrpcLimits
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from node.listeners.grpc.server import GrpcListener
from node.listeners.parts import ListenerParts, Tls
from tests.certificates import LOOPBACK, Authority, Mounted
from tests.one_node import eventually, one_node
from tests.unit.node.listeners.grpc.client import Client, Served, listening, refusal, served

TOKEN = "orders.0123456789abcdef"
PUBLISH = "/goqueue.v1.PublishService/Publish"


class Keys:
    """Knows one key, until it is revoked."""

    def __init__(self, role: Role = Role.PRODUCER) -> None:
        self.principal = Principal("orders", role, ("orders.",))
        self.is_revoked = False

    def known(self, token: str) -> Principal | None:
        return self.principal if token == TOKEN and not self.is_revoked else None

    async def prove(self, token: str, origin: Origin) -> Principal:
        raise Unauthenticated("no such key", reason="unknown")

    def refused(self, result: str) -> None:
        return None

    def denied(self, missing: str) -> None:
        return None


class Told:
    """What metrics, spans and the audit log were told."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, str, str]] = []
        self.connections: list[int] = []
        self.accesses: list[Access] = []
        self.works: list[Work] = []

    def answered(
        self, protocol: str, operation: str, code: str, seconds: float, count: int = 1
    ) -> None:
        self.answers.append((protocol, operation, code))

    def connected(self, protocol: str, count: int) -> None:
        self.connections.append(count)

    def tell(self, work: Work) -> None:
        self.works.append(work)


@pytest.fixture
async def node() -> AsyncIterator[Served]:
    async with served() as found:
        yield found


async def test_a_key_comes_in_the_metadata_and_reaches_as_far_as_over_http(node: Served) -> None:
    keys = Keys()
    async with listening(node.broker, admission=Admission(keys)) as locked:
        channel = locked.client.channel
        by_header = Client(channel)
        by_header.metadata = (("x-api-key", TOKEN),)
        mine = {"topic": "orders.new", "value": b"v"}

        nobody = await locked.client.refused("Publish", **mine)
        wrong = await Client(channel, "orders.ffffffffffffffff").refused("Publish", **mine)
        bearer = await Client(channel, TOKEN).ask("Publish", **mine)
        header = await by_header.ask("Publish", **mine)
        beyond = await Client(channel, TOKEN).refused("Publish", topic="others", value=b"v")
        role = await Client(channel, TOKEN).refused("Subscribe", topics=["orders.new"])
        probe = await locked.client.ask("Check")

    assert [one.status for one in (nobody, wrong)] == ["UNAUTHENTICATED"] * 2
    assert nobody.error.details["reason"] == "missing"
    assert (bearer.topic, header.topic) == ("orders.new", "orders.new")
    assert (beyond.status, beyond.error.details["missing"]) == ("PERMISSION_DENIED", "scope")
    assert (role.status, role.error.details["missing"]) == ("PERMISSION_DENIED", "role")
    assert probe.status == pb.SERVING_STATUS_SERVING


async def test_each_message_of_a_stream_is_held_against_the_key(node: Served) -> None:
    async with listening(node.broker, admission=Admission(Keys())) as locked:
        call = Client(locked.client.channel, TOKEN).stream("PublishStream")
        for topic in ("orders.a", "others"):
            await call.write(pb.PublishStreamRequest(correlation_id=topic, topic=topic))
        await call.done_writing()
        codes = {one.correlation_id: one.error.details.get("code") async for one in call}

    assert codes == {"orders.a": None, "others": "forbidden"}


async def test_a_key_that_is_revoked_ends_its_streams(node: Served) -> None:
    keys = Keys(Role.CONSUMER)
    await node.broker.topics.create_topic("orders.a", {})
    parts = {"admission": Admission(keys), "limits": HttpLimits(tail_keepalive_s=0.02)}
    async with listening(node.broker, **parts) as locked:
        client = Client(locked.client.channel, TOKEN)
        reading = client.stream("Consume", topic="orders.a")
        joined = client.stream("Subscribe", topics=["orders.a"], group_id="orders.g")
        assert (await joined.read()).WhichOneof("payload") == "assignment"

        keys.is_revoked = True
        for call in (reading, joined):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                while True:
                    await call.read()
            assert refusal(caught.value).status == "UNAUTHENTICATED"


def test_two_keys_are_none_and_other_schemes_are_none() -> None:
    assert token_of(()) is None
    assert token_of((("authorization", "Bearer a.b"), ("x-api-key", "a.b"))) == "a.b"
    assert token_of((("authorization", "Bearer a.b"), ("x-api-key", "c.d"))) == ""
    assert token_of((("authorization", "Basic eA=="),)) == ""
    assert token_of((("x-api-key", b"\xff"),)) == ""


def test_addresses_are_read_as_grpcio_writes_them() -> None:
    assert address_of("ipv4:10.1.2.3:4567") == "10.1.2.3"
    assert address_of("ipv6:%5B2001:db8::1%5D:4567") == "2001:db8::1"
    assert address_of("unix:/tmp/a") == "/tmp/a"


async def test_every_call_is_told_to_metrics_audit_and_spans(node: Served) -> None:
    told = Told()
    async with listening(
        node.broker, metrics=told, spans=told, on_access=told.accesses.append
    ) as seen:
        await seen.client.ask("Publish", topic="orders", value=b"v")
        await seen.client.refused("Publish", topic="no way")
        call = seen.client.stream("Consume", topic="orders")
        await call.read()
        call.cancel()
        await eventually(lambda: len(told.answers) == 3)

    assert told.answers == [
        ("grpc", "PublishService.Publish", ""),
        ("grpc", "PublishService.Publish", "invalid_name"),
        ("grpc", "ConsumeService.Consume", "given_up"),
    ]
    access = told.accesses[0]
    assert (access.operation, access.method, access.target) == ("publish", "grpc", "orders")
    assert (access.status, access.remote) == (200, "127.0.0.1")
    assert [(one.operation, one.topic, one.count) for one in told.works] == [
        ("publish", "orders", 1)
    ]
    assert max(told.connections) == 1 and told.connections[-1] == 0


async def test_a_request_that_does_not_come_is_charged_as_the_largest_and_given_up(
    node: Served,
) -> None:
    limits = GrpcLimits(slow_s=0.01)
    async with listening(node.broker, limits, limits=HttpLimits(body_grace_s=0.2)) as slow:
        bodies = slow.parts.budgets[Kind.BODIES]
        call = slow.client.channel.stream_unary(PUBLISH)()
        waiting = asyncio.ensure_future(_code(call))
        await eventually(lambda: bodies.used >= limits.message_bytes_max)

        assert await waiting is grpc.StatusCode.DEADLINE_EXCEEDED
        assert bodies.used == 0


async def test_there_is_room_for_so_many_that_are_slow(node: Served) -> None:
    budgets = Budgets({Kind.BODIES: Bounds(1 << 20, 1 << 20, 1 << 20, 0, 0)})
    limits = GrpcLimits(slow_s=0.01)
    async with listening(node.broker, limits, budgets=budgets) as slow:
        code = await _code(slow.client.channel.stream_unary(PUBLISH)())

    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def _code(call: Any) -> Any:
    await call.wait_for_connection()
    return await call.code()


async def test_there_is_room_for_so_many_calls(node: Served) -> None:
    limits = GrpcLimits()
    room = limits.open_call_bytes
    budgets = Budgets({Kind.BODIES: Bounds(2 * room, 2 * room, 2 * room, 0, 0)})
    async with listening(node.broker, limits, budgets=budgets) as small:
        calls = [small.client.stream("Watch") for _ in range(2)]
        for call in calls:
            await call.read()
        refused = await small.client.refused("Watch")
        for call in calls:
            call.cancel()

    assert (refused.status, refused.code) == ("RESOURCE_EXHAUSTED", "over_budget")
    assert refused.error.retry_after.seconds == 1


async def test_what_is_too_large_or_not_there_is_refused(node: Served) -> None:
    raw = node.client.channel.unary_unary
    codes = {}
    for name, path, body in (
        ("message", PUBLISH, bytes(4 << 20) + b"\x00"),
        ("document", "/goqueue.v1.AckService/BatchAck", bytes((1 << 20) + 1)),
        ("method", "/goqueue.v1.PublishService/Nothing", b""),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await raw(path)(body)
        codes[name] = caught.value.code().name

    assert codes == {
        "message": "RESOURCE_EXHAUSTED",
        "document": "INVALID_ARGUMENT",
        "method": "UNIMPLEMENTED",
    }


async def test_who_waits_no_longer_ends_the_work(node: Served) -> None:
    told, begun, ended = Told(), asyncio.Event(), asyncio.Event()

    async def stuck(*given: Any, deadline_s: float, **named: Any) -> Any:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    node.broker.records.append = stuck  # type: ignore[method-assign]
    async with listening(node.broker, metrics=told) as seen:
        request = pb.PublishRequest(topic="orders", value=b"v")
        call = seen.client.stub("Publish")(request)
        await begun.wait()
        call.cancel()
        await ended.wait()
        ended.clear()
        timeout_s = 0.02
        while not ended.is_set():  # a busy machine may not come so far before its deadline
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await seen.client.stub("Publish")(request, timeout=timeout_s)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            timeout_s *= 2
        await eventually(lambda: len(told.answers) >= 2)

        assert set(told.answers) == {("grpc", "PublishService.Publish", "given_up")}
        await eventually(lambda: all(budget.used == 0 for budget in seen.parts.budgets.all))


async def test_an_address_that_is_taken_is_an_error_and_stopping_twice_is_none(
    node: Served,
) -> None:
    second = GrpcListener(ListenerParts(node.broker), port=node.listener.port)

    with pytest.raises(OSError, match="not to be had"):
        await second.start()
    await second.stop()
    await node.listener.stop()
    await node.listener.stop()


async def test_certificates_that_were_rotated_serve_the_next_connection(
    node: Served, tmp_path: Path
) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    mounted = Mounted(tmp_path / "tls")
    certificate, key, _ = mounted.write(old.sign("a", *LOOPBACK), old)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls = Tls(context, context, certificate, key)
    listener = GrpcListener(ListenerParts(node.broker), port=0, tls=tls)
    await listener.start()
    try:
        await _probe(listener.port, old)
        mounted.write(new.sign("a", *LOOPBACK), new)
        await _probe(listener.port, new)
        with pytest.raises(grpc.aio.AioRpcError):
            await _probe(listener.port, old)
    finally:
        await listener.stop()


async def test_with_authorities_a_client_shows_a_certificate(node: Served, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server", *LOOPBACK)
    mine = authority.issue("client")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls = Tls(context, context, str(certificate), str(key), str(authority.path))
    listener = GrpcListener(ListenerParts(node.broker), port=0, tls=tls)
    await listener.start()
    try:
        await _probe(listener.port, authority, mine)
        with pytest.raises(grpc.aio.AioRpcError):
            await _probe(listener.port, authority)
    finally:
        await listener.stop()


async def _probe(port: int, authority: Authority, pair: tuple[Path, Path] | None = None) -> None:
    """Raises grpc.aio.AioRpcError where no call comes through."""
    chain, key = (None, None) if pair is None else (file.read_bytes() for file in pair)
    credentials = grpc.ssl_channel_credentials(authority.path.read_bytes(), key, chain)
    own = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(f"localhost:{port}", credentials, options=own) as channel:
        await Client(channel).ask("Check", timeout_s=5.0)


async def test_a_node_listens_where_it_is_configured_to_and_stops_with_it() -> None:
    settings = {"listeners.grpc.enabled": True, "listeners.grpc.port": 0}
    async with one_node(**settings) as node:
        port = node.listeners.of["grpc"].port
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            told = await Client(channel).ask("Check")
            assert told.status == pb.SERVING_STATUS_SERVING
            metrics, _ = await node.metrics.look()
    assert b'"HealthService.Check"' in metrics
