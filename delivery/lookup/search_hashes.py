"""Hashes of what messages are looked up by: their producers' ids, W3C trace ids, and headers.

A hash is 32 bits, so a hit must be verified by reading the message. Entries come in runs of a few
MiB; what one run holds is found by a search for four bytes among its hashes. What takes no part:
messages without an id and without headers, which cost a look at their batch's header.
"""

from __future__ import annotations

import re
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import NamedTuple

from crc32c import crc32c

from delivery.entries.columns import stored_batch, stored_header
from delivery.entries.reappended import decode_reappended
from delivery.entries.records import decode_records
from delivery.offsets.keys import places
from goqueue.wire.batch import RecordBatch
from goqueue.wire.layout import HAS_HEADERS, HAS_MESSAGE_IDS
from goqueue.wire.records import encode_headers
from log.entry import Entry, EntryKind

MESSAGE_ID, TRACE_ID, HEADER = range(3)
"""What a hash is of: each kind has columns of its own."""
KINDS = 3
TRACEPARENT = "traceparent"
HEADERS_MAX = 32
"""Headers of one message that are found by; of one with more, the first."""
ITEMS_MAX = 1 << 20
"""Hashes of one kind in a run, which is 8 to 12 MiB: more are left out, and the run says so."""
SLICE = 4096
"""Hashes made at once: other threads get their turn after a fraction of a millisecond."""

_FLAGS = HAS_MESSAGE_IDS | HAS_HEADERS
_LENGTHS = struct.Struct("<HI")
_LENGTHS_BYTES = _LENGTHS.size
_TRACEPARENT = TRACEPARENT.encode()
_VALUE_BYTES = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
_TRACE_ID = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class Columns(NamedTuple):
    """Hashes of one kind, and the offset of each; 32 and 64 bits."""

    hashes: array[int]
    offsets: array[int]


class SearchHashes:
    """The hashes of a run of entries, in the order of the log."""

    def __init__(self) -> None:
        self.columns = [Columns(array("I"), array("Q")) for _ in range(KINDS)]
        self.partial = 0
        """A bit for each kind of which something was left out: what is not found here may be here
        all the same."""

    def __len__(self) -> int:
        return sum(len(column.hashes) for column in self.columns)

    @property
    def size_bytes(self) -> int:
        """What they take in memory."""
        return sum(4 * len(hashes) + 8 * len(offsets) for hashes, offsets in self.columns)

    def add(self, entries: Iterable[Entry]) -> None:
        """Take note of entries that follow; those without messages hold nothing."""
        for entry in entries:
            if entry.kind == EntryKind.RECORDS:
                for stored in decode_records(entry.body, entry.base_offset):
                    header = stored_header(stored.batch)
                    if header.flags & _FLAGS:
                        first = stored.base_offset
                        offsets = range(first, first + stored.count)
                        self._take(offsets, stored_batch(stored.batch, header))
            elif entry.kind in (EntryKind.CARRIED, EntryKind.KEPT):
                for reappended in decode_reappended(entry.body):
                    batch = reappended.batch
                    view = batch if isinstance(batch, memoryview) else memoryview(batch)
                    header = stored_header(view)
                    if header.flags & _FLAGS:
                        self._take(reappended.offsets, stored_batch(view, header))

    def find(self, kind: int, hash_: int) -> list[int]:
        """Offsets with this hash, newest first."""
        hashes, offsets = self.columns[kind]
        rows = places(hashes.tobytes(), hash_.to_bytes(4, sys.byteorder))
        return sorted((offsets[row] for row in rows), reverse=True)

    def _take(self, offsets: Sequence[int], batch: RecordBatch) -> None:
        ids = batch.message_id_blobs()
        for at in range(0, len(ids), SLICE):
            part, rows = ids[at : at + SLICE], offsets[at : at + SLICE]
            self._put(MESSAGE_ID, list(map(crc32c, filter(None, part))), list(compress(rows, part)))
        blobs = batch.header_blobs()
        for at in range(0, len(blobs), SLICE):
            self._take_headers(offsets[at : at + SLICE], blobs[at : at + SLICE])

    def _take_headers(self, offsets: Sequence[int], blobs: Sequence[bytes]) -> None:
        hashes: list[int] = []
        rows: list[int] = []
        traces: list[int] = []
        traced: list[int] = []
        unpack, match, crc = _LENGTHS.unpack_from, _TRACE_ID.fullmatch, crc32c
        for offset, blob in zip(offsets, blobs, strict=True):
            at, size, left = 0, len(blob), HEADERS_MAX
            while at < size and left:
                left -= 1
                name_bytes, value_bytes = unpack(blob, at)
                value_at = at + _LENGTHS_BYTES + name_bytes
                end = value_at + value_bytes
                hashes.append(crc(blob[at:end]))
                rows.append(offset)
                if value_bytes == _VALUE_BYTES and blob.endswith(_TRACEPARENT, at, value_at):
                    trace = match(blob, value_at, end)
                    if trace is not None and name_bytes == len(_TRACEPARENT):
                        traces.append(crc(trace[1]))
                        traced.append(offset)
                at = end
            if at < size:
                self.partial |= 1 << HEADER | 1 << TRACE_ID
        self._put(HEADER, hashes, rows)
        self._put(TRACE_ID, traces, traced)

    def _put(self, kind: int, hashes: list[int], offsets: list[int]) -> None:
        column = self.columns[kind]
        if len(column.hashes) + len(hashes) > ITEMS_MAX:
            self.partial |= 1 << kind
            return
        column.hashes.extend(hashes)
        column.offsets.extend(offsets)


def message_id_hash(message_id: str) -> int:
    return crc32c(message_id.encode())


def trace_id_hash(trace_id: str) -> int:
    return crc32c(trace_id.encode())


def header_hash(name: str, value: bytes) -> int:
    """Raises BatchError for a name that no header can have."""
    return crc32c(encode_headers([(name, value)]))


def trace_id_of(headers: Iterable[tuple[str, bytes]]) -> str | None:
    """The W3C trace id that a message carries, None for one that carries no sound `traceparent`."""
    for name, value in headers:
        if name == TRACEPARENT and (found := _TRACE_ID.fullmatch(value)) is not None:
            return found[1].decode()
    return None
