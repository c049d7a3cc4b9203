"""The queue of a whole node in this process: a cluster of one, asked as its HTTP front asks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from coordinator.groups.settings import Group
from delivery.entries.ops import Own
from delivery.leader.dispatcher import DUE_GRACE_MS
from goqueue.wire.batch import Record, encode_batch
from goqueue.wire.errors import (
    AlreadyDue,
    BadReceipt,
    DiskFull,
    GoQueueError,
    GroupActive,
    GroupHalted,
    NoQuorum,
    NotFound,
    NotInFlight,
    ReceiptExpired,
    TooManyInFlight,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.wire.types import Offset, PartitionId
from log.disk.memory import MemoryDisk
from node.api.claims import Claim
from node.api.dead_letters import DeadFilter
from node.api.queue import QueuedMessage, SettleRequest, SettleView
from node.assembly import NodeAssembly
from node.broker.queue import PEEKED_AT_ONCE
from node.queue import views as queue_views
from node.queue.group_admin import group_ref
from node.rpc.queue import FiguresAnswer, OpsAnswer
from tests.unit.node.test_node import eventually, running


@pytest.fixture
async def node() -> AsyncIterator[NodeAssembly]:
    async with running(MemoryDisk()) as started:
        await started.broker.topics.create_topic("t", {"partitions": 1})
        yield started


async def publish(node: NodeAssembly, *records: Record | str, topic: str = "t") -> int:
    found = [Record(r.encode()) if isinstance(r, str) else r for r in records]
    done = await node.broker.records.append(topic, 0, encode_batch(found), deadline_s=30)
    return done.base_offset


async def receive(
    node: NodeAssembly,
    group: str = "g",
    *,
    limit: int = 10,
    wait_s: float = 0.0,
    visibility_ms: int | None = None,
    topics: Sequence[str] = ("t",),
) -> list[QueuedMessage]:
    return await node.broker.queue.receive(
        group, topics, claim=Claim("m"), limit=limit, wait_s=wait_s, visibility_ms=visibility_ms
    )


async def settle(
    node: NodeAssembly, messages: Sequence[QueuedMessage], action: str = "ack", **what: object
) -> list[SettleView | GoQueueError]:
    requests = [SettleRequest(m.receipt, action, **what) for m in messages]  # type: ignore[arg-type]
    return await node.broker.receipts.settle(requests)


async def test_a_received_message_is_whole_and_settled_by_its_receipt(node: NodeAssembly) -> None:
    await publish(node, Record(b"v", b"k", (("h", b"x"),), lane=1, message_id="one"))

    found = await receive(node)
    ends = await settle(node, found)

    assert [(m.value, m.key, m.headers, m.lane, m.message_id) for m in found] == [
        (b"v", b"k", (("h", b"x"),), 1, "one")
    ]
    assert (found[0].topic, found[0].partition, found[0].offset, found[0].attempt) == ("t", 0, 0, 1)
    end = ends[0]
    assert isinstance(end, SettleView)
    assert (end.group, end.topic, end.outcome, end.committed_offset, end.advanced) == (
        "g",
        "t",
        "acked",
        1,
        True,
    )
    assert end.in_flight == 0
    assert await receive(node) == []


async def test_what_one_group_leases_another_one_receives_too(node: NodeAssembly) -> None:
    await publish(node, "a")

    assert [m.value for m in await receive(node, "g")] == [b"a"]
    assert [m.value for m in await receive(node, "h")] == [b"a"]
    assert await receive(node, "g") == []


async def test_a_long_poll_is_answered_as_soon_as_something_is_published(
    node: NodeAssembly,
) -> None:
    polling = asyncio.ensure_future(receive(node, wait_s=60))
    await asyncio.sleep(0.1)
    assert not polling.done()

    await publish(node, "a")

    assert [m.value for m in await asyncio.wait_for(polling, 30)] == [b"a"]


async def test_a_cancelled_long_poll_leases_nothing(node: NodeAssembly) -> None:
    await receive(node)
    found: list[QueuedMessage] = []
    for _ in range(20):
        polling = asyncio.ensure_future(receive(node, wait_s=30))
        await asyncio.sleep(0.01)
        publishing = asyncio.ensure_future(publish(node, "a"))
        await asyncio.sleep(random.random() * 0.004)
        polling.cancel()
        await publishing
        with suppress(asyncio.CancelledError):
            found += await polling

    async with asyncio.timeout(30):
        while len(found) < 20:
            found += await receive(node, limit=100, wait_s=0.5)
    assert [m.attempt for m in found] == [1] * 20


async def test_messages_of_one_batch_are_shared_by_many_receivers_once(node: NodeAssembly) -> None:
    await publish(node, *map(str, range(100)))

    answers = await asyncio.gather(*(receive(node, limit=7, wait_s=1) for _ in range(15)))

    values = [message.value for answer in answers for message in answer]
    assert sorted(values) == sorted(str(n).encode() for n in range(100))


async def test_receipts_that_are_foreign_old_or_torn_change_nothing(node: NodeAssembly) -> None:
    await publish(node, "a")
    (message,) = await receive(node, visibility_ms=1)
    await receive(node, "h")
    again = await receive(node, wait_s=30)

    ends = await node.broker.receipts.settle(
        [SettleRequest(message.receipt, "ack"), SettleRequest("rubbish", "ack")]
    )
    foreign = await node.broker.receipts.settle([SettleRequest(again[0].receipt, "ack")], group="h")
    twice = await settle(node, [*again, *again])

    assert [type(end) for end in ends] == [ReceiptExpired, BadReceipt]
    assert [type(end) for end in foreign] == [NotFound]
    assert [type(end) for end in twice] == [SettleView, NotInFlight]
    assert (again[0].attempt, again[0].reason) == (2, "visibility timeout")


async def test_a_nack_brings_the_message_back_with_its_reason(node: NodeAssembly) -> None:
    await publish(node, "a", "b")
    found = await receive(node)

    (end,) = await settle(node, found[:1], "nack", reason="not now", delay_ms=1500)
    assert isinstance(end, SettleView)
    assert end.outcome == "requeued"
    assert await receive(node) == []
    again = await receive(node, wait_s=30)

    assert [(m.value, m.attempt, m.reason) for m in again] == [(b"a", 2, "not now")]


async def test_extended_leases_last_and_released_ones_do_not_count(node: NodeAssembly) -> None:
    await publish(node, "a")
    found = await receive(node, visibility_ms=2000)
    (end,) = await settle(node, found, "extend", visibility_ms=60_000)
    host = node.broker.topics._replicas.led()[0]
    await eventually(lambda: host.log_time_ms() > found[0].deadline_ms)
    assert await receive(node) == []
    assert isinstance(end, SettleView)
    assert end.visible_at_ms > found[0].deadline_ms

    await settle(node, found, "release")

    assert [m.attempt for m in await receive(node)] == [1]


async def test_a_rejected_message_is_read_counted_and_purged_as_dead(node: NodeAssembly) -> None:
    await publish(node, Record(b"a", b"k"), Record(b"b", b"l"))
    (end, _) = await settle(node, await receive(node), "reject", reason="poison")
    assert isinstance(end, SettleView)
    assert end.outcome == "dead"

    page = await node.broker.letters.dead_letters("g", "t", DeadFilter(), after=None, limit=1)
    rest = await node.broker.letters.dead_letters(
        "g", "t", DeadFilter(), after=page.following, limit=10
    )
    by_key = await node.broker.letters.dead_letters(
        "g", "t", DeadFilter(key=b"l"), after=None, limit=10
    )

    assert [(d.message.value, d.reason, d.attempts) for d in page.messages] == [(b"a", "poison", 1)]
    assert (page.following, page.total, page.by_reason) == ((0, 1), 2, {"poison": 2})
    assert ([d.message.value for d in rest.messages], rest.following) == ([b"b"], None)
    assert [d.message.value for d in by_key.messages] == [b"b"]
    assert await node.broker.letters.dead_groups("t") == {"g": {"poison": 2}}
    named = DeadFilter(ids=["t:0:1"])
    assert await node.broker.letters.purge("g", "t", named, dry_run=True) == 1
    assert await node.broker.letters.purge("g", "t", named, dry_run=False) == 1
    assert await node.broker.letters.dead_groups("t") == {"g": {"poison": 1}}


async def test_a_peek_holds_no_more_than_an_answer_may_of_however_many_partitions(
    node: NodeAssembly,
) -> None:
    await node.broker.topics.create_topic("wide", {"partitions": 3 * PEEKED_AT_ONCE})
    one = encode_batch([Record(b"x" * 2000)])
    for number in range(3 * PEEKED_AT_ONCE):
        await node.broker.records.append("wide", number, one, deadline_s=30)
    await node.broker.groups.ensure_group("g")
    all_of_it = await node.broker.queue.peek("g", ("wide",), limit=100, partitions=None)

    node.broker.queue._answer_bytes = 10_000
    found = await node.broker.queue.peek("g", ("wide",), limit=100, partitions=None)

    assert len(all_of_it) == 3 * PEEKED_AT_ONCE
    assert len(found) == PEEKED_AT_ONCE


async def test_a_page_of_dead_letters_counts_headers_and_keys_against_its_bytes(
    node: NodeAssembly,
) -> None:
    """All that is sent counts: an answer that is too large for the link is none."""
    header = ("h", b"x" * 1000)
    await publish(node, *(Record(b"", b"k" * 1000, (header,)) for _ in range(20)))
    await settle(node, await receive(node, limit=20), "reject")
    letters = node.broker.letters
    letters._answer_bytes = 5000

    page = await letters.dead_letters("g", "t", DeadFilter(), after=None, limit=20)

    assert [letter.message.offset for letter in page.messages] == [0, 1]
    assert page.following == (0, 2)


async def test_messages_that_are_listed_are_held_a_few_at_a_time(
    node: NodeAssembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of large ones are more than a node has memory for."""
    later = node.broker.topics._replicas.led()[0].log_time_ms() + 3_600_000
    await publish(node, *(Record(b"x" * 1000, b"k", deliver_at_ms=later + n) for n in range(20)))
    await publish(node, *(Record(b"y" * 1000, b"k") for _ in range(20)))
    await settle(node, await receive(node, limit=20), "reject")
    held: list[int] = []
    host = node.broker.topics._replicas.led()[0]
    read = host.messages.rows

    def counted(*wanted: object, **how: object) -> object:
        rows = read(*wanted, **how)  # type: ignore[arg-type]
        held.append(sum(len(row.value) for row in rows if row is not None))
        return rows

    monkeypatch.setattr(host.messages, "rows", counted)
    monkeypatch.setattr(queue_views, "STEP_BYTES", 5000)
    views, count = await node.broker.delays.delayed("t", limit=20, skip=0)
    page = await node.broker.letters.dead_letters(
        "g", "t", DeadFilter(key=b"k"), after=None, limit=20
    )

    assert ([view.offset for view in views], count) == (list(range(20)), 20)
    assert [letter.message.offset for letter in page.messages] == list(range(20, 40))
    assert max(held) <= 5000


