"""Why, of whole nodes in this process: members and owners, who asked, how it ended, no majority."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from delivery.lookup.verdict import Verdict
from goqueue.wire.batch import Record, encode_batch
from goqueue.wire.errors import UnknownGroup, UnknownPartition, UnknownTopic
from goqueue.wire.types import Offset
from log.disk.memory import MemoryDisk
from node.api.claims import NOBODY, Claim
from node.api.dead_letters import DeadFilter
from node.api.members import JoinRequest
from node.assembly import NodeAssembly
from node.broker.node import NodeBroker
from tests.unit.node.queue.test_whole_node import publish, receive, settle
from tests.unit.node.test_node import eventually, running
from tests.unit.node.three_nodes import three_nodes


@pytest.fixture
async def node() -> AsyncIterator[NodeAssembly]:
    async with running(MemoryDisk()) as started:
        await started.broker.topics.create_topic("t", {"partitions": 1})
        yield started


async def why(broker: NodeBroker, offset: int = 0, group: str = "g") -> Verdict:
    view = await broker.traces.message_why("t", 0, Offset(offset), group)
    (told,) = view.groups
    assert told.group == group
    return told.verdict


def codes(verdict: Verdict) -> list[str]:
    return [reason.code for reason in verdict.reasons]


def facts(verdict: Verdict) -> Mapping[str, object]:
    """Of the decisive reason."""
    return verdict.reasons[0].facts


async def test_groups_that_have_the_topic_are_told_of_whether_they_came_here_or_not(
    node: NodeAssembly,
) -> None:
    broker = node.broker
    await publish(node, "v")
    alone = await broker.traces.message_why("t", 0, Offset(0), None)
    assert (codes(alone.message), alone.groups) == (["no_group"], [])
    await receive(node, "here")
    await broker.groups.put_group("elsewhere", {})
    await broker.members.join("subscribed", JoinRequest("c", ["t"]), wait_s=0)

    view = await broker.traces.message_why("t", 0, Offset(0), None)

    told = {one.group: one.verdict for one in view.groups}
    assert set(told) == {"here", "subscribed"}
    assert codes(told["here"]) == ["in_flight"]
    assert (view.message.reasons, view.leader) == ([], broker.node.node_id)


async def test_a_message_that_cannot_be_read_says_so_until_it_is_tried_again(
    node: NodeAssembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = node.broker
    await publish(node, "v", "w")
    [host] = [host for host in broker.topics._replicas.all() if host.topic == "t"]
    read = host.messages.rows
    damaged = {0}
    monkeypatch.setattr(
        host.messages,
        "rows",
        lambda *wanted, **how: [
            None if row and row.offset in damaged else row for row in read(*wanted, **how)
        ],
    )

    assert [message.offset for message in await receive(node)] == [1]
    [group] = host.state.queue.groups.values()
    await eventually(lambda: 0 not in group.leases)
    aside_ms = host.unreadable.until_ms(group.id, 0, host.log_time_ms())
    host.unreadable.note(group.id, [0], aside_ms - 5)  # entries may be a moment in the queue
    told = await why(broker)
    view = await broker.traces.message_why("t", 0, Offset(0), "g")

    assert codes(told) == ["unreadable", "backoff"]
    assert told.reasons[0].until_ms == told.reasons[1].until_ms >= aside_ms > host.log_time_ms()
    assert (told.deliverable, told.eta_ms) == (False, 0)
    assert codes(view.message)[0] == "unreadable"
    damaged.clear()
    mended = await why(broker)
    assert (codes(mended), facts(mended)) == (["unreadable", "backoff"], {"mended": True})
    assert (mended.eta_ms, mended.eta_by) == (mended.reasons[0].until_ms, "backoff")
    assert codes(await why(broker, 1)) == ["in_flight"]


async def test_who_asked_last_is_remembered_and_who_waits_is_seen(node: NodeAssembly) -> None:
    broker = node.broker
    await broker.groups.put_group("g", {})
    await publish(node, "v", "w")
    assert codes(await why(broker)) == ["not_begun"]
    await settle(node, await receive(node, limit=1))

    told = await why(broker, 1)

    assert codes(told) == ["not_asked"]
    assert facts(told)["asked_by"] == "m"
    assert (told.deliverable, told.eta_ms, told.eta_by) == (True, 0, "")
    await receive(node)
    taking = asyncio.ensure_future(receive(node, wait_s=20))
    await publish(node, Record(b"x", deliver_at_ms=60_000))
    await eventually(lambda: _waits(node))
    assert codes(await why(broker, 2)) == ["delayed"]
    taking.cancel()


def _waits(node: NodeAssembly) -> bool:
    hosts = [host for host in node.broker.topics._replicas.all() if host.topic == "t"]
    group = node.broker.topics._cluster.state.groups["g"]
    return any(host.queue.is_watched(group.id) for host in hosts)


async def test_an_exclusive_groups_partition_is_its_owners(node: NodeAssembly) -> None:
    broker = node.broker
    await publish(node, "v")
    told = await broker.members.join("g", JoinRequest("c", ["t"]), wait_s=5)
    assert told.assigned

    owned = await why(broker)
    assert codes(owned) == ["not_asked", "owned"]
    assert owned.reasons[-1].facts["consumer"] == told.member

    second = await broker.members.join("g", JoinRequest("d", ["t"]), wait_s=0)
    assert codes(await why(broker)) == ["not_asked", "owned"]
    await broker.members.leave("g", told.member)
    await until(broker, lambda told: told.reasons[-1].facts.get("consumer") == second.member)
    await broker.members.leave("g", second.member)
    alone = await until(broker, lambda told: codes(told) == ["not_asked"])
    assert facts(alone)["members"] == 0


async def until(broker: NodeBroker, wanted: Callable[[Verdict], bool]) -> Verdict:
    """What is told once it is as wanted."""
    async with asyncio.timeout(30):
        while True:
            told = await why(broker)
            if wanted(told):
                return told
            await asyncio.sleep(0.01)


async def test_a_partition_that_is_asked_for_names_who_follows(node: NodeAssembly) -> None:
    broker = node.broker
    await broker.topics.create_topic("two", {"partitions": 1})
    await publish(node, "v")
    first = await broker.members.join("g", JoinRequest("c", ["t", "two"], lets_go=True), wait_s=5)
    second = await broker.members.join("g", JoinRequest("d", ["t"], lets_go=True), wait_s=0)
    asked = await broker.members.heartbeat("g", first.member, revision=first.revision, wait_s=5)
    assert asked.revoking == [("t", 0)]

    told = await why(broker)

    assert told.reasons[-1].facts == {
        "consumer": first.member,
        "generation": 1,
        "revoking": True,
        "successor": second.member,
    }
    await broker.members.heartbeat("g", first.member, let_go=asked.revoking)
    await until(broker, lambda told: told.reasons[-1].facts.get("consumer") == second.member)


async def test_a_settled_message_tells_how_it_ended(node: NodeAssembly) -> None:
    broker = node.broker
    await publish(node, *"abcde")
    (acked,) = await receive(node, limit=1)
    await settle(node, [acked])
    (bad,) = await receive(node, limit=1)
    await settle(node, [bad], "reject")
    assert facts(await why(broker, 1))["redrive"] == "yes"
    await broker.letters.purge("g", "t", DeadFilter(), dry_run=False)
    await broker.positions.commit("g", "t", {0: 3}, NOBODY)
    await broker.positions.seek("g", "t", 0, offset=4, time_ms=None, claim=NOBODY)

    told = [await why(broker, offset) for offset in range(5)]

    assert facts(told[0])["consumer"] == "m"
    assert [codes(one)[0] for one in told] == [
        "acked",
        "purged",
        "acked",
        "skipped",
        "not_asked",
    ]
    assert facts(told[2])["committed_offset"] == 3
    assert {one.state for one in told[:4]} == {"acked"}


async def test_a_lease_tells_since_when_it_stands(node: NodeAssembly) -> None:
    await publish(node, "v")
    (taken,) = await receive(node, visibility_ms=30_000)

    told = await why(node.broker)

    since_ms = facts(told)["since_ms"]
    assert (told.reasons[0].until_ms, since_ms) == (taken.deadline_ms, taken.deadline_ms - 30_000)


async def test_a_group_that_begins_at_the_end_misses_what_was_there(node: NodeAssembly) -> None:
    await publish(node, "v")
    await node.broker.groups.put_group("g", {"start": "latest"})

    assert codes(await why(node.broker)) == ["below_beginning"]


async def test_what_is_not_there_is_refused(node: NodeAssembly) -> None:
    broker = node.broker

    with pytest.raises(UnknownTopic):
        await broker.traces.message_why("nope", 0, Offset(0), None)
    with pytest.raises(UnknownPartition):
        await broker.traces.message_why("t", 1, Offset(0), None)
    with pytest.raises(UnknownGroup):
        await broker.traces.message_why("t", 0, Offset(0), "nobody")


async def test_any_node_answers_the_same_and_one_without_a_majority_says_so() -> None:
    async with three_nodes() as nodes:
        await nodes.broker("n1").topics.create_topic(
            "t", {"partitions": 1, "replication_factor": 3}
        )
        await publish(nodes.running["n1"], "v")
        (taken,) = await nodes.broker("n2").queue.receive(
            "g", ["t"], claim=Claim("c1"), limit=1, wait_s=5, visibility_ms=60_000
        )
        said = [
            await nodes.broker(name).traces.message_why("t", 0, Offset(0), "g")
            for name in nodes.ports
        ]
        assert len({one.leader for one in said}) == 1
        assert {one.groups[0].verdict.reasons[0].until_ms for one in said} == {taken.deadline_ms}
        await eventually(lambda: _has_applied(nodes.running["n1"]))
        await nodes.stop("n2")
        await nodes.stop("n3")

        view = await nodes.broker("n1").traces.message_why("t", 0, Offset(0), "g")

        assert view.leader == ""
        assert codes(view.groups[0].verdict) == ["no_leader", "in_flight"]
        assert view.groups[0].verdict.reasons[0].facts == {"reachable": 1, "replicas": 3}
        assert codes(view.message)[0] == "no_leader"


async def test_a_node_that_has_no_replica_says_that_it_knows_nothing() -> None:
    async with three_nodes() as nodes:
        await nodes.broker("n1").topics.create_topic(
            "t", {"partitions": 1, "replication_factor": 1}
        )
        await publish(nodes.running["n1"], "v")
        holder = (await nodes.broker("n1").traces.message_why("t", 0, Offset(0), None)).leader
        await nodes.stop(holder)
        other = next(name for name in nodes.ports if name != holder)

        view = await nodes.broker(other).traces.message_why("t", 0, Offset(0), None)

        assert (view.message.state, codes(view.message)) == ("unknown", ["no_leader"])
        assert facts(view.message)["elsewhere"]


def _has_applied(node: NodeAssembly) -> bool:
    (host,) = (host for host in node.broker.topics._replicas.all() if host.topic == "t")
    groups = host.state.queue.groups.values()
    return any(len(group.leases) for group in groups)


async def test_a_group_that_has_begun_in_another_partition_is_named(node: NodeAssembly) -> None:
    broker = node.broker
    await broker.topics.create_topic("wide", {"partitions": 2})
    for partition in (0, 1):
        await broker.records.append("wide", partition, encode_batch([Record(b"v")]), deadline_s=30)
    await broker.queue.receive(
        "billing", ["wide"], claim=NOBODY, limit=1, wait_s=0, visibility_ms=None, partitions=[0]
    )

    async def told() -> dict[str, list[str]]:
        view = await broker.traces.message_why("wide", 1, Offset(0), None)
        return {one.group: codes(one.verdict) for one in view.groups}

    for _ in range(1000):  # what takes part in what is looked up once a second
        if await told():
            break
        await asyncio.sleep(0.02)
    assert await told() == {"billing": ["not_begun"]}
