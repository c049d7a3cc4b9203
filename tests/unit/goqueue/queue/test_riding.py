"""A receive settles what came before: each has its result, whatever becomes of the receive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from goqueue import AsyncClient, Client, RetryPolicy, Settle, Settled
from goqueue.errors import (
    BadRequest,
    GoQueueError,
    GroupHalted,
    NotInFlight,
    OutcomeUnknown,
)
from goqueue.models.settles import SettleResult
from goqueue.wire.errors import OverBudget
from log.levels import NotFinished
from tests.unit.goqueue.counted import Counted
from tests.unit.goqueue.queue_cluster import QueueCluster
from tests.unit.goqueue.queue_server import Cut, ScriptedServer

QUICK = RetryPolicy(attempts_max=4, backoff_s=0.001, backoff_max_s=0.005)
RECEIVE, SETTLE = "POST /v1/groups/g/receive", "POST /v1/groups/g/settle"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with QueueCluster().serve() as url:
        yield url


@pytest.fixture
async def counted(url: str) -> AsyncIterator[Counted]:
    async with AsyncClient(url, retry=QUICK, attempt_timeout_s=20.0) as client:
        await client.create_topic("t", partitions=1)
        await client.publish_many("t", ["a", "b", "c", "d"])
        yield Counted(client)


@pytest.fixture
async def asking(server: tuple[ScriptedServer, str]) -> AsyncIterator[AsyncClient]:
    """A client of a server that says that it knows how."""
    scripted, url = server
    scripted._script["GET", "/version"] = [{"level": 2}]
    async with AsyncClient(url, retry=QUICK, attempt_timeout_s=20.0) as client:
        yield client


def states(results: list[SettleResult]) -> list[str]:
    return [one.state if isinstance(one, Settled) else one.code for one in results]


def ended(receipt: str, **more: Any) -> dict[str, Any]:
    place = {"topic": "t", "partition": 0, "offset": 0}
    return {"receipt": receipt, "action": "ack", "state": "acked", **place, **more}


async def test_a_turn_is_one_request(counted: Counted) -> None:
    client, results = counted.client, list[SettleResult]()
    await client.admin.finish_upgrade()
    (message,) = await client.receive("g", "t", limit=1)
    seen = [message.text]
    for number in range(3):
        if number == 1:
            counted.requests.clear()  # the level was asked for once
        settles = [Settle(message.receipt)]
        (message,) = await client.receive(
            "g", "t", limit=1, settles=settles, on_settled=results.extend
        )
        seen.append(message.text)

    assert seen == ["a", "b", "c", "d"]
    assert states(results) == ["acked"] * 3
    assert counted.requests == [RECEIVE] * 2


async def test_each_settle_has_its_own_result(counted: Counted) -> None:
    client, results = counted.client, list[SettleResult]()
    await client.admin.finish_upgrade()
    first, second = await client.receive("g", "t", limit=2)
    await first.ack()

    await client.receive(
        "g",
        "t",
        settles=[
            Settle(first.receipt),
            Settle(second.receipt, "reject", "bad"),
            Settle("nonsense"),
        ],
        on_settled=results.extend,
    )

    assert states(results) == ["not_in_flight", "dead", "invalid_receipt"]


async def test_below_the_level_it_takes_two_requests_and_the_level_is_asked_once(
    counted: Counted,
) -> None:
    client, results = counted.client, list[SettleResult]()
    (message,) = await client.receive("g", "t", limit=1)
    counted.requests.clear()

    for _ in range(2):
        settles = [Settle(message.receipt)]
        (message,) = await client.receive(
            "g", "t", limit=1, settles=settles, on_settled=results.extend
        )

    assert counted.requests == ["GET /version", SETTLE, RECEIVE, SETTLE, RECEIVE]
    assert states(results) == ["acked", "acked"]
    assert message.text == "c"


async def test_a_lost_answer_costs_no_settle(asking: AsyncClient, scripted: ScriptedServer) -> None:
    results: list[SettleResult] = []
    scripted.script("POST", "/groups/g/receive", Cut.NOW)
    scripted.script("POST", "/groups/g/settle", {"results": [ended("r")]})

    with pytest.raises(OutcomeUnknown):
        await asking.receive("g", "t", settles=[Settle("r")], on_settled=results.extend)

    assert states(results) == ["acked"]
    assert [asked.path for asked in scripted.asked][-2:] == [
        "/v1/groups/g/receive",
        "/v1/groups/g/settle",
    ]


async def test_a_receive_that_is_refused_tells_what_was_settled(
    asking: AsyncClient, scripted: ScriptedServer
) -> None:
    results: list[SettleResult] = []
    refusal: GoQueueError = GroupHalted("halted")
    gone = {"receipt": "s", "success": False, "action": "ack", **NotInFlight().to_body()}
    refusal.data["settle_results"] = [ended("r"), gone]
    scripted.script("POST", "/groups/g/receive", refusal)

    with pytest.raises(GroupHalted) as raised:
        await asking.receive(
            "g", "t", settles=[Settle("r"), Settle("s")], on_settled=results.extend
        )

    assert states(results) == ["acked", "not_in_flight"]
    assert "settle_results" not in raised.value.data
    assert not any(asked.path.endswith("/settle") for asked in scripted.asked)


async def test_a_receive_that_may_be_repeated_settles_only_once(
    asking: AsyncClient, scripted: ScriptedServer
) -> None:
    results: list[SettleResult] = []
    refusal = OverBudget("polls", "node", 1)
    refusal.data["settle_results"], refusal.outcome = [ended("r")], "unknown"
    scripted.script("POST", "/groups/g/receive", refusal, {"messages": []})

    found = await asking.receive("g", "t", settles=[Settle("r")], on_settled=results.extend)

    assert (found, states(results)) == ([], ["acked"])
    bodies = [asked.body or {} for asked in scripted.asked if asked.method == "POST"]
    assert ["settle" in body for body in bodies] == [True, False]


async def test_a_node_that_has_not_heard_of_the_level_is_asked_in_two_requests(
    asking: AsyncClient, scripted: ScriptedServer
) -> None:
    results: list[SettleResult] = []
    scripted.script("POST", "/groups/g/receive", NotFinished(2, 1), {"messages": []})
    scripted.script("POST", "/groups/g/settle", {"results": [ended("r")]})

    found = await asking.receive("g", "t", settles=[Settle("r")], on_settled=results.extend)

    assert (found, states(results)) == ([], ["acked"])
    assert scripted.last.body is not None and "settle" not in scripted.last.body


@pytest.mark.parametrize(
    "settles", [[Settle("r", "eat")], [Settle("r")] * 1001], ids=["no action", "too many"]
)
async def test_what_cant_be_meant_is_refused_before_anything_is_sent(
    asking: AsyncClient, scripted: ScriptedServer, settles: list[Settle]
) -> None:
    with pytest.raises(BadRequest):
        await asking.receive("g", "t", settles=settles)

    assert scripted.asked == []


async def test_a_blocking_client_is_told_likewise(url: str) -> None:
    def work() -> tuple[list[str], list[str]]:
        results: list[SettleResult] = []
        with Client(url, retry=QUICK) as client:
            client.create_topic("t", partitions=1)
            client.publish_many("t", ["a", "b"])
            client.admin.finish_upgrade()
            (first,) = client.receive("g", "t", limit=1)
            settles = [Settle(first.receipt)]
            (second,) = client.receive(
                "g", "t", limit=1, settles=settles, on_settled=results.extend
            )
            return [first.text, second.text], states(results)

    assert await asyncio.to_thread(work) == (["a", "b"], ["acked"])


async def test_what_failed_for_now_beside_a_receive_is_settled_again(
    asking: AsyncClient, scripted: ScriptedServer
) -> None:
    results: list[SettleResult] = []
    later = {
        "receipt": "s",
        "success": False,
        "action": "ack",
        **OverBudget("polls", "node", 1).to_body(),
    }
    scripted.script(
        "POST", "/groups/g/receive", {"messages": [], "settle_results": [ended("r"), later]}
    )
    scripted.script("POST", "/groups/g/settle", {"results": [ended("s")]})

    await asking.receive("g", "t", settles=[Settle("r"), Settle("s")], on_settled=results.extend)

    assert states(results) == ["acked", "acked"]


async def test_what_is_not_in_flight_after_a_lost_answer_may_have_been_settled(
    asking: AsyncClient, scripted: ScriptedServer
) -> None:
    results: list[SettleResult] = []
    gone = {"receipt": "r", "success": False, "action": "ack", **NotInFlight().to_body()}
    scripted.script("POST", "/groups/g/receive", Cut.NOW)
    scripted.script("POST", "/groups/g/settle", {"results": [gone]})

    with pytest.raises(OutcomeUnknown):
        await asking.receive("g", "t", settles=[Settle("r")], on_settled=results.extend)

    (found,) = results
    assert isinstance(found, NotInFlight) and found.outcome == "unknown"