async def test_a_delayed_message_is_listed_found_and_delivered_in_time(node: NodeAssembly) -> None:
    await receive(node)
    host = node.broker.topics._replicas.led()[0]
    await publish(node, Record(b"later", deliver_at_ms=2000), Record(b"now"))

    assert [m.value for m in await receive(node)] == [b"now"]
    views, total = await node.broker.delays.delayed("t", limit=10, skip=0)
    found = await node.broker.delays.find_delayed("t", None, 0)
    late = await receive(node, wait_s=30)

    assert ([view.offset for view in views], total) == ([0], 1)
    assert (found.state, 0 < found.remaining_ms <= 2000) == ("pending", True)
    assert [m.value for m in late] == [b"later"]
    assert late[0].deliver_at_ms is not None
    assert host.log_time_ms() >= late[0].deliver_at_ms
    assert (await node.broker.delays.find_delayed("t", 0, 0)).state == "delivered"
    with pytest.raises(AlreadyDue):
        await node.broker.delays.cancel_delayed("t", 0, 0)
    with pytest.raises(NotFound):
        await node.broker.delays.find_delayed("t", None, 1)


async def test_who_looks_without_waiting_finds_what_has_just_become_due(
    node: NodeAssembly,
) -> None:
    await receive(node)
    await publish(node, Record(b"later", deliver_at_ms=1500))
    (host,) = node.broker.topics._replicas.led()
    due_ms = host.state.queue.next_due_ms()

    await eventually(lambda: due_ms is not None and host.log_time_ms() >= due_ms)

    assert [m.value for m in await receive(node)] == [b"later"]


