"""Whose groups are whose, on a whole node: a group belongs to the scope that made it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.commands.queue import PutGroup
from log.disk.memory import MemoryDisk
from tests.unit.node.keyed import Keyed, keyed_node

A, B = "team-a.", "team-b."


@pytest.fixture
async def level_one(tmp_path: Path) -> AsyncIterator[Keyed]:
    """Two teams with a topic each, on a node that has not finished the level."""
    async with keyed_node(MemoryDisk(), tmp_path) as keyed:
        for topic in (A + "jobs", B + "jobs", "shared.jobs"):
            await keyed.ok("POST", "/topics", {"name": topic, "partitions": 1})
            await keyed.ok("POST", f"/topics/{topic}/messages", {"value": topic})
        yield keyed


@pytest.fixture
async def node(level_one: Keyed) -> Keyed:
    await level_one.finish_level()
    return level_one


async def whole(node: Keyed, group: str) -> Any:
    """All that the cluster knows of a group, but for what time alone changes."""
    found = await node.ok("GET", f"/groups/{group}")
    found["members"] = [(one["member_id"], one["assignment"]) for one in found["members"]]
    for place in found["partitions"]:
        place.pop("lane_wait_ms", None)
        place.pop("lane_wait_ms_max", None)
    return found


def attempts(topic: str, group: str) -> list[tuple[str, str, Any]]:
    """All that a key of another prefix may try with a group's name, on a topic of its own."""
    path = f"/groups/{group}"
    return [
        ("POST", f"{path}/receive", {"topic": topic}),
        ("POST", f"{path}/receive", {"assignment": [{"topic": topic, "partition": 0}]}),
        ("POST", f"{path}/peek", {"topic": topic}),
        ("POST", f"{path}/join", {"client_id": "c", "topics": [topic]}),
        ("POST", f"{path}/join", {"client_id": "c", "patterns": [topic[:7] + "*"]}),
        ("POST", f"{path}/join/cooperative", {"client_id": "c", "topics": [topic]}),
        ("POST", f"{path}/heartbeat", {"member_id": "m", "wait": "1ms"}),
        ("POST", f"{path}/leave", {"member_id": "m"}),
        ("GET", f"{path}/poll?member_id=m", None),
        ("GET", f"{path}/members", None),
        ("GET", f"{path}/rebalances", None),
        ("GET", path, None),
        ("GET", f"{path}?topic={topic}", None),
        ("PUT", path, {"max_attempts": 9}),
        ("DELETE", path, None),
        ("DELETE", f"{path}?force=true", None),
        ("GET", f"{path}/lag", None),
        ("GET", f"{path}/lag?topic={topic}", None),
        ("GET", f"{path}/offsets?topic={topic}", None),
        ("POST", f"{path}/offsets", {"offsets": {topic: {"0": 1}}}),
        ("POST", f"{path}/offsets/reset", {"topic": topic, "to": "latest"}),
        ("POST", f"{path}/offsets/reset", {"topic": topic, "to": "latest", "dry_run": True}),
        ("POST", f"{path}/commit", {"topic": topic, "offsets": {"0": 1}}),
        ("POST", f"{path}/seek", {"topic": topic, "to": "earliest"}),
        ("POST", f"{path}/resume", {}),
        ("POST", f"{path}/resume", {"topic": topic}),
        ("POST", f"{path}/keys/park", {"topic": topic, "key": "k"}),
        ("POST", f"{path}/keys/release", {"topic": topic, "key": "k"}),
        ("GET", f"{path}/dlq?topic={topic}", None),
        ("POST", f"{path}/dlq/redrive", {"topic": topic}),
        ("POST", f"{path}/dlq/redrive", {"topic": topic, "dry_run": True}),
        ("POST", f"{path}/dlq/purge", {"topic": topic}),
        ("GET", f"{path}/dlq/redrives", None),
        ("POST", f"{path}/ack", {"receipts": ["x"]}),
        ("POST", f"{path}/settle", {"settles": [{"receipt": "x", "action": "ack"}]}),
    ]


@pytest.mark.parametrize("group", ["team-b.workers", "workers"])
async def test_a_group_is_its_makers_and_nobody_elses_whatever_topics_they_name(
    node: Keyed, group: str
) -> None:
    a, b = await node.key("consumer", A), await node.key("consumer", B)
    await node.ok("POST", f"/groups/{group}/receive", {"topic": B + "jobs"}, b)
    joining = {"client_id": "c", "topics": [B + "jobs"], "wait": "20s"}
    await node.ok("POST", f"/groups/{group}/join", joining, b)
    before = await whole(node, group)
    assert before["owner"] == B

    for method, path, body in attempts(A + "jobs", group):
        status, answer = await node(method, path, body, a)
        assert (status, answer["missing"]) == (403, "scope"), (method, path, answer)
        assert answer["prefixes"] == [A]

    assert await whole(node, group) == before
    assert group not in str(await node.ok("GET", "/groups", None, a))
    for path in ("", "/lag", f"/offsets?topic={B}jobs", "/members"):
        await node.ok("GET", f"/groups/{group}{path}", None, b)
    joined = await node.ok(
        "POST", f"/groups/{group}/join", {"client_id": "d", "topics": [B + "jobs"]}, b
    )
    await node.ok("POST", f"/groups/{group}/leave", {"member_id": joined["member_id"]}, b)
    await node.ok("DELETE", f"/groups/{group}?force=true", None, b)


