"""Which entries of a log may say something of a message: rows of a run of entries.

A row is the key of an offset and the entry's place in the run. An operation that names few messages
has a row for each of them; one that names many has a row for each stretch of 64 offsets that any of
them lies in, so a batch costs what its stretches cost. Operations that name nobody, and concern
many, stand apart (`Wide`): a commit, of all below an offset; a seek, an owner, a moved log start.

An index of it may have too much, never too little: whoever follows it reads the entries themselves.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import rshift
from typing import NamedTuple

from delivery.entries.ops import (
    Cancelled,
    Committed,
    Delivered,
    Expired,
    Op,
    Own,
    Purged,
    Redriven,
    Settled,
    Sought,
    StreamsEnded,
    decode_ops,
)
from delivery.history.outcome_notes import OutcomeNotes
from delivery.timeline.message import Projection
from log.entry import Entry, EntryKind

PLACE_BITS = 28
"""Of a row: the entry's place in its run. The rest is the key, which may wrap around."""
RUN_ENTRIES_MAX = 1 << PLACE_BITS
FEW = 8
"""Messages that an operation names one by one."""
STRETCH_BITS = 6
COMMIT, OWN, SEEK, START = range(4)
"""What a wide operation is; the end of a stream is as that of an owner: it takes leases back."""

_KEYS = (1 << (64 - PLACE_BITS)) - 1
_RANGE_STRETCHES_MAX = 64
_ROWS_A_TURN = 8192


def _at_once() -> None:
    """Nobody waits."""


class Wide(NamedTuple):
    """An entry that concerns messages which it does not name: those from `low` up to `high`."""

    entry: int
    what: int
    group: int
    low: int
    high: int

    def concerns(self, projection: Projection) -> bool:
        """Whether it can say anything of this message, as far as its story was told."""
        story = projection.story
        if self.what == START:
            return story.kept or story.offset < self.high
        group = story.groups.get(self.group)
        if group is None or not self.low <= story.offset < self.high:
            return False
        if self.what == OWN:
            return group.place == "leased"
        return self.what == SEEK or group.place in ("coming", "leased")


def keys_of(offset: int) -> tuple[int, int]:
    """The keys under which the rows of a message stand: its own, and that of its stretch."""
    return (offset << 1) & _KEYS, (offset >> STRETCH_BITS << 1 | 1) & _KEYS


