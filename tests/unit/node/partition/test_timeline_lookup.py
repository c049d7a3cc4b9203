"""Timelines looked up in a log on disk: the index beside the segments tells the same as the whole
log does, and is made again wherever it is missing, damaged or of other entries."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.timeline_log import VOTERS, LoggedPartition
from delivery.config import GroupConfig
from delivery.entries.ops import (
    NACK,
    REJECT,
    Committed,
    Delivered,
    OpenGroup,
    Own,
    Redriven,
    Settled,
    Sought,
)
from delivery.entries.records import encode_trim
from delivery.lookup.message_states import states_of, status_of
from delivery.timeline.message import project
from goqueue.wire.errors import NotFound
from goqueue.wire.types import Index, Offset
from log.config import StorageConfig
from log.disk.files import OsDisk
from log.entry import EntryKind
from log.segments.message_entry_index import MessageEntryFile
from node.partition.host import PartitionHost
from node.partition.timeline_lookup import TimelineOff, look_up
from tests.steps import Steps, longest_stretch
from tests.unit.node.consumed import COUNT, consumed

FAR = 20_000
"""Messages that a commit passes without naming any of them."""
HELD_STEPS_MAX = 25_000
"""On the thread of the loop at a stretch; 12,300 today, a millisecond or less."""


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[LoggedPartition]:
    found = consumed(tmp_path)
    yield found
    found.close()


def whole(partition: LoggedPartition) -> dict[int, object]:
    """What the projection tells from all entries."""
    partition.flush()
    last, log = partition.applied_index, partition.log
    entries = [log.entry(index) for index in map(type(last), range(1, last + 1))]
    outcome_notes = partition.state.queue.outcome_notes
    return {offset: project(offset, entries, outcome_notes) for offset in range(COUNT)}


async def check(partition: LoggedPartition) -> None:
    for offset, expected in list(whole(partition).items())[::7]:
        assert await partition.timeline(offset) == expected, offset


def files(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.rglob(f"*{MessageEntryFile.suffix}"))


async def test_a_look_up_tells_what_the_whole_log_does(partition: LoggedPartition) -> None:
    await check(partition)

    assert len(partition.log.segments()) > 3
    assert partition.message_entries.disk_bytes and partition.message_entries.ram_rows


async def test_an_entry_that_gives_two_groups_an_owner_is_told_for_both(
    partition: LoggedPartition,
) -> None:
    partition.do(Delivered(1, "a", 1000, [134]))
    partition.do(Delivered(2, "c", 1000, [134], 0, 1))
    partition.do(Own(2, "y", 2, True), Own(1, "x", 1, True))

    found = await partition.timeline(Offset(134))

    assert found == whole(partition)[134]
    lost = [what["group"] for _, type_, what in found.events if type_ == "REDELIVERED"]
    assert lost == ["g2", "g1"]


@pytest.mark.parametrize("kind", ["SKIPPED", "ACKNOWLEDGED"])
async def test_what_a_group_that_began_later_went_past_is_told_of_messages_it_never_had(
    partition: LoggedPartition, kind: str
) -> None:
    end = partition.publish(FAR)[-1] + 1
    partition.do(OpenGroup(9, "late", 1, GroupConfig(), 0))
    partition.do(Sought(9, end) if kind == "SKIPPED" else Committed(9, end))

    found = await partition.timeline(Offset(COUNT + 3))

    told = [type_ for _, type_, what in found.events if what.get("group") == "late"]
    assert (told, found.states["late"]) == ([kind], "acked")


@pytest.mark.parametrize("how", ["redriven", "redriven and taken", "parked", "began later"])
async def test_a_timeline_says_the_state_that_searches_say(
    partition: LoggedPartition, how: str
) -> None:
    order: dict[str, Any] = {"ordering": "key", "on_poison": "park"} if how == "parked" else {}
    partition.do(OpenGroup(9, "late", 1, GroupConfig(max_attempts=1, **order), COUNT))
    (offset,) = partition.publish(1, key=b"k")
    lease = partition.do(Delivered(9, "a", 1000, [offset]))
    partition.do(Settled(9, REJECT, [(lease, [offset])], reason="bad"))
    if how.startswith("redriven"):
        partition.do(Redriven(9, [offset]))
    if how.endswith("taken"):
        partition.do(Delivered(9, "a", 1000, [offset]))
    asked = 7 if how == "began later" else offset

    found = await partition.timeline(Offset(asked))

    queue = partition.state.queue
    assert (found.states, found.status) == (states_of(queue, asked), status_of(queue, asked))
    expected = {"redriven and taken": "in_flight", "began later": None}.get(how, "ready")
    assert found.states.get("late") == expected


async def test_replicated_names_the_voters_of_that_time(partition: LoggedPartition) -> None:
    last = int(partition.applied_index)
    partition.state.queue.outcome_notes.vote(last, ["node-1", "node-4", "node-9"])
    partition.publish(1)

    old, new = await partition.timeline(3), await partition.timeline(COUNT)

    assert old.events[1][2]["nodes"] == VOTERS
    assert new.events[1][2]["nodes"] == ["node-1", "node-4", "node-9"]


async def test_replicated_is_when_it_was_committed_however_much_later_the_next_entry_comes(
    partition: LoggedPartition,
) -> None:
    """As the next frame tells; where that does not, it was at the latest by then."""
    found: list[tuple[int, object]] = []
    for lag_ms in (3, None):
        (offset,), published_ms = partition.publish(1), partition.now_ms
        partition.now_ms += 60_000
        partition.lag_ms = lag_ms
        partition.publish(1)
        time_ms, type_, what = (await partition.timeline(offset)).events[1]
        assert type_ == "REPLICATED"
        found.append((time_ms - published_ms, what.get("time")))

    assert found == [(3, None), (60_000, "at_latest")]


@pytest.mark.parametrize("how", ["lost", "flipped", "cut", "foreign"])
async def test_an_index_file_that_is_not_sound_is_made_again(
    partition: LoggedPartition, tmp_path: Path, how: str
) -> None:
    await check(partition)
    damaged = files(tmp_path)[0]
    data = damaged.read_bytes()
    if how == "lost":
        damaged.unlink()
    elif how == "flipped":
        damaged.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    elif how == "cut":
        damaged.write_bytes(data[:-9])
    else:
        damaged.write_bytes(files(tmp_path)[1].read_bytes())
    if how != "flipped":
        partition.message_entries.forget()  # as after a restart

    await check(partition)

    assert damaged.read_bytes() == data


async def test_after_a_restart_the_index_goes_on_where_it_was(
    partition: LoggedPartition, tmp_path: Path
) -> None:
    await check(partition)
    before = {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    partition.message_entries.forget()
    partition.publish(5)
    partition.do(Delivered(1, "a", 1000, [5]))

    await check(partition)

    after = {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    assert all(after[path] == before[path] for path in before if path in after)


async def test_files_of_segments_that_have_gone_go_too(
    partition: LoggedPartition, tmp_path: Path
) -> None:
    await check(partition)
    stale = files(tmp_path)[0].with_name(f"{1 << 40:016x}{MessageEntryFile.suffix}")
    stale.write_bytes(b"x")
    partition.message_entries.forget()

    await partition.timeline(0)

    assert not stale.exists()


async def test_a_look_up_never_has_the_loop_for_long(tmp_path: Path) -> None:
    """Not that of the newest message, which thousands of entries without any follow, nor that of
    one which thousands name, nor while the newest entries are in no segment yet."""
    large = StorageConfig(watermark_percent=0, watermark_bytes=0)
    partition = LoggedPartition(OsDisk(), str(tmp_path / "data"), large)
    partition.do(OpenGroup(1, "g", 1, GroupConfig(max_attempts=0), 0))
    newest = partition.publish(10)[-1]
    for _ in range(1500):
        lease = partition.do(Delivered(1, "a", 1000, [0]))
        partition.do(Settled(1, NACK, [(lease, [0])]))
    partition.flush()
    for _ in range(500):
        lease = partition.do(Delivered(1, "a", 1000, [1]))
        partition.do(Settled(1, NACK, [(lease, [1])]))
    partition.append()
    gc.freeze()
    try:
        for offset in (newest, 0):
            assert await held(partition, offset) < HELD_STEPS_MAX, offset
    finally:
        partition.close()


async def held(partition: LoggedPartition, offset: int) -> int:
    """The most steps of the loop's thread at a stretch."""
    partition.log.disk_segments.chain[-1].empty_run.cut()
    with Steps() as counted:
        looking = look_up(cast(PartitionHost, partition), Offset(offset))
        longest, found = await longest_stretch(counted, looking)
    assert len(found.events) >= 2
    return longest


async def test_a_message_that_is_not_there_has_gone_or_has_yet_to_come(
    partition: LoggedPartition,
) -> None:
    start = Index(partition.log.first_index + 60)
    partition._apply(EntryKind.TRIM, encode_trim(start, Offset(100)))
    partition.log.trim_to(start)
    assert partition.log.first_index < start, "files go later"

    with pytest.raises(NotFound, match="no message at offset 7 any more: the log begins at offset"):
        await partition.timeline(7)
    with pytest.raises(NotFound, match=f"offset {COUNT} yet: the log ends at offset {COUNT}"):
        await partition.timeline(COUNT)


async def test_where_timelines_are_off_that_is_said(partition: LoggedPartition) -> None:
    partition.has_timelines = False

    with pytest.raises(TimelineOff) as refused:
        await look_up(cast("PartitionHost", partition), 0)  # type: ignore[arg-type]

    assert (refused.value.code, refused.value.http_status) == ("timeline_off", 409)
