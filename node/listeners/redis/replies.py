"""Replies in RESP2 and RESP3.

A reply is a Python value: an int, bytes or a text (a bulk string), None (nothing), a list, a dict
(a map; RESP2 has none, there it is a flat list), `Simple` (a status), `NO_LIST` or `Failure`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from goqueue.wire.errors import BadRequest, GoQueueError, OutcomeUnknown, Unauthenticated

ERROR_CHARACTERS_MAX = 1000

_CODES = {
    "unknown_group": "NOGROUP",
    "forbidden": "NOPERM",
    "group_exists": "BUSYGROUP",
}


@dataclass(frozen=True, slots=True)
class Simple:
    """A status, such as OK."""

    text: str


@dataclass(frozen=True, slots=True)
class Failure:
    """An error: a word that programs look at, then a sentence."""

    text: str


@dataclass(frozen=True, slots=True)
class _NoList:
    pass


NO_LIST = _NoList()
"""Nothing, where a list could have been."""
OK = Simple("OK")

Reply: TypeAlias = (
    "int | bytes | str | Simple | Failure | _NoList | list[Reply] | dict[str, Reply] | None"
)


class RedisError(BadRequest):
    """What the client asked for is not understood: the text begins with its code, mostly ERR."""


def failure_of(error: GoQueueError) -> Failure:
    """The error in Redis' words: NOAUTH, WRONGPASS, NOPERM, NOGROUP; TRYAGAIN for what may succeed
    later and has not happened; ERR for the rest. The code of this node's errors stands behind; that
    of what may have happened is `outcome_unknown`, whatever was in the way."""
    if isinstance(error, RedisError):
        return Failure(error.message)
    if isinstance(error, Unauthenticated):
        missing = error.data.get("reason") == "missing"
        return Failure(
            "NOAUTH Authentication required: AUTH <id>.<secret>"
            if missing
            else f"WRONGPASS {error.message} ({error.code})"
        )
    code = _CODES.get(error.code)
    if code is None:
        code = "TRYAGAIN" if error.retriable and error.outcome == "none" else "ERR"
    if error.http_status == 403:
        code = "NOPERM"
    told = error.code if error.outcome == "none" else OutcomeUnknown.code
    return Failure(f"{code} {error.message} ({told})")


def encode(reply: Reply, out: bytearray, *, resp3: bool) -> None:
    """Append the reply to `out`."""
    if isinstance(reply, bytes):
        out += b"$%d\r\n%b\r\n" % (len(reply), reply)
    elif isinstance(reply, int):
        out += b":%d\r\n" % reply
    elif isinstance(reply, str):
        encode(reply.encode(errors="backslashreplace"), out, resp3=resp3)
    elif reply is None:
        out += b"_\r\n" if resp3 else b"$-1\r\n"
    elif isinstance(reply, list):
        out += b"*%d\r\n" % len(reply)
        encode_all(reply, out, resp3=resp3)
    elif isinstance(reply, dict):
        out += b"%%%d\r\n" % len(reply) if resp3 else b"*%d\r\n" % (2 * len(reply))
        for name, one in reply.items():
            encode(name, out, resp3=resp3)
            encode(one, out, resp3=resp3)
    elif isinstance(reply, Simple):
        out += b"+%b\r\n" % _line(reply.text)
    elif isinstance(reply, Failure):
        out += b"-%b\r\n" % _line(reply.text)
    else:
        out += b"_\r\n" if resp3 else b"*-1\r\n"


def encode_all(replies: Iterable[Reply], out: bytearray, *, resp3: bool) -> None:
    """Append the replies to `out`, one behind the other: mostly ids."""
    for reply in replies:
        if type(reply) is bytes:
            out += b"$%d\r\n%b\r\n" % (len(reply), reply)
        else:
            encode(reply, out, resp3=resp3)


def encoded(reply: Reply, *, resp3: bool = False) -> bytes:
    out = bytearray()
    encode(reply, out, resp3=resp3)
    return bytes(out)


def _line(text: str) -> bytes:
    """One line, whatever of a client's stands in it."""
    shown = text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
    return shown[:ERROR_CHARACTERS_MAX].encode(errors="backslashreplace")
