"""Keys with prefixes on a whole node: what the node itself must tell for them to be held."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from log.disk.memory import MemoryDisk
from tests.unit.node.http.compat.published_client import load
from tests.unit.node.keyed import ROOT, Keyed, keyed_node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Keyed]:
    async with keyed_node(MemoryDisk(), tmp_path) as keyed:
        for topic in ("mine.a", "orders"):
            await keyed.ok("POST", "/topics", {"name": topic})
            await keyed.ok("POST", f"/topics/{topic}/messages", {"value": topic, "key": "k"})
        yield keyed


async def test_receipts_groups_and_searches_of_others_are_out_of_reach(node: Keyed) -> None:
    token = await node.key("consumer", "mine.")
    both = {"topics": ["mine.a", "orders"], "limit": 10}
    _, taken = await node("POST", "/groups/shared/receive", both)
    receipts = [one["receipt"] for one in sorted(taken["messages"], key=lambda m: m["topic"])]

    _, settled = await node("POST", "/groups/shared/ack", {"receipts": receipts}, token)
    assert [one.get("code") for one in settled["results"]] == [None, "forbidden"]
    assert (await node("GET", "/groups/shared/lag", None, token))[0] == 403
    assert (await node("DELETE", "/groups/shared", None, token))[0] == 403
    assert (await node("PUT", "/groups/shared", {"max_attempts": 1}, token))[0] == 403
    _, found = await node("GET", "/messages?key=k", None, token)
    assert [one["topic"] for one in found["messages"]] == ["mine.a"]
    _, listed = await node("GET", "/groups", None, token)
    assert listed["groups"] == []

    mine = {"topic": "mine.a", "limit": 1}
    assert (await node("POST", "/groups/own/receive", mine, token))[0] == 200
    assert (await node("GET", "/groups/own/lag", None, token))[0] == 200
    assert (await node("PUT", "/groups/own", {"max_attempts": 1}, token))[0] == 200
    assert (await node("PUT", "/groups/new", {"max_attempts": 1}, token))[0] == 200


async def test_members_of_others_groups_can_not_be_acted_for(node: Keyed) -> None:
    token = await node.key("consumer", "mine.")
    team = {"client_id": "c", "topics": ["orders"]}
    _, joined = await node("POST", "/groups/team/join", team)
    member = joined["member_id"]

    leave = {"member_id": member}
    assert (await node("POST", "/groups/team/leave", leave, token))[0] == 403
    assert (await node("GET", f"/groups/team/poll?member_id={member}", None, token))[0] == 403
    assert (await node("POST", "/groups/team/leave", leave))[0] == 200
    own = {"client_id": "c", "patterns": ["mine.*"]}
    status, joined = await node("POST", "/groups/own/join", own, token)
    assert status == 200
    polled = await node("GET", f"/groups/own/poll?member_id={joined['member_id']}", None, token)
    assert polled[0] == 200


async def test_the_published_client_works_with_a_key_in_its_headers(node: Keyed) -> None:
    token = await node.key("producer", "mine.")
    for headers in ({"Authorization": f"Bearer {token}"}, {"X-API-Key": token}):
        async with load("client").GoQueueClient(node.url, headers=headers) as client:
            sent = await client.messages.publish("mine.a", [{"value": "v"}])
            assert sent["results"][0]["offset"] >= 0
            with pytest.raises(Exception, match="beyond the reach"):
                await client.messages.publish("orders", [{"value": "v"}])


async def test_health_warns_those_who_run_the_cluster_until_groups_have_owners(
    node: Keyed,
) -> None:
    """A new cluster begins with level 1: groups belong to nobody there, with keys or without."""
    producer, everywhere = await node.key("producer", "mine."), await node.key("readonly", "*")

    for token in (ROOT, everywhere):
        shown = await node.ok("GET", "/cluster/health", None, token)
        assert "upgrade --finish" in str(shown["warnings"])
    assert (await node.ok("GET", "/cluster/health", None, producer))["warnings"] == []

    await node.finish_level()
    assert "level" not in str((await node.ok("GET", "/cluster/health"))["warnings"])