class MessageEntryIndex:
    """The rows of a run of entries that follow each other, from `first_index` on."""

    def __init__(self, first_index: int) -> None:
        self.first_index = first_index
        self.rows: array[int] = array("Q")
        self.wide: list[Wide] = []
        self._reached: dict[int, int] = {}
        """Group -> all below this was committed by entries of this run."""
        self._end = 0
        """The partition's end, as far as entries of this run tell."""

    def __len__(self) -> int:
        return len(self.rows) + len(self.wide)

    def add(self, entries: Iterable[Entry], outcome_notes: OutcomeNotes) -> None:
        """Take the next applied entries. On any thread, one at a time."""
        for entry in entries:
            if entry.kind == EntryKind.QUEUE:
                self._add_ops(entry, outcome_notes)
            elif entry.kind in (EntryKind.TRIM, EntryKind.COMPACT):
                self.wide.append(Wide(entry.index, START, 0, 0, 1 << 62))
            elif entry.kind == EntryKind.RECORDS:
                self._end = entry.base_offset + entry.record_count

    def find(self, offset: int, end_turn: Callable[[], None] = _at_once) -> list[int]:
        """Entries that may name the message, in order; others may go on between its steps."""
        one, other = ((key << PLACE_BITS, (key + 1) << PLACE_BITS) for key in keys_of(offset))
        (a, b), (c, d) = one, other
        places = (1 << PLACE_BITS) - 1
        found: set[int] = set()
        for at in range(0, len(self.rows), _ROWS_A_TURN):
            rows = self.rows[at : at + _ROWS_A_TURN]
            found.update([row & places for row in rows if a <= row < b or c <= row < d])
            end_turn()
        return sorted(self.first_index + place for place in found)

    def sorted_rows(self, step: int, end_turn: Callable[[], None] = _at_once) -> array[int]:
        """All rows in order, sorted in steps: no call holds the interpreter for long."""
        rows = self.rows
        runs: list[list[int]] = []
        for at in range(0, len(rows), step):
            runs.append(sorted(rows[at : at + step]))
            end_turn()
        while len(runs) > 1:
            if len(runs) % 2:
                runs.append([])
            pairs = zip(runs[::2], runs[1::2], strict=True)
            runs = [_merged(left, right, step, end_turn) for left, right in pairs]
        return array("Q", runs[0] if runs else [])

    def _add_ops(self, entry: Entry, outcome_notes: OutcomeNotes) -> None:
        keys: set[int] = set()
        index = entry.index
        for number, op in enumerate(decode_ops(entry.body)):
            if isinstance(op, Settled | Expired):
                for _delivery, offsets in op.deliveries:
                    _add_keys(keys, offsets)
            elif isinstance(op, Delivered | Cancelled | Purged):
                _add_keys(keys, op.offsets)
            elif isinstance(op, Redriven):
                _add_keys(keys, op.offsets)
                self._reach_again(op.group, min(op.offsets, default=0))
            elif isinstance(op, Committed):
                if not outcome_notes.did_nothing(index, number):
                    self._commit(op, index, keys, is_known=index >= outcome_notes.noted_from)
            else:
                self._add_wide(op, index)
        place = index - self.first_index
        self.rows.extend([key << PLACE_BITS | place for key in keys])

    def _add_wide(self, op: Op, index: int) -> None:
        if isinstance(op, Sought):
            self._reach_again(op.group, op.offset)
            self.wide.append(Wide(index, SEEK, op.group, 0, 1 << 62))
        elif isinstance(op, Own | StreamsEnded):
            self.wide.append(Wide(index, OWN, op.group, 0, 1 << 62))

    def _commit(self, op: Committed, index: int, keys: set[int], *, is_known: bool) -> None:
        """What an earlier commit has settled, another one does not, unless it came again; one of
        which it is not known any more whether it did anything has settled nothing for sure."""
        low = self._reached.get(op.group, 0)
        if op.offset <= self._end and is_known:
            self._reached[op.group] = max(low, op.offset)
        first, last = low >> STRETCH_BITS, max(op.offset - 1, 0) >> STRETCH_BITS
        if last - first < _RANGE_STRETCHES_MAX:
            keys.update((at << 1 | 1) & _KEYS for at in range(first, last + 1))
        else:
            self.wide.append(Wide(index, COMMIT, op.group, low, op.offset))

    def _reach_again(self, group: int, offset: int) -> None:
        if group in self._reached:
            self._reached[group] = min(self._reached[group], offset)


def _add_keys(keys: set[int], offsets: Sequence[int]) -> None:
    if len(offsets) <= FEW:
        keys.update((offset << 1) & _KEYS for offset in offsets)
    else:
        low, high = min(offsets) >> STRETCH_BITS, max(offsets) >> STRETCH_BITS
        stretches: Iterable[int] = range(low, high + 1)
        if (high - low) * FEW > len(offsets):  # far apart: not what lies between them
            stretches = set(map(rshift, offsets, repeat(STRETCH_BITS)))
        keys.update([(at << 1 | 1) & _KEYS for at in stretches])


def _merged(
    left: list[int], right: list[int], step: int, end_turn: Callable[[], None]
) -> list[int]:
    """Two sorted lists as one, a step at a time."""
    found: list[int] = []
    a = b = 0
    while a < len(left) and b < len(right):
        limit = min(left[min(a + step, len(left)) - 1], right[min(b + step, len(right)) - 1])
        to_a, to_b = bisect_right(left, limit, a), bisect_right(right, limit, b)
        found += sorted(left[a:to_a] + right[b:to_b])
        a, b = to_a, to_b
        end_turn()
    return found + left[a:] + right[b:]
