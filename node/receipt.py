"""Receipts: the opaque handle of one message's lease, which any node can read."""

from __future__ import annotations

import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from crc32c import crc32c

from goqueue.wire.errors import BadReceipt
from goqueue.wire.types import GROUP_ID_BYTES, GroupId, Index, Offset

_PLACE = struct.Struct(f"<{GROUP_ID_BYTES}sQQ")
_OFFSET = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_NAMES_BYTES = _PLACE.size + _OFFSET.size
_BYTES = _NAMES_BYTES + _CRC.size
_CHARACTERS = -(-_BYTES * 8 // 6)
_PADDING = "=" * (-_CHARACTERS % 4)
_SPARE_BITS = 6 * _CHARACTERS - 8 * _BYTES
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = str.maketrans("-_+/", "+/!!")
_LAST = frozenset(
    character
    for value, character in enumerate(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    )
    if not value % (1 << _SPARE_BITS)
)
"""Characters that a receipt can end with: one text for one receipt."""


@dataclass(slots=True)
class Receipt:
    """A lease by its names: the partition, the consumer group, the delivery, and the message."""

    partition: GroupId
    group: int
    delivery: Index
    offset: Offset


def encode_receipts(
    partition: bytes, group: int, delivery: int, offsets: Sequence[int]
) -> list[str]:
    """The texts that a consumer is given for one delivery; `partition` is a packed GroupId."""
    place = _PLACE.pack(partition, group, delivery)
    crc = crc32c(place)
    texts: list[bytes] = []
    for offset in offsets:
        packed = _OFFSET.pack(offset)
        texts.append(b2a_base64(place + packed + _CRC.pack(crc32c(packed, crc)), newline=False))
    return b" ".join(texts).translate(_TO_URL, b"=").decode().split()


def encode_receipt(partition: bytes, group: int, delivery: int, offset: int) -> str:
    """The text of one lease."""
    return encode_receipts(partition, group, delivery, [offset])[0]


def decode_receipt(text: str) -> Receipt:
    """What `encode_receipts` wrote. Raises BadReceipt on anything else."""
    if len(text) != _CHARACTERS or text[-1] not in _LAST:
        raise BadReceipt
    try:
        packed = a2b_base64(text.translate(_FROM_URL) + _PADDING)
    except ValueError:
        raise BadReceipt from None
    if len(packed) != _BYTES:
        raise BadReceipt
    if _CRC.unpack_from(packed, _NAMES_BYTES)[0] != crc32c(packed[:_NAMES_BYTES]):
        raise BadReceipt
    partition, group, delivery = _PLACE.unpack_from(packed)
    (offset,) = _OFFSET.unpack_from(packed, _PLACE.size)
    return Receipt(_partition(partition), group, delivery, offset)


@lru_cache(1024)
def _partition(packed: bytes) -> GroupId:
    """Receipts that come together are mostly of few partitions."""
    return GroupId.unpack(packed)
