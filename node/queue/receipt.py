"""Receipts: the opaque handle of one message's lease, which any node can read.

All receipts of one delivery begin alike, with their `head`: the partition, the consumer group, the
delivery, a run of its offsets; then the id of a key of the cluster and the code (MAC) by it. Those
of clusters whose finished level is below 2 have neither run nor key nor code. The message's offset
follows, and a checksum of it all.
"""

from __future__ import annotations

import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from crc32c import crc32c

from goqueue.wire.errors import BadReceipt
from goqueue.wire.types import PARTITION_ID_BYTES, Index, Offset, PartitionId

MAC_BYTES = 14
_PLACE = struct.Struct(f"<{PARTITION_ID_BYTES}sQQ")
_RUN = struct.Struct("<QI")
_KEY = struct.Struct(f"<I{MAC_BYTES}s")
_END = struct.Struct("<QI")
_OFFSET = struct.Struct("<Q")
_VOUCHED_BYTES = _PLACE.size + _RUN.size
_HEAD_BYTES = _VOUCHED_BYTES + _KEY.size
_PLACE_CHARACTERS = _PLACE.size * 4 // 3
_END_CHARACTERS = _END.size * 4 // 3
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")


@dataclass(slots=True)
class Receipt:
    """A lease by its names: the partition, the consumer group, the delivery, and the message."""

    partition: PartitionId
    group: int
    delivery: Index
    offset: Offset
    head: bytes = field(default=b"", compare=False, repr=False)
    """What all receipts of the run have in common; equal ones are judged alike."""
    key: int = 0
    mac: bytes = b""
    """Empty where it has no code."""

    @property
    def vouched(self) -> bytes:
        """What its code is made of."""
        return self.head[:_VOUCHED_BYTES]


def place_of(partition: bytes, group: int, delivery: int) -> bytes:
    """A delivery by its names; `partition` is a packed PartitionId."""
    return _PLACE.pack(partition, group, delivery)


def vouched_of(place: bytes, run: Sequence[int]) -> bytes:
    """What a code is made of; `run` are offsets that follow each other."""
    return place + _RUN.pack(run[0], len(run))


def signed(vouched: bytes, key: int, mac: bytes, run: Sequence[int]) -> list[str]:
    """The texts that a consumer is given for a run."""
    return _texts(vouched + _KEY.pack(key, mac), run)


def encode_receipts(
    partition: bytes, group: int, delivery: int, offsets: Sequence[int]
) -> list[str]:
    """As `signed`, without a code."""
    return _texts(place_of(partition, group, delivery), offsets)


def decode_receipt(text: str) -> Receipt:
    """What was written, whoever wrote it. Raises BadReceipt on anything else."""
    partition, group, delivery, run, key, mac, head, head_crc = _head(text[:-_END_CHARACTERS])
    end = _packed(text[-_END_CHARACTERS:], _END.size)
    offset, crc = _END.unpack(end)
    if crc != crc32c(end[: _OFFSET.size], head_crc) or (mac and offset not in run):
        raise BadReceipt
    return Receipt(partition, group, delivery, offset, head, key, mac)


def _texts(head: bytes, offsets: Sequence[int]) -> list[str]:
    """Head and end have lengths that base64 does not pad, so the head is written once."""
    crc, begin = crc32c(head), b2a_base64(head, newline=False)
    texts: list[bytes] = []
    for offset in offsets:
        end = _END.pack(offset, crc32c(_OFFSET.pack(offset), crc))
        texts.append(begin + b2a_base64(end, newline=False))
    return b" ".join(texts).translate(_TO_URL).decode().split()


@lru_cache(1024)
def _head(text: str) -> tuple[PartitionId, int, Index, range, int, bytes, bytes, int]:
    """Receipts that come together are mostly of few deliveries."""
    head = _packed(text, _PLACE.size if len(text) == _PLACE_CHARACTERS else _HEAD_BYTES)
    partition, group, delivery = _PLACE.unpack_from(head)
    first, count, key, mac = 0, 0, 0, b""
    if len(head) == _HEAD_BYTES:
        first, count = _RUN.unpack_from(head, _PLACE.size)
        key, mac = _KEY.unpack_from(head, _VOUCHED_BYTES)
    run = range(first, first + count)
    return PartitionId.unpack(partition), group, delivery, run, key, mac, head, crc32c(head)


def _packed(text: str, size: int) -> bytes:
    """Raises BadReceipt unless these are so many bytes, in their only form."""
    if len(text) * 3 != size * 4:
        raise BadReceipt
    try:
        packed = a2b_base64(text.encode("ascii").translate(_FROM_URL))
    except ValueError:
        raise BadReceipt from None
    if len(packed) != size:
        raise BadReceipt
    return packed
