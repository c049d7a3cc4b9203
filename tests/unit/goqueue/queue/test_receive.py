"""Receiving and settling through the client: what is sent, what is repeated, what is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from goqueue import AsyncClient, Client, RetryPolicy, Settle, Settled, SettleFailed
from goqueue.errors import (
    BadRequest,
    GroupHalted,
    NoQuorum,
    NotInFlight,
    OutcomeUnknown,
    ReceiptExpired,
    ServerError,
    UnknownGroup,
)
from tests.unit.goqueue.queue_server import Cut, ScriptedServer, received, settled

QUICK = RetryPolicy(attempts_max=4, backoff_s=0.001, backoff_max_s=0.005)
T0_MS = 1_795_255_200_123
RECEIVE = "/groups/billing/receive"
SETTLE = "/groups/billing/settle"


@pytest.fixture
async def client(server: tuple[ScriptedServer, str]) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server[1], retry=QUICK, attempt_timeout_s=20.0) as client:
        yield client


async def test_a_received_message_has_its_fields(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    body = received(
        7, key="/v4=", key_encoding="base64", headers={"a": "b"}, attempt=3, last_reason="timeout",
        redrives=1, priority="high", deliver_at="2026-11-21T09:59:00Z", message_id="m",
    )  # fmt: skip
    scripted.script("POST", RECEIVE, {"group": "billing", "messages": [body]})

    (message,) = await client.receive("billing", "orders")

    assert (message.id, message.text, message.key) == ("orders:0:7", "v7", b"\xfe\xfe")
    assert (message.headers, message.priority) == ((("a", b"b"),), "high")
    assert (message.group, message.receipt, message.attempt) == ("billing", "r7", 3)
    assert (message.last_reason, message.redrives, message.message_id) == ("timeout", 1, "m")
    assert message.timestamp_ms == T0_MS
    assert message.visible_until_ms == T0_MS + 30_000
    assert message.deliver_at_ms == T0_MS - 60_123


async def test_a_receive_says_what_it_wants(scripted: ScriptedServer, client: AsyncClient) -> None:
    scripted.script("POST", RECEIVE, {"messages": []})

    assert await client.receive("billing", "orders") == []
    assert scripted.last.body == {"topic": "orders", "limit": 10, "wait": "0ms"}

    await client.receive(
        "billing", ["a", "b"], limit=3, wait=0.25, visibility=timedelta(minutes=2),
        partitions=[1], member="me",
    )  # fmt: skip
    assert scripted.last.body == {
        "topics": ["a", "b"],
        "limit": 3,
        "wait": "250ms",
        "visibility": "120000ms",
        "partitions": [1],
        "member": "me",
    }


async def test_a_receive_that_may_have_been_answered_is_not_repeated(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("POST", RECEIVE, Cut.NOW, {"messages": [received()]})

    with pytest.raises(OutcomeUnknown):
        await client.receive("billing", "orders")

    assert len(scripted.asked) == 1


async def test_a_receive_that_certainly_took_nothing_is_repeated(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("POST", RECEIVE, NoQuorum(), {"messages": [received()]})

    assert len(await client.receive("billing", "orders")) == 1


async def test_a_halted_group_is_told(scripted: ScriptedServer, client: AsyncClient) -> None:
    scripted.script("POST", RECEIVE, GroupHalted(reason="timeout"))

    with pytest.raises(GroupHalted) as raised:
        await client.receive("billing", "orders")

    assert raised.value.data["reason"] == "timeout"


async def test_a_message_settles_itself(scripted: ScriptedServer, client: AsyncClient) -> None:
    scripted.script("POST", RECEIVE, {"messages": [received(4)]})
    scripted.script("POST", SETTLE, {"results": [settled(4)], "settled": 1})
    (message,) = await client.receive("billing", "orders")

    assert await message.ack() == Settled("r4", "ack", "acked", "orders", 0, 4, 1, None, 5, 0)
    assert scripted.last.body == {"settles": [{"receipt": "r4", "action": "ack"}]}

    for work, body in (
        (
            message.nack("bad gateway", delay="1m30s", position="back"),
            {"action": "nack", "reason": "bad gateway", "delay": "90000ms", "position": "back"},
        ),
        (message.nack(), {"action": "nack"}),
        (message.reject("no such account"), {"action": "reject", "reason": "no such account"}),
        (message.extend(60), {"action": "extend", "visibility": "60000ms"}),
        (message.release(), {"action": "release"}),
    ):
        await work
        assert scripted.last.body == {"settles": [{"receipt": "r4", **body}]}


async def test_an_extension_tells_until_when(scripted: ScriptedServer, client: AsyncClient) -> None:
    scripted.script("POST", RECEIVE, {"messages": [received()]})
    until = {"visible_at": "2026-11-21T10:01:00.123Z"}
    scripted.script("POST", SETTLE, {"results": [settled(0, "extended", **until)]})
    (message,) = await client.receive("billing", "orders")

    assert (await message.extend("1m")).visible_at_ms == T0_MS + 60_000


async def test_a_message_raises_its_own_error(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("POST", RECEIVE, {"messages": [received()]})
    scripted.script("POST", SETTLE, {"results": [{"receipt": "r0", **ReceiptExpired().to_body()}]})
    (message,) = await client.receive("billing", "orders")

    with pytest.raises(ReceiptExpired) as raised:
        await message.ack()

    assert raised.value.outcome == "none"


async def test_a_settle_is_repeated_and_a_loss_that_may_be_its_own_is_told_as_unknown(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("POST", RECEIVE, {"messages": [received()]})
    gone = {"receipt": "r0", **NotInFlight().to_body()}
    scripted.script("POST", SETTLE, Cut.NOW, {"results": [gone]}, {"results": [gone]})
    (message,) = await client.receive("billing", "orders")

    with pytest.raises(NotInFlight) as raised:
        await message.ack()
    assert raised.value.outcome == "unknown"

    with pytest.raises(NotInFlight) as raised:  # this one was never in doubt
        await message.ack()
    assert raised.value.outcome == "none"


async def test_a_repeated_settle_that_is_answered_is_simply_done(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("POST", RECEIVE, {"messages": [received()]})
    scripted.script("POST", SETTLE, Cut.NOW, {"results": [settled()]})
    (message,) = await client.receive("billing", "orders")

    assert (await message.ack()).state == "acked"


async def test_many_settle_at_once_each_with_its_own_result(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    expired = {"receipt": "r1", **ReceiptExpired().to_body()}
    scripted.script("POST", SETTLE, {"results": [settled(0), expired]})

    first, second = await client.settle("billing", [Settle("r0"), Settle("r1", "nack", "x")])

    assert isinstance(first, Settled)
    assert isinstance(second, ReceiptExpired)


async def test_acking_many_raises_what_failed_with_all_results(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("POST", RECEIVE, {"messages": [received(0), received(1)]})
    expired = {"receipt": "r1", **ReceiptExpired().to_body()}
    scripted.script(
        "POST", SETTLE, {"results": [settled(0), expired]}, {"results": [settled(0), settled(1)]}
    )
    messages = await client.receive("billing", "orders")

    with pytest.raises(
        SettleFailed, match="1 of 2 messages not settled: this delivery is over"
    ) as raised:
        await client.ack(messages)
    assert [type(result) for result in raised.value.results] == [Settled, ReceiptExpired]

    assert [result.offset for result in await client.ack(messages)] == [0, 1]
    assert len(scripted.last.body["settles"]) == 2


async def test_what_no_leader_could_settle_is_repeated_and_nothing_else(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    first = {"results": [settled(0), NoQuorum().to_body(), OutcomeUnknown().to_body()]}
    gone = NotInFlight().to_body()
    scripted.script("POST", SETTLE, first, {"results": [settled(1), gone]})

    results = await client.settle("billing", [Settle(f"r{n}") for n in range(3)])

    assert [getattr(result, "offset", None) for result in results] == [0, 1, None]
    assert isinstance(results[2], NotInFlight)
    assert results[2].outcome == "unknown"
    assert [one["receipt"] for one in scripted.last.body["settles"]] == ["r1", "r2"]


async def test_settles_beyond_a_request_go_in_several(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script(
        "POST",
        SETTLE,
        {"results": [settled(n) for n in range(1000)]},
        {"results": [settled(n) for n in range(1000, 1500)]},
    )

    results = await client.settle("billing", [Settle(f"r{n}") for n in range(1500)])

    assert [r.offset for r in results if isinstance(r, Settled)] == list(range(1500))


async def test_a_request_that_fails_fails_each_of_its_settles(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("POST", SETTLE, UnknownGroup("billing"))

    results = await client.settle("billing", [Settle("r0"), Settle("r1")])

    assert [type(result) for result in results] == [UnknownGroup, UnknownGroup]


async def test_results_that_do_not_fit_are_a_server_error(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("POST", SETTLE, {"results": []})

    (result,) = await client.settle("billing", [Settle("r0")])

    assert isinstance(result, ServerError)


@pytest.mark.parametrize(
    "settle",
    [
        Settle("r", "forget"),
        Settle("r", "nack", delay="soon"),
        Settle("r", "extend", visibility=-1),
    ],
    ids=["action", "delay", "visibility"],
)
async def test_a_settle_that_can_not_be_meant_is_not_sent(
    settle: Settle, scripted: ScriptedServer, client: AsyncClient
) -> None:
    with pytest.raises(BadRequest):
        await client.settle("billing", [settle])

    assert scripted.asked == []


async def test_receiving_goes_on_over_lost_answers(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script(
        "POST", RECEIVE, {"messages": [received(0)]}, Cut.NOW, {"messages": []}, NoQuorum(),
        {"messages": [received(1)]},
    )  # fmt: skip
    found = []

    async for message in client.receiving("billing", "orders"):
        found.append(message.offset)
        if len(found) == 2:
            break

    assert found == [0, 1]


async def test_closing_a_receiving_gives_back_what_was_not_yielded(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("POST", RECEIVE, {"messages": [received(0), received(1), received(2)]})
    scripted.script("POST", SETTLE, {"results": [settled(1), settled(2)]})
    received_ones = client.receiving("billing", "orders", limit=3)

    await anext(received_ones)
    await received_ones.aclose()

    assert scripted.last.body["settles"] == [
        {"receipt": "r1", "action": "release"},
        {"receipt": "r2", "action": "release"},
    ]


async def test_a_receiving_ends_with_an_error_that_will_not_pass(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("POST", RECEIVE, GroupHalted())

    with pytest.raises(GroupHalted):
        async for _ in client.receiving("billing", "orders"):
            raise AssertionError("nothing is delivered")


async def test_a_peek_takes_nothing(scripted: ScriptedServer, client: AsyncClient) -> None:
    body = received(3)
    del body["receipt"], body["visible_until"]
    scripted.script("POST", "/groups/billing/peek", {"messages": [body]})

    (message,) = await client.peek("billing", "orders", limit=1, partitions=[0])

    assert (message.offset, message.attempt) == (3, 1)
    assert scripted.last.body == {"topic": "orders", "limit": 1, "partitions": [0]}


async def test_positions_are_committed_and_sought(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    answer = {"group": "billing", "topic": "orders", "offsets": {"0": 12, "1": 3}}
    scripted.script("POST", "/groups/billing/commit", answer)
    scripted.script("POST", "/groups/billing/seek", answer)

    assert await client.commit("billing", "orders", {0: 12}) == {0: 12, 1: 3}
    assert scripted.last.body == {"topic": "orders", "offsets": {"0": 12}}
    assert await client.seek("billing", "orders", "earliest") == {0: 12, 1: 3}
    assert scripted.last.body == {"topic": "orders", "to": "earliest"}
    await client.seek("billing", "orders", 7, partition=1)
    assert scripted.last.body == {"topic": "orders", "to": 7, "partition": 1}


async def test_the_blocking_client_receives_and_settles(
    server: tuple[ScriptedServer, str],
) -> None:
    scripted, url = server
    scripted.script("POST", RECEIVE, {"messages": [received(0)]})
    scripted.script("POST", SETTLE, {"results": [settled(0)]})

    def work() -> None:
        with Client(url, retry=QUICK) as client:
            (message,) = client.receive("billing", "orders")
            assert (message.id, message.text, message.attempt) == ("orders:0:0", "v0", 1)
            assert message.ack().state == "acked"
            message.nack("later", delay=5)
            assert scripted.last.body["settles"][0]["delay"] == "5000ms"
            assert [done.offset for done in client.ack([message])] == [0]
            for again in client.receiving("billing", "orders"):
                assert again.reject("enough").committed_offset == 1
                break

    await asyncio.to_thread(work)
