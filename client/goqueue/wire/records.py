"""One record as an object, and the two columns that need a loop: headers and message ids."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from goqueue.wire.errors import BatchError
from goqueue.wire.layout import LANE_NORMAL

Headers = tuple[tuple[str, bytes], ...]

_NAME_BYTES_MAX = 0xFFFF
_LENGTHS = struct.Struct("<HI")


@dataclass(slots=True)
class Record:
    """One message. Times are Unix milliseconds; `key` None differs from an empty key, and `value`
    None, which deletes the key in a compacted topic, from an empty value.

    `lane` counts from 0 (critical) to 4 (background). Where speed matters, work on columns instead.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int = 0
    lane: int = LANE_NORMAL
    deliver_at_ms: int | None = None
    expires_at_ms: int | None = None
    message_id: str | None = None


def encode_headers(headers: Sequence[tuple[str, bytes]]) -> bytes:
    """Each header as name length (u16), value length (u32), name, value. Names are not empty."""
    parts: list[bytes] = []
    for name, value in headers:
        encoded = name.encode()
        if not 0 < len(encoded) <= _NAME_BYTES_MAX:
            raise BatchError(f"a header name of {len(encoded)} bytes: want 1 to {_NAME_BYTES_MAX}")
        parts += (_LENGTHS.pack(len(encoded), len(value)), encoded, value)
    return b"".join(parts)


def decode_headers(blob: bytes) -> Headers:
    """What `encode_headers` wrote. Raises BatchError on anything else."""
    found: list[tuple[str, bytes]] = []
    at = 0
    while at < len(blob):
        if len(blob) - at < _LENGTHS.size:
            raise BatchError("a header is cut short")
        name_bytes, value_bytes = _LENGTHS.unpack_from(blob, at)
        value_at = at + _LENGTHS.size + name_bytes
        at, name = value_at + value_bytes, blob[at + _LENGTHS.size : value_at]
        if at > len(blob) or not name:
            raise BatchError("a header is cut short, or has no name")
        found.append((decode_text(name), blob[value_at:at]))
    return tuple(found)


def decode_text(blob: bytes) -> str:
    """UTF-8, or BatchError."""
    try:
        return blob.decode()
    except UnicodeDecodeError:
        raise BatchError("a header name or message id is not UTF-8") from None
