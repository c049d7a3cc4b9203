"""Which rows of a batch are messages that the partition has already, by their message ids.

What is stored is known by hashes, so each hit is verified: a collision never drops a message. What
is in flight, or stands earlier in the same batch, is compared by the id itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from delivery.dedup.flights import NOT_PROPOSED, Flights
from delivery.dedup.message_ids import MessageIds
from goqueue.wire.types import Index, Offset

Verify = Callable[[Offset, str], bool]
"""Whether the message stored at the offset has this id; raises where it can't be read now."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """The judgement of one batch by its ids."""

    originals: dict[int, Offset]
    """Row -> the offset of its original, stored or in flight."""
    twins: dict[int, int]
    """Row -> an earlier new row of the same batch with the same id."""
    pending_index: Index | None
    """The last entry that an original is in, as in `Duplicate`."""

    def __bool__(self) -> bool:
        return bool(self.originals or self.twins)

    def new_rows(self, count: int) -> list[int]:
        """The rows that are to be stored."""
        return [row for row in range(count) if row not in self.originals and row not in self.twins]

    def rows(self, kept: Sequence[int], base_offset: Offset) -> tuple[tuple[Offset, bool], ...]:
        """(offset, duplicate) of each row, the kept ones stored from `base_offset` on."""
        placed = {row: Offset(base_offset + at) for at, row in enumerate(kept)}
        found = [(row, offset, False) for row, offset in placed.items()]
        found += [(row, offset, True) for row, offset in self.originals.items()]
        found += [(row, placed[first], True) for row, first in self.twins.items()]
        return tuple((offset, duplicate) for _, offset, duplicate in sorted(found))


def find_repeats(
    ids: Sequence[str | None], stored: MessageIds, flights: Flights, verify: Verify
) -> Repeats:
    """Judge a batch's ids. Raises what `verify` raises; nothing has changed then."""
    originals: dict[int, Offset] = {}
    twins: dict[int, int] = {}
    first: dict[str, int] = {}
    pending: Index | None = None
    for row, message_id in enumerate(ids):
        if message_id is None:
            continue
        flying = flights.message_ids.get(message_id)
        if flying is not None:
            originals[row], flight = flying
            pending = flight.index if pending is None else _later(pending, flight.index)
        elif message_id in first:
            twins[row] = first[message_id]
        else:
            first[message_id] = row
    hits = [(stored.offset_of(message_id), message_id) for message_id in first]
    for offset, message_id in sorted((o, name) for o, name in hits if o is not None):
        if verify(offset, message_id):
            originals[first[message_id]] = offset
    for row in [row for row, original in twins.items() if original in originals]:
        originals[row] = originals[twins.pop(row)]
    return Repeats(originals, twins, pending)


def _later(one: Index, other: Index) -> Index:
    return NOT_PROPOSED if NOT_PROPOSED in (one, other) else max(one, other)
