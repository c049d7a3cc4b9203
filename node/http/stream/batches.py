"""Messages as record batches, in binary frames: nothing is escaped, nor in base64."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Packed

import msgspec

from goqueue.wire.batch import encode_columns
from node.api.queue import QueuedMessage
from node.http.text.pieces import encode

HEAD = Packed("<I")
"""The length of the JSON that comes first."""


class Row(msgspec.Struct, omit_defaults=True, gc=False):
    """What a record batch does not know of a message that was delivered. Times are in Unix
    milliseconds; without `visible_until_ms` the lease lasts as long as the stream."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    receipt: str
    attempt: int
    visible_until_ms: int = 0
    last_reason: str = ""
    redrives: int = 0


class Rows(msgspec.Struct, tag_field="type", tag="messages"):
    """In the order of the batch's records."""

    rows: list[Row]


def batch_frame(messages: Sequence[QueuedMessage]) -> bytes:
    """The length of the head, the head as JSON, and one record batch with the messages."""
    head = encode(
        Rows(
            [
                Row(
                    one.topic,
                    one.partition,
                    one.offset,
                    one.time_ms,
                    one.receipt,
                    one.attempt,
                    one.deadline_ms,
                    one.reason,
                    one.redrives,
                )
                for one in messages
            ]
        )
    )
    batch = encode_columns(
        [None if one.is_null else one.value for one in messages],
        [one.key for one in messages],
        lanes=[one.lane for one in messages],
        headers=[one.headers for one in messages],
        deliver_at_ms=[one.deliver_at_ms for one in messages],
        expires_at_ms=[one.expires_at_ms for one in messages],
        message_ids=[one.message_id for one in messages],
    )
    return HEAD.pack(len(head)) + head + batch
