"""Writes receipts, and tells those that this cluster gave out from those that somebody made up.

The code (MAC) is keyed BLAKE2b (RFC 7693), of 14 bytes, of the partition, the consumer group, the
delivery and a run of offsets: mostly a receive costs one, however many messages it has. The run is
needed because one entry of the log may answer the receives of several members, and a delivery's
number is its entry's: each message went to one of them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator, Sequence

from coordinator.access.receipt_keys import ReceiptKey, ReceiptKeys
from delivery.config import VISIBILITY_MS_MAX
from goqueue.wire.errors import BadReceipt, GoQueueError, ReceiptExpired
from goqueue.wire.types import PartitionId
from node.api.queue import QueuedMessage
from node.queue.receipt import (
    MAC_BYTES,
    Receipt,
    decode_receipt,
    encode_receipts,
    place_of,
    signed,
    vouched_of,
)
from node.rpc.queue import Taken, queued


class KeyNotKnown(BadReceipt):
    """The receipt may be of a key that is so new that this node has not heard of it."""


class Receipts:
    """By the cluster's keys, as this node knows them. Before there is one, receipts have a checksum
    only; such are accepted for as long as one of them can live without being extended."""

    def __init__(self, keys: Callable[[], ReceiptKeys], now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._now_ms = now_ms
        self._of: tuple[ReceiptKey, ...] = ()
        self._codes: dict[int, hashlib.blake2b] = {}
        """A code that has taken up its key, for each of `_of`."""

    def write(
        self, partition: bytes, group: int, delivery: int, offsets: Sequence[int]
    ) -> list[str]:
        """The texts that a consumer is given for one delivery; `partition` is a packed
        PartitionId."""
        codes = self._known()
        if not codes:
            return encode_receipts(partition, group, delivery, offsets)
        place, id = place_of(partition, group, delivery), self._of[-1].id
        texts: list[str] = []
        for run in _runs(offsets):
            vouched = vouched_of(place, run)
            texts += signed(vouched, id, _code(codes[id], vouched), run)
        return texts

    def received(self, topic: str, group: int, taken: Taken) -> list[QueuedMessage]:
        """What was taken of one partition, as a consumer is given it."""
        packed = taken.partition
        partition = PartitionId.unpack(packed).partition
        offsets = [grant.offset for grant in taken.grants]
        receipts = self.write(packed, group, taken.delivery, offsets)
        return [
            queued(
                topic,
                partition,
                row,
                receipt=receipt,
                attempt=grant.attempt,
                reason=grant.reason,
                redrives=grant.redrives,
                deadline_ms=taken.deadline_ms,
            )
            for grant, row, receipt in zip(taken.grants, taken.messages, receipts, strict=True)
        ]

    def read(self, texts: Sequence[str]) -> list[Receipt | GoQueueError]:
        """Each one's lease, or why it is none: BadReceipt, KeyNotKnown, ReceiptExpired."""
        found: list[Receipt | GoQueueError] = []
        judged: dict[bytes, GoQueueError | None] = {}
        for text in texts:
            try:
                receipt = decode_receipt(text)
            except BadReceipt as error:
                found.append(error)
                continue
            if receipt.head not in judged:
                judged[receipt.head] = self._problem(receipt)
            found.append(judged[receipt.head] or receipt)
        return found

    def _problem(self, receipt: Receipt) -> GoQueueError | None:
        codes, keys = self._known(), self._of
        if not receipt.mac:
            oldest = keys[0] if keys else None
            held = oldest is None or self._now_ms() < oldest.created_ms + VISIBILITY_MS_MAX
            return None if held else ReceiptExpired()
        code = codes.get(receipt.key)
        if code is None:
            return ReceiptExpired() if keys and receipt.key < keys[0].id else KeyNotKnown()
        made = _code(code, receipt.vouched)
        return None if hmac.compare_digest(made, receipt.mac) else BadReceipt()

    def _known(self) -> dict[int, hashlib.blake2b]:
        keys = self._keys().all
        if keys is not self._of:
            self._of = keys
            self._codes = {
                key.id: hashlib.blake2b(key=key.secret, digest_size=MAC_BYTES) for key in keys
            }
        return self._codes


def _runs(offsets: Sequence[int]) -> Iterator[Sequence[int]]:
    begin = 0
    for end in range(1, len(offsets) + 1):
        if end == len(offsets) or offsets[end] != offsets[end - 1] + 1:
            yield offsets[begin:end]
            begin = end


def _code(begun: hashlib.blake2b, vouched: bytes) -> bytes:
    code = begun.copy()
    code.update(vouched)
    return code.digest()
