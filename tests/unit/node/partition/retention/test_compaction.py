"""Key compaction of a whole node: what stays, what goes, and that offsets are what they were."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from coordinator.topics.settings import TopicConfig
from delivery.offsets.bitmaps import BitMap64
from goqueue.wire.batch import Record, RecordBatch
from goqueue.wire.errors import KeyRequired, NotFound, NullValue
from goqueue.wire.types import Index, Offset
from log.disk.memory import MemoryDisk
from log.entry import EntryKind
from node.assembly import NodeAssembly
from node.partition.host import PartitionHost
from node.partition.retention.compaction import Findings
from tests.unit.node.partition.compaction_scene import Scene
from tests.unit.node.queue.test_whole_node import publish, receive, settle
from tests.unit.node.test_node import config, eventually, in_segments, running

SEGMENT_BYTES = 2048
Row = tuple[int, bytes | None, bytes | None]


@pytest.fixture
async def node() -> AsyncIterator[NodeAssembly]:
    async with running(MemoryDisk(), config(), segment_bytes=SEGMENT_BYTES) as started:
        await started.broker.topics.create_topic("t", {"partitions": 1, "cleanup": "compact"})
        yield started


def led(node: NodeAssembly) -> PartitionHost:
    (host,) = node.broker.topics._replicas.led()
    return host


async def put(node: NodeAssembly, key: str, value: str | None, **fields: object) -> int:
    blob = None if value is None else value.encode()
    return await publish(node, Record(blob, key.encode(), **fields))  # type: ignore[arg-type]


async def fill(node: NodeAssembly, count: int = 40) -> None:
    """Seal what was written so far: the head is never compacted."""
    for _ in range(count):
        await put(node, "filler", "x" * 100)


async def compacted(node: NodeAssembly, **how: bool) -> Findings:
    await fill(node)
    await in_segments(node)
    return await led(node).compactor.run(force=True, **how)


async def read_all(node: NodeAssembly, step: int = 1000, start: int = 0) -> list[Row]:
    """Everything that a reader from the start sees, without what `fill` wrote."""
    found: list[Row] = []
    at = Offset(start)
    while True:
        page = await node.broker.records.read(
            "t", 0, at, max_records=step, max_bytes=1 << 20, wait_s=0
        )
        for stored in page.batches:
            batch = RecordBatch.parse(stored.batch)
            rows = enumerate(
                zip(batch.keys(), batch.values_or_nulls(), strict=True), stored.base_offset
            )
            found += [(o, k, v) for o, (k, v) in rows if o >= at and k != b"filler"]
        assert page.next_offset > at or page.next_offset == page.end_offset
        at = page.next_offset
        if at >= page.end_offset:
            return found


async def test_the_last_value_of_each_key_stays_at_its_offset(node: NodeAssembly) -> None:
    for round_ in range(5):
        for key in "abc":
            await put(node, key, f"{key}{round_}")

    findings = await compacted(node)

    assert findings.outcome == "done"
    assert led(node).state.log_start_offset > 15
    assert await read_all(node) == [(12, b"a", b"a4"), (13, b"b", b"b4"), (14, b"c", b"c4")]
    assert await read_all(node, step=1) == await read_all(node)
    assert await read_all(node, start=13) == [(13, b"b", b"b4"), (14, b"c", b"c4")]


async def test_runs_follow_each_other_and_a_restart_changes_nothing() -> None:
    disk = MemoryDisk()
    async with running(disk, config(), segment_bytes=SEGMENT_BYTES) as node:
        await node.broker.topics.create_topic("t", {"partitions": 1, "cleanup": "compact"})
        expected = {}
        for round_ in range(4):
            for key in ("a", "b", f"only{round_}"):
                expected[key.encode()] = (await put(node, key, f"{key}{round_}"), f"{key}{round_}")
            assert (await compacted(node)).outcome == "done"
        rows = sorted((o, key, v.encode()) for key, (o, v) in expected.items())
        assert await read_all(node) == rows
        end = led(node).end_offset
        after_cut = disk.crash(random.Random(1), keep=0.0)

    async with running(after_cut, config(), segment_bytes=SEGMENT_BYTES) as node:
        await node.broker.topics.ensure_topic("t")
        await eventually(lambda: len(node.broker.topics._replicas.led()) == 1)
        assert (await read_all(node), led(node).end_offset) == (rows, end)
        assert (await compacted(node)).outcome == "done"
        assert await read_all(node) == rows


async def test_a_null_value_goes_after_its_delay_and_what_it_deleted_before(
    node: NodeAssembly,
) -> None:
    await put(node, "a", "1")
    await put(node, "b", "1")
    await put(node, "a", None)

    assert (await compacted(node)).tombstones == 1
    assert await read_all(node) == [(1, b"b", b"1"), (2, b"a", None)]

    await node.broker.topics.alter_topic("t", {"delete_retention_ms": 0})
    await eventually(lambda: led(node).config.delete_retention_ms == 0)
    assert (await led(node).compactor.run()).tombstones == 0
    assert await read_all(node) == [(1, b"b", b"1")]


async def test_a_dry_run_tells_what_goes_and_changes_nothing(node: NodeAssembly) -> None:
    for value in "123":
        await put(node, "a", value)
    await fill(node)
    await in_segments(node)
    before = led(node).state.snapshot()

    told = await led(node).compactor.run(dry_run=True)

    assert led(node).state.snapshot() == before
    done = await led(node).compactor.run(force=True)
    assert told == done
    assert (done.kept, done.bytes_after < done.bytes_before) == (2, True)


async def test_messages_without_key_and_null_values_elsewhere_are_refused(
    node: NodeAssembly,
) -> None:
    await node.broker.topics.create_topic("plain", {"partitions": 1})

    with pytest.raises(KeyRequired):
        await publish(node, "no key")
    with pytest.raises(NullValue):
        await publish(node, Record(None, b"k"), topic="plain")

    assert await put(node, "", "an empty key is one") == 0


async def test_groups_get_what_stays_and_what_they_had_in_hand_and_new_ones_all_of_it(
    node: NodeAssembly,
) -> None:
    await put(node, "a", "old")
    await put(node, "b", "old")
    await put(node, "c", "kept")
    (leased,) = await receive(node, limit=1)
    await put(node, "a", "new")
    await put(node, "b", "new")

    assert (await compacted(node)).outcome == "done"

    assert [m.value for m in await receive(node, limit=3)] == [b"kept", b"new", b"new"]
    (end,) = await settle(node, [leased], "nack")
    assert getattr(end, "outcome", "") == "requeued"
    assert b"old" in [m.value for m in await receive(node, limit=100)]
    fresh = await receive(node, "late", limit=3)
    assert [(m.offset, m.value) for m in fresh] == [(2, b"kept"), (3, b"new"), (4, b"new")]


async def test_a_delayed_message_stays_and_supersedes_nothing_until_it_is_due(
    node: NodeAssembly,
) -> None:
    for key, delay_ms in (("a", 60_000), ("b", 10)):
        await put(node, key, "1")
        await put(node, key, "2", deliver_at_ms=delay_ms)
    await receive(node)
    await eventually(lambda: list(led(node).state.queue.hidden) == [1])

    await compacted(node)

    assert await read_all(node) == [(0, b"a", b"1"), (1, b"a", b"2"), (3, b"b", b"2")]


async def test_the_leader_compacts_by_itself_once_enough_is_dirty() -> None:
    async with running(
        MemoryDisk(), config(**{"storage.retentionCheck": "50ms"}), segment_bytes=SEGMENT_BYTES
    ) as busy:
        await busy.broker.topics.create_topic("t", {"partitions": 1, "cleanup": "compact"})
        await put(busy, "a", "1")
        await fill(busy)

        await eventually(lambda: led(busy).state.queue.compacted_set.runs > 0)

        assert await read_all(busy) == [(0, b"a", b"1")]


async def test_compaction_and_retention_by_age_go_together(node: NodeAssembly) -> None:
    await node.broker.topics.alter_topic("t", {"cleanup": "compact,delete", "retention_ms": 400})
    await eventually(lambda: led(node).config.is_deleted)
    await put(node, "a", "1")
    await compacted(node)
    await eventually(lambda: led(node).log_time_ms() > led(node).state.time_ms + 400)

    await led(node).compactor.run()

    assert await read_all(node) == []


async def test_only_the_newest_that_fit_stay_where_size_is_bounded(node: NodeAssembly) -> None:
    await node.broker.topics.alter_topic(
        "t", {"cleanup": "compact,delete", "retention_bytes": 8000}
    )
    await eventually(lambda: led(node).config.retention_bytes == 8000)
    for number in range(100):
        await put(node, f"k{number}", "v" * 100)

    await compacted(node)

    left = [offset for offset, _, _ in await read_all(node)]
    assert 0 < left[0] < 90
    assert left == list(range(left[0], 100))


def dirty(**settings: object) -> Scene:
    scene = Scene(**settings)
    for number in range(30):
        scene.publish(Record(b"%d" % number, b"k%d" % (number % 3)))
    return scene


async def test_a_full_disk_or_a_lost_leadership_ends_a_run_and_the_next_one_begins_anew() -> None:
    scene = dirty()
    scene.lacks_room = True
    assert (await scene.compact()).outcome == "the disk is full"
    scene.lacks_room = False
    assert (await scene.compact(fails_after=1)).outcome == "another node leads"
    assert scene.state.log_start_offset == 0

    assert (await scene.compact()).outcome == "done"

    last = [row.offset for row in scene.seen()]
    assert last == [27, 28, 29]
    assert scene.state.snapshot() == scene.follower.snapshot()


async def test_nothing_is_begun_where_a_voter_has_not_the_room_for_all_that_a_run_appends() -> None:
    scene = dirty()
    scene.publish(Record(b"later" * 40, b"d", deliver_at_ms=scene.now_ms + 60_000))
    for number in range(40):
        scene.publish(Record(b"v" * 100, b"k%d" % (number % 20)))
    before = len(scene.log.all)
    scene.room_bytes = 0

    refused = await scene.compact()
    needed = int(refused.outcome.split()[2])
    scene.room_bytes = needed - 1
    still_refused = await scene.compact()

    assert refused.outcome == f"it takes {needed} bytes, and n2 has room for 0"
    assert still_refused.outcome.endswith(f"room for {needed - 1}")
    assert len(scene.log.all) == before
    scene.room_bytes = needed
    done = await scene.compact()
    assert done.outcome == "done"
    appended = scene.log.all[before:-1]  # without the decision
    assert {entry.kind for entry in appended} == {EntryKind.CARRIED, EntryKind.KEPT}
    assert needed >= sum(len(entry.body) for entry in appended)
    assert needed < done.bytes_before, "less than everything"


async def test_what_is_carried_by_now_is_among_what_a_run_takes() -> None:
    scene = Scene(cleanup="delete", retention_ms=1000)
    for _ in range(6):
        scene.publish(Record(b"later" * 40, b"d", deliver_at_ms=scene.now_ms + 60_000))
    scene.now_ms += 2000
    for _ in range(2):
        scene.publish(Record(b"x", b"k"))
    await scene.retention.run()
    assert scene.state.log_start_offset == 6
    scene.config = TopicConfig(cleanup="compact")
    for _ in range(12):
        scene.publish(Record(b"x", b"k"))
    scene.room_bytes = 0

    needed = int((await scene.compact()).outcome.split()[2])
    scene.room_bytes = needed
    before = len(scene.log.all)

    assert (await scene.compact()).outcome == "done"
    assert needed >= sum(len(entry.body) for entry in scene.log.all[before:-1])


async def test_delayed_messages_that_outlived_retention_are_no_part_of_a_run() -> None:
    scene = Scene(cleanup="compact,delete", retention_ms=1000)
    delayed = scene.publish(Record(b"later", b"d", deliver_at_ms=scene.now_ms + 60_000))
    scene.publish(Record(b"x", b"k"))
    scene.now_ms += 2000
    await scene.retention.run()
    assert scene.state.log_start_offset == 2
    for _ in range(12):
        scene.publish(Record(b"x", b"k"))

    assert (await scene.compact()).outcome == "done"

    assert [row.offset for row in scene.seen()] == [12, 13]  # the last two are not sealed
    assert scene.state.queue.reappended[delayed] >= scene.state.log_start_index
    assert scene.state.snapshot() == scene.follower.snapshot()


async def test_a_run_waits_for_enough_that_is_dirty_and_old() -> None:
    lagging = dirty(min_compaction_lag_ms=60_000)
    assert (await lagging.compact()).outcome == "nothing"
    lagging.now_ms += 60_001
    assert (await lagging.compact()).outcome == "done"

    scene = dirty(min_cleanable_ratio=0.9)
    assert (await scene.compactor.run()).outcome == "done"
    for _ in range(12):
        scene.publish(Record(b"x", b"k"))
    assert scene.compactor.standing().ratio < 0.9
    assert (await scene.compactor.run()).outcome == "nothing"
    assert (await scene.compact()).outcome == "done"


async def test_what_is_dropped_is_counted() -> None:
    scene = dirty()
    done = await scene.compact()

    text = scene.metrics.render()[0].decode()

    assert 'goqueue_storage_compaction_runs_total{topic="t"} 1.0' in text
    assert f'goqueue_compaction_dropped_messages_total{{topic="t"}} {float(done.dropped)}' in text
    assert scene.compactor.standing().dropped == done.dropped > 0


async def test_what_is_kept_grows_old_too_once_the_topic_is_not_compacted_any_more() -> None:
    scene = dirty()
    scene.publish(*[Record(b"x", b"other%d" % number) for number in range(9)])
    for number in range(9):
        scene.publish(Record(b"y", b"k%d" % number))
    await scene.compact()
    assert scene.state.queue.compacted
    scene.config = TopicConfig(retention_ms=1000)
    assert (await scene.compactor.run()).outcome == "nothing"

    scene.now_ms += 2000
    assert (await scene.compactor.run()).outcome == "done"

    assert not scene.state.queue.compacted


async def test_a_run_carries_all_that_the_queue_must_keep_however_much_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("node.partition.retention.trimming.CARRIED_BYTES", 1)
    monkeypatch.setattr("node.partition.retention.trimming.CARRIED_A_ROUND", 2)
    scene = Scene()
    for number in range(30):
        scene.publish(Record(b"%d" % number, b"k", deliver_at_ms=scene.now_ms + 60_000))

    findings = await scene.compact()

    assert findings.outcome == "done"
    assert scene.state.log_start_offset == 25
    assert scene.state.snapshot() == scene.follower.snapshot()


async def test_nothing_is_appended_for_a_run_while_what_the_queue_must_keep_can_not_be_carried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = dirty()
    scene.publish(Record(b"later", b"d", deliver_at_ms=scene.now_ms + 60_000))
    for _ in range(10):
        scene.publish(Record(b"x", b"filler"))
    before = len(scene.log.all)
    monkeypatch.setattr(scene.retention, "_body", _unreadable)

    findings = await scene.compact()

    assert findings.outcome == "what must be kept could not be carried"
    assert len(scene.log.all) == before


async def test_a_null_value_stays_as_long_as_a_message_that_was_delayed_when_the_run_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(delete_retention_ms=1000)
    delayed = scene.publish(Record(b"old", b"a", deliver_at_ms=scene.now_ms + 5000))
    null = scene.publish(Record(None, b"a"))
    for _ in range(10):
        scene.publish(Record(b"x", b"filler"))
    await scene.compact()
    scene.now_ms += 4000
    for _ in range(10):
        scene.publish(Record(b"x", b"filler"))
    look = scene.compactor._live

    async def until_it_is_due(index: Index, now_ms: int) -> tuple[BitMap64, BitMap64]:
        found = await look(index, now_ms)
        scene.now_ms += 2000
        scene.publish(Record(b"x", b"filler"))
        return found

    monkeypatch.setattr(scene.compactor, "_live", until_it_is_due)
    await scene.compact()

    assert [row.offset for row in scene.seen() if row.key == b"a"] == [delayed, null]


def _unreadable(_offsets: list[Offset]) -> tuple[int, bytes]:
    raise ValueError("can't be read")


async def test_a_survivors_timeline_goes_on_after_what_is_not_known_any_more(
    node: NodeAssembly,
) -> None:
    gone = await put(node, "a", "1")
    kept = await put(node, "a", "2")
    first = await receive(node, "early", limit=2)
    await settle(node, first)

    await compacted(node)
    late = [found for found in await receive(node, "late", limit=100) if found.offset == kept]
    await settle(node, late)
    trace = await node.broker.traces.message_trace("t", 0, Offset(kept))

    told = [(event.type, event.attributes.get("group")) for event in trace.events]
    assert [type_ for type_, group in told if group is None] == ["PUBLISHED", "KEPT"]
    assert told[-2:] == [("DELIVERED", "late"), ("ACKNOWLEDGED", "late")]
    assert {group.group: group.state for group in trace.groups}["late"] == "acked"
    assert not trace.exact
    with pytest.raises(NotFound):
        await node.broker.traces.message_trace("t", 0, Offset(gone))
