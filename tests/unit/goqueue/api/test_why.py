"""`why` through the client: what is asked, and what is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from goqueue import AsyncClient, Client, Reason, RetryPolicy
from goqueue.errors import UnknownGroup
from tests.unit.goqueue.queue_server import ScriptedServer

QUICK = RetryPolicy(attempts_max=2, backoff_s=0.001, backoff_max_s=0.005)
UNTIL = datetime(2025, 1, 15, 10, 30, 30, tzinfo=UTC)
TOLD = {
    "id": "orders:0:7",
    "message_id": "order-7",
    "topic": "orders",
    "partition": 0,
    "offset": 7,
    "as_of": "2025-01-15T10:30:00.000Z",
    "leader": "node-1",
    "state": "stored",
    "reasons": [],
    "groups": [
        {
            "group": "billing",
            "state": "in_flight",
            "deliverable": False,
            "attempts": 2,
            "reasons": [
                {
                    "code": "in_flight",
                    "text": "in flight",
                    "until": "2025-01-15T10:30:30.000Z",
                    "attributes": {"consumer": "c1", "attempt": 2},
                }
            ],
            "eta": "2025-01-15T10:30:30.000Z",
            "eta_by": "lease",
            "eta_text": "delivered again",
        }
    ],
    "more": 0,
}


@pytest.fixture
async def client(server: tuple[ScriptedServer, str]) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server[1], retry=QUICK, attempt_timeout_s=20.0) as client:
        yield client


async def test_each_group_is_told_with_its_reasons(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("GET", "/messages/order-7/why", TOLD)

    told = await client.why("order-7", group="billing", topic="orders")

    assert dict(scripted.last.query) == {"group": "billing", "topic": "orders"}
    assert (told.id, told.leader, told.as_of) == (
        "orders:0:7",
        "node-1",
        datetime(2025, 1, 15, 10, 30, tzinfo=UTC),
    )
    (group,) = told
    assert (group.state, group.deliverable, group.attempts) == ("in_flight", False, 2)
    assert (group.eta, group.eta_by) == (UNTIL, "lease")
    assert group.reasons == [
        Reason("in_flight", "in flight", UNTIL, {"consumer": "c1", "attempt": 2})
    ]


async def test_a_group_that_is_not_there_is_refused_as_such(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("GET", "/messages/orders:0:7/why", UnknownGroup("nobody"))

    with pytest.raises(UnknownGroup):
        await client.why("orders:0:7", group="nobody")


async def test_the_blocking_client_asks_the_same(
    server: tuple[ScriptedServer, str], scripted: ScriptedServer
) -> None:
    scripted.script("GET", "/messages/orders:0:7/why", TOLD)

    def work() -> str:
        with Client(server[1], retry=QUICK) as client:
            return client.why("orders:0:7").groups[0].state

    assert await asyncio.to_thread(work) == "in_flight"
