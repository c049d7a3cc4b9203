"""What compaction works with, on worker threads: the last offset of each key, and rows cut out of
stored batches.

Nothing here looks at a partition's state, which belongs to the loop.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from delivery.entries.columns import stored_batch, stored_header
from delivery.entries.reappended import ReappendedBatch, decode_reappended
from delivery.offsets.bitmaps import BitMap64
from goqueue.wire.batch import RecordBatch, encode_columns
from log.entry import Entry, EntryKind
from node.partition.reading.reader import stored_batches

KEYS_A_PASS = 500_000
"""Keys known at once, of some 200 bytes each; with more of them the log is looked through again."""
KEY_BYTES = 32
"""Longer keys are known by a digest of one byte more."""


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of one stored batch, and their offsets, which rise."""

    time_ms: int
    offsets: Sequence[int]
    batch: bytes | memoryview

    def decoded(self) -> RecordBatch:
        view = memoryview(self.batch)
        return stored_batch(view, stored_header(view))


def rows_of(entry: Entry) -> Iterator[StoredRows]:
    """Messages of a records entry, or of one that carries what an earlier run kept."""
    if entry.kind == EntryKind.RECORDS:
        for base, count, batch in stored_batches(entry):
            yield StoredRows(entry.time_ms, range(base, base + count), batch)
    elif entry.kind == EntryKind.KEPT:
        for reappended in decode_reappended(entry.body):
            yield StoredRows(reappended.time_ms, reappended.offsets, reappended.batch)


class LastOffsets:
    """The last offset of each key: of a share of the keys, where there are too many.

    A share is given by the bits of a key's checksum. `later` are the shares that are still to be
    looked for, each in a pass of its own over the log.
    """

    def __init__(self, keys_max: int = KEYS_A_PASS) -> None:
        self._keys_max = keys_max
        self._last: dict[bytes | None, int] = {}
        self._mask = self._value = 0
        self._later: list[tuple[int, int]] = []

    def add(self, keys: Sequence[bytes | None], offsets: Iterable[int]) -> None:
        """Messages that follow all others so far; those without a key are nothing."""
        if self._mask or max(map(len, filter(None, keys)), default=0) > KEY_BYTES:
            for key, at in zip(keys, offsets, strict=True):
                known = None if key is None else _known_as(key)
                if known is not None and zlib.crc32(known) & self._mask == self._value:
                    self._last[known] = at
        else:
            self._last.update(zip(keys, offsets, strict=True))
            self._last.pop(None, None)
        while len(self._last) > self._keys_max and self._mask < 1 << 31:
            self._narrow()

    def take(self) -> BitMap64:
        """The offsets that this pass found; the next one begins."""
        found = BitMap64(self._last.values())
        self._last = {}
        return found

    def begin_next(self) -> bool:
        """Whether there is another share to be looked for, which is then this one's turn."""
        if not self._later:
            return False
        self._mask, self._value = self._later.pop()
        return True

    def _narrow(self) -> None:
        bit = self._mask + 1
        self._mask |= bit
        self._later.append((self._mask, self._value | bit))
        self._last = {
            key: at
            for key, at in self._last.items()
            if key is not None and zlib.crc32(key) & self._mask == self._value
        }


def _known_as(key: bytes) -> bytes:
    return key if len(key) <= KEY_BYTES else blake2b(key, digest_size=KEY_BYTES + 1).digest()


@dataclass(slots=True)
class Scan:
    """One look through a partition: what supersedes nothing is `unseen`."""

    unseen: BitMap64
    last: LastOffsets = field(default_factory=LastOffsets)
    live: BitMap64 = field(default_factory=BitMap64)
    nulls: BitMap64 = field(default_factory=BitMap64)
    messages: int = 0

    def add(self, entries: Sequence[Entry], among: BitMap64 | None) -> None:
        """The next entries; of those that carry messages, only these count."""
        for entry in entries:
            for rows in rows_of(entry):
                if (entry.kind == EntryKind.KEPT) == (among is not None):
                    self._add(rows, among)

    def end_pass(self) -> bool:
        """Whether the log must be looked through once more."""
        self.live |= self.last.take()
        return self.last.begin_next()

    def _add(self, rows: StoredRows, among: BitMap64 | None) -> None:
        batch, offsets = rows.decoded(), rows.offsets
        keys = batch.keys()
        first, end = offsets[0], offsets[-1] + 1
        hides = self.unseen.range_cardinality(first, end) > 0
        if hides or among is not None:
            wanted = [
                (among is None or at in among) and not (hides and at in self.unseen)
                for at in offsets
            ]
            keys = [key if want else None for key, want in zip(keys, wanted, strict=True)]
        self.last.add(keys, offsets)
        self.messages += len(offsets)
        nulls = batch.nulls()
        if nulls:
            self.nulls.update(offsets[row] for row in nulls)


def cut_rows(entries: Sequence[Entry], live: BitMap64, kind: EntryKind) -> list[ReappendedBatch]:
    """The live messages of these entries in batches whose offsets follow each other, none of which
    holds null values beside others."""
    found: list[ReappendedBatch] = []
    for entry in entries:
        for rows in rows_of(entry) if entry.kind == kind else ():
            picked = [row for row, at in enumerate(rows.offsets) if at in live]
            if picked:
                found += _cut(rows, picked)
    return found


def _cut(rows: StoredRows, picked: list[int]) -> Iterator[ReappendedBatch]:
    batch, offsets = rows.decoded(), rows.offsets
    nulls = batch.nulls()
    runs = list(_runs(picked, offsets, nulls))
    if len(runs) == 1 and len(picked) == batch.count:
        yield ReappendedBatch(rows.time_ms, offsets, bytes(rows.batch))
        return
    values, keys, headers = batch.values_or_nulls(), batch.keys(), batch.headers()
    times, lanes, ids = batch.timestamps_ms(), batch.lanes(), batch.message_ids()
    deliver_at, expires_at = batch.deliver_at(), batch.expires_at()
    for first, end in runs:
        cut = slice(first, end)
        encoded = encode_columns(
            values[cut],
            keys[cut],
            timestamps_ms=times[cut],
            lanes=lanes[cut],
            headers=headers[cut],
            deliver_at_ms=deliver_at[cut],
            expires_at_ms=expires_at[cut],
            message_ids=ids[cut],
            codec=batch.codec,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence + first if batch.producer_id else 0,
        )
        yield ReappendedBatch(rows.time_ms, offsets[cut], encoded)


def _runs(
    picked: list[int], offsets: Sequence[int], nulls: frozenset[int]
) -> Iterator[tuple[int, int]]:
    """(first row, end) of rows that follow each other, in the batch and by offset."""
    first = last = picked[0]
    for row in picked[1:]:
        follows = row == last + 1 and offsets[row] == offsets[last] + 1
        if not follows or (row in nulls) != (last in nulls):
            yield first, last + 1
            first = row
        last = row
    yield first, last + 1
