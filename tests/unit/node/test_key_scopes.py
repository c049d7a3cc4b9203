"""Keys with prefixes on a whole node: what the node itself must tell for them to be held."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from log.memory_disk import MemoryDisk
from tests.unit.node.http.published_client import load
from tests.unit.node.test_node import config, eventually, running

ROOT = "root.0123456789abcdef"


class Keyed:
    """A node that is asked with keys."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self.url = url

    async def __call__(
        self, method: str, path: str, body: Any = None, token: str = ROOT
    ) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        async with self._session.request(
            method, self.url + path, json=body, headers=headers
        ) as answer:
            return answer.status, await answer.json(content_type=None)

    async def key(self, role: str, *prefixes: str) -> str:
        wanted = {"role": role, "prefixes": prefixes}
        status, made = await self("POST", "/admin/keys", wanted)
        assert status == 201, made
        return str(made["key"])


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Keyed]:
    file = tmp_path / "admin-key"
    file.write_text(ROOT)
    settings = config(**{"auth.enabled": True, "auth.adminKeyFile": str(file)})
    async with running(MemoryDisk(), settings) as node, aiohttp.ClientSession() as session:
        keyed = Keyed(session, f"http://127.0.0.1:{node.front.port}")
        await eventually(lambda: "root" in node.broker._cluster.state.keys.by_id)
        for topic in ("mine.a", "orders"):
            assert (await keyed("POST", "/topics", {"name": topic}))[0] == 201
            sent = await keyed("POST", f"/topics/{topic}/messages", {"value": topic, "key": "k"})
            assert sent[0] == 200
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