async def test_a_cancelled_message_is_never_delivered(node: NodeAssembly) -> None:
    await publish(node, Record(b"later", deliver_at_ms=1500))

    view = await node.broker.delays.cancel_delayed("t", 0, 0)

    assert view.state == "cancelled"
    assert await receive(node, wait_s=1.8) == []


async def test_ten_thousand_messages_due_in_one_second_are_ready_in_time(
    node: NodeAssembly,
) -> None:
    """Whoever asks is given all that was due when they asked before, as that answer noted it, and
    never anything early; how late that is, `benchmarks.delays` measures."""
    await receive(node)
    for start in range(0, 1000, 100):
        records = [Record(b"x", deliver_at_ms=1500 + start + n // 10) for n in range(1000)]
        await publish(node, *records)
    host = node.broker.topics._replicas.led()[0]
    asked_ms: list[int] = [0]  # log time
    given_ms: list[list[int]] = [[]]  # when due
    async with asyncio.timeout(30):
        while sum(map(len, given_ms)) < 10_000:
            asked_ms.append(host.log_time_ms())
            found = await receive(node, limit=1000, wait_s=30)
            given_ms.append([m.deliver_at_ms for m in found if m.deliver_at_ms is not None])
            assert max(given_ms[-1]) <= host.log_time_ms()

    left_ms = 1 << 60
    for before_ms, due_ms in zip(reversed(asked_ms[:-1]), reversed(given_ms), strict=False):
        if len(due_ms) < 1000:
            assert left_ms > before_ms - DUE_GRACE_MS
        left_ms = min([left_ms, *due_ms])


async def test_a_long_poll_is_answered_as_soon_as_something_is_due(node: NodeAssembly) -> None:
    await receive(node)
    host = node.broker.topics._replicas.led()[0]
    for _ in range(11):
        await publish(node, Record(b"x", deliver_at_ms=40))
        (message,) = await asyncio.wait_for(receive(node, wait_s=60), 30)
        assert message.deliver_at_ms is not None
        assert host.log_time_ms() >= message.deliver_at_ms


async def test_commit_settles_all_below_and_seek_brings_it_again(node: NodeAssembly) -> None:
    await publish(node, "a", "b", "c")
    (first,) = await receive(node, limit=1)

    assert await node.broker.positions.commit("g", "t", {0: 2}) == {0: 2}
    assert [type(end) for end in await settle(node, [first])] == [NotInFlight]
    assert [m.value for m in await receive(node)] == [b"c"]
    assert await node.broker.positions.seek("g", "t", None, offset=-1, time_ms=None) == {0: 0}
    assert [m.value for m in await receive(node)] == [b"a", b"b", b"c"]
    assert await node.broker.positions.seek("g", "t", 0, offset=-2, time_ms=None) == {0: 3}
    assert await receive(node) == []


async def test_what_was_done_in_some_partitions_is_not_told_as_not_done(
    node: NodeAssembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition has no majority: the others have gone back, or lost their dead letters."""
    await node.broker.topics.create_topic("two", {"partitions": 2})
    batch = encode_batch([Record(b"a")])
    for number in (0, 1):
        await node.broker.records.append("two", number, batch, deadline_s=30)
    found = await receive(node, topics=["two"])
    await node.broker.receipts.settle([SettleRequest(m.receipt, "reject") for m in found])
    operations = node.broker.queue._calls.operations
    put, broken = operations.put, 1

    async def failing(partition: PartitionId, *args: Any, **named: Any) -> OpsAnswer:
        if partition.partition == broken:
            raise NoQuorum
        return await put(partition, *args, **named)

    monkeypatch.setattr(operations, "put", failing)

    with pytest.raises(NoQuorum) as purged:
        await node.broker.letters.purge("g", "two", DeadFilter(), dry_run=False)
    broken = 0
    with pytest.raises(NoQuorum) as sought:
        await node.broker.positions.seek("g", "two", None, offset=0, time_ms=None)
    with pytest.raises(NoQuorum) as alone:
        await node.broker.positions.seek("g", "two", 0, offset=0, time_ms=None)

    assert (purged.value.outcome, sought.value.outcome) == ("unknown", "unknown")
    assert alone.value.outcome == "none"


async def test_a_seek_that_an_owner_refuses_tells_that_other_partitions_were_set(
    node: NodeAssembly,
) -> None:
    await node.broker.topics.create_topic("two", {"partitions": 2})
    group = await node.broker.groups.ensure_group("g")
    topic = await node.broker.topics._finder.find("two")
    own = Own(group.id, "m", 1, False)
    await node.broker.queue._calls.operations.put(PartitionId(topic.id, 1), [own], group_ref(group))

    with pytest.raises(GroupActive) as refused:
        await node.broker.positions.seek("g", "two", None, offset=0, time_ms=None)
    with pytest.raises(GroupActive) as alone:
        await node.broker.positions.seek("g", "two", 1, offset=0, time_ms=None)

    assert (refused.value.outcome, alone.value.outcome) == ("unknown", "none")


async def test_a_group_that_starts_at_the_end_gets_what_is_published_after_its_first_receive(
    node: NodeAssembly,
) -> None:
    await node.broker.groups.put_group("late", {"start": "latest"})
    await publish(node, "before")

    assert await receive(node, "late") == []
    await publish(node, "after")

    assert [m.value for m in await receive(node, "late")] == [b"after"]


async def test_a_full_or_halted_group_says_so(node: NodeAssembly) -> None:
    await node.broker.groups.put_group("g", {"in_flight_max": 1})
    await publish(node, "a", "b")
    assert len(await receive(node)) == 1
    with pytest.raises(TooManyInFlight):
        await receive(node, wait_s=30)

    settings = {"halt_percent": 1, "halt_window": 1}
    await node.broker.groups.put_group("h", settings)
    await settle(node, await receive(node, "h"), "reject")
    with pytest.raises(GroupHalted):
        await receive(node, "h")
    assert await node.broker.queue.resume("h", None) == 1
    assert len(await receive(node, "h")) == 1


async def test_a_group_is_resumed_also_where_the_leader_told_nothing_of_it(
    node: NodeAssembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.broker.groups.put_group("h", {"halt_percent": 1, "halt_window": 1})
    await publish(node, "a", "b")
    await settle(node, await receive(node, "h"), "reject")
    with pytest.raises(GroupHalted):
        await receive(node, "h")

    async def nothing(*_args: object) -> FiguresAnswer:
        return FiguresAnswer([], [])

    with monkeypatch.context() as silent:
        silent.setattr(queue_views.QueueViews, "figures", nothing)
        assert await node.broker.queue.resume("h", None) == 1
    assert len(await receive(node, "h")) == 1


async def test_a_parked_key_waits_until_it_is_released(node: NodeAssembly) -> None:
    await node.broker.groups.put_group("g", {"ordering": "key"})
    await publish(node, Record(b"a1", b"a"), Record(b"b1", b"b"))
    await receive(node, "g", limit=1)
    await node.broker.positions.seek("g", "t", 0, offset=0, time_ms=None)

    await node.broker.queue.park("g", "t", b"a", release=False)
    assert [m.value for m in await receive(node)] == [b"b1"]
    view = await node.broker.groups.group("g", "t")
    assert [key for key, _waiting in view.partitions[0].parked] == [b"a"]
    await node.broker.queue.park("g", "t", b"a", release=True)

    assert [m.value for m in await receive(node)] == [b"a1"]


async def test_peeking_takes_nothing(node: NodeAssembly) -> None:
    await publish(node, Record(b"low", lane=3), Record(b"high", lane=1))
    await node.broker.groups.put_group("g", {})

    seen = await node.broker.queue.peek("g", ["t"], limit=10, partitions=None)
    taken = await receive(node)

    assert [m.value for m in seen] == [b"high", b"low"]
    assert [m.receipt for m in seen] == ["", ""]
    assert [m.value for m in taken] == [b"high", b"low"]
    assert [m.attempt for m in taken] == [1, 1]


async def test_figures_and_metrics_tell_where_a_group_stands(node: NodeAssembly) -> None:
    await publish(node, "a", "b", "c", Record(b"d", deliver_at_ms=60_000))
    found = await receive(node, limit=2)
    await settle(node, found[:1])
    await settle(node, found[1:], "reject")

    (stats,) = await node.broker.figures.queue_stats("t")
    text = node.metrics.render()[0].decode()

    group = stats.groups["g"]
    assert (group.committed_offset, group.end, group.ready, group.dead, group.acked) == (
        2,
        4,
        1,
        1,
        1,
    )
    assert (stats.delayed, stats.scheduled, stats.stored_by_lane) == (1, 1, [0, 0, 4, 0, 0])
    assert stats.delay_ms_sum == 60_000
    assert (group.lag, group.delayed, group.owner) == (1, 1, "")
    for line in (
        'goqueue_broker_messages_consumed_total{consumer_group="g",topic="t"} 2.0',
        'goqueue_broker_messages_acked_total{consumer_group="g",topic="t"} 1.0',
        'goqueue_broker_messages_rejected_total{consumer_group="g",topic="t"} 1.0',
        'goqueue_died_messages_total{consumer_group="g",topic="t"} 1.0',
        'goqueue_dead_letters{consumer_group="g",topic="t"} 1.0',
        'goqueue_broker_delayed_messages_pending{topic="t"} 1.0',
        'goqueue_ready_messages{lane="normal",topic="t"} 1.0',
    ):
        assert line in text


async def test_a_group_begins_once_and_where_it_was_told(node: NodeAssembly) -> None:
    begin = node.broker.positions.begin
    for group in ("g", "late"):
        await node.broker.groups.put_group(group, {})
    await publish(node, "a", "b", "c")
    told = await asyncio.gather(*(begin("g", "t", 0, offset=at) for at in (1, 2, 0, -2)))
    assert told == [True, False, False, False]
    assert [m.value for m in await receive(node)] == [b"b", b"c"]
    assert not await begin("g", "t", 0, offset=0)
    assert await begin("late", "t", 0, offset=-2)
    await publish(node, "d")
    assert [m.value for m in await receive(node, "late")] == [b"d"]
    with pytest.raises(UnknownPartition):
        await begin("g", "t", 9, offset=0)


async def test_unknown_topics_and_groups_are_named(node: NodeAssembly) -> None:
    with pytest.raises(UnknownTopic):
        await receive(node, topics=["none"])
    with pytest.raises(UnknownGroup):
        await node.broker.groups.group("none")
    with pytest.raises(UnknownGroup):
        await node.broker.queue.peek("none", ["t"], limit=1, partitions=None)
    with pytest.raises(UnknownGroup):
        await node.broker.positions.seek("none", "t", None, offset=0, time_ms=None)
    with pytest.raises(UnknownGroup):
        await node.broker.positions.begin("none", "t", 0, offset=0)
    assert await node.broker.groups.list_groups() == []


async def test_leases_and_dead_letters_survive_a_power_cut() -> None:
    disk = MemoryDisk()
    async with running(disk) as node:
        await node.broker.topics.create_topic("t", {"partitions": 1})
        await publish(node, "a", "b")
        found = await receive(node, visibility_ms=60_000)
        await settle(node, found[:1], "reject", reason="poison")
        after_cut = disk.crash(random.Random(1), keep=0.0)

    async with running(after_cut) as node:
        await eventually(lambda: node.broker.topics.list_topics() == ["t"])
        await node.broker.topics.ensure_topic("t")
        assert await receive(node, wait_s=0.3) == []
        assert await node.broker.letters.dead_groups("t") == {"g": {"poison": 1}}
        (end,) = await settle(node, found[1:])
        assert isinstance(end, SettleView)
        assert end.committed_offset == 2


async def test_a_deleted_group_leaves_nothing_in_partitions_and_a_new_one_begins_anew(
    node: NodeAssembly,
) -> None:
    await publish(node, "a")
    old = await receive(node)
    (host,) = node.broker.topics._replicas.led()

    await node.broker.groups.delete_group("g")
    await eventually(lambda: not host.state.queue.groups)

    assert [type(end) for end in await settle(node, old)] == [NotFound]
    assert [m.attempt for m in await receive(node)] == [1]


async def test_offsets_of_a_group_that_was_made_anew_are_not_said_to_be_committed(
    node: NodeAssembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(node, "a")
    old = await node.broker.groups.ensure_group("g")
    await node.broker.groups.delete_group("g")
    await receive(node)

    async def stale(_name: str, **_more: object) -> Group:
        return old

    monkeypatch.setattr(node.broker.groups, "ensure_group", stale)
    with pytest.raises(UnknownGroup):
        await node.broker.positions.commit("g", "t", {0: 1})


async def test_changed_settings_reach_partitions_without_a_receive(node: NodeAssembly) -> None:
    await receive(node)
    (host,) = node.broker.topics._replicas.led()

    await node.broker.groups.put_group("g", {"max_attempts": 7})

    def attempts() -> int:
        groups = host.state.queue.groups.values()
        return max((group.config.max_attempts for group in groups), default=0)

    await eventually(lambda: attempts() == 7)


async def story(node: NodeAssembly, offset: int) -> list[tuple[str, dict[str, object]]]:
    trace = await node.broker.traces.message_trace("t", 0, Offset(offset))
    assert [e.time_ms for e in trace.events] == sorted(e.time_ms for e in trace.events)
    told = [(event.type, dict(event.attributes)) for event in trace.events]
    return [found for found in told if found[0] not in ("REPLICATED", "RETAINED", "PUBLISHED")]


async def test_a_timeline_tells_every_attempt_until_death_and_redrive(node: NodeAssembly) -> None:
    await node.broker.groups.put_group("g", {"max_attempts": 2})
    await publish(node, "a")
    await settle(node, await receive(node), "nack", reason="no")
    await settle(node, await receive(node, visibility_ms=5000), "extend", visibility_ms=20)
    (host,) = node.broker.topics._replicas.led()
    (group,) = host.state.queue.groups.values()
    await eventually(lambda: len(group.dead) == 1)
    assert await receive(node) == []
    await node.broker.redriving.redrive("g", "t", DeadFilter(), rate=0, dry_run=False, force=False)
    await settle(node, await receive(node, wait_s=30))

    told = await story(node, 0)

    assert [type_ for type_, _what in told] == [
        "DELIVERED",
        "NACKED",
        "DELIVERED",
        "EXTENDED",
        "DEAD_LETTERED",
        "REDRIVEN",
        "DELIVERED",
        "ACKNOWLEDGED",
    ]
    assert all(what["group"] == "g" for _type, what in told)
    assert (told[0][1]["attempt"], told[0][1]["member"], told[2][1]["attempt"]) == (1, "m", 2)
    assert (told[1][1]["reason"], told[4][1]["reason"]) == ("no", "visibility timeout")


async def test_an_expired_message_is_never_delivered_and_its_timeline_says_so(
    node: NodeAssembly,
) -> None:
    await receive(node)
    await publish(node, Record(b"soon over", expires_at_ms=50), "stays")
    await asyncio.sleep(0.1)

    assert [m.value for m in await receive(node, wait_s=1)] == [b"stays"]
    assert [type_ for type_, _what in await story(node, 0)] == ["EXPIRED"]


async def test_a_timeline_tells_of_delays_and_of_who_cancelled_them(node: NodeAssembly) -> None:
    await publish(node, Record(b"x", deliver_at_ms=60_000))
    await node.broker.delays.cancel_delayed("t", 0, 0)

    assert [type_ for type_, _what in await story(node, 0)] == ["DELAYED", "CANCELLED"]


async def test_a_full_disk_refuses_publishes_while_receives_and_settles_go_on() -> None:
    disk = MemoryDisk()
    async with running(disk) as node:
        await node.broker.topics.create_topic("t", {"partitions": 1})
        await publish(node, "a", "b")
        disk.capacity = 0
        refused = False
        async with asyncio.timeout(30):
            while not refused:
                try:
                    await publish(node, "x")
                except DiskFull:
                    refused = True

        found = await receive(node, limit=2)
        ends = await settle(node, found)

        assert [m.value for m in found] == [b"a", b"b"]
        assert [type(end) for end in ends] == [SettleView, SettleView]


async def test_large_messages_come_a_few_at_a_time_and_none_is_lost(node: NodeAssembly) -> None:
    for _ in range(12):
        await publish(node, Record(b"x" * 1_000_000))
    seen: list[int] = []

    async with asyncio.timeout(30):
        while len(seen) < 12:
            found = await receive(node, limit=100, wait_s=30)
            assert 1 <= len(found) <= 9
            assert {m.attempt for m in found} == {1}
            seen += [m.offset for m in found]
            await settle(node, found)

    assert sorted(seen) == list(range(12))


async def test_several_topics_are_received_from_in_one_request(node: NodeAssembly) -> None:
    await node.broker.topics.create_topic("u", {"partitions": 1})
    await publish(node, "from t")
    await publish(node, "from u", topic="u")

    found = await receive(node, topics=["t", "u", "t"])

    assert {(m.topic, m.value) for m in found} == {("t", b"from t"), ("u", b"from u")}
    ends = await settle(node, found)
    assert {end.topic for end in ends if isinstance(end, SettleView)} == {"t", "u"}


async def test_a_receive_of_named_partitions_leaves_the_others_alone(node: NodeAssembly) -> None:
    await node.broker.topics.create_topic("u", {"partitions": 3})
    for partition in range(3):
        batch = encode_batch([Record(str(partition).encode())])
        await node.broker.records.append("u", partition, batch, deadline_s=30)

    found = await node.broker.queue.receive(
        "g", ["u"], claim=Claim("m"), limit=9, wait_s=0, visibility_ms=None, partitions=[1]
    )

    assert [m.value for m in found] == [b"1"]
    with pytest.raises(UnknownPartition):
        await node.broker.queue.receive(
            "g", ["u"], claim=Claim("m"), limit=9, wait_s=0, visibility_ms=None, partitions=[3]
        )


async def test_an_idle_partition_with_groups_sets_no_timer_and_writes_nothing(
    node: NodeAssembly,
) -> None:
    await publish(node, "a")
    await settle(node, await receive(node))
    (host,) = node.broker.topics._replicas.led()
    index = host.applied_index

    await asyncio.sleep(0.3)

    assert host.queue._timer is None
    assert host.applied_index == index


async def test_a_timeline_calls_a_death_that_halted_the_group_by_its_name(
    node: NodeAssembly,
) -> None:
    await node.broker.groups.put_group(
        "g", {"max_attempts": 1, "halt_percent": 50, "halt_window": 1}
    )
    await publish(node, "a", "b")
    first, second = await receive(node)
    await settle(node, [first], "reject", reason="no")
    await settle(node, [second], "reject", reason="no")

    assert [type_ for type_, _what in await story(node, 0)][-1] == "DEAD_LETTERED"
    assert [type_ for type_, _what in await story(node, 1)][-1] == "HALTED"


async def test_a_seek_replays_nothing_that_is_over(node: NodeAssembly) -> None:
    await publish(node, Record(b"brief", expires_at_ms=1))
    await asyncio.sleep(0.01)
    assert await receive(node) == []
    await node.broker.positions.seek("g", "t", 0, offset=1, time_ms=None)
    await node.broker.positions.seek("g", "t", 0, offset=0, time_ms=None)

    assert "REPLAYED" not in [type_ for type_, _what in await story(node, 0)]


async def test_figures_name_no_due_time_of_a_cancelled_message(node: NodeAssembly) -> None:
    await publish(node, Record(b"later", deliver_at_ms=60_000))
    await node.broker.delays.cancel_delayed("t", 0, 0)

    (stats,) = await node.broker.figures.queue_stats("t")

    assert (stats.delayed, stats.delayed_next_ms) == (0, 0)
