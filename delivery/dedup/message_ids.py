"""Which message ids of a partition are stored within its window: what a repeated id is told by.

An id is known by 64 bits of its hash, so a hit must be verified by whoever drops a message for it.
The hashes lie sorted in short arrays, as in the leaves of a B-tree: a look-up or an insertion costs
two searches by halves and a move of at most `LEAF_MAX` numbers, however many ids are remembered.
Ids are forgotten by the bucket, which is one comparison; what that leaves behind in the arrays is
swept out slice by slice as new ids come. Everything here follows from what was stored, in what
order: replicas that applied the same entries dump the same bytes, restored in between or not.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from operator import attrgetter

from delivery.config import QueueConfig
from goqueue.wire.types import Offset
from log.segments.le_columns import le_bytes, numbers

LEAF_MAX = 512
"""Hashes in one array: inserting moves 2 KiB on average."""
BUCKETS_OF_WINDOW = 1024
"""Ids are forgotten in steps of at most this part of the window, and of the count."""
SWEEP_EVERY = 32
"""Ids stored for each slice that is swept: at most one in eight in the arrays is forgotten."""
SLICE_SHIFT = 8
"""A slice of hashes is swept at a time that holds about 2**8 of them."""

_HASHES = 1 << 64
_HEAD = struct.Struct("<BxxxIQIIQQQ")
_BUCKET = struct.Struct("<QQQI")
_VERSION = 1
_end = attrgetter("end")


@dataclass(slots=True)
class _Bucket:
    """Ids that came one after the other, to be forgotten together."""

    first_ms: int
    last_ms: int
    end: int
    """The offset after the newest one's."""
    count: int


