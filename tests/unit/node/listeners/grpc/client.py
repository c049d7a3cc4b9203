"""A client of a real node's gRPC listener: its stubs are made of the descriptors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass
from google.rpc.status_pb2 import Status

from node.broker.node import NodeBroker
from node.listeners.grpc.failures import DETAILS_KEY
from node.listeners.grpc.limits import GrpcLimits
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from node.listeners.grpc.server import GrpcListener
from node.listeners.parts import ListenerParts
from tests.one_node import Clock, one_node

DEADLINE_S = 30.0
KINDS = {
    (False, False): "unary_unary",
    (False, True): "unary_stream",
    (True, True): "stream_stream",
}
METHODS = {
    method.name: (service.full_name, method)
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


@dataclass(frozen=True, slots=True)
class Refused:
    """How a call failed: the status' code, and the detail."""

    status: str
    error: pb.Error

    @property
    def code(self) -> str:
        return self.error.details["code"]

    @property
    def family(self) -> str:
        return pb.ErrorCode.Name(self.error.code).removeprefix("ERROR_CODE_")


class Client:
    """One channel. A method is called by its name, with its request's fields."""

    def __init__(self, channel: grpc.aio.Channel, token: str = "") -> None:
        self.channel = channel
        self.metadata: tuple[tuple[str, str], ...] = ()
        if token:
            self.metadata = (("authorization", f"Bearer {token}"),)

    def stub(self, name: str) -> Any:
        service, method = METHODS[name]
        make = getattr(self.channel, KINDS[method.client_streaming, method.server_streaming])
        return make(
            f"/{service}/{name}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )

    async def ask(self, name: str, timeout_s: float = DEADLINE_S, **fields: Any) -> Any:
        """The answer. Raises grpc.aio.AioRpcError."""
        request = GetMessageClass(METHODS[name][1].input_type)(**fields)
        return await self.stub(name)(request, timeout=timeout_s, metadata=self.metadata)

    async def refused(self, name: str, **fields: Any) -> Refused:
        """How it fails."""
        try:
            if METHODS[name][1].server_streaming:
                async for told in self.stream(name, **fields):
                    raise AssertionError(told)
                raise AssertionError("the stream ended")
            raise AssertionError(await self.ask(name, **fields))
        except grpc.aio.AioRpcError as error:
            return refusal(error)

    def stream(self, name: str, timeout_s: float = DEADLINE_S, **fields: Any) -> Any:
        """A stream of answers, or of both sides."""
        _, method = METHODS[name]
        if method.client_streaming:
            return self.stub(name)(timeout=timeout_s, metadata=self.metadata)
        request = GetMessageClass(method.input_type)(**fields)
        return self.stub(name)(request, timeout=timeout_s, metadata=self.metadata)


def refusal(error: grpc.aio.AioRpcError) -> Refused:
    told = pb.Error()
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY:
            status = Status.FromString(value)
            assert status.code == error.code().value[0]
            status.details[0].Unpack(told)
    return Refused(error.code().name, told)


@dataclass(frozen=True, slots=True)
class Served:
    """A node with its listener, and a client of it."""

    broker: NodeBroker
    listener: GrpcListener
    parts: ListenerParts
    client: Client

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listener.port}"


@asynccontextmanager
async def served(
    clock: Clock | None = None, limits: GrpcLimits | None = None, **settings: Any
) -> AsyncIterator[Served]:
    """A node that creates topics of six partitions when they are first used."""
    settings = {"broker.autoCreateTopics": True, **settings}
    async with one_node(clock, **settings) as node, listening(node.broker, limits) as found:
        yield found


@asynccontextmanager
async def listening(
    broker: NodeBroker, own: GrpcLimits | None = None, **parts: Any
) -> AsyncIterator[Served]:
    """A listener over that broker, and a client of it. `own` are the listener's own limits."""
    given = ListenerParts(broker, **parts)
    listener = GrpcListener(given, port=0, limits=own)
    await listener.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{listener.port}") as channel:
            yield Served(broker, listener, given, Client(channel))
    finally:
        await listener.stop()