async def test_a_fresh_group_without_topics_is_its_owners_and_the_admins(node: Keyed) -> None:
    a, b = await node.key("consumer", A), await node.key("consumer", B)
    await node.ok("PUT", "/groups/fresh", {"max_attempts": 7}, b)
    await node.ok("PUT", "/groups/admins", {"max_attempts": 7})

    for group in ("fresh", "admins"):
        for method, path, body in (
            ("GET", f"/groups/{group}", None),
            ("PUT", f"/groups/{group}", {"max_attempts": 1}),
            ("DELETE", f"/groups/{group}", None),
            ("POST", f"/groups/{group}/join", {"client_id": "c", "topics": [A + "jobs"]}),
        ):
            assert (await node(method, path, body, a))[0] == 403
        assert (await node("PATCH", f"/groups/{group}", {"max_attempts": 1}, a))[0] in (403, 404)
        assert (await whole(node, group))["settings"]["max_attempts"] == 7
    assert (await node.ok("GET", "/groups", None, a))["groups"] == []
    assert (await node.ok("GET", "/groups", None, b))["groups"] == ["fresh"]

    await node.ok("PATCH", "/groups/fresh", {"max_attempts": 8}, b)
    await node.ok("DELETE", "/groups/fresh", None, b)


async def test_names_under_anothers_prefix_can_not_be_taken(node: Keyed) -> None:
    a, b = await node.key("consumer", A), await node.key("consumer", B)

    for method, path, body in (
        ("PUT", "/groups/team-b.next", {"max_attempts": 1}),
        ("POST", "/groups/team-b.next/receive", {"topic": A + "jobs"}),
        ("POST", "/groups/team-b.next/commit", {"topic": A + "jobs", "offsets": {"0": 0}}),
        ("POST", "/groups/team-b.next/join", {"client_id": "c", "topics": [A + "jobs"]}),
    ):
        assert (await node(method, path, body, a))[0] == 403

    assert (await node("GET", "/groups/team-b.next"))[0] == 404
    await node.ok("POST", "/groups/team-b.next/receive", {"topic": B + "jobs"}, b)


async def test_a_group_that_an_admin_made_is_reached_by_its_names_prefix(node: Keyed) -> None:
    a, b = await node.key("consumer", A), await node.key("consumer", B)
    await node.ok("PUT", "/groups/team-b.ready", {"max_attempts": 7})

    assert (await whole(node, "team-b.ready"))["owner"] == "*"
    assert (await node("PUT", "/groups/team-b.ready", {"max_attempts": 1}, a))[0] == 403
    await node.ok("POST", "/groups/team-b.ready/receive", {"topic": B + "jobs"}, b)
    await node.ok("DELETE", "/groups/team-b.ready", None, b)


async def test_group_prefixes_may_differ_from_those_of_topics(node: Keyed) -> None:
    both = await node.key("consumer", "shared.", group_prefixes=["bills-"])
    other = await node.key("consumer", "shared.", group_prefixes=["mails-"])
    every = await node.key("consumer", "shared.", group_prefixes=["*"])
    jobs = {"topic": "shared.jobs"}
    await node.ok("POST", "/groups/bills-1/receive", jobs, both)

    assert (await node("POST", "/groups/bills-1/receive", jobs, other))[0] == 403
    assert (await node("POST", "/groups/bills-2/receive", jobs, other))[0] == 403
    _, denied = await node("GET", "/groups/bills-1", None, other)
    assert denied["prefixes"] == ["mails-"] and "mails-*" in denied["error"]
    await node.ok("POST", "/groups/bills-1/receive", jobs, every)
    assert (await node("POST", "/groups/bills-1/receive", {"topic": A + "jobs"}, every))[0] == 403
    listed = (await node.ok("GET", "/admin/keys"))["keys"]
    groups = sorted(one["group_prefixes"] for one in listed)
    assert groups == [["*"], ["*"], ["bills-"], ["mails-"]]


async def test_receipts_of_anothers_group_on_a_shared_topic_settle_nothing(node: Keyed) -> None:
    bills = await node.key("consumer", "shared.", group_prefixes=["bills-"])
    mails = await node.key("consumer", "shared.", group_prefixes=["mails-"])
    jobs = {"topic": "shared.jobs", "limit": 1}
    taken = await node.ok("POST", "/groups/bills-1/receive", jobs, bills)
    receipt = taken["messages"][0]["receipt"]

    assert (await node("POST", "/messages/ack", {"receipt_handle": receipt}, mails))[0] == 403
    assert (await node("POST", "/groups/bills-1/ack", {"receipts": [receipt]}, mails))[0] == 403
    await node.ok("POST", "/groups/mails-1/receive", jobs, mails)
    told = await node.ok("POST", "/groups/mails-1/ack", {"receipts": [receipt]}, mails)
    assert told["results"][0]["code"] == "forbidden"
    stats = await node.ok("GET", "/reliability/stats", None, mails)
    assert "bills-1" not in str(stats)
    assert (await node("POST", "/messages/ack", {"receipt_handle": receipt}, bills))[0] == 200