class MessageIds:
    """The message ids of one partition's applied entries.

    An id is remembered for at least the window after it was stored, and forgotten within a
    1024th of the window more; at most `count_max` are, the newest. An id that is stored again,
    which only a producer's sequence brings about, counts from then on. So do two ids of one hash
    (one pair in 37 million full windows): the older one is forgotten.
    """

    def __init__(
        self,
        window_ms: int = QueueConfig().dedup_window_ms,
        count_max: int = QueueConfig().dedup_max,
    ) -> None:
        self._window_ms = window_ms
        self._count_max = count_max
        self._count = 0
        self._held = 0
        self._floor = 0
        """Ids of offsets below it are forgotten, though they may still be in the arrays."""
        self._buckets: list[_Bucket] = []
        self.evicted = 0
        """Forgotten before the window was over, for want of room, since this replica started."""
        self._clear()

    def __len__(self) -> int:
        return self._count

    @property
    def is_on(self) -> bool:
        """Whether any id is remembered."""
        return self._window_ms > 0 and self._count_max > 0

    @property
    def held(self) -> int:
        """Ids in memory: those remembered, and those forgotten and not yet swept out."""
        return self._held

    def configure(self, window_ms: int, count_max: int) -> None:
        """The window and the bound from now on; 0 for either remembers nothing."""
        self._window_ms, self._count_max = window_ms, count_max
        if not self.is_on:
            self._buckets = []
            self._count = 0
            self._clear()

    def stored(self, ids: Sequence[str | None], base_offset: Offset, time_ms: int) -> None:
        """Note the ids of one batch of an applied entry, the first row at `base_offset`."""
        if not self.is_on:
            return
        for row, message_id in enumerate(ids):
            if message_id is not None:
                self._insert(_hash(message_id), base_offset + row, time_ms)

    def forget(self, now_ms: int) -> None:
        """Let go of what is older than the window, and of the oldest beyond the bound."""
        oldest_ms = now_ms - self._window_ms
        gone = 0
        for bucket in self._buckets:
            if bucket.last_ms >= oldest_ms and self._count <= self._count_max:
                break
            gone += 1
            self._count -= bucket.count
            self.evicted += bucket.count if bucket.last_ms >= oldest_ms else 0
            self._floor = bucket.end
        if gone:
            del self._buckets[:gone]
        if not self._count:
            self._clear()
        elif self._held > 2 * self._count:  # nothing has come for long
            self._sweep()

    def offset_of(self, message_id: str) -> Offset | None:
        """Where a message with this id is stored, if the hash does not deceive."""
        if not self._count:
            return None
        wanted = _hash(message_id)
        leaf = bisect_right(self._starts, wanted) - 1
        hashes = self._hashes[leaf]
        at = bisect_left(hashes, wanted)
        if at == len(hashes) or hashes[at] != wanted:
            return None
        offset = self._offsets[leaf][at]
        return None if offset < self._floor else Offset(offset)

    def dump(self) -> bytes:
        """For a snapshot; equal for replicas that applied the same entries. 16 bytes an id."""
        head = _HEAD.pack(
            _VERSION,
            self._unswept,
            self._window_ms,
            self._count_max,
            len(self._buckets),
            self._floor,
            self._cursor,
            self._held,
        )
        buckets = [_BUCKET.pack(b.first_ms, b.last_ms, b.end, b.count) for b in self._buckets]
        columns = [le_bytes(column) for part in (self._hashes, self._offsets) for column in part]
        return b"".join((head, *buckets, *columns))

    def load(self, dumped: bytes) -> None:
        """Replace everything by what `dump` told. Raises ValueError, changing nothing."""
        if len(dumped) < _HEAD.size or dumped[0] != _VERSION:
            raise ValueError("not a dump of message ids")
        head = _HEAD.unpack_from(dumped)
        _, unswept, window_ms, count_max, bucket_count, floor, cursor, held = head
        hashes_at = _HEAD.size + bucket_count * _BUCKET.size
        if len(dumped) != hashes_at + 16 * held:
            raise ValueError("a dump of message ids of another length")
        self._window_ms, self._count_max, self._floor = window_ms, count_max, floor
        self._buckets = [
            _Bucket(*fields) for fields in _BUCKET.iter_unpack(dumped[_HEAD.size : hashes_at])
        ]
        self._count = sum(bucket.count for bucket in self._buckets)
        self._clear()
        if held:
            half = hashes_at + 8 * held
            hashes, offsets = numbers("Q", dumped[hashes_at:half]), numbers("Q", dumped[half:])
            leaves = range(0, held, LEAF_MAX // 2)
            self._hashes = [hashes[at : at + LEAF_MAX // 2] for at in leaves]
            self._offsets = [offsets[at : at + LEAF_MAX // 2] for at in leaves]
            self._starts = [0, *(leaf[0] for leaf in self._hashes[1:])]
        self._held, self._cursor, self._unswept = held, cursor, unswept

    # what is remembered

    def _clear(self) -> None:
        self._starts = [0]
        """The least hash that belongs into each leaf."""
        self._hashes = [array("Q")]
        self._offsets = [array("Q")]
        self._held = 0
        self._cursor = 0
        """The first hash of the slice that is swept next."""
        self._unswept = 0
        """Ids stored since the last slice was swept."""

    def _insert(self, hash_: int, offset: int, time_ms: int) -> None:
        leaf = bisect_right(self._starts, hash_) - 1
        hashes, offsets = self._hashes[leaf], self._offsets[leaf]
        at = bisect_left(hashes, hash_)
        if at < len(hashes) and hashes[at] == hash_:
            self._replace(offsets[at])
            offsets[at] = offset
        else:
            hashes.insert(at, hash_)
            offsets.insert(at, offset)
            self._held += 1
            if len(hashes) > LEAF_MAX:
                self._split(leaf)
        bucket = self._bucket(time_ms)
        bucket.last_ms = time_ms
        bucket.end = offset + 1
        bucket.count += 1
        self._count += 1
        self._unswept += 1
        if self._unswept == SWEEP_EVERY:
            self._unswept = 0
            if self._held > self._count:
                self._sweep()

    def _bucket(self, time_ms: int) -> _Bucket:
        """The bucket for an id stored now."""
        if self._buckets:
            newest = self._buckets[-1]
            is_open = time_ms - newest.first_ms <= self._window_ms // BUCKETS_OF_WINDOW
            if is_open and newest.count < max(1, self._count_max // BUCKETS_OF_WINDOW):
                return newest
        self._buckets.append(_Bucket(time_ms, time_ms, 0, 0))
        return self._buckets[-1]

    def _replace(self, offset: int) -> None:
        """The id stored there is stored again: it is not counted twice."""
        if offset >= self._floor:
            bucket = self._buckets[bisect_right(self._buckets, offset, key=_end)]
            bucket.count -= 1
            self._count -= 1

    def _split(self, leaf: int) -> None:
        hashes, offsets = self._hashes[leaf], self._offsets[leaf]
        half = len(hashes) // 2
        self._starts.insert(leaf + 1, hashes[half])
        self._hashes[leaf : leaf + 1] = hashes[:half], hashes[half:]
        self._offsets[leaf : leaf + 1] = offsets[:half], offsets[half:]

    # what is forgotten

    def _sweep(self) -> None:
        """Take the forgotten ids of the next slice of hashes out of the arrays."""
        low = self._cursor
        high = low + _HASHES // max(1, self._held >> SLICE_SHIFT)
        self._cursor = high if high < _HASHES else 0
        leaf = bisect_right(self._starts, low) - 1
        while leaf < len(self._starts) and self._starts[leaf] < high:
            self._sweep_leaf(leaf, low, high)
            leaf += not self._join(leaf)

    def _sweep_leaf(self, leaf: int, low: int, high: int) -> None:
        hashes, offsets = self._hashes[leaf], self._offsets[leaf]
        first, last = bisect_left(hashes, low), bisect_left(hashes, high)
        floor, found = self._floor, offsets[first:last]
        if not found or min(found) >= floor:
            return
        kept = [at for at, offset in enumerate(found, first) if offset >= floor]
        hashes[first:last] = array("Q", map(hashes.__getitem__, kept))
        offsets[first:last] = array("Q", map(offsets.__getitem__, kept))
        self._held -= last - first - len(kept)

    def _join(self, leaf: int) -> bool:
        """Put a thin leaf's ids into the one before it; whether it was thin."""
        if leaf == 0 or len(self._hashes[leaf - 1]) + len(self._hashes[leaf]) > LEAF_MAX // 4:
            return False
        self._hashes[leaf - 1].extend(self._hashes.pop(leaf))
        self._offsets[leaf - 1].extend(self._offsets.pop(leaf))
        del self._starts[leaf]
        return True


def _hash(message_id: str) -> int:
    return int.from_bytes(blake2b(message_id.encode(), digest_size=8).digest(), "little")
