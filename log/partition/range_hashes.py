"""Hashes over fixed ranges of entries, equal on all replicas: frames are encoded once.

Segments need not begin at the same entries everywhere; ranges do, as they count from entry 0.
"""

from __future__ import annotations

import hashlib

from goqueue.wire.types import Index
from log.entry import Entry
from log.errors import Damaged
from log.partition.log import PartitionLog

RANGE_ENTRIES = 4096
DIGEST_BYTES = 16
Range = tuple[int, int]
"""First and last entry."""


class RangeHashes:
    """Fed with sound entries in order, up to `last`, it has the hash of each range among them.

    The first and the last range may be a part of one. A gap takes the hash of its range.
    """

    def __init__(self, last: int) -> None:
        self.found: dict[Range, bytes] = {}
        self.sizes: dict[Range, int] = {}
        """In bytes of frames."""
        self._last = last
        self._first = 0
        self._next = self._size = 0
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def add(self, entry: Entry) -> None:
        index = entry.index
        if index > self._last:
            return
        if index % RANGE_ENTRIES == 0 or not self._first:
            self._begin(index)
        elif index != self._next:
            self._next = -1
            return
        self._digest.update(entry.frame)
        self._size += len(entry.frame)
        self._next = index + 1
        if self._next % RANGE_ENTRIES == 0 or index == self._last:
            self.found[self._first, index] = self._digest.digest()
            self.sizes[self._first, index] = self._size

    def _begin(self, index: int) -> None:
        self._first, self._size = index, 0
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)


def hash_range(log: PartitionLog, first: int, last: int) -> tuple[bytes, int]:
    """The hash of entries read from segments, empty where not all can be read, and the bytes read.

    On any thread.
    """
    size = 0
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    index = Index(first)
    try:
        while index <= last:
            entries = log.cold_entries(index, max_count=last - index + 1)
            for entry in entries:
                digest.update(entry.frame)
                size += len(entry.frame)
            index = Index(entries[-1].index + 1)
    except (Damaged, OSError):
        return b"", size
    return digest.digest(), size
