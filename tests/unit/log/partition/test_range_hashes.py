"""Hashes by which replicas compare what they hold, wherever their segments begin."""

from __future__ import annotations

from log.disk.memory import MemoryDisk
from log.partition.range_hashes import RANGE_ENTRIES, RangeHashes, hash_range
from tests.unit.log.stores import append, entry, flush, group_of, open_store

ENTRIES = [entry(index, size=10) for index in range(1, RANGE_ENTRIES + 100)]


def hashes(first: int, last: int, *, without: int = 0) -> dict[tuple[int, int], bytes]:
    found = RangeHashes(last)
    for one in ENTRIES[first - 1 :]:
        if one.index != without:
            found.add(one)
    return found.found


def test_ranges_are_fixed_and_only_the_outermost_are_parts() -> None:
    end = RANGE_ENTRIES + 50
    assert list(hashes(1, end)) == [(1, RANGE_ENTRIES - 1), (RANGE_ENTRIES, end)]
    assert list(hashes(7, end)) == [(7, RANGE_ENTRIES - 1), (RANGE_ENTRIES, end)]
    assert hashes(1, end)[RANGE_ENTRIES, end] == hashes(7, end)[RANGE_ENTRIES, end]


def test_a_range_with_a_gap_has_no_hash_and_the_others_have_theirs() -> None:
    end = RANGE_ENTRIES + 50
    assert list(hashes(1, end, without=9)) == [(RANGE_ENTRIES, end)]
    assert list(hashes(1, end, without=end - 1)) == [(1, RANGE_ENTRIES - 1)]


def test_what_is_hashed_again_from_the_log_is_the_same() -> None:
    store = open_store(MemoryDisk())
    log = group_of(store)
    append(log, 30, size=10)
    flush(store)
    size = sum(len(one.frame) for one in ENTRIES[:30])
    assert hash_range(log, 1, 30) == (hashes(1, 30)[1, 30], size)
    assert hash_range(log, 2, 20) != hash_range(log, 1, 20)
    assert hash_range(log, 20, 31)[0] == b""
