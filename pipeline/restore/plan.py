"""What a run restores: ranges of offsets, counted, of what the archive holds when it begins."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from goqueue.archive.manifest import Covering, File
from goqueue.archive.seam import Archived, Missing, PartitionReplay, Window, first_place, refuse
from goqueue.errors import BadRequest
from pipeline.restore.state import Range


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for: offsets `first` to `last`, both within, or times; of one partition, or of
    all."""

    partition: int | None = None
    first: int | None = None
    last: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(slots=True)
class Found:
    """Of one partition: the range, the times of its first and last message, and what is missing."""

    range: Range
    first_ms: int | None = None
    last_ms: int | None = None
    missing: list[Missing] = field(default_factory=list[Missing])


async def find(archived: Archived, wanted: Wanted) -> list[Found]:
    """What the archive has of it, partition by partition; those without any are left out.

    Files at the edges are read, to be counted exactly. Raises BadRequest where a partition is not
    archived, MessagesMissing where a file is damaged.
    """
    manifest = await archived.current()
    partitions = manifest.partitions()
    numbers = sorted(partitions) if wanted.partition is None else [wanted.partition]
    found = []
    for number in numbers:
        if number not in partitions:
            raise BadRequest(f"partition {number} of {manifest.topic} is not archived")
        one = await _find(archived, manifest.topic, number, partitions[number], wanted)
        if one.range.count or one.missing:
            found.append(one)
    return found


async def _find(
    archived: Archived, topic: str, partition: int, items: Sequence[Covering], wanted: Wanted
) -> Found:
    first = wanted.first or 0
    if wanted.from_ms is not None:
        first = max(first, first_place(items, wanted.from_ms))
    end = items[-1].last + 1 if wanted.last is None else min(items[-1].last, wanted.last) + 1
    if wanted.to_ms is not None:
        later = [
            item.first
            for item in items
            if isinstance(item, File) and item.time_min_ms >= wanted.to_ms
        ]
        end = min([end, *later])
    found = Found(Range(partition, first, max(first, end), 0))
    count = 0
    for item in items:
        if item.last < first or item.first >= end:
            continue
        if is_whole(item, found.range, wanted.from_ms, wanted.to_ms):
            assert isinstance(item, File)
            count += item.count
            _span(found, item.time_min_ms, item.time_max_ms)
        else:
            count += await _count(archived, topic, item, found, wanted)
    found.range = Range(partition, first, max(first, end), count)
    return found


def is_whole(item: Covering, range_: Range, from_ms: int | None, to_ms: int | None) -> bool:
    """Whether all messages of a file are in the range and the window."""
    return (
        isinstance(item, File)
        and range_.first <= item.first
        and item.last < range_.end
        and (from_ms is None or item.time_min_ms >= from_ms)
        and (to_ms is None or item.time_max_ms < to_ms)
    )


def skip_whole(
    items: Sequence[Covering],
    range_: Range,
    from_ms: int | None,
    to_ms: int | None,
    done: int,
) -> tuple[int, int]:
    """Where to read on, and how many messages from there on are done, of a run that has done
    `done` of a range: whole files are passed without being read."""
    position = range_.first
    for item in items:
        if item.last < position or item.first >= range_.end:
            continue
        if isinstance(item, File):
            whole = is_whole(item, range_, from_ms, to_ms)
            if not whole or item.first < position or item.count > done:
                break
            done -= item.count
        position = item.last + 1
    return position, done


async def _count(
    archived: Archived, topic: str, item: Covering, found: Found, wanted: Wanted
) -> int:
    """How many messages of a file at the edge there are; of a gap none, and it is noted."""
    range_ = found.range

    def note(missing: Missing) -> None:
        if missing.why == "damaged":
            refuse(missing)
        found.missing.append(missing)

    replay = PartitionReplay(
        topic,
        range_.partition,
        Window(max(item.first, range_.first), wanted.from_ms, wanted.to_ms),
        archived=archived,
        live=None,
        on_missing=note,
    )
    count = 0
    async with aclosing(replay.runs(min(item.last + 1, range_.end))) as runs:
        async for run in runs:
            count += len(run)
            _span(found, run[0].timestamp_ms, run[-1].timestamp_ms)
    return count


def _span(found: Found, first_ms: int, last_ms: int) -> None:
    found.first_ms = first_ms if found.first_ms is None else min(found.first_ms, first_ms)
    found.last_ms = last_ms if found.last_ms is None else max(found.last_ms, last_ms)
