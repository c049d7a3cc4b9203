"""A request's body becomes one message, as it is."""

from __future__ import annotations

import time
from collections.abc import Sequence

from goqueue.wire.batch import DEFAULT, encode_columns
from goqueue.wire.compression import Codec
from goqueue.wire.errors import KeyRequired, PayloadTooLarge
from goqueue.wire.records import Headers
from node.api.broker import Broker
from node.api.spans import Carried
from node.http.budget.memory import Reserved
from node.http.messages.trace_context import as_headers
from node.listeners.h2.exchange import Exchange
from node.listeners.requests import Caller, Requests


def value_bytes_max(broker: Broker, topic: str) -> int:
    """How large a message may be. Raises UnknownTopic."""
    return min(broker.topics.max_message_bytes(topic), DEFAULT.value_bytes_max)


async def whole_body(exchange: Exchange, bytes_max: int, held: Reserved) -> bytes:
    """All of a request's body, charged to `held` as it comes. Raises PayloadTooLarge, at once where
    the request announces too much, OverBudget, RequestTimeout, and ConnectionError."""
    pieces: list[bytes] = []
    size = 0
    while piece := await exchange.read():
        size += len(piece)
        if size > bytes_max:
            raise too_large(size, bytes_max)
        held.grow(len(piece))
        pieces.append(piece)
    return b"".join(pieces)


def too_large(size: int, bytes_max: int) -> PayloadTooLarge:
    text = f"message of {size} bytes or more: at most {bytes_max}"
    return PayloadTooLarge(text, limit=bytes_max)


async def append(
    requests: Requests, caller: Caller, topic: str, value: bytes, trace: Carried | None
) -> tuple[int, int]:
    """Store one message, in whichever partition has its turn, in one batch with what others publish
    there in this turn of the loop: (partition, offset). It carries the request's trace, as over
    HTTP. Raises KeyRequired, and what `Requests.append` does."""
    broker = caller.broker
    if broker.topics.is_compacted(topic):
        raise KeyRequired
    codec = Codec.named(broker.topics.compression(topic))
    partition = broker.records.pick_partition(topic, 1)

    async def together(parts: Sequence[tuple[bytes, Headers]]) -> Sequence[int]:
        values, headers = zip(*parts, strict=True)
        batch = encode_columns(
            values, timestamps_ms=time.time_ns() // 1_000_000, headers=headers, codec=codec
        )
        stored = await requests.append(caller, topic, partition, batch)
        first = int(stored.base_offset)
        return range(first, first + len(parts))

    part = (value, () if trace is None else as_headers(trace))
    line = (requests.protocol, topic, partition, caller.owner.holder)
    offset = await requests.parts.turn.join(line, part, together, items=1, size_bytes=len(value))
    return partition, offset
