"""How far groups have come, and resets of their positions, on whole nodes in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from delivery.entries.ops import Own
from goqueue.wire.batch import Record, encode_batch
from goqueue.wire.errors import (
    GroupActive,
    NoQuorum,
    OutcomeUnknown,
    StaleGeneration,
    Unavailable,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.wire.types import Offset, PartitionId
from log.disk.memory import MemoryDisk
from node.api.claims import FORCED, NOBODY, Claim
from node.api.members import JoinRequest, LagView, ResetTo, ResetView
from node.api.queue import SettleRequest
from node.assembly import NodeAssembly
from node.broker.node import NodeBroker
from node.groups import positions as group_positions
from node.partition.host import PartitionHost
from node.rpc.queue import OpsAnswer
from tests.unit.node.test_node import running
from tests.unit.node.three_nodes import three_nodes

EARLIEST, LATEST = ResetTo(at="earliest"), ResetTo(at="latest")


@pytest.fixture
async def node() -> AsyncIterator[NodeAssembly]:
    async with running(MemoryDisk()) as started:
        await started.broker.topics.create_topic("t", {"partitions": 2})
        yield started


@pytest.fixture
def broker(node: NodeAssembly) -> NodeBroker:
    return node.broker


async def publish(broker: NodeBroker, count: int, partition: int = 0, **columns: object) -> int:
    records = [Record(b"v", **columns) for _ in range(count)]  # type: ignore[arg-type]
    done = await broker.records.append("t", partition, encode_batch(records), deadline_s=30)
    return done.base_offset


async def consume(broker: NodeBroker, count: int, partition: int = 0, group: str = "g") -> None:
    """Receive and ack."""
    found = await broker.queue.receive(
        group,
        ["t"],
        claim=NOBODY,
        limit=count,
        wait_s=1,
        visibility_ms=None,
        partitions=[partition],
    )
    assert len(found) == count
    await broker.receipts.settle([SettleRequest(message.receipt, "ack") for message in found])


async def lag_of(broker: NodeBroker, partition: int = 0, group: str = "g") -> LagView:
    return (await broker.positions.lag(group, ["t"]))[partition]


async def reset(
    broker: NodeBroker,
    to: ResetTo,
    *,
    partitions: Sequence[int] | None = (0,),
    dry_run: bool = False,
    claim: Claim = NOBODY,
) -> list[ResetView]:
    return await broker.positions.reset(
        "g", "t", to, partitions=partitions, dry_run=dry_run, claim=claim
    )


# -- lag


async def test_lag_counts_what_is_stored_and_not_settled(broker: NodeBroker) -> None:
    await publish(broker, 5)
    await publish(broker, 1, deliver_at_ms=60_000)
    await consume(broker, 2)
    await broker.queue.receive(
        "g", ["t"], claim=NOBODY, limit=1, wait_s=0, visibility_ms=None, partitions=[0]
    )

    view = await lag_of(broker)

    assert (view.topic, view.partition, view.committed, view.end) == ("t", 0, 2, 6)
    assert (view.lag, view.in_flight, view.delayed, view.dead) == (3, 1, 1, 0)
    assert (view.owner, view.generation) == ("", 0)


async def test_lag_in_time_is_the_age_of_the_oldest_to_the_millisecond(broker: NodeBroker) -> None:
    await broker.groups.put_group("g", {})
    await consume_nothing(broker)
    host = leading(broker)
    for _ in range(2):
        await publish(broker, 1)
        await asyncio.sleep(0.1)

    for offset in range(2):
        stored_ms = host.reader.time_at(Offset(offset))
        assert stored_ms is not None
        least_ms = host.log_time_ms() - stored_ms
        lag_ms = (await lag_of(broker)).lag_ms
        assert least_ms <= lag_ms <= host.log_time_ms() - stored_ms
        await consume(broker, 1)
    assert (await lag_of(broker)).lag_ms == 0


def leading(broker: NodeBroker, partition: int = 0) -> PartitionHost:
    return next(host for host in broker.topics._replicas.led() if host.id.partition == partition)


async def consume_nothing(broker: NodeBroker, group: str = "g") -> None:
    """Opens the group in every partition."""
    await broker.queue.receive(group, ["t"], claim=NOBODY, limit=1, wait_s=0, visibility_ms=None)


async def test_a_group_that_was_never_there_lags_from_where_it_would_begin(
    node: NodeAssembly, broker: NodeBroker
) -> None:
    await publish(broker, 3)
    await publish(broker, 1, deliver_at_ms=60_000)
    await broker.groups.put_group("g", {"ordering": "key"})
    await broker.groups.put_group("late", {"start": "latest"})

    first, last = await lag_of(broker), await lag_of(broker, group="late")

    assert (first.committed, first.lag, first.delayed) == (0, 3, 1)
    assert (last.committed, last.lag, last.delayed, last.lag_ms) == (4, 0, 0, 0)
    assert all(not host.state.queue.groups for host in node.broker.topics._replicas.led())


async def test_lag_of_all_topics_is_of_those_that_the_group_was_in_or_subscribes_to(
    broker: NodeBroker,
) -> None:
    for topic in ("subscribed", "other"):
        await broker.topics.create_topic(topic, {"partitions": 1})
    await publish(broker, 1)
    await consume(broker, 1)
    await broker.members.join("g", JoinRequest("c", patterns=["sub*"]), wait_s=2)

    views = await broker.positions.lag("g")

    assert [(v.topic, v.partition) for v in views] == [("subscribed", 0), ("t", 0), ("t", 1)]
    assert [bool(v.owner) for v in views] == [True, False, False]
    assert await broker.positions.lag("g", ["other"]) != []


async def test_lag_names_what_is_not_known(broker: NodeBroker) -> None:
    with pytest.raises(UnknownGroup):
        await broker.positions.lag("none")
    await broker.groups.put_group("g", {})
    assert await broker.positions.lag("g") == []
    with pytest.raises(UnknownTopic):
        await broker.positions.lag("g", ["none"])


# -- resets


@pytest.mark.parametrize(
    ("to", "after", "replayed", "skipped"),
    [
        (EARLIEST, 0, 2, 0),
        (LATEST, 5, 0, 3),
        (ResetTo(offset=1), 1, 1, 0),
        (ResetTo(offset=99), 5, 0, 3),
        (ResetTo(offset=-7), 0, 2, 0),
        (ResetTo(shift=-1), 1, 1, 0),
        (ResetTo(shift=2), 4, 0, 2),
        (ResetTo(shift=-9), 0, 2, 0),
        (ResetTo(time_ms=1), 0, 2, 0),
        (ResetTo(time_ms=1 << 45), 5, 0, 3),
        (ResetTo(duration_ms=3_600_000), 0, 2, 0),
        (ResetTo(duration_ms=1 << 50), 0, 2, 0),
    ],
)
async def test_a_dry_run_tells_exactly_what_a_reset_does(
    broker: NodeBroker, to: ResetTo, after: int, replayed: int, skipped: int
) -> None:
    await publish(broker, 5)
    await consume(broker, 2)
    expected = [ResetView("t", 0, 2, after, replayed, skipped)]

    assert await reset(broker, to, dry_run=True) == expected
    assert (await lag_of(broker)).committed == 2
    assert await reset(broker, to) == expected
    assert (await lag_of(broker)).committed == after
    assert (await lag_of(broker)).lag == 5 - after


async def test_a_reset_to_a_time_or_so_long_ago_goes_to_the_first_message_since(
    node: NodeAssembly, broker: NodeBroker
) -> None:
    await publish(broker, 2)
    await asyncio.sleep(0.3)
    await publish(broker, 2)
    await broker.groups.put_group("g", {})
    host = leading(broker)
    since_ms = host.reader.time_at(Offset(2))
    assert since_ms is not None

    assert [view.after for view in await reset(broker, ResetTo(time_ms=since_ms))] == [2]
    assert [view.after for view in await reset(broker, ResetTo(time_ms=since_ms + 1))] == [4]
    ago_ms = host.log_time_ms() - since_ms + 150
    assert [view.after for view in await reset(broker, ResetTo(duration_ms=ago_ms))] == [2]


async def test_a_dry_run_opens_the_group_nowhere_and_tells_of_where_it_would_begin(
    broker: NodeBroker,
) -> None:
    await publish(broker, 4)
    await broker.groups.put_group("g", {"start": "latest"})

    assert await reset(broker, EARLIEST, dry_run=True) == [ResetView("t", 0, 4, 0, 4, 0)]
    assert await reset(broker, ResetTo(shift=-1), dry_run=True) == [ResetView("t", 0, 4, 3, 1, 0)]
    assert all(not host.state.queue.groups for host in broker.topics._replicas.led())
    assert await reset(broker, ResetTo(offset=1)) == [ResetView("t", 0, 4, 1, 3, 0)]
    await consume(broker, 3)


async def test_a_reset_is_of_all_partitions_unless_some_are_named(broker: NodeBroker) -> None:
    for partition in (0, 1):
        await publish(broker, 3, partition)
        await consume(broker, 3, partition)

    told = await reset(broker, ResetTo(offset=1), partitions=[1, 1])
    assert [(view.partition, view.after) for view in told] == [(1, 1)]
    told = await reset(broker, EARLIEST, partitions=None)
    assert [(view.partition, view.before, view.after) for view in told] == [(0, 3, 0), (1, 1, 0)]


async def test_a_reset_names_what_is_not_known(broker: NodeBroker) -> None:
    with pytest.raises(UnknownGroup):
        await reset(broker, EARLIEST)
    assert await broker.groups.list_groups() == []
    with pytest.raises(UnknownPartition):
        await reset(broker, EARLIEST, partitions=[2])
    with pytest.raises(UnknownTopic):
        await broker.positions.reset(
            "g", "none", EARLIEST, partitions=None, dry_run=True, claim=NOBODY
        )


# -- while there are members


async def join(broker: NodeBroker, *, settings: dict[str, object] | None = None) -> str:
    request = JoinRequest("c", topics=["t"], settings=settings or {})
    return (await broker.members.join("g", request, wait_s=30)).member


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_reset_is_refused_while_the_group_has_members_unless_forced(
    broker: NodeBroker, mode: str, dry_run: bool
) -> None:
    await publish(broker, 3)
    await join(broker, settings={"mode": mode})
    await join(broker)

    with pytest.raises(GroupActive) as refused:
        await reset(broker, LATEST, dry_run=dry_run)
    assert refused.value.data["members"] == 2
    assert (await lag_of(broker)).committed == 0

    assert await reset(broker, LATEST, dry_run=dry_run, claim=FORCED) == [
        ResetView("t", 0, 0, 3, 0, 3)
    ]
    assert (await lag_of(broker)).committed == (0 if dry_run else 3)


async def test_a_member_may_reset_what_it_has(broker: NodeBroker) -> None:
    await publish(broker, 3)
    first, second = await join(broker), await join(broker)
    views = await broker.positions.lag("g")
    assert {view.owner for view in views} == {first, second}
    mine = Claim(views[0].owner, views[0].generation)

    assert (await reset(broker, LATEST, claim=mine))[0].after == 3
    for dry_run in (True, False):
        with pytest.raises(StaleGeneration) as refused:
            await reset(broker, EARLIEST, partitions=None, dry_run=dry_run, claim=mine)
        assert refused.value.data["partitions"] == ["t:1"]
    assert (await lag_of(broker)).committed == 3


async def test_a_former_owner_may_not_reset(broker: NodeBroker) -> None:
    former = await join(broker)
    view = await lag_of(broker)
    await broker.members.leave("g", former)
    await join(broker)

    with pytest.raises(StaleGeneration) as refused:
        await reset(broker, LATEST, claim=Claim(former, view.generation))

    assert refused.value.data["generation"] == (await lag_of(broker)).generation > view.generation


async def test_a_group_whose_members_have_left_may_be_reset(broker: NodeBroker) -> None:
    await publish(broker, 3)
    await broker.members.leave("g", await join(broker))

    async with asyncio.timeout(30):
        while True:
            try:
                told = await reset(broker, LATEST)
                break
            except GroupActive:  # its partitions are being given back
                await asyncio.sleep(0.01)

    assert told == [ResetView("t", 0, 0, 3, 0, 3)]


async def test_a_partition_that_got_an_owner_meanwhile_is_not_reset_and_the_error_says_so(
    broker: NodeBroker,
) -> None:
    for partition in (0, 1):
        await publish(broker, 3, partition)
        await consume(broker, 3, partition)
    group = await broker.groups.find("g")
    topic = await broker.topics._finder.find("t")
    await broker.queue._calls.operations.put(PartitionId(topic.id, 1), [Own(group.id, "m", 1)])

    with pytest.raises(GroupActive) as refused:
        await reset(broker, EARLIEST, partitions=None)

    error = refused.value
    assert error.outcome == "unknown"
    assert error.data["reset"] == [
        {"topic": "t", "partition": 0, "before": 3, "after": 0, "replayed": 3, "skipped": 0}
    ]
    assert [(one["partition"], one["code"]) for one in error.data["failed"]] == [  # type: ignore[attr-defined]
        (1, "group_active")
    ]
    assert [view.committed for view in await broker.positions.lag("g")] == [0, 3]


@pytest.mark.parametrize(("to", "repeats"), [(EARLIEST, True), (ResetTo(shift=-1), False)])
async def test_a_reset_of_which_a_part_is_in_doubt_says_which_and_whether_to_repeat_it(
    broker: NodeBroker, monkeypatch: pytest.MonkeyPatch, to: ResetTo, repeats: bool
) -> None:
    for partition in (0, 1):
        await publish(broker, 3, partition)
        await consume(broker, 3, partition)
    operations = broker.queue._calls.operations
    put = operations.put

    async def lost(partition: PartitionId, *given: Any) -> OpsAnswer:
        if partition.partition == 1:
            raise OutcomeUnknown
        return await put(partition, *given)

    monkeypatch.setattr(operations, "put", lost)
    with pytest.raises(OutcomeUnknown, match="1 of 2 partitions were reset, but not 1: ") as failed:
        await reset(broker, to, partitions=None)

    error = failed.value
    assert (error.outcome, error.retriable) == ("unknown", repeats)
    assert [one["partition"] for one in error.data["reset"]] == [0]  # type: ignore[attr-defined]
    assert [one["partition"] for one in error.data["failed"]] == [1]  # type: ignore[attr-defined]


async def test_nothing_is_reset_where_a_leader_does_not_answer_before(
    broker: NodeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in (0, 1):
        await publish(broker, 3, partition)
        await consume(broker, 3, partition)
    calls = broker.queue._calls
    ask = calls.ask

    async def silent(request: Any, packed: bytes, *given: Any) -> Any:
        if PartitionId.unpack(packed).partition == 1:
            raise NoQuorum
        return await ask(request, packed, *given)

    monkeypatch.setattr(calls, "ask", silent)
    with pytest.raises(NoQuorum):
        await reset(broker, EARLIEST, partitions=None)

    assert [view.committed for view in await broker.positions.lag("g")] == [3, 3]


# -- on several nodes


async def test_any_node_tells_and_sets_what_other_nodes_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_positions, "LAG_ROUNDS", 3)
    async with three_nodes() as nodes:
        first = nodes.broker("n1")
        await first.topics.create_topic("t", {"partitions": 3, "replication_factor": 3})
        for partition in range(3):
            await publish(first, 2 + partition, partition)
            await consume(first, 1, partition)

        for name in ("n1", "n2", "n3"):
            views = await nodes.broker(name).positions.lag("g")
            assert [(v.committed, v.lag) for v in views] == [(1, 1), (1, 2), (1, 3)]
            assert all(view.lag_ms > 0 for view in views)
        told = await reset(nodes.broker("n3"), EARLIEST, partitions=None)
        assert [(view.after, view.replayed) for view in told] == [(0, 1)] * 3

        await nodes.stop("n1")
        await nodes.stop("n2")
        last = nodes.broker("n3")
        with pytest.raises(Unavailable, match=r"t:0, t:1, t:2"):
            await last.positions.lag("g", ["t"])
        with pytest.raises(Unavailable):
            await reset(last, LATEST, partitions=None)
