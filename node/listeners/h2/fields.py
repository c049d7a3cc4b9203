"""The fields of requests and answers as HPACK has them (RFC 7541), at less work a request than the
library's own.

Its encoder looks each field up, and writes names and values in Huffman's code; an answer has two or
three short fields, and its id is a new one each time. As literals that are never indexed (6.2.3),
none of which enters the client's table, they depend on nothing that was sent before, so that a name
is encoded once a process.

A client that asks for the same again and again names nothing but entries of its table (6.1). Such a
block changes no table, and says the same until another one does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from hpack import Decoder, Encoder, NeverIndexedHeaderTuple
from hpack.hpack import encode_integer

Fields = Sequence[tuple[bytes, bytes]]

NAMES_MAX = 64
LENGTH_BITS = 7
"""Of a value's length in its first byte; the eighth says that the value is not compressed."""
BLOCKS_MAX = 16
BLOCK_BYTES_MAX = 64
"""Of blocks that are remembered: what they say is in the client's table anyhow."""


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


class FieldDecoder:
    """What the `h2` library uses of `hpack.Decoder`. Of one connection; loop thread only."""

    def __init__(self, list_bytes_max: int) -> None:
        self._decoder = Decoder(list_bytes_max)
        self._known: dict[bytes, Fields] = {}

    @property
    def max_header_list_size(self) -> int:
        """How many bytes the fields of a block may have, each with 32 more."""
        return self._decoder.max_header_list_size

    @max_header_list_size.setter
    def max_header_list_size(self, size: int) -> None:
        self._decoder.max_header_list_size = size
        self._known.clear()

    @property
    def max_allowed_table_size(self) -> int:
        """How large the client may make its table."""
        return self._decoder.max_allowed_table_size

    @max_allowed_table_size.setter
    def max_allowed_table_size(self, size: int) -> None:
        self._decoder.max_allowed_table_size = size
        self._known.clear()

    def decode(self, block: bytes, raw: bool = True) -> Fields:
        """Its fields, always as bytes; nobody may change the list. Raises HPACKError."""
        known = self._known.get(block)
        if known is None:
            known = [
                (bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw)
            ]
            if not _is_of_entries(block):
                self._known.clear()
            elif len(self._known) < BLOCKS_MAX:
                self._known[block] = known
        return known


def _is_of_entries(block: bytes) -> bool:
    """Whether each of its few bytes names an entry of the table; 0xff would begin a number."""
    return len(block) <= BLOCK_BYTES_MAX and all(0x80 <= byte < 0xFF for byte in block)


@lru_cache(NAMES_MAX)
def _named(name: bytes) -> bytes:
    """All of a field that comes before its value's length. Of some names the static table has an
    empty value, so this one has another, of one byte."""
    field = NeverIndexedHeaderTuple(name, b"?")
    return Encoder().encode([field], huffman=False)[:-2]
