"""What probes and tools ask: grpc.health.v1, GoQueue's own health service, and reflection."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2 as asked
from grpc_reflection.v1alpha import reflection_pb2_grpc

from node.api.node import Readiness
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from tests.unit.node.listeners.grpc.client import Served, served

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
async def node() -> AsyncIterator[Served]:
    async with served() as found:
        yield found


async def test_a_probe_of_grpc_health_v1_is_answered(node: Served) -> None:
    probe = health_pb2_grpc.HealthStub(node.client.channel)

    whole = await probe.Check(health_pb2.HealthCheckRequest())
    one = await probe.Check(health_pb2.HealthCheckRequest(service="goqueue.v1.PublishService"))
    all_of_them = await probe.List(health_pb2.HealthListRequest())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await probe.Check(health_pb2.HealthCheckRequest(service="nobody"))

    assert (whole.status, one.status) == (SERVING, SERVING)
    assert all_of_them.statuses[""].status == SERVING
    assert "grpc.health.v1.Health" in all_of_them.statuses
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_watcher_is_told_when_the_node_is_not_ready_any_more(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.listeners.grpc.health.LOOK_S", 0.01)
    probe = health_pb2_grpc.HealthStub(node.client.channel)
    call = probe.Watch(health_pb2.HealthCheckRequest())
    unknown = probe.Watch(health_pb2.HealthCheckRequest(service="nobody"))

    assert (await call.read()).status == SERVING
    assert (await unknown.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

    monkeypatch.setattr(type(node.broker.node), "ready", lambda _node: Readiness(False, {}))
    assert (await call.read()).status == NOT_SERVING
    call.cancel()
    unknown.cancel()


async def test_goqueue_s_own_service_says_the_same(node: Served) -> None:
    told = await node.client.ask("Check", service="")
    watched = node.client.stream("Watch")

    assert told.status == pb.SERVING_STATUS_SERVING
    assert (await watched.read()).status == pb.SERVING_STATUS_SERVING
    watched.cancel()


async def test_reflection_tells_all_services_and_the_proto(node: Served) -> None:
    call = reflection_pb2_grpc.ServerReflectionStub(node.client.channel).ServerReflectionInfo()
    await call.write(asked.ServerReflectionRequest(list_services=""))
    services = {one.name for one in (await call.read()).list_services_response.service}
    await call.write(asked.ServerReflectionRequest(file_containing_symbol="goqueue.v1.Message"))
    file = (await call.read()).file_descriptor_response.file_descriptor_proto[0]
    await call.write(asked.ServerReflectionRequest(file_by_filename="nothing.proto"))
    missing = (await call.read()).error_response.error_code
    await call.done_writing()

    assert {f"goqueue.v1.{name}" for name in pb.DESCRIPTOR.services_by_name} <= services
    assert {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} <= services
    assert file == pb.DESCRIPTOR.serialized_pb
    assert missing == grpc.StatusCode.NOT_FOUND.value[0]
    assert await call.read() is grpc.aio.EOF
