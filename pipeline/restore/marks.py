"""How a restored message looks: as it was, with headers that say where it is from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from goqueue.models.messages import Message
from goqueue.wire.encoding import encode_columns
from goqueue.wire.layout import UINT32_MAX
from goqueue.wire.records import Headers

PREFIX: Final = "goqueue-replay-"
ID: Final = f"{PREFIX}id"
"""The run that restored it."""
ORIGIN: Final = f"{PREFIX}origin"
"""`topic:partition:offset`, the id of the message that it repeats."""
TIME: Final = f"{PREFIX}time"
"""The log's time of that message."""
MESSAGE_ID: Final = f"{PREFIX}message-id"
"""The producer's id of that message, if it had one."""

BATCH_ROWS_MAX: Final = 500
BATCH_BYTES_MAX: Final = 1 << 20


def marked(message: Message, run: str) -> Headers:
    """Its own headers, then the marks; those of a run that restored it before are left out.

    The producer's id is a header here: as the id of the restored message it would be known again
    by the target, which would take it for a repeat.
    """
    moment = datetime.fromtimestamp(message.timestamp_ms / 1000, UTC)
    stamp = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    own = tuple(header for header in message.headers if not header[0].startswith(PREFIX))
    marks = {ID: run, ORIGIN: message.id, TIME: stamp}
    if message.message_id is not None:
        marks[MESSAGE_ID] = message.message_id
    return own + tuple((name, text.encode()) for name, text in marks.items())


def size(message: Message) -> int:
    """About how many bytes it has."""
    headers = sum(len(name) + len(value) for name, value in message.headers)
    return len(message.value) + len(message.key or b"") + headers + 200


def batches(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Runs that fit into one batch each, whose producers' times lie close enough together."""
    batch: list[Message] = []
    total, low, high = 0, 0, 0
    for message in messages:
        stamp, weight = message.published_ms, size(message)
        low_, high_ = (min(low, stamp), max(high, stamp)) if batch else (stamp, stamp)
        full = len(batch) == BATCH_ROWS_MAX or total + weight > BATCH_BYTES_MAX
        if batch and (full or high_ - low_ > UINT32_MAX):
            yield batch
            batch, total, low_, high_ = [], 0, stamp, stamp
        batch.append(message)
        total, low, high = total + weight, low_, high_
    if batch:
        yield batch


def encoded(
    messages: Sequence[Message], run: str, producer: tuple[int, int], sequence: int, now_ms: int
) -> bytes:
    """The record batch that stores them, numbered from `sequence` on.

    A delay, or an expiry, that is over by now is left out: the message is due, and stays.
    Raises PayloadTooLarge where the marks do not fit beside a message's headers.
    """

    def coming(cells: Iterable[int | None]) -> list[int | None]:
        return [cell if cell is not None and cell > now_ms else None for cell in cells]

    return encode_columns(
        [None if message.is_null else message.value for message in messages],
        [message.key for message in messages],
        timestamps_ms=[message.published_ms for message in messages],
        lanes=[message.lane for message in messages],
        headers=[marked(message, run) for message in messages],
        deliver_at_ms=coming(message.deliver_at_ms for message in messages),
        expires_at_ms=coming(message.expires_at_ms for message in messages),
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
    )
