"""Messages as record batches: all that was delivered comes out again."""

from __future__ import annotations

import json

from goqueue.wire.batch import RecordBatch
from goqueue.wire.types import Offset
from node.api.queue import QueuedMessage
from node.http.stream.batches import HEAD, batch_frame

DAY_MS = 86_400_000


def test_what_a_batch_does_not_know_stands_in_the_head():
    old = QueuedMessage("t", 1, Offset(7), DAY_MS, b"", b"k", (), 2, is_null=True, receipt="A")
    new = QueuedMessage(
        "u",
        0,
        Offset(9),
        500 * DAY_MS,
        b"v",
        None,
        (),
        0,
        deliver_at_ms=400 * DAY_MS,
        expires_at_ms=600 * DAY_MS,
        receipt="B",
        attempt=2,
        reason="why",
        redrives=1,
        deadline_ms=501 * DAY_MS,
    )

    frame = batch_frame([old, new])

    (size,) = HEAD.unpack_from(frame)
    head, batch = (
        json.loads(frame[HEAD.size :][:size]),
        RecordBatch.parse(frame[HEAD.size + size :]),
    )
    assert head == {
        "type": "messages",
        "rows": [
            {
                "topic": "t",
                "partition": 1,
                "offset": 7,
                "timestamp_ms": DAY_MS,
                "receipt": "A",
                "attempt": 0,
            },
            {
                "topic": "u",
                "partition": 0,
                "offset": 9,
                "timestamp_ms": 500 * DAY_MS,
                "receipt": "B",
                "attempt": 2,
                "visible_until_ms": 501 * DAY_MS,
                "last_reason": "why",
                "redrives": 1,
            },
        ],
    }
    assert batch.values_or_nulls() == [None, b"v"] and batch.keys() == [b"k", None]
    assert batch.deliver_at() == [None, 400 * DAY_MS]
    assert batch.expires_at() == [None, 600 * DAY_MS]
    assert list(batch.lanes()) == [2, 0]
