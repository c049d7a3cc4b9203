"""Receipts: the opaque handle of one message's lease, which any node can read."""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass

from crc32c import crc32c

from goqueue.wire.errors import BadReceipt
from goqueue.wire.types import GROUP_ID_BYTES, GroupId, Index, Offset

_NAMES = struct.Struct(f"<{GROUP_ID_BYTES}sQQQ")
_CRC = struct.Struct("<I")
_BYTES = _NAMES.size + _CRC.size
_CHARACTERS = -(-_BYTES * 8 // 6)
_PADDING = "=" * (-_CHARACTERS % 4)


@dataclass(frozen=True, slots=True)
class Receipt:
    """A lease by its names: the partition, the consumer group, the delivery, and the message."""

    partition: GroupId
    group: int
    delivery: Index
    offset: Offset


def encode_receipt(partition: bytes, group: int, delivery: int, offset: int) -> str:
    """The text that a consumer is given; `partition` is a packed GroupId."""
    names = _NAMES.pack(partition, group, delivery, offset)
    return urlsafe_b64encode(names + _CRC.pack(crc32c(names))).rstrip(b"=").decode()


def decode_receipt(text: str) -> Receipt:
    """What `encode_receipt` wrote. Raises BadReceipt on anything else."""
    if len(text) != _CHARACTERS or not text.isascii():
        raise BadReceipt
    try:
        packed = urlsafe_b64decode(text + _PADDING)
    except ValueError:
        raise BadReceipt from None
    names = packed[: _NAMES.size]
    if len(packed) != _BYTES or _CRC.unpack_from(packed, _NAMES.size)[0] != crc32c(names):
        raise BadReceipt
    partition, group, delivery, offset = _NAMES.unpack(names)
    if encode_receipt(partition, group, delivery, offset) != text:
        raise BadReceipt
    return Receipt(GroupId.unpack(partition), group, Index(delivery), Offset(offset))
