"""Members, lag and positions through the client: what is sent, and what is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from goqueue import AsyncClient, Client, RetryPolicy, TopicPartition
from goqueue.errors import (
    BadRequest,
    GroupActive,
    NoQuorum,
    OutcomeUnknown,
    StaleGeneration,
    UnknownMember,
)
from tests.unit.goqueue.queue_server import Cut, ScriptedServer, received

QUICK = RetryPolicy(attempts_max=4, backoff_s=0.001, backoff_max_s=0.005)
TOLD = {
    "member_id": "worker-1",
    "generation": 4,
    "revision": "4-0a",
    "assignment": [{"topic": "orders", "partition": 2}],
    "revoking": [{"topic": "orders", "partition": 1}],
    "state": "rebalancing",
    "session_timeout_ms": 6000,
    "heartbeat_interval_ms": 2000,
}


@pytest.fixture
async def client(server: tuple[ScriptedServer, str]) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server[1], retry=QUICK, attempt_timeout_s=20.0) as client:
        yield client


async def test_a_join_says_who_comes_and_is_told_what_it_has(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("POST", "/groups/billing/join", TOLD)

    told = await client.join_group(
        "billing", ["orders"], patterns=["logs.*"], client_id="worker", instance_id="w1",
        session_timeout="6s", mode="shared", wait=timedelta(seconds=1),
    )  # fmt: skip

    assert scripted.last.body == {
        "client_id": "worker",
        "topics": ["orders"],
        "patterns": ["logs.*"],
        "instance_id": "w1",
        "session_timeout": "6000ms",
        "lets_go": True,
        "mode": "shared",
        "wait": "1000ms",
    }
    assert (told.member_id, told.generation, told.revision) == ("worker-1", 4, "4-0a")
    assert told.assignment == [TopicPartition("orders", 2)]
    assert told.revoking == [TopicPartition("orders", 1)]


async def test_a_join_is_repeated_only_with_an_identity(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("POST", "/groups/billing/join", Cut.NOW, TOLD)

    with pytest.raises(OutcomeUnknown):
        await client.join_group("billing", ["orders"])
    scripted.script("POST", "/groups/billing/join", Cut.NOW, TOLD)

    assert (await client.join_group("billing", ["orders"], instance_id="w1")).generation == 4


async def test_a_heartbeat_waits_for_another_revision_and_lets_go(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("POST", "/groups/billing/heartbeat", NoQuorum(), TOLD)

    await client.heartbeat(
        "billing", "worker-1", revision="3-ff", wait="1s", let_go=[TopicPartition("orders", 1)]
    )

    assert len(scripted.asked) == 2
    assert scripted.last.body == {
        "member_id": "worker-1",
        "revision": "3-ff",
        "wait": "1000ms",
        "let_go": [{"topic": "orders", "partition": 1}],
    }


async def test_a_member_that_is_gone_is_told_so(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("POST", "/groups/billing/leave", UnknownMember("billing", "worker-1"))

    with pytest.raises(UnknownMember):
        await client.leave_group("billing", "worker-1")


async def test_a_member_receives_from_what_it_has(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("POST", "/groups/billing/receive", {"messages": [received()]})

    await client.receive(
        "billing", member="worker-1", generation=4, lowest_priority=1,
        assignment=[TopicPartition("orders", 2)],
    )  # fmt: skip

    assert scripted.last.body == {
        "limit": 10,
        "wait": "0ms",
        "member": "worker-1",
        "generation": 4,
        "assignment": [{"topic": "orders", "partition": 2}],
        "lowest_priority": 1,
    }


async def test_a_stale_generation_tells_which_and_where(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    stale = StaleGeneration(generation=7, partitions=["orders:2"])
    scripted.script("POST", "/groups/billing/receive", stale)

    with pytest.raises(StaleGeneration) as raised:
        await client.receive("billing", assignment=[TopicPartition("orders", 2)], generation=4)

    assert raised.value.data == {"generation": 7, "partitions": ["orders:2"]}


async def test_members_and_rebalances_have_their_fields(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script(
        "GET",
        "/groups/billing/members",
        {
            "group": "billing",
            "generation": 4,
            "state": "stable",
            "members": [
                {"id": "a", "client_id": "worker", "assignment": TOLD["assignment"], "topics": []}
            ],
        },
    )
    scripted.script(
        "GET",
        "/groups/billing/rebalances",
        {
            "group": "billing",
            "rebalances": [
                {
                    "id": 4,
                    "generation": 4,
                    "cause": "join",
                    "members": ["b"],
                    "started_at": "2026-11-21T10:00:00Z",
                    "ended_at": None,
                    "duration_ms": None,
                    "state": "running",
                    "moved": 1,
                    "moves": [
                        {"topic": "orders", "partition": 1, "from": "a", "to": "b", "pause_ms": 12}
                    ],
                }
            ],
            "totals": {"total": 4, "by_cause": {"join": 4}, "pause_ms_avg": 7.5},
        },
    )

    (member,) = (await client.admin.members("billing")).members
    found = await client.admin.rebalances("billing")

    assert member.assignment == [TopicPartition("orders", 2)]
    assert (found.rebalances[0].cause, found.rebalances[0].ended_at) == ("join", None)
    (move,) = found.rebalances[0].moves
    assert (move.former, move.member, move.pause_ms) == ("a", "b", 12)
    assert found.totals.by_cause == {"join": 4}


async def test_lag_and_offsets_are_by_topic_and_partition(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    row = {"topic": "orders", "partition": 1, "lag": 5, "lag_seconds": 1.5, "owner": "a"}
    scripted.script(
        "GET",
        "/groups/billing/lag",
        {"group": "billing", "total_lag": 5, "max_lag_seconds": 1.5, "partitions": [row]},
    )
    offsets = {"offsets": {"orders": {"1": 40}}}
    scripted.script("GET", "/groups/billing/offsets", offsets)
    scripted.script("POST", "/groups/billing/offsets", offsets)

    lag = await client.lag("billing", "orders")

    assert scripted.last.query == {"topic": "orders"}
    assert (lag.total_lag, lag.partitions[0].lag_seconds, lag.partitions[0].owner) == (5, 1.5, "a")
    assert await client.offsets("billing") == {"orders": {1: 40}}
    assert await client.commit_offsets(
        "billing", {"orders": {1: 40}}, member="a", generation=4
    ) == {"orders": {1: 40}}
    assert scripted.last.body == {
        "member_id": "a",
        "generation": 4,
        "offsets": {"orders": {"1": 40}},
    }


async def test_a_reset_says_where_to_in_exactly_one_way(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    row = {"topic": "orders", "partition": 0, "before": 9, "after": 4, "replayed": 5, "skipped": 0}
    scripted.script(
        "POST", "/groups/billing/offsets/reset", {"offsets": [row]}, GroupActive(members=2)
    )

    (reset,) = await client.admin.reset_offsets("billing", "orders", duration="1h", dry_run=True)

    assert (reset.before, reset.after, reset.replayed) == (9, 4, 5)
    assert scripted.last.body == {"topic": "orders", "duration": "3600000ms", "dry_run": True}
    with pytest.raises(GroupActive):
        await client.admin.reset_offsets("billing", "orders", to="earliest", partitions=[0])
    with pytest.raises(BadRequest, match="one of"):
        await client.admin.reset_offsets("billing", "orders", to="latest", shift=-1)


async def test_a_group_with_members_is_deleted_only_by_force(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    scripted.script("DELETE", "/groups/billing", GroupActive(members=2), {"deleted": True})

    with pytest.raises(GroupActive):
        await client.delete_group("billing")
    await client.delete_group("billing", force=True)

    assert [asked.query for asked in scripted.asked] == [{}, {"force": "true"}]


async def test_lists_count_members_and_a_description_names_them(
    scripted: ScriptedServer, client: AsyncClient
) -> None:
    detail = {"name": "billing", "state": "stable", "members": 2, "generation": 4}
    scripted.script("GET", "/groups", {"groups": ["billing"], "details": [detail]})
    scripted.script("GET", "/groups/billing", {**detail, "members": [{"id": "a"}, {"id": "b"}]})

    (listed,) = await client.list_groups()
    described = await client.group("billing")

    assert (listed.member_count, listed.members) == (2, [])
    assert [member.id for member in described.members] == ["a", "b"]
    assert described.member_count == 2


async def test_the_blocking_client_has_the_same_calls(
    server: tuple[ScriptedServer, str], scripted: ScriptedServer
) -> None:
    scripted.script("POST", "/groups/billing/join", TOLD)

    def work() -> int:
        with Client(server[1], retry=QUICK) as client:
            return client.join_group("billing", ["orders"]).generation

    assert await asyncio.to_thread(work) == 4
