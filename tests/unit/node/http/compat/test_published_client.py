"""GoQueue's published Python client against the front: its loop, and all that it says of groups."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.one_node import until
from tests.unit.node.http.compat.published_client import connect, load, work_through

VALUES = [f"order-{n}" for n in range(25)]


@pytest.fixture
def url(front):
    return f"http://127.0.0.1:{front.port}"


@pytest.fixture
async def published(url, orders):
    async with connect(url) as client:
        yield client


async def test_its_join_poll_ack_heartbeat_leave_loop_works_off_a_topic(url):
    answers = await work_through(url, "orders", "processors", VALUES)

    assert len(answers["ack"]) == len(VALUES)
    assert all(ack["success"] for ack in answers["ack"])
    assert not any(beat["rebalance_required"] for beat in answers["heartbeat"])
    (offsets,) = answers["get_offsets"]
    assert sum(offsets["offsets"]["orders"].values()) == len(VALUES)


@pytest.mark.parametrize(
    ("call", "type_name"),
    [
        ("join", "JoinGroupResponse"),
        ("heartbeat", "HeartbeatResponse"),
        ("poll", "PollResponse"),
        ("list", "GroupListResponse"),
        ("get", "GroupDetails"),
        ("get_offsets", "OffsetsResponse"),
    ],
)
async def test_answers_have_all_fields_of_its_types(url, call, type_name):
    answers = await work_through(url, "orders", "processors", VALUES)
    wanted = load("types").__dict__[type_name]

    fields = wanted.__required_keys__ | wanted.__optional_keys__
    for told in answers[call]:
        assert fields <= set(told)
        one_for_go = {"leader": bool(told["leader"])} if "leader" in fields else {}
        msgspec.convert({**told, **one_for_go}, wanted)


async def test_each_message_has_the_fields_of_its_type(url):
    answers = await work_through(url, "orders", "processors", VALUES)
    wanted = load("types").PollMessage

    for message in [message for polled in answers["poll"] for message in polled["messages"]]:
        assert set(wanted.__optional_keys__) <= set(message)
        msgspec.convert(message, wanted)


async def test_its_default_poll_is_answered_before_it_hangs_up(published, broker):
    member = await join(published, "worker-1")
    waits_s, poll = [], broker.polls.poll

    async def watched(*arguments, **options):
        waits_s.append(options["wait_s"])
        return await poll(*arguments, **{**options, "wait_s": 0.0})

    broker.polls.poll = watched
    await published.groups.poll("team", member["member_id"])

    assert 29 < waits_s[0] < published._http.timeout == 30


async def test_two_of_it_share_the_partitions_and_one_that_leaves_gives_its_own_back(published):
    first = await join(published, "worker-1")
    second = await join(published, "worker-2")

    told = await beat(published, first)
    after = await published.groups.get("team")
    await published.groups.leave("team", {"member_id": second["member_id"]})
    at_last = await until(
        lambda: beat(published, first), lambda told: len(told["assigned_partitions"]) == 3
    )

    assert first["leader"]
    assert not second["leader"]
    assert first["assigned_partitions"] == ["0", "1", "2"]
    assert not told["rebalance_required"]  # it would join again, as a third member
    had = {m["member_id"]: m["assigned_partitions"] for m in after["members"]}
    assert sorted(p for mine in had.values() for p in mine) == ["0", "1", "2"]
    assert sorted(map(len, had.values())) == [1, 2]
    assert at_last["assigned_partitions"] == ["0", "1", "2"]


async def test_it_commits_offsets_of_what_it_has_and_reads_them_back(published, put):
    await put(*[b"v"] * 9)
    member = await join(published, "worker-1")

    committed = await published.groups.commit_offsets(
        "team", {"member_id": member["member_id"], "offsets": {"orders": {"0": 7}}}
    )
    shown = await published.groups.get_offsets("team")

    assert committed["committed"]
    assert committed["status"] == "committed"
    assert shown["offsets"] == {"orders": {"0": 7, "1": 0, "2": 0}}


async def test_it_may_not_commit_what_another_has(published):
    await join(published, "worker-1")
    second = await join(published, "worker-2")
    not_its_own = next(p for p in ("0", "1", "2") if p not in second["assigned_partitions"])

    with pytest.raises(Exception, match="belongs to member") as refused:
        await published.groups.commit_offsets(
            "team",
            {"member_id": second["member_id"], "offsets": {"orders": {not_its_own: 1}}},
        )

    assert refused.value.status == 409
    assert refused.value.body["code"] == "stale_generation"


async def test_it_deletes_a_group_once_its_members_have_left(published):
    member = await join(published, "worker-1")

    with pytest.raises(Exception, match="active member") as refused:
        await published.groups.delete("team")
    await published.groups.leave("team", {"member_id": member["member_id"]})
    deleted = await published.groups.delete("team")

    assert refused.value.status == 409
    assert deleted["deleted"]
    assert (await published.groups.list())["groups"] == []


async def test_members_and_groups_that_are_not_there_are_404(published):
    await join(published, "worker-1")

    for group, member in (("team", "stranger"), ("nobody", "stranger")):
        for call in (
            published.groups.heartbeat(group, {"member_id": member, "generation": 1}),
            published.groups.poll(group, member, timeout="1s"),
            published.groups.leave(group, {"member_id": member}),
        ):
            with pytest.raises(Exception, match="GoQueueError") as refused:
                await call
            assert refused.value.status == 404


async def join(client: Any, name: str) -> dict[str, Any]:
    return await client.groups.join("team", {"client_id": name, "topics": ["orders"]})


async def beat(client: Any, member: dict[str, Any]) -> dict[str, Any]:
    return await client.groups.heartbeat(
        "team", {"member_id": member["member_id"], "generation": member["generation"]}
    )
