"""Timestamps and durations of protobuf as milliseconds, and back."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from goqueue.wire.errors import BadRequest
from node.api.times import DURATION_MS_MAX, TIME_MS_MAX

NANOS = 1_000_000_000


def duration_ms(given: Duration, name: str) -> int:
    """Rounded up, so that what is not nothing stays something. Raises BadRequest for what is
    negative, longer than 366 days, or no duration."""
    seconds, nanos = given.seconds, given.nanos
    if seconds < 0 or not 0 <= nanos < NANOS:
        raise BadRequest(f"{name}: {seconds} s and {nanos} ns are not a duration")
    found: int = seconds * 1000 + -(-nanos // 1_000_000)
    if found > DURATION_MS_MAX:
        raise BadRequest(f"{name}: longer than 366 days")
    return found


def time_ms(given: Timestamp, name: str) -> int:
    """Unix milliseconds. Raises BadRequest for what is before 1970 or after 9999, or no time."""
    seconds, nanos = given.seconds, given.nanos
    found: int = seconds * 1000 + nanos // 1_000_000
    if not 0 <= nanos < NANOS or not 0 <= found <= TIME_MS_MAX:
        raise BadRequest(f"{name}: {seconds} s and {nanos} ns are not a time from 1970 to 9999")
    return found


def put_time(into: Timestamp, ms: int) -> None:
    into.seconds, rest = divmod(min(ms, TIME_MS_MAX), 1000)
    into.nanos = rest * 1_000_000
