"""Events of a partition read from a log on disk: what all timelines tell, in pages of any size, by
readers that go on, begin in the middle, and overtake each other."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import cast

import msgspec
import pytest

from benchmarks.timeline_log import LoggedPartition
from delivery.config import GroupConfig
from delivery.entries.ops import ACK, Delivered, OpenGroup, Settled
from delivery.timeline.message import project
from goqueue.wire.events import EventColumns
from log.config import StorageConfig
from log.disk.files import OsDisk
from node.api.traces import EventsView, EventsWanted
from node.lookup.event_cursors import CURSORS_MAX
from node.lookup.event_reader import EventReader, EventsBehind
from node.partition.host import PartitionHost
from tests.steps import Steps, longest_stretch
from tests.unit.node.consumed import consumed

Row = tuple[int, str, str | None, int | None]
"""(log time, type, group, attempt)."""
HELD_STEPS_MAX = 4_000
"""On the thread of the loop at a stretch; 1,200 today."""


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[LoggedPartition]:
    found = consumed(tmp_path)
    yield found
    found.close()


async def page(
    reader: EventReader, partition: LoggedPartition, after: int, **more: object
) -> tuple[EventsView, EventColumns]:
    given = {"offset": None, "until": 1 << 60, "limit": 1000, **more}
    wanted = msgspec.convert([after, *given.values()], EventsWanted)
    found = await reader.read(cast("PartitionHost", partition), wanted)
    return found, msgspec.msgpack.decode(found.columns, type=EventColumns)


async def rows(
    reader: EventReader, partition: LoggedPartition, limit: int, after: int = 0
) -> list[tuple[tuple[int, int, int], Row]]:
    """All events after an entry, page by page."""
    found: list[tuple[tuple[int, int, int], Row]] = []
    offset = None
    while True:
        view, events = await page(reader, partition, after, offset=offset, limit=limit)
        names = zip(events.index, events.offset, events.seq, strict=True)
        told = zip(
            events.timestamp_ms, events.event_type, events.group, events.attempt, strict=True
        )
        found += zip(names, told, strict=True)
        after, offset = view.next, view.next_offset
        if after >= view.end:
            return found


def expected(partition: LoggedPartition) -> list[tuple[int, Row]]:
    """What the timelines tell of what entries brought."""
    partition.flush()
    last, log = partition.applied_index, partition.log
    entries = [log.entry(index) for index in map(type(last), range(1, last + 1))]
    found: list[tuple[int, Row]] = []
    for offset in range(partition.state.next_offset):
        timeline = project(offset, entries, partition.state.queue.outcome_notes)
        assert timeline is not None
        for time_ms, type_, what in timeline.events:
            if type_ != "RETAINED" and what.get("time") != "not_recorded":
                group, attempt = what.get("group"), what.get("attempt")
                found.append((offset, (time_ms, type_, cast("str", group), cast("int", attempt))))
    return sorted(found, key=repr)


async def test_pages_of_any_size_tell_what_all_timelines_tell(partition: LoggedPartition) -> None:
    told = expected(partition)
    for limit in (7, 100, 20_000):
        found = await rows(EventReader(), partition, limit)
        names = [name for name, _ in found]

        assert names == sorted(set(names)), "in order, each once"
        assert sorted(((n[1], row) for n, row in found), key=repr) == told


async def test_reading_from_any_entry_tells_what_a_reader_from_the_start_was_told(
    partition: LoggedPartition,
) -> None:
    whole = await rows(EventReader(), partition, 1000)
    random, reader = Random(1), EventReader()

    for _ in range(10):
        after = random.randrange(int(partition.applied_index))
        found = await rows(reader, partition, random.choice((3, 50, 2000)), after)

        assert found == [one for one in whole if one[0][0] > after]


async def test_an_entry_is_told_in_parts(partition: LoggedPartition) -> None:
    """Also by a node that was not asked for the part before."""
    view, first = await page(EventReader(), partition, 3, limit=10)
    assert (view.next, view.next_offset) == (3, 9)

    _, rest = await page(EventReader(), partition, 3, offset=9, limit=10)

    assert (first.offset, rest.offset[:10]) == ([*range(10)], [*range(10, 20)])
    assert {*first.index, *rest.index} == {4}


async def test_who_stops_at_an_entry_is_told_nothing_beyond(partition: LoggedPartition) -> None:
    view, events = await page(EventReader(), partition, 0, until=20, limit=20_000)

    assert (view.next, max(events.index)) == (20, 20)


async def test_beyond_the_end_there_is_nothing_but_the_bounds(partition: LoggedPartition) -> None:
    view, events = await page(EventReader(), partition, 1 << 50)

    assert (view.first, view.end, view.next) == (1, partition.applied_index, 1 << 50)
    assert events.index == []


async def test_an_event_is_waited_for(partition: LoggedPartition) -> None:
    reader, end = EventReader(), int(partition.applied_index)
    waiting = asyncio.create_task(page(reader, partition, end, wait_s=10.0))
    await asyncio.sleep(0)
    offsets = partition.publish(2)
    partition.append()

    _, events = await waiting

    assert (events.offset, events.index) == (offsets, [end + 1] * 2)


async def test_who_is_cancelled_leaves_nothing_half_told(partition: LoggedPartition) -> None:
    reader = EventReader()
    whole = await rows(EventReader(), partition, 1000)
    for _ in range(5):
        reading = asyncio.create_task(page(reader, partition, 0, limit=20_000))
        await asyncio.sleep(0.001)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    assert await rows(reader, partition, 1000) == whole


async def test_readers_are_remembered_within_a_bound(partition: LoggedPartition) -> None:
    reader = EventReader()
    for after in range(CURSORS_MAX + 20):
        await page(reader, partition, 200 - after, limit=1)

    assert len(reader.cursors) == CURSORS_MAX


async def test_what_takes_too_long_is_gone_on_with(
    partition: LoggedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.lookup.event_reader.READ_S", 0.0)
    monkeypatch.setattr("node.lookup.event_reader.STEP_ENTRIES", 40)
    reader, refused = EventReader(), list[int]()
    for _ in range(100):
        try:
            view, _ = await page(reader, partition, 200)
            break
        except EventsBehind as behind:
            assert (behind.http_status, behind.retriable) == (503, True)
            refused.append(cast("int", behind.data["entries"]))

    assert len(refused) >= 4
    assert refused == sorted(set(refused), reverse=True), "each time less is left"
    assert view.next >= 200


async def test_reading_never_has_the_loop_for_long(tmp_path: Path) -> None:
    large = StorageConfig(watermark_percent=0, watermark_bytes=0)
    partition = LoggedPartition(OsDisk(), str(tmp_path / "data"), large)
    partition.do(OpenGroup(1, "g", 1, GroupConfig(), 0))
    for _ in range(60):
        some = partition.publish(100)
        lease = partition.do(Delivered(1, "a", 1000, some))
        partition.do(Settled(1, ACK, [(lease, some)]))
    partition.append()
    gc.freeze()
    try:
        assert await held(partition) < HELD_STEPS_MAX
    finally:
        partition.close()


async def held(partition: LoggedPartition) -> int:
    """The most steps of the loop's thread at a stretch."""
    wanted = EventsWanted(0, None, 1 << 60, 20_000)
    with Steps() as counted:
        reading = EventReader().read(cast("PartitionHost", partition), wanted)
        longest, found = await longest_stretch(counted, reading)
    assert found.count >= 10_000
    return longest
