"""Ranges of offsets: what a task reads, how large ones are split, how much a trigger takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

Key = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True)
class Range(InputPartition):
    """Offsets from `start` up to `end` of one partition, of the topic that had this id.

    `leader` is where its leader was when this was planned, None where that is not known.
    `is_compacted`: offsets may be missing without any message being lost.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    leader: str | None = None
    is_compacted: bool = False

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


def split(
    ranges: Sequence[Range], *, at_least: int | None = None, records_max: int | None = None
) -> list[Range]:
    """The same offsets in at least so many ranges, or as many as there are offsets, none of more
    than `records_max`. Larger ones are split more; empty ones are left out."""
    found = [whole for whole in ranges if whole.size]
    if records_max is not None:
        found = [part for whole in found for part in _cut(whole, -(-whole.size // records_max))]
    if at_least is None or len(found) >= at_least:
        return found
    pieces = _shares(found, at_least)
    return [part for whole, count in zip(found, pieces, strict=True) for part in _cut(whole, count)]


def _shares(ranges: Sequence[Range], wanted: int) -> list[int]:
    """How many pieces each range is cut into, by its size; as many as wanted in all, if it can."""
    total = sum(whole.size for whole in ranges)
    pieces = [min(whole.size, max(1, wanted * whole.size // total)) for whole in ranges]
    by_size = sorted(range(len(ranges)), key=lambda at: -ranges[at].size / pieces[at])
    while (missing := wanted - sum(pieces)) > 0:
        open_ones = [at for at in by_size if pieces[at] < ranges[at].size]
        if not open_ones:
            break
        for at in open_ones[:missing]:
            pieces[at] += 1
    return pieces


def _cut(whole: Range, count: int) -> list[Range]:
    borders = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [replace(whole, start=start, end=end) for start, end in pairwise(borders)]


def take(backlog: Mapping[Key, int], rows_max: int) -> dict[Key, int]:
    """How many messages of each partition's backlog to take, `rows_max` in all: each its share, so
    that a long one does not starve the others. Something is taken while there is something."""
    total = sum(backlog.values())
    if total <= rows_max:
        return dict(backlog)
    found = {key: rows_max * rows // total for key, rows in backlog.items()}
    left = rows_max - sum(found.values())
    for key in sorted(backlog, key=lambda key: (-(rows_max * backlog[key] % total), key)):
        if left == 0:
            break
        if found[key] < backlog[key]:
            found[key] += 1
            left -= 1
    return found
