"""Receipts of rebalances over HTTP."""

from __future__ import annotations

import pytest

from tests.one_node import until

GROUP = "/groups/team"


@pytest.fixture
def join(client, orders):
    """Joins `team`; what it was told."""

    async def send(**body):
        wanted = {"client_id": "w", "topics": ["orders"], **body}
        return (await client.post(f"{GROUP}/join", wanted)).json

    return send


async def test_each_rebalance_says_why_what_moved_and_how_long_it_paused(client, join, clock, put):
    first = await join(lets_go=True, session_timeout="10s")
    await put(b"v", partition=2)
    taken = {"member": first["member_id"], "generation": 1, "assignment": first["assignment"]}
    await client.post(f"{GROUP}/receive", taken)
    second = await join(wait=0)
    running = (await client.get(f"{GROUP}/rebalances")).json
    await clock.pass_ms(11_000)

    async def rebalances():
        return await client.get(f"{GROUP}/rebalances")

    def is_over(answer):
        newest = answer.json["rebalances"][0]
        return (newest["cause"], newest["state"]) == ("expiry", "done")

    told = (await until(rebalances, is_over)).json

    assert running["rebalances"][0]["state"] == "running"
    assert running["rebalances"][0]["ended_at"] is None
    assert [r["cause"] for r in told["rebalances"]] == ["expiry", "join", "join"]
    last, joined, _ = told["rebalances"]
    assert last["members"] == [first["member_id"]]
    assert (joined["id"], joined["generation"], joined["state"]) == (2, 2, "done")
    assert joined["started_at"] == "2025-01-14T15:00:00.000Z"
    assert 10_000 <= joined["duration_ms"] <= 11_000, "as soon as the expiry has committed"
    moves = {move["partition"]: move for one in (last, joined) for move in one["moves"]}
    pause_ms = moves[2].pop("pause_ms")
    assert 10_000 <= pause_ms <= 11_000
    assert moves[2] == {
        "topic": "orders",
        "partition": 2,
        "from": first["member_id"],
        "to": second["member_id"],
        "in_flight": 1,
        "fenced": True,
    }
    assert told["totals"]["total"] == 3
    assert told["totals"]["by_cause"] == {"join": 2, "expiry": 1}
    assert (told["totals"]["moved"], told["totals"]["fenced"]) == (6, 3)
    assert told["totals"]["pause_ms_max"] == pause_ms
    assert told["totals"]["pause_ms_avg"] == pause_ms // 2


async def test_the_newest_come_first_and_as_many_as_are_asked_for(client, join):
    for _ in range(4):
        await join()

    some = (await client.get(f"{GROUP}/rebalances?limit=2")).json
    bad = await client.get(f"{GROUP}/rebalances?limit=0")

    assert [one["id"] for one in some["rebalances"]] == [4, 3]
    assert some["totals"]["total"] == 4
    assert bad.status == 400


async def test_topics_that_come_and_go_are_causes(client, join, broker):
    await join(topics=None, patterns=["pay*"])
    await broker.topics.create_topic("payments", {"partitions": 1})
    await broker.topics.delete_topic("payments")

    told = (await client.get(f"{GROUP}/rebalances")).json

    assert [one["cause"] for one in told["rebalances"]] == ["topic", "topic", "join"]


async def test_figures_are_of_a_group_or_of_all(client, join):
    await join()
    await join()
    await client.post("/groups/others/join", {"client_id": "w", "topics": ["orders"]})

    one = (await client.get(f"{GROUP}/rebalance/stats")).json
    both = (await client.get("/rebalance/stats")).json

    assert one == {
        "total_rebalances": 2,
        "successful_rebalances": 2,
        "failed_rebalances": 0,
        "total_partitions_revoked": 1,
        "total_partitions_assigned": 4,
        "total_revocation_timeouts": 0,
        "last_rebalance_duration_ms": 0,
        "average_rebalance_duration_ms": 0.0,
        "last_rebalance_at": "2025-01-14T15:00:00.000Z",
        "rebalances_by_reason": {"join": 2},
    }
    assert (both["total_rebalances"], both["rebalances_by_reason"]) == (3, {"join": 3})


async def test_there_are_figures_where_nothing_was_rebalanced(client):
    told = (await client.get("/rebalance/stats")).json

    assert told["total_rebalances"] == 0
    assert told["last_rebalance_at"] is None
