"""The fields of an answer as HPACK has them (RFC 7541), none of which enters the client's table.

The library's encoder looks each field up, and writes names and values in Huffman's code; an answer
has two or three short fields, and its id is a new one each time. As literals that are never
indexed (6.2.3) they depend on nothing that was sent before, so that a name is encoded once a
process.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from hpack import Encoder, NeverIndexedHeaderTuple
from hpack.hpack import encode_integer

NAMES_MAX = 64
LENGTH_BITS = 7
"""Of a value's length in its first byte; the eighth says that the value is not compressed."""


class FieldEncoder:
    """What the `h2` library uses of `hpack.Encoder`. Of one connection; loop thread only."""

    def __init__(self) -> None:
        self._table = Encoder()

    @property
    def header_table_size(self) -> int:
        """How large the client's table may become: it stays empty."""
        return self._table.header_table_size

    @header_table_size.setter
    def header_table_size(self, size: int) -> None:
        self._table.header_table_size = size

    def encode(self, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
        """A header block; names are in lower case. It begins with what the client must be told of
        the table's size."""
        block: list[bytes | bytearray] = [self._table.encode(())]
        for name, value in fields:
            block += (_named(name), encode_integer(len(value), LENGTH_BITS), value)
        return b"".join(block)


@lru_cache(NAMES_MAX)
def _named(name: bytes) -> bytes:
    """All of a field that comes before its value's length. Of some names the static table has an
    empty value, so this one has another, of one byte."""
    field = NeverIndexedHeaderTuple(name, b"?")
    return Encoder().encode([field], huffman=False)[:-2]
