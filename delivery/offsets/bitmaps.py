"""Sets of offsets as roaring bitmaps: what is done with many of them costs what few cost.

Chambi, Lemire et al., Better bitmap performance with Roaring bitmaps (2016); the library is
CRoaring through pyroaring.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress

import pyroaring

__all__ = [
    "BitMap64",
    "canonical",
    "first_missing",
    "lane_rows",
    "remove_below",
    "span",
    "stored_only",
]


class BitMap64(pyroaring.BitMap64):
    """A set of offsets.

    An iterator of pyroaring (1.2.0) that finds nothing at all is never freed: 224 bytes each, which
    every receive and every look at a group would lose for each empty lane. So none is made here
    where there is nothing to find. All operations on such sets give such sets.
    """

    __slots__ = ()

    def __iter__(self) -> Iterator[int]:
        return super().__iter__() if self else iter(())

    def iter_equal_or_larger(self, val: int) -> Iterator[int]:
        if self and self.max() >= val:
            return super().iter_equal_or_larger(val)
        return iter(())


_MASKS = [bytes(lane == cell for cell in range(256)) for lane in range(256)]


def span(first: int, end: int) -> BitMap64:
    """All offsets from `first` up to `end`."""
    found = BitMap64()
    if end > first:
        found.add_range(first, end)
    return found


def stored_only(offsets: Sequence[int], end: int) -> Sequence[int]:
    """Those below the end: what an entry asks may be any number."""
    if offsets and (min(offsets) < 0 or max(offsets) >= end):
        return [offset for offset in offsets if 0 <= offset < end]
    return offsets


def remove_below(bitmap: BitMap64, offset: int) -> None:
    """Takes all offsets below this one out."""
    if offset > 0:
        bitmap.remove_range(0, offset)


def first_missing(bitmap: BitMap64, start: int) -> int:
    """The lowest offset from `start` on that is not in the set."""
    if start not in bitmap:
        return start
    step = 1
    at = start + 1
    while at in bitmap and bitmap.range_cardinality(start, at + step) == at + step - start:
        at += step
        step *= 2
    while step:
        if bitmap.range_cardinality(start, at + step) == at + step - start:
            at += step
        step //= 2
    return at


def lane_rows(lanes: bytes, lane: int, base: int) -> Iterable[int]:
    """Offsets of the records in this lane, the first record being at `base`."""
    return compress(range(base, base + len(lanes)), lanes.translate(_MASKS[lane]))


def canonical(bitmap: BitMap64) -> bytes:
    """The set in bytes that depend on nothing but what is in it."""
    copy = BitMap64(bitmap.to_array())
    copy.run_optimize()
    return bytes(copy.serialize())
