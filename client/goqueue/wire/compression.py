"""Codecs for a batch's values: one block in, one block out, bounded on the way out.

A block states its plain size beforehand; no codec here ever allocates more than that size, so a
decompression bomb costs what it claims, and what it claims is checked against a limit first.
"""

from __future__ import annotations

import zlib
from enum import IntEnum

import lz4.block
import zstandard

from goqueue.wire.errors import BadRequest, BatchError

COMPRESSION_BYTES_MIN = 1024
"""Smaller blocks are stored plain: they gain nothing."""
SAVING_PERCENT_MIN = 5
"""A block that compresses by less is stored plain: decompressing it would cost more."""

_GZIP_WINDOW = 31


class Codec(IntEnum):
    """How a batch's values are stored; the number is the byte in the batch's header."""

    NONE = 0
    ZSTD = 1
    LZ4 = 2
    GZIP = 3

    @classmethod
    def named(cls, name: str) -> Codec:
        """The codec of this lower-case name. Raises BadRequest naming those there are."""
        codec = _BY_NAME.get(name)
        if codec is None:
            raise BadRequest(f"unknown codec {name!r}: want one of {', '.join(_BY_NAME)}")
        return codec


LEVEL_MAX = {Codec.NONE: 22, Codec.ZSTD: 22, Codec.LZ4: 12, Codec.GZIP: 9}
"""Levels start at 1, the fastest; without a codec the level has no effect."""

_BY_NAME = {codec.name.lower(): codec for codec in Codec}


def compress(plain: bytes, codec: Codec, level: int = 1) -> tuple[Codec, bytes]:
    """The block and the codec it is stored with: NONE where compressing is not worth it.

    Levels are each codec's own: zstd 1 to 22, lz4 1 (fast) or 2 to 12 (high compression), gzip 1
    to 9. Raises BadRequest on another.
    """
    if not 1 <= level <= LEVEL_MAX[codec]:
        raise BadRequest(f"{codec.name.lower()} has levels 1 to {LEVEL_MAX[codec]}, not {level}")
    if codec is Codec.NONE or len(plain) < COMPRESSION_BYTES_MIN:
        return Codec.NONE, plain
    block = _compress(plain, codec, level)
    if len(block) * 100 > len(plain) * (100 - SAVING_PERCENT_MIN):
        return Codec.NONE, plain
    return codec, block


def _compress(plain: bytes, codec: Codec, level: int) -> bytes:
    if codec is Codec.ZSTD:
        return zstandard.ZstdCompressor(level=level).compress(plain)
    if codec is Codec.LZ4:
        if level <= 1:
            return bytes(lz4.block.compress(plain, store_size=False))
        return bytes(
            lz4.block.compress(plain, mode="high_compression", compression=level, store_size=False)
        )
    compressor = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)
    return compressor.compress(plain) + compressor.flush()


def decompress(block: bytes, codec: Codec, plain_bytes: int) -> bytes:
    """The plain block, exactly `plain_bytes` long, never allocating more than about that.

    Raises BatchError where the block is damaged, longer or shorter than it says.
    """
    if codec is Codec.NONE:
        plain = block
    else:
        try:
            plain = _DECOMPRESS[codec](block, plain_bytes)
        except (zstandard.ZstdError, lz4.block.LZ4BlockError, zlib.error, ValueError) as error:
            raise BatchError(f"values do not decompress as {codec.name.lower()}: {error}") from None
    if len(plain) != plain_bytes:
        raise BatchError(f"values decompress to {len(plain)} bytes, not the {plain_bytes} told")
    return plain


def _zstd(block: bytes, plain_bytes: int) -> bytes:
    # A frame that names its size is allocated at that size whatever the bound: compare first.
    told = zstandard.frame_content_size(block)
    if told not in (-1, plain_bytes):
        raise ValueError(f"the frame says {told} bytes")
    return zstandard.ZstdDecompressor().decompress(
        block, max_output_size=plain_bytes, allow_extra_data=False
    )


def _lz4(block: bytes, plain_bytes: int) -> bytes:
    return bytes(lz4.block.decompress(block, uncompressed_size=plain_bytes))


def _gzip(block: bytes, plain_bytes: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    plain = stream.decompress(block, plain_bytes + 1)
    if len(plain) > plain_bytes or not stream.eof or stream.unused_data:
        raise ValueError("the stream is longer or shorter than it says")
    return plain


_DECOMPRESS = {Codec.ZSTD: _zstd, Codec.LZ4: _lz4, Codec.GZIP: _gzip}
