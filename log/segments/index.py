"""The sparse offset and time index of one segment.

File: the header of `log.segments.segment`, then items of 28 bytes: index u64, time_ms u64 and base
offset u64 (all ones: an entry without records) of one entry, CRC-32C u32 of the three. An item that
is missing or fails its checksum makes a search scan further; it never makes it wrong. So the file
is not synced, and can be deleted.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import NamedTuple

from crc32c import crc32c

from log.entry import Entry

_ITEM = struct.Struct("<QQQ")
ITEM_BYTES = _ITEM.size + 4
_NO_RECORDS = (1 << 64) - 1


class Item(NamedTuple):
    """One entry's index, log time and, if it has records, base offset."""

    entry_index: int
    time_ms: int
    base_offset: int

    def is_of(self, entry: Entry) -> bool:
        """Whether it tells of this entry, and the truth."""
        offset = entry.base_offset if entry.record_count else _NO_RECORDS
        return self == (entry.index, entry.time_ms, offset)


class OffsetIndex:
    """Items in index order. One thread adds; others may search meanwhile."""

    def __init__(self, interval_bytes: int) -> None:
        self._by_time: list[Item] = []
        self._by_offset: list[Item] = []
        self._interval_bytes = interval_bytes
        self._since_time = self._since_offset = interval_bytes

    def add(self, entry: Entry) -> Item | None:
        """Takes notice of the next entry; the new item when one is due."""
        size = len(entry.frame)
        has_records = entry.record_count > 0
        time_due = self._since_time >= self._interval_bytes
        offset_due = has_records and self._since_offset >= self._interval_bytes
        self._since_time = size + (0 if time_due else self._since_time)
        self._since_offset = size + (0 if offset_due else self._since_offset)
        if not time_due and not offset_due:
            return None
        item = Item(entry.index, entry.time_ms, entry.base_offset if has_records else _NO_RECORDS)
        self._put(item)
        return item

    def load(self, data: bytes, first_index: int, last_index: int) -> int:
        """Takes the valid items of a file that lie within the segment.

        Returns the length of the leading part that holds only valid ones: a writer continues there.
        """
        self._by_time, self._by_offset = [], []
        items, sound = read_items(data, first_index, last_index)
        for item in items.values():
            self._put(item)
        self._since_time = self._since_offset = self._interval_bytes
        return sound

    def truncate(self, last_index: int) -> int:
        """Forgets entries past this one; returns the bytes of the items that stay."""
        self._by_time = [item for item in self._by_time if item.entry_index <= last_index]
        self._by_offset = [item for item in self._by_offset if item.entry_index <= last_index]
        self._since_time = self._since_offset = self._interval_bytes
        return len(self._by_time) * ITEM_BYTES

    def before_offset(self, offset: int, last_index: int) -> int:
        """The last item up to `last_index` whose records begin at or below this offset, else 0."""
        items = self._by_offset
        return _up_to(items, bisect_right(items, offset, key=attrgetter("base_offset")), last_index)

    def before_time(self, time_ms: int, last_index: int) -> int:
        """The last item up to `last_index` of an earlier time, else 0."""
        items = self._by_time
        return _up_to(items, bisect_left(items, time_ms, key=attrgetter("time_ms")), last_index)

    def _put(self, item: Item) -> None:
        self._by_time.append(item)
        if item.base_offset != _NO_RECORDS:
            self._by_offset.append(item)


def read_items(data: bytes, first_index: int, last_index: int) -> tuple[dict[int, Item], int]:
    """The valid items of a file that lie within the segment, in order, by their entries; and the
    length of the leading part that holds only valid ones."""
    items: dict[int, Item] = {}
    sound = 0
    after = first_index - 1
    for at in range(0, len(data) - ITEM_BYTES + 1, ITEM_BYTES):
        packed = data[at : at + _ITEM.size]
        crc = int.from_bytes(data[at + _ITEM.size : at + ITEM_BYTES], "little")
        item = Item(*_ITEM.unpack(packed))
        if crc32c(packed) == crc and after < item.entry_index <= last_index:
            items[item.entry_index] = item
            after = item.entry_index
            sound = at + ITEM_BYTES if sound == at else sound
    return items, sound


def encode_item(item: Item) -> bytes:
    """The item's bytes in the file."""
    packed = _ITEM.pack(*item)
    return packed + crc32c(packed).to_bytes(4, "little")


def _up_to(items: list[Item], at: int, last_index: int) -> int:
    while at and items[at - 1].entry_index > last_index:
        at -= 1  # an entry truncated in the log, not yet here
    return items[at - 1].entry_index if at else 0
