"""What a run of the archive writes: chunks of a partition, each of which becomes one file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

DAY_MS = 86_400_000
ROWS_PER_FILE = 1_000_000
BYTES_PER_FILE = 128 << 20
"""Of messages as the log has them: their files are smaller."""


@dataclass(frozen=True, slots=True, order=True)
class Chunk:
    """What becomes one file: offsets (or indexes) from `first` to below `end`, of one day."""

    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much goes into one file: as many rows, or as many as make up the bytes."""

    rows: int = ROWS_PER_FILE
    bytes: int = BYTES_PER_FILE

    def rows_of(self, mean_bytes: float) -> int:
        """For rows of that size."""
        return max(1, min(self.rows, int(self.bytes / mean_bytes) if mean_bytes > 0 else self.rows))


def chunks(
    partition: int, first: int, end: int, borders: Iterable[int | None], rows_max: int
) -> list[Chunk]:
    """From `first` to below `end`, cut at the borders, and else after `rows_max` positions."""
    within = {border for border in borders if border is not None and first < border < end}
    found = []
    at = first
    for until in (*sorted(within), end):
        while at < until:
            cut = min(until, at + rows_max)
            found.append(Chunk(partition, at, cut))
            at = cut
    return found


def midnights(first_ms: int, last_ms: int) -> Iterator[int]:
    """The midnights, in UTC, after the first time and up to the last."""
    return iter(range((first_ms // DAY_MS + 1) * DAY_MS, last_ms + 1, DAY_MS))


def waves(planned: Iterable[Chunk], width: int) -> Iterator[list[Chunk]]:
    """The chunks in groups of `width` that are written and committed together: those of a
    partition in order, and partitions by turns."""
    queues: dict[int, list[Chunk]] = {}
    for item in sorted(planned):
        queues.setdefault(item.partition, []).append(item)
    turns = [
        (turn, partition, chunk)
        for partition, queue in queues.items()
        for turn, chunk in enumerate(queue)
    ]
    in_order = [chunk for _, _, chunk in sorted(turns)]
    for at in range(0, len(in_order), width):
        yield in_order[at : at + width]
