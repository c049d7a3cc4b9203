"""What compaction has left of a partition: the last message of each key, with its old offset.

The leader appends these messages once more, in entries of kind KEPT: each a body as of a CARRIED
entry, whose batches hold rows of offsets that follow each other. An entry of kind COMPACT then says
where the log begins, and which of them stay. What is carried and not named by such an entry, as by
a leader that died on the way, is nothing.

Body of a COMPACT entry (little-endian): the log start's index that the decision was made at u64;
the first index and the first offset that stay u64 each; the first KEPT entry that counts u64, 0 for
those that count already; length u32, then the offsets that stay; the rest is those of them that are
tombstones. Both sets are roaring bitmaps of 64 bits in their portable form.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import msgspec

from delivery.offsets.bitmaps import BitMap64, canonical
from goqueue.wire.types import Index, Offset

_HEAD = struct.Struct("<QQQQI")


@dataclass(frozen=True, slots=True)
class Compaction:
    """A run's decision: the log, which begins at `from_index`, begins at `index` and `offset` from
    now on; of the messages before that, `kept` stay, of which `tombstones` are null.

    `since`: the first entry of the run that carries them. 0: they stay where they are.
    """

    from_index: Index
    index: Index
    offset: Offset
    since: Index
    kept: BitMap64
    tombstones: BitMap64


def encode_compaction(decision: Compaction) -> bytes:
    """The body of a COMPACT entry."""
    kept = canonical(decision.kept)
    head = _HEAD.pack(
        decision.from_index, decision.index, decision.offset, decision.since, len(kept)
    )
    return b"".join((head, kept, canonical(decision.tombstones)))


def decode_compaction(body: bytes | memoryview) -> Compaction:
    """What `encode_compaction` wrote. Raises ValueError or struct.error on anything shorter."""
    from_index, index, offset, since, length = _HEAD.unpack_from(body)
    end = _HEAD.size + length
    return Compaction(
        Index(from_index),
        Index(index),
        Offset(offset),
        Index(since),
        BitMap64.deserialize(bytes(body[_HEAD.size : end])),
        BitMap64.deserialize(bytes(body[end:])),
    )


@dataclass(frozen=True, slots=True)
class Carrier:
    """An entry that carries messages: which ones, and how many bytes it takes."""

    index: Index
    size_bytes: int
    offsets: BitMap64


class CompactedSetRecord(msgspec.Struct, array_like=True, frozen=True):
    """For a snapshot; made by `dump` it holds the sets themselves, which are encoded later."""

    offsets: bytes
    tombstones: list[tuple[int, bytes]]
    carriers: list[tuple[int, int, bytes]]
    staged: list[tuple[int, int, bytes]]
    runs: int
    dropped: int
    last_ms: int


class CompactedSet:
    """The messages of a partition below its log's start that compaction keeps."""

    def __init__(self) -> None:
        self.offsets = BitMap64()
        self.tombstones: list[tuple[int, BitMap64]] = []
        """(log time of the run that met them first, those of `offsets` that are null)."""
        self.carriers: list[Carrier] = []
        """Their offsets rise from one to the next."""
        self.staged: list[Carrier] = []
        """Of a run that is not decided, or never will be."""
        self.runs = self.dropped = self.last_ms = 0
        """Runs that moved the log's start, the messages they dropped, and when the last one was."""

    @property
    def is_empty(self) -> bool:
        return not (self.runs or self.staged)

    @property
    def carried_bytes(self) -> int:
        """What the entries that carry them take."""
        return sum(carrier.size_bytes for carrier in self.carriers)

    def carry(self, index: Index, size_bytes: int, offsets: Sequence[int]) -> None:
        """An entry of a run that is to be decided carries these messages."""
        self.staged.append(Carrier(index, size_bytes, BitMap64(offsets)))

    def carrier_of(self, offset: int) -> Carrier | None:
        """The entry that holds the message; None for one that is not kept."""
        if offset not in self.offsets:
            return None
        at = bisect_right(self.carriers, offset, key=_first)
        found = self.carriers[at - 1] if at else None
        return found if found is not None and offset in found.offsets else None

    def allows(self, decision: Compaction) -> bool:
        """Whether all that stays is carried from `index` on, in order."""
        held, last = BitMap64(), -1
        for carrier in self._chosen(decision):
            if carrier.index < decision.index or _first(carrier) <= last:
                return False
            last = carrier.offsets.max()
            held |= carrier.offsets
        below = not decision.kept or decision.kept.max() < decision.offset
        return below and decision.kept <= held and decision.tombstones <= decision.kept

    def compact(self, decision: Compaction, time_ms: int, dropped: int) -> None:
        """Keep what an allowed decision keeps."""
        if decision.since:
            self.runs += 1
        self.dropped += dropped
        self.last_ms = time_ms
        self.carriers = [c for c in self._chosen(decision) if c.offsets & decision.kept]
        self.staged = []
        self.offsets = decision.kept
        fresh = decision.tombstones
        known: list[tuple[int, BitMap64]] = []
        for met_ms, offsets in self.tombstones:
            fresh = fresh - offsets
            left = offsets & decision.tombstones
            if left:
                known.append((met_ms, left))
        if fresh:
            known.append((time_ms, fresh))
        self.tombstones = known

    def tombstones_met_before(self, time_ms: int) -> BitMap64:
        """Those that a run kept at or before this time for the first time."""
        found = BitMap64()
        for met_ms, offsets in self.tombstones:
            if met_ms <= time_ms:
                found |= offsets
        return found

    def clear(self) -> None:
        """The log was trimmed by age or size: all that is older has gone."""
        self.offsets, self.tombstones, self.carriers, self.staged = BitMap64(), [], [], []

    def dump(self) -> CompactedSetRecord:
        """No set is ever changed, only replaced: none is copied."""
        return CompactedSetRecord(
            _later(self.offsets),
            [(time_ms, _later(offsets)) for time_ms, offsets in self.tombstones],
            [(c.index, c.size_bytes, _later(c.offsets)) for c in self.carriers],
            [(c.index, c.size_bytes, _later(c.offsets)) for c in self.staged],
            self.runs,
            self.dropped,
            self.last_ms,
        )

    def load(self, record: CompactedSetRecord) -> None:
        """Replace everything by what `dump` told."""
        read = BitMap64.deserialize
        self.offsets = read(record.offsets)
        self.tombstones = [(time_ms, read(data)) for time_ms, data in record.tombstones]
        self.carriers = [Carrier(Index(i), size, read(data)) for i, size, data in record.carriers]
        self.staged = [Carrier(Index(i), size, read(data)) for i, size, data in record.staged]
        self.runs, self.dropped, self.last_ms = record.runs, record.dropped, record.last_ms

    def _chosen(self, decision: Compaction) -> list[Carrier]:
        if not decision.since:
            return self.carriers
        return [carrier for carrier in self.staged if carrier.index >= decision.since]


def _later(offsets: BitMap64) -> bytes:
    return cast(bytes, offsets)


def _first(carrier: Carrier) -> int:
    return int(carrier.offsets.min())
