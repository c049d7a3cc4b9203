"""What becomes of a message in a group, by what happens to its lease.

Decided here once: for messages as entries apply (`operations`, `attempts`), and again for one of
them when its timeline is told (`delivery.timeline.judge`). Nothing here knows where a message is.
"""

from __future__ import annotations

from typing import Literal

from delivery.config import FAR_MS, VISIBILITY_MS_MAX, GroupConfig, bounded
from delivery.entries.ops import Delivered, DeliveredToStream, StreamId, StreamsEnded

TIMED_OUT = "visibility timeout"
FENCED = "consumer lost"
"""Why an attempt failed whose consumer did not let go of its partition, or whose stream broke: it
died, or is stuck."""
NO_DEADLINE = 0
"""The deadline of a lease that ends with its stream."""

AfterFailure = Literal["over", "again", "last"]
"""Never delivered any more, since it was cancelled or has expired; delivered again; or this was its
last attempt."""
AfterLast = Literal["over", "parked", "halted", "dead"]


def lease_end_ms(now_ms: int, visibility_ms: int) -> int:
    """When a lease ends that is granted, or extended, now."""
    return now_ms + bounded(visibility_ms, 0, VISIBILITY_MS_MAX)


def granted_until_ms(op: Delivered, now_ms: int) -> int:
    """When a lease ends that is granted now; a stream's may have no deadline."""
    if isinstance(op, DeliveredToStream) and op.visibility_ms <= 0:
        return NO_DEADLINE
    return lease_end_ms(now_ms, op.visibility_ms)


def is_run_out(deadline_ms: int, now_ms: int) -> bool:
    """Whether a lease is over by itself."""
    return deadline_ms != NO_DEADLINE and deadline_ms <= now_ms


def is_ended(stream: StreamId | None, op: StreamsEnded) -> bool:
    """Whether a lease is over because of its stream; None is that of no stream's."""
    if stream is None or stream.run != op.run:
        return False
    return not op.streams or stream.number in op.streams


def backoff_ms(config: GroupConfig, failed: int) -> int:
    """How long a message waits that has failed so often, unless its consumer says."""
    return min(config.backoff_ms << min(failed - 1, 30), config.backoff_ms_max)


def back_at_ms(config: GroupConfig, failed: int, now_ms: int, delay_ms: int) -> int:
    """When a message comes again; 0 for at once. A delay of -1 is the group's own."""
    wait_ms = backoff_ms(config, failed) if delay_ms < 0 else delay_ms
    return now_ms + min(wait_ms, FAR_MS) if wait_ms > 0 else 0


def after_failure(config: GroupConfig, failed: int, *, is_withdrawn: bool) -> AfterFailure:
    """Of a message that has failed so often, this time included; one that is withdrawn is not
    counted."""
    if is_withdrawn:
        return "over"
    return "last" if 0 < config.max_attempts <= failed else "again"


def parks(config: GroupConfig, *, has_key: bool) -> bool:
    """Whether a message that has failed for good withholds its key."""
    return has_key and config.ordering == "key" and config.on_poison == "park"


def after_last(config: GroupConfig, *, has_key: bool, halts: bool, is_withdrawn: bool) -> AfterLast:
    """Of a message that has failed for good: dead, unless its key is parked or the group halts.
    For one that is withdrawn, and comes no more, neither does."""
    is_parked = parks(config, has_key=has_key)
    if is_withdrawn and (is_parked or halts):
        return "over"
    if is_parked:
        return "parked"
    return "halted" if halts else "dead"


def is_redriven(config: GroupConfig, redrives: int, *, force: bool, is_withdrawn: bool) -> bool:
    """Whether a dead letter that was redriven so often is made ready again."""
    return (force or redrives < config.redrives_max) and not is_withdrawn
