"""Requests between nodes: every one ends exactly once, with what is known of its outcome."""

from __future__ import annotations

import asyncio
import dataclasses
import struct
from functools import partial

import pytest

from goqueue.wire.errors import (
    Busy,
    NotFound,
    OutOfOrder,
    ServerError,
    Timeout,
)
from goqueue.wire.types import NodeId
from node.factories import charge_link
from node.http.budget.memory import Bounds, Budget, Kind
from raft.link import LinkDown, RemoteError
from raft.link.frames import Kind as Frame
from tests.unit.raft.link.conftest import QUICK, Cluster, eventually

A, B = NodeId("a"), NodeId("b")


async def echo(_node: NodeId, payload: bytes) -> bytes:
    return payload


async def forever(_node: NodeId, _payload: bytes) -> bytes:
    await asyncio.Event().wait()
    return b""


@pytest.mark.parametrize("size", [0, 1000, 3_000_000])
async def test_answer_comes_back(cluster: Cluster, size: int) -> None:
    a, b = await cluster.started("a", "b")
    b.mesh.handle("echo", echo)

    assert await a.mesh.request(B, "echo", bytes(size), 5) == bytes(size)


async def test_many_requests_at_once_each_get_their_own_answer(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b")

    async def later(_node: NodeId, payload: bytes) -> bytes:
        (number,) = struct.unpack("<I", payload)
        await asyncio.sleep((number * 7919 % 13) / 1000)
        return payload

    b.mesh.handle("later", later)
    asked = [struct.pack("<I", i) for i in range(500)]

    assert await asyncio.gather(*(a.mesh.request(B, "later", p, 5) for p in asked)) == asked


async def test_error_of_the_handler_arrives_as_the_same_class(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b")

    async def refuse(_node: NodeId, _payload: bytes) -> bytes:
        raise OutOfOrder(expected=4, got=9)

    b.mesh.handle("refuse", refuse)

    with pytest.raises(RemoteError) as caught:
        await a.mesh.request(B, "refuse", b"", 5)
    assert isinstance(caught.value.error, OutOfOrder)
    assert caught.value.error.data == {"expected": 4, "got": 9, "unknown_producer": True}


async def test_fault_of_the_handler_tells_no_details(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b")

    async def fail(_node: NodeId, _payload: bytes) -> bytes:
        raise RuntimeError("the password is hunter2")

    b.mesh.handle("fail", fail)

    with pytest.raises(RemoteError) as caught:
        await a.mesh.request(B, "fail", b"", 5)
    assert isinstance(caught.value.error, ServerError)
    assert "hunter2" not in str(caught.value.error.to_body())


async def test_unknown_method_is_an_answer_and_the_link_stands(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b")

    with pytest.raises(RemoteError) as caught:
        await a.mesh.request(B, "os.system", b"true", 5)

    assert isinstance(caught.value.error, NotFound)
    assert a.is_up(b)


async def test_silence_of_the_handler_ends_in_timeout_with_unknown_outcome(
    cluster: Cluster,
) -> None:
    a, b = await cluster.started("a", "b")
    b.mesh.handle("forever", forever)

    with pytest.raises((Timeout, RemoteError)) as caught:
        await a.mesh.request(B, "forever", b"", 0.05)

    error = caught.value.error if isinstance(caught.value, RemoteError) else caught.value
    assert isinstance(error, Timeout)
    assert error.outcome == "unknown"
    responder = b.mesh._peers[A].responder
    assert responder is not None
    await eventually(lambda: not responder._running)


async def test_request_without_a_link_was_not_sent(cluster: Cluster) -> None:
    (a,) = await cluster.started("a")

    with pytest.raises(LinkDown) as caught:
        await a.mesh.request(B, "echo", b"", 5)

    assert not caught.value.sent
    assert caught.value.outcome == "none"


async def test_request_in_flight_when_the_link_falls_may_have_been_received(
    cluster: Cluster,
) -> None:
    a, b = await cluster.started("a", "b")
    b.mesh.handle("forever", forever)
    asking = asyncio.create_task(a.mesh.request(B, "forever", b"", 5))
    await eventually(lambda: bool(b.mesh._peers[A].responder._running))  # type: ignore[union-attr]

    await b.mesh.stop()

    with pytest.raises(LinkDown) as caught:
        await asking
    assert caught.value.sent
    assert caught.value.outcome == "unknown"


async def test_handler_is_cancelled_when_its_caller_is_gone(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b")
    ended = []

    async def linger(_node: NodeId, _payload: bytes) -> bytes:
        try:
            return await forever(A, b"")
        finally:
            ended.append(True)

    b.mesh.handle("linger", linger)
    asking = asyncio.create_task(a.mesh.request(B, "linger", b"", 60))
    await eventually(lambda: bool(b.mesh._peers[A].responder._running))  # type: ignore[union-attr]

    link = a.mesh._peers[B].link
    assert link is not None
    link.cut("test")

    await eventually(lambda: ended == [True])
    with pytest.raises(LinkDown):
        await asking


async def test_more_than_the_limit_in_flight_is_refused_unsent(cluster: Cluster) -> None:
    limits = dataclasses.replace(QUICK, requests_in_flight_max=3)
    a, b = await cluster.started("a", "b", limits=limits)
    b.mesh.handle("forever", forever)
    waiting = [asyncio.create_task(a.mesh.request(B, "forever", b"", 5)) for _ in range(3)]
    await asyncio.sleep(0)

    with pytest.raises(Busy):
        await a.mesh.request(B, "forever", b"", 5)

    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_requests_of_one_kind_leave_places_to_the_others(cluster: Cluster) -> None:
    limits = dataclasses.replace(QUICK, requests_of_a_kind_max=3)
    a, b = await cluster.started("a", "b", limits=limits)
    b.mesh.handle("forever", forever)
    b.mesh.handle("echo", echo)
    waiting = [asyncio.create_task(a.mesh.request(B, "forever", b"", 5)) for _ in range(3)]
    await asyncio.sleep(0)

    with pytest.raises(Busy):
        await a.mesh.request(B, "forever", b"", 5)
    assert await a.mesh.request(B, "echo", b"x", 5) == b"x"

    waiting.pop().cancel()
    await asyncio.sleep(0.01)
    waiting.append(asyncio.create_task(a.mesh.request(B, "forever", b"", 5)))
    await asyncio.sleep(0.01)
    assert not waiting[-1].done()
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_server_bounds_what_a_peer_has_running(cluster: Cluster) -> None:
    few = dataclasses.replace(QUICK, requests_in_flight_max=2)
    cluster.reserve("a", "b")
    a, b = cluster.node("a"), cluster.node("b", limits=few)
    b.mesh.handle("forever", forever)
    await a.mesh.start()
    await b.mesh.start()
    await eventually(lambda: a.is_up(b) and b.is_up(a))

    waiting = [asyncio.create_task(a.mesh.request(B, "forever", b"", 0.3)) for _ in range(3)]
    results = await asyncio.gather(*waiting, return_exceptions=True)

    refused = [r for r in results if isinstance(r, RemoteError) and isinstance(r.error, Busy)]
    assert len(refused) == 1


async def test_what_a_peer_has_running_is_charged_until_it_ends(cluster: Cluster) -> None:
    budget = Budget(Kind.LINKS, Bounds(100_000, 100_000, 100_000, 0, 0))
    charge = partial(charge_link, budget)
    a, b = await cluster.started("a", "b", charge=charge)
    b.mesh.handle("forever", forever)
    b.mesh.handle("echo", echo)

    begun = asyncio.create_task(a.mesh.request(B, "forever", bytes(60_000), 5))
    await eventually(lambda: budget.held_by("node a") == 60_000)
    with pytest.raises(RemoteError) as refused:
        await a.mesh.request(B, "forever", bytes(60_000), 5)
    small = await a.mesh.request(B, "echo", bytes(1000), 5)
    begun.cancel()
    await a.mesh.stop()

    assert isinstance(refused.value.error, Busy)
    assert small == bytes(1000)
    await eventually(lambda: budget.used == 0)


async def test_request_over_the_limit_is_the_callers_fault(cluster: Cluster) -> None:
    a, b = await cluster.started(
        "a", "b", limits=dataclasses.replace(QUICK, message_bytes_max=1000)
    )

    with pytest.raises(ValueError, match="exceeds"):
        await a.mesh.request(B, "echo", bytes(1000), 5)
    assert a.is_up(b)


async def test_answer_nobody_waits_for_any_more_is_dropped(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b")
    link = b.mesh._peers[A].link
    assert link is not None

    link.put(Frame.ANSWER, [struct.pack("<I", 77), b"late"])
    link.put(Frame.FAILURE, [struct.pack("<I", 78), b"late"])
    b.mesh.handle("echo", echo)

    assert await a.mesh.request(B, "echo", b"x", 5) == b"x"


async def test_method_is_served_by_one_handler(cluster: Cluster) -> None:
    node = cluster.node("a")
    node.mesh.handle("echo", echo)

    with pytest.raises(ValueError, match="echo"):
        node.mesh.handle("echo", forever)
