"""Replies and ids, as both versions of the protocol have them."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.wire.errors import (
    Busy,
    Forbidden,
    NoQuorum,
    OutcomeUnknown,
    Unauthenticated,
    UnknownTopic,
)
from goqueue.wire.ids import OFFSET_MAX
from node.listeners.redis.ids import FIRST, LAST, EntryId, parse_end, parse_id, parse_start
from node.listeners.redis.receipts import KNOWN_MAX, KnownReceipts
from node.listeners.redis.replies import (
    ERROR_CHARACTERS_MAX,
    NO_LIST,
    OK,
    Failure,
    RedisError,
    encoded,
    failure_of,
)


@pytest.mark.parametrize(
    ("reply", "in_2", "in_3"),
    [
        (OK, b"+OK\r\n", b"+OK\r\n"),
        (7, b":7\r\n", b":7\r\n"),
        (b"a\r\nb", b"$4\r\na\r\nb\r\n", b"$4\r\na\r\nb\r\n"),
        ("ä", b"$2\r\n\xc3\xa4\r\n", b"$2\r\n\xc3\xa4\r\n"),
        (None, b"$-1\r\n", b"_\r\n"),
        (NO_LIST, b"*-1\r\n", b"_\r\n"),
        ([1, [b""]], b"*2\r\n:1\r\n*1\r\n$0\r\n\r\n", b"*2\r\n:1\r\n*1\r\n$0\r\n\r\n"),
        ({"a": 1}, b"*2\r\n$1\r\na\r\n:1\r\n", b"%1\r\n$1\r\na\r\n:1\r\n"),
        (Failure("ERR no\r\n+OK"), b"-ERR no??+OK\r\n", b"-ERR no??+OK\r\n"),
    ],
)
def test_a_reply_is_one_in_either_version(reply: Any, in_2: bytes, in_3: bytes) -> None:
    assert encoded(reply) == in_2
    assert encoded(reply, resp3=True) == in_3


def test_an_error_is_one_short_line() -> None:
    assert len(encoded(Failure("ERR " + "x" * 10_000))) < ERROR_CHARACTERS_MAX + 10


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RedisError("NOPROTO no"), "NOPROTO no"),
        (Unauthenticated("x", reason="missing"), "NOAUTH Authentication required"),
        (Unauthenticated("wrong"), "WRONGPASS wrong (unauthenticated)"),
        (Forbidden("no"), "NOPERM no (forbidden)"),
        (Busy("later"), "TRYAGAIN later (busy)"),
        (OutcomeUnknown("maybe"), "ERR maybe (outcome_unknown)"),
        (NoQuorum("late", outcome="unknown"), "ERR late (outcome_unknown)"),
        (NoQuorum("early"), "TRYAGAIN early (no_quorum)"),
        (UnknownTopic("x"), "ERR "),
    ],
)
def test_errors_are_told_by_their_codes(error: Any, text: str) -> None:
    assert failure_of(error).text.startswith(text)


def test_ids_are_in_order_and_say_the_ends_of_ranges() -> None:
    assert str(parse_id(b"5-3")) == "5-3"
    assert parse_id(b"5") == EntryId(5, 0) and parse_end(b"5") == EntryId(5, OFFSET_MAX)
    assert parse_start(b"-") == FIRST and parse_end(b"+") == LAST
    assert parse_start(b"(5-3") == EntryId(5, 4) and parse_end(b"(5-0") == EntryId(4, OFFSET_MAX)
    assert EntryId(5, 9) < EntryId(6, 0) < EntryId(6, 1)
    for bad in (b"", b"x", b"5-", b"-5", b"5-3-1", b"99999999999999999999", b"1-*", "٣".encode()):
        with pytest.raises(RedisError):
            parse_id(bad)
    with pytest.raises(RedisError):
        parse_end(b"(0-0")


def test_a_connection_remembers_so_many_receipts() -> None:
    known, place = KnownReceipts(), ("s", "g")
    for offset in range(KNOWN_MAX + 1):
        known.add(place, EntryId(1, offset), str(offset))

    assert len(known) == KNOWN_MAX
    assert known.take(place, EntryId(1, 0)) is None
    assert known.take(place, EntryId(1, 5)) == "5"
    assert known.take(place, EntryId(1, 5)) is None
