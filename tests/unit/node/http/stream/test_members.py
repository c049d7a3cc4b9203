"""Members on streams: kept alive, told their partitions, and given messages of those only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from node.api.members import JoinRequest
from node.http.stream.session import SILENT
from tests.one_node import eventually as holds
from tests.unit.node.http.stream.talk import Talker, passed, talking


@pytest.fixture(autouse=True)
async def level(broker):
    await broker.upgrade.finish_level()


@pytest.fixture
def join(broker, orders):
    """Joins the group `workers`; the member's id."""

    async def joined(client_id, *, wait_s=2.0, **options):
        wanted = JoinRequest(client_id, [orders], lets_go=True, **options)
        return (await broker.members.join("workers", wanted, wait_s=wait_s)).member

    return joined


@asynccontextmanager
async def member_of(front, member, **options) -> AsyncIterator[Talker]:
    async with talking(front) as talker:
        await talker.subscribe(member_id=member, **options)
        yield talker


def places(told, name="assignment"):
    return {place["partition"] for place in told[name]}


async def test_a_member_is_told_what_it_has_and_given_messages_of_that(front, put, join, broker):
    member = await join("one")
    async with member_of(front, member) as talker:
        told = await talker.hear("assignment")
        assert (told["member_id"], told["mode"]) == (member, "exclusive")
        assert places(told) == {0, 1, 2}
        await put(b"a", partition=1)

        (one,) = await talker.take(1)

        assert (await talker.settled("ack", one))["settled"] == 1


async def test_a_member_that_is_silent_is_lost_though_it_holds_nothing(front, join, clock):
    async with talking(front, autoping=False) as talker:
        await talker.subscribe(member_id=await join("one"))
        await talker.hear("assignment")
        (session,) = front._streams._open
        await passed(clock, front, 8, silent=1)
        assert session._end is None
        await passed(clock, front, 3, silent=1)
        assert session._end is SILENT


async def test_partitions_change_hands_over_streams(front, put, join):
    first = await join("one")
    async with member_of(front, first) as talker:
        assert places(await talker.hear("assignment")) == {0, 1, 2}
        second = await join("two", wait_s=0)
        revoked = await talker.hear("assignment")
        gone = places(revoked, "revoking")
        assert gone and revoked["rebalance_required"]
        async with member_of(front, second) as other:
            await other.hear("assignment")
            await talker.say("heartbeat", let_go=revoked["revoking"])

            mine = await talker.hear("assignment")
            while places(mine, "revoking") or places(mine) & gone:
                mine = await talker.hear("assignment")
            theirs = await other.hear("assignment")
            while places(theirs) != gone:
                theirs = await other.hear("assignment")
            for partition in range(3):
                await put(b"%d" % partition, partition=partition)

            assert {one["partition"] for one in await talker.take(3 - len(gone))} == places(mine)
            assert {one["partition"] for one in await other.take(len(gone))} == gone


async def test_nothing_is_delivered_of_what_is_to_be_let_go_of(front, put, join):
    first = await join("one")
    async with member_of(front, first) as talker:
        await talker.hear("assignment")
        await join("two", wait_s=0)
        revoked = await talker.hear("assignment")
        gone = places(revoked, "revoking")
        for partition in range(3):
            await put(b"%d" % partition, partition=partition)

        found = await talker.take(3 - len(gone))

        assert not {one["partition"] for one in found} & gone


async def test_a_member_lives_as_long_as_its_stream(front, join, broker, clock):
    member = await join("one", session_timeout_ms=6000)
    async with member_of(front, member) as talker:
        await talker.hear("assignment")
        hearing = asyncio.ensure_future(talker.closed())
        await passed(clock, front, 15)
        view = await broker.members.membership("workers")
        assert [one.id for one in view.members] == [member]
        assert not hearing.done()
        hearing.cancel()
    for _ in range(30):
        await clock.pass_ms(500)
        await asyncio.sleep(0.001)
    assert not (await broker.members.membership("workers")).members


async def test_a_member_that_is_none_any_more_is_told_so(front, join, broker):
    member = await join("one")
    async with member_of(front, member) as talker:
        await talker.hear("assignment")
        await broker.members.leave("workers", member)

        told = await talker.hear("error")

        assert told["code"] == "unknown_member" and await talker.closed() == 1008


async def test_each_heartbeat_frame_is_answered(front, join):
    member = await join("one")
    async with member_of(front, member) as talker:
        first = await talker.hear("assignment")
        await talker.say("heartbeat")
        again = await talker.hear("assignment")

        assert again["revision"] == first["revision"] and not again["rebalance_required"]
        await talker.say("heartbeat", let_go=[{"topic": "-bad", "partition": 0}])
        assert (await talker.hear("error"))["code"] == "invalid_name"


async def test_a_generation_that_is_yet_to_come_is_refused(front, join):
    member = await join("one")
    async with talking(front) as talker:
        await talker.say("subscribe", member_id=member, generation=99)

        assert (await talker.hear("error"))["code"] == "stale_generation"
        assert await talker.closed() == 1008


async def test_members_that_share_partitions_stream_from_all_of_them(front, put, join, broker):
    await broker.groups.put_group("workers", {"mode": "shared"})
    one, two = await join("one"), await join("two", wait_s=0)
    async with member_of(front, one) as first, member_of(front, two) as second:
        told = await first.hear("assignment")
        assert told["mode"] == "shared" and places(told) == {0, 1, 2}
        await second.hear("assignment")
        await put(*(b"%d" % n for n in range(4)), partition=2)

        got = [asyncio.ensure_future(t.hear("messages")) for t in (first, second)]
        await holds(lambda: any(task.done() for task in got))
        for task in got:
            task.cancel()


async def test_a_member_says_from_which_of_its_partitions_messages_come(front, put, join):
    member = await join("one")
    wanted = [{"topic": "orders", "partition": 1}]
    async with member_of(front, member, assignment=wanted) as talker:
        assert places(await talker.hear("assignment")) == {0, 1, 2}
        await put(b"a", partition=0)
        await put(b"b", partition=1)
        assert [one["value"] for one in await talker.take(1)] == ["b"]

        await talker.say("credit", messages=9, bytes=99, assignment=[])
        await put(b"c", partition=1)
        await talker.say("credit", messages=9, bytes=99, assignment=[{**wanted[0], "partition": 0}])

        assert [one["value"] for one in await talker.take(1)] == ["a"]
