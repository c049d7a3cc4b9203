"""What grpcio holds by itself for clients is bounded: windows, parts of messages, connections."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ResponseReceived, TrailersReceived

from node.http.budget.limits import HttpLimits
from node.http.budget.memory import Bounds, Budgets, Kind
from node.http.connections.crowd import Crowd
from node.listeners.grpc.limits import MIB, GrpcLimits
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from tests.one_node import eventually
from tests.unit.node.listeners.grpc.client import DEADLINE_S, Client, Served, listening, served

STREAM = "/goqueue.v1.PublishService/PublishStream"


class Raw:
    """A connection of HTTP/2, below what a client of grpcio lets one do."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.frames = H2Connection(H2Configuration(header_encoding="utf-8"))
        self._reader, self._writer = reader, writer

    def flush(self) -> None:
        self._writer.write(self.frames.data_to_send())

    async def events(self) -> list[Any]:
        """What comes next. Fails where the server hangs up."""
        async with asyncio.timeout(DEADLINE_S):
            data = await self._reader.read(1 << 16)
        assert data
        told = self.frames.receive_data(data)
        self.flush()
        return list(told)


@asynccontextmanager
async def raw(node: Served) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.listener.port)
    try:
        found = Raw(reader, writer)
        found.frames.initiate_connection()
        found.flush()
        yield found
    finally:
        writer.close()


@pytest.fixture
async def node() -> AsyncIterator[Served]:
    async with served() as found:
        yield found


async def test_a_stream_has_no_more_window_than_it_is_charged_before_it_is_read(
    node: Served,
) -> None:
    async with raw(node) as client:
        await client.events()

        window = GrpcLimits().open_call_bytes
        assert client.frames.remote_settings.initial_window_size <= window
        assert client.frames.outbound_flow_control_window <= window


async def test_a_message_that_says_it_is_too_large_is_refused_before_it_comes(
    node: Served,
) -> None:
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", STREAM),
        (":authority", "node"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]
    async with raw(node) as client:
        client.frames.send_headers(1, fields)
        client.frames.send_data(1, struct.pack(">BI", 0, 4 * MIB + 1))
        client.flush()

        said = dict[str, str]()
        while "grpc-status" not in said:
            for told in await client.events():
                if isinstance(told, ResponseReceived | TrailersReceived):
                    said.update(told.headers)

    assert said["grpc-status"] == "8"


async def test_a_publish_stream_is_charged_the_part_of_a_message_that_may_have_come(
    node: Served,
) -> None:
    room = 2 * GrpcLimits().message_bytes_max
    budgets = Budgets({Kind.PARTS: Bounds(room, room, room, 0, 0)})
    message = pb.PublishStreamRequest(topic="orders", value=b"v")
    async with listening(node.broker, budgets=budgets) as small:
        calls = [small.client.stream("PublishStream") for _ in range(2)]
        for call in calls:
            await call.write(message)
            await call.read()
        refused = await small.client.refused("PublishStream")

        await calls.pop().done_writing()
        await eventually(lambda: budgets[Kind.PARTS].used == room // 2)
        again = small.client.stream("PublishStream")
        await again.write(message)
        told = await again.read()
        for call in (*calls, again):
            call.cancel()
        await eventually(lambda: budgets[Kind.PARTS].used == 0)

    assert (refused.status, refused.code) == ("RESOURCE_EXHAUSTED", "over_budget")
    assert told.topic == "orders"


async def test_connections_with_calls_are_in_the_caps_of_all_listeners(node: Served) -> None:
    crowd = Crowd(HttpLimits(connections_per_address_max=1))
    async with listening(node.broker, crowd=crowd) as small:
        own = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(small.address, options=own) as other:
            calls = [small.client.stream("Watch") for _ in range(2)]
            for call in calls:
                await call.read()
            assert crowd.open_count == 1

            refused = await Client(other).refused("Check")
            assert (refused.status, refused.code) == ("UNAVAILABLE", "unavailable")
            assert crowd.open_count == 1

            for call in calls:
                call.cancel()
            await eventually(lambda: crowd.open_count == 0)
            assert (await Client(other).ask("Check")).status == pb.SERVING_STATUS_SERVING
