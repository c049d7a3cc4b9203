"""The queue's figures: what GoQueue's server says and what its clients read, in one answer."""

from __future__ import annotations

import pytest

from tests.one_node import until


@pytest.fixture
async def worked(client, clock, put, take):
    """One message of each kind of end, lanes and delays among them."""
    await take()  # since when the group waits
    await put(*[b"v"] * 6, lanes=[0, 1, 2, 2, 3, 4])
    await put(b"later", b"never", deliver_at_ms=[60_000, 90_000], partition=1)
    await client("DELETE", "/topics/orders/delayed/1/1")
    clock.now_ms += 2000
    acked, nacked, rejected, extended, expired = await take(limit=5)
    await client.post("/messages/ack", {"receipt_handle": acked["receipt"]})
    await client.post("/messages/nack", {"receipt_handle": nacked["receipt"], "delay": "1h"})
    await client.post("/messages/reject", {"receipt_handle": rejected["receipt"], "reason": "bad"})
    await client.post(
        "/messages/visibility", {"receipt_handle": extended["receipt"], "timeout": "1h"}
    )
    clock.now_ms += 30_000
    await until(
        lambda: client.get("/reliability/stats"),
        lambda answer: answer.json["ack_manager"]["total_expired"] == 1,
    )
    return expired


async def test_reliability_says_what_became_of_messages(client, worked):
    stats = (await client.get("/reliability/stats")).json

    assert stats["ack_manager"] == {
        "total_acks": 1,
        "total_nacks": 1,
        "total_rejects": 1,
        "total_expired": 1,
        "total_retries": 0,
        "total_dlq": 1,
        "current_queued": 1,
    }
    assert stats["visibility_tracker"] == {
        "total_tracked": 5,
        "current_in_flight": 1,
        "total_expired": 1,
        "total_acked": 1,
        "total_extended": 1,
    }
    assert stats["dlq"]["total_routed"] == stats["dlq"]["current"] == 1
    assert stats["dlq"]["routes_by_reason"] == {"bad": 1}
    assert stats["dlq"]["routes_by_topic"] == {"orders": 1}
    assert stats["dlq"]["routes_by_group"] == {"workers": 1}
    assert (stats["acks_total"], stats["nacks_total"], stats["rejects_total"]) == (1, 1, 1)
    assert (stats["dlq_messages"], stats["visibility_extensions"]) == (1, 1)


async def test_delays_are_counted_under_every_name(client, worked):
    stats = (await client.get("/delay/stats")).json

    assert stats["total_scheduled"] == 2
    assert stats["total_pending"] == stats["pending_count"] == 1
    assert stats["total_canceled"] == stats["canceled_count"] == stats["cancelled_count"] == 1
    assert stats["total_delivered"] == stats["delivered_count"] == 0
    assert stats["avg_delay"] == "1m15s"
    assert stats["by_topic"] == {"orders": 1}
    assert stats["timer_wheel"]["current_active"] == 1
    assert stats["timer_wheel"]["next_due"] == "2025-01-14T15:01:00.000Z"
    assert stats["topics"]["orders"]["scheduled"] == 2


async def test_lanes_show_counts_waits_and_what_the_bound_follows_from(client, worked):
    stats = (await client.get("/priority/stats")).json

    assert stats["lanes"] == ["critical", "high", "normal", "low", "background"]
    assert stats["total_by_priority"] == [1, 1, 4, 1, 1]
    assert stats["messages_by_priority"]["normal"] == 4
    assert stats["avg_wait_time_by_priority"]["critical"] == "2s"
    assert stats["topics"]["orders"]["total_by_priority"] == [1, 1, 4, 1, 1]
    partition = stats["topics"]["orders"]["partitions"]["0"]
    assert partition["pending"] == [0, 0, 0, 1, 1]
    assert partition["total"] == [1, 1, 2, 1, 1]
    assert partition["consumed"] == [1, 1, 2, 0, 0]
    assert [bool(time) for time in partition["oldest_pending"]] == [False, False, False, True, True]
    (group,) = [g for g in stats["groups"] if g["partition"] == 0]
    assert (group["lane_max_wait_ms"], group["lane_share"]) == (30_000, 5)
    assert (group["backlog"], group["delivered"]) == (2, 5)
    assert group["lanes"]["background"]["wait_ms"] == 32_000
    assert "lane_share" in stats["wait_formula"]


async def test_an_empty_server_has_figures_too(client):
    for path in ("/delay/stats", "/priority/stats", "/reliability/stats"):
        assert (await client.get(path)).status == 200
