"""Trace ids of GoQueue's form, 32 hex digits, for messages that carry no W3C one.

Such an id says where the message is: two bytes that mark it, five of a hash of its topic's name,
two of its partition's number, seven of its offset. So it can be looked up without being stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from goqueue.wire.ids import MessageId
from goqueue.wire.types import Offset

_MARK = "4751"
_OFFSET_MAX = (1 << 56) - 1
_PARTITION_MAX = (1 << 16) - 1


def own_trace_id(topic: str, partition: int, offset: int) -> str:
    """The id of a message that carries none."""
    place = f"{min(partition, _PARTITION_MAX):04x}{min(offset, _OFFSET_MAX):014x}"
    return _MARK + _hash(topic) + place


def place_of(trace_id: str, topics: Iterable[str]) -> MessageId | None:
    """The message that an id of this form is of; None for any other id, or where the topic is
    gone."""
    if not trace_id.startswith(_MARK):
        return None
    hashed = trace_id[4:14]
    for topic in topics:
        if _hash(topic) == hashed:
            return MessageId(topic, int(trace_id[14:18], 16), Offset(int(trace_id[18:], 16)))
    return None


def span_id(trace_id: str, message: str, number: int) -> str:
    """The id of a message's event: the same whenever and wherever it is asked for."""
    seed = f"{trace_id} {message} {number}".encode()
    return blake2b(seed, digest_size=8).hexdigest()


def _hash(topic: str) -> str:
    return blake2b(topic.encode(), digest_size=5).hexdigest()