async def test_groups_that_exist_keep_todays_rule_until_they_are_assigned(
    level_one: Keyed,
) -> None:
    """Given a group of level 1 that the other team got into: when it is assigned, it is its
    owner's alone, whatever it was in."""
    node = level_one
    a, b = await node.key("consumer", A), await node.key("consumer", B)
    await node.ok("POST", "/groups/old/receive", {"topic": B + "jobs"}, b)
    await node.ok("POST", "/groups/old/receive", {"topic": A + "jobs"}, a)
    status, told = await node("PUT", "/groups/old/owner", {"owner": B})
    assert (status, told["code"]) == (409, "level_not_finished")
    status, told = await node(
        "POST", "/admin/keys", {"role": "consumer", "prefixes": [A], "group_prefixes": ["x"]}
    )
    assert (status, told["code"]) == (409, "level_not_finished")

    await node.finish_level()
    await node.ok("POST", "/groups/new/receive", {"topic": B + "jobs"}, b)
    assert (await node("GET", "/groups/old/lag", None, b))[0] == 403  # it is in team-a.jobs too
    await node.ok("POST", "/groups/old/receive", {"topic": A + "jobs"}, a)
    listed = await node.ok("GET", "/groups?unowned=true")
    assert [(one["name"], one["owner"]) for one in listed["details"]] == [("old", None)]

    for token in (a, b):
        assert (await node("PUT", "/groups/old/owner", {"owner": B}, token))[0] == 403
    assert (await node("PUT", "/groups/old/owner", {"owner": "no prefix"}))[0] == 400
    assert (await node("PUT", "/groups/nobody/owner", {"owner": B}))[0] == 404
    assert await node.ok("PUT", "/groups/old/owner", {"owner": B}) == {"group": "old", "owner": B}
    assert (await node.ok("GET", "/groups?unowned=true"))["details"] == []
    assert (await node("POST", "/groups/old/receive", {"topic": A + "jobs"}, a))[0] == 403
    lag = await node.ok("GET", "/groups/old/lag", None, b)
    assert {one["topic"] for one in lag["partitions"]} == {B + "jobs"}
    seen = await node.ok("GET", "/groups/old", None, b)
    assert {one["topic"] for one in seen["partitions"]} == {B + "jobs"}
    await node.ok("DELETE", "/groups/old", None, b)


async def test_two_scopes_that_make_a_group_at_once_do_not_share_it(node: Keyed) -> None:
    """Given a key that was held against no group of the name: when another scope has made one by
    then, then it is refused, and nothing of the group changes."""
    a, b = await node.key("consumer", A), await node.key("consumer", B)
    tokens = {A: a, B: b}

    async def receive(team: str) -> tuple[int, Any]:
        body = {"topic": team + "jobs"}
        return await node("POST", "/groups/race/receive", body, tokens[team])

    told = await asyncio.gather(*(receive(team) for team in (A, B) * 8))
    winner = (await whole(node, "race"))["owner"]
    for team, (status, answer) in zip((A, B) * 8, told, strict=True):
        if team == winner:
            assert status == 200
        else:
            assert answer["code"] in ("group_taken", "forbidden"), answer
    places = (await whole(node, "race"))["partitions"]
    assert {place["topic"] for place in places} == {winner + "jobs"}


async def test_owners_and_group_prefixes_outlive_the_node(tmp_path: Path) -> None:
    disk = MemoryDisk()
    async with keyed_node(disk, tmp_path) as node:
        await node.finish_level()
        await node.ok("POST", "/topics", {"name": "shared.jobs"})
        bills = await node.key("consumer", "shared.", group_prefixes=["bills-"])
        mails = await node.key("consumer", "shared.", group_prefixes=["mails-"])
        await node.ok("POST", "/groups/own/receive", {"topic": "shared.jobs"}, bills)

    async with keyed_node(disk, tmp_path) as node:
        assert (await whole(node, "own"))["owner"] == "bills-"
        denied = await node("POST", "/groups/own/receive", {"topic": "shared.jobs"}, mails)
        assert denied[0] == 403
        await node.ok("POST", "/groups/own/receive", {"topic": "shared.jobs"}, bills)


async def test_nothing_of_it_is_written_before_the_level_is_finished(level_one: Keyed) -> None:
    sent: list[object] = []
    cluster = level_one.node.broker.topics._cluster
    command = cluster.command

    async def watched(*rest: Any, **named: Any) -> Any:
        sent.append(rest[0])
        return await command(*rest, **named)

    cluster.command = watched  # type: ignore[method-assign]
    b = await level_one.key("consumer", B)
    await level_one.ok("POST", "/groups/g/receive", {"topic": B + "jobs"}, b)

    made = [one for one in sent if isinstance(one, PutGroup)]
    assert [(one.owner, one.judged) for one in made] == [(None, 0)]
