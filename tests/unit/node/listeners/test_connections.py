"""Connections of listeners: bounded reading, writes that wait, caps, and sweeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from goqueue.wire.errors import OverBudget, Unavailable
from node.api.broker import Broker
from node.http.budget.limits import HttpLimits
from node.http.budget.memory import Bounds, Budgets, Kind
from node.http.connections.crowd import Crowd
from node.listeners.connections import Connections
from node.listeners.parts import ListenerParts
from node.listeners.wire import UNREAD_BYTES_MAX, Wire
from tests.one_node import eventually

HOST = "127.0.0.1"
Serve = Callable[[Wire], Awaitable[None]]


def parts_of(**bounds: Any) -> ListenerParts:
    limits = replace(HttpLimits(drain_s=0.0), **bounds)
    return ListenerParts(cast(Broker, None), limits=limits, crowd=Crowd(limits))


@asynccontextmanager
async def listening(parts: ListenerParts, serve: Serve) -> AsyncIterator[Connections]:
    def refused(error: Unavailable) -> bytes:
        return b"no: " + error.message.encode()

    connections = Connections("test", parts, serve, refused)
    await connections.start(HOST, 0)
    try:
        yield connections
    finally:
        await connections.stop()


async def echo(wire: Wire) -> None:
    while data := await wire.read():
        await wire.write(data)


async def test_what_is_sent_is_read_and_answered_also_after_the_client_has_said_all() -> None:
    async with listening(parts_of(), echo) as connections:
        reader, writer = await asyncio.open_connection(HOST, connections.port)
        writer.write(b"hello")
        writer.write_eof()

        assert await reader.read() == b"hello"
        await eventually(lambda: not connections.open)
        writer.close()


async def test_reading_stops_while_much_is_unread_and_goes_on_once_it_was_read() -> None:
    parts, go, got = parts_of(), asyncio.Event(), bytearray()

    async def slow(wire: Wire) -> None:
        await go.wait()
        while data := await wire.read():
            got.extend(data)

    async with listening(parts, slow) as connections:
        _, writer = await asyncio.open_connection(HOST, connections.port)
        sent = 8 * 2**20
        writer.write(bytes(sent))
        writer.write_eof()
        bodies = parts.budgets[Kind.BODIES]
        await eventually(lambda: bodies.used > UNREAD_BYTES_MAX)
        for _ in range(20):
            await asyncio.sleep(0)
        assert bodies.used <= UNREAD_BYTES_MAX + 2**18

        go.set()

        await eventually(lambda: len(got) == sent)
        await eventually(lambda: not connections.open)
        assert bodies.used == 0
        writer.close()


async def test_what_finds_no_room_is_told_to_who_reads() -> None:
    parts, told = parts_of(), list[OverBudget]()
    tight = Bounds(1000, 1000, 1000, 0, 0)
    parts = replace(parts, budgets=Budgets({Kind.BODIES: tight}))

    async def serve(wire: Wire) -> None:
        await asyncio.sleep(0.01)
        try:
            await wire.read()
        except OverBudget as error:
            told.append(error)
            await wire.write(error.code.encode())

    async with listening(parts, serve) as connections:
        reader, writer = await asyncio.open_connection(HOST, connections.port)
        writer.write(bytes(2000))
        assert await reader.read() == b"over_budget"
        writer.close()
    assert told


async def test_a_writer_waits_for_who_does_not_read_and_that_is_charged() -> None:
    parts, done = parts_of(), list[str]()

    async def pour(wire: Wire) -> None:
        try:
            await wire.write(bytes(16 * 2**20))
        except ConnectionError:
            done.append("gone")
            raise

    async with listening(parts, pour) as connections:
        _, writer = await asyncio.open_connection(HOST, connections.port, limit=1024)
        answers = parts.budgets[Kind.ANSWERS]
        await eventually(lambda: answers.used >= 2**20)
        assert not done
        writer.transport.abort()
        await eventually(lambda: done == ["gone"])
        await eventually(lambda: not connections.open)
        assert answers.used == 0


async def test_at_the_cap_one_that_nobody_knows_makes_room_and_known_ones_stay() -> None:
    parts = parts_of(connections_max=2, connections_per_address_max=2)

    async def serve(wire: Wire) -> None:
        while data := await wire.read():
            wire.is_known()
            await wire.write(data)

    async with listening(parts, serve) as connections:
        known = await asyncio.open_connection(HOST, connections.port)
        known[1].write(b"x")
        assert await known[0].readexactly(1) == b"x"
        idle = await asyncio.open_connection(HOST, connections.port)
        await eventually(lambda: len(connections.open) == 2)

        third = await asyncio.open_connection(HOST, connections.port)
        third[1].write(b"y")

        assert await third[0].readexactly(1) == b"y"
        with pytest.raises(ConnectionError):
            if not await idle[0].read():
                raise ConnectionResetError
        fourth = await asyncio.open_connection(HOST, connections.port)
        assert await fourth[0].read() == b"no: too many connections"
        for _, writer in (known, idle, third, fourth):
            writer.close()


async def test_the_sweep_cuts_a_request_that_is_overdue_and_who_takes_nothing() -> None:
    parts, wires = parts_of(), list[Wire]()

    async def serve(wire: Wire) -> None:
        wires.append(wire)
        await wire.hung_up()

    async with listening(parts, serve) as connections:
        writers = [(await asyncio.open_connection(HOST, connections.port))[1] for _ in range(3)]
        await eventually(lambda: len(wires) == 3)
        now_s = asyncio.get_running_loop().time()
        slow, stuck, fine = wires
        slow.partial_since_s = fine.partial_since_s = now_s
        fine.partial_bytes = 2**20
        stuck.send(bytes(16 * 2**20))

        for later_s in (0.0, 1.0, 8.0, 40.0):
            connections.sweep(now_s + later_s)

        await eventually(lambda: slow.hung_up().done() and stuck.hung_up().done())
        assert connections.open == {fine}
        for writer in writers:
            writer.transport.abort()


async def test_who_is_told_why_it_is_not_served_gets_to_read_that() -> None:
    async def refuse(wire: Wire) -> None:
        await wire.read()
        await wire.write(b"no")

    async with listening(parts_of(lingering_s=5.0), refuse) as connections:
        reader, writer = await asyncio.open_connection(HOST, connections.port)
        writer.write(bytes(8 * 2**20))
        assert await reader.read() == b"no"
        writer.close()
        await eventually(lambda: not connections.open)
