from __future__ import annotations

import random
from itertools import pairwise

from pipeline.archive.plan import DAY_MS, Bounds, Chunk, chunks, midnights, waves


def test_chunks_are_cut_where_days_begin_and_after_so_many_rows() -> None:
    assert chunks(3, 100, 460, [250, 250, None, 460, 50], 100) == [
        Chunk(3, 100, 200),
        Chunk(3, 200, 250),
        Chunk(3, 250, 350),
        Chunk(3, 350, 450),
        Chunk(3, 450, 460),
    ]
    assert chunks(0, 5, 5, [], 100) == []


def test_chunks_cover_everything_once_whatever_the_borders() -> None:
    rng = random.Random(7)
    for _ in range(300):
        first, end = sorted(rng.sample(range(1000), 2))
        borders = [rng.randrange(1000) for _ in range(rng.randrange(6))]
        found = chunks(0, first, end, borders, rng.randrange(1, 400))

        assert (found[0].first, found[-1].end) == (first, end)
        assert all(a.end == b.first for a, b in pairwise(found))
        assert all(chunk.first < chunk.end for chunk in found)
        assert {b for b in borders if first < b < end} <= {chunk.first for chunk in found}


def test_midnights_lie_after_the_first_time_up_to_the_last() -> None:
    day = 20_000 * DAY_MS

    assert list(midnights(day, day + 2 * DAY_MS)) == [day + DAY_MS, day + 2 * DAY_MS]
    assert list(midnights(day - 1, day - 1)) == []
    assert list(midnights(day - 1, day)) == [day]


def test_waves_keep_each_partitions_order_and_take_turns() -> None:
    planned = [Chunk(p, at, at + 10) for p in (2, 0, 1) for at in range(0, 10 + 10 * p, 10)]

    found = list(waves(planned, 4))

    assert [len(wave) for wave in found] == [4, 2]
    assert [chunk.partition for chunk in found[0]] == [0, 1, 2, 1]
    for partition in range(3):
        firsts = [c.first for wave in found for c in wave if c.partition == partition]
        assert firsts == sorted(firsts)


def test_files_hold_as_many_rows_as_their_bytes_allow() -> None:
    bounds = Bounds(rows=1000, bytes=10_000)

    assert [bounds.rows_of(mean) for mean in (0, 1, 100, 3000, 20_000)] == [1000, 1000, 100, 3, 1]
