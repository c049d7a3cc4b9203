"""What a subscriber says: JSON strings, one after the other, in pieces as they come. Pure.

The words are miniqueue's: "INIT", "ACK", "NACK", "BACK", "DACK n".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from goqueue.wire.errors import BadRequest
from node.api.times import DURATION_MS_MAX

COMMAND_BYTES_MAX = 256
"""Of one of them, as JSON."""
DELAY_S_MAX = DURATION_MS_MAX // 1000
_BLANKS = b" \t\r\n"
_DIGITS_MAX = len(str(DELAY_S_MAX))
_DECODER = msgspec.json.Decoder(str)


class Verb(StrEnum):
    """What becomes of a message, or INIT, which asks for the first one."""

    INIT = "INIT"
    ACK = "ACK"
    NACK = "NACK"
    BACK = "BACK"
    DACK = "DACK"


_VERBS = {verb.value: verb for verb in Verb}


@dataclass(frozen=True, slots=True)
class Command:
    """`delay_s` is a DACK's, in whole seconds."""

    verb: Verb
    delay_s: int = 0


class BadCommand(BadRequest):
    """One that is not understood. What follows it may be, unless it is no JSON string at all."""

    code = "bad_command"


class Undecodable(BadCommand):
    """No JSON string: where the next one begins can't be told."""

    text = 'error decoding command: commands are JSON strings, such as "ACK"'


class Commands:
    """Of one subscriber."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[Command | BadCommand]:
        """Those that end in this piece of the body, in order; raises Undecodable after those that
        came before. Less than `COMMAND_BYTES_MAX` are kept of what has not ended."""
        rest = self._rest
        rest += piece
        at = 0
        try:
            while True:
                while at < len(rest) and rest[at] in _BLANKS:
                    at += 1
                end = _end_of(rest, at)
                if not end:
                    return
                yield command_of(_decoded(bytes(rest[at:end])))
                at = end
        finally:
            del rest[:at]

    def end(self) -> None:
        """Nothing more comes. Raises Undecodable where something is unfinished."""
        if self._rest:
            raise Undecodable


def command_of(text: str) -> Command | BadCommand:
    """What it asks, or why it can't be done: in miniqueue's words."""
    verb, *more = text.split(" ") if text else ("",)
    if verb == Verb.DACK:
        return _dack(more)
    known = _VERBS.get(verb)
    if known is None or more:
        return BadCommand(
            "unrecognised command received: want INIT, ACK, NACK, BACK or DACK with seconds"
        )
    return Command(known)


def _dack(more: list[str]) -> Command | BadCommand:
    if not more:
        return BadCommand("too few arguments provided to DACK: want seconds")
    if len(more) > 1:
        return BadCommand("too many arguments provided to DACK: want seconds")
    (text,) = more
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    if not is_number or int(text) > DELAY_S_MAX:
        return BadCommand(
            "invalid DACK duration argument at position [1]:"
            f" want whole seconds, at most {DELAY_S_MAX}"
        )
    return Command(Verb.DACK, int(text))


def _end_of(data: bytearray, at: int) -> int:
    """Where the string ends that begins here; 0 where it has not ended. Raises Undecodable."""
    if at >= len(data):
        return 0
    if data[at] != ord('"'):
        raise Undecodable
    bound = min(len(data), at + COMMAND_BYTES_MAX)
    search = at + 1
    while (quote := data.find(b'"', search, bound)) >= 0:
        slashes = 0
        while data[quote - 1 - slashes] == ord("\\"):
            slashes += 1
        if slashes % 2 == 0:
            return quote + 1
        search = quote + 1
    if bound - at >= COMMAND_BYTES_MAX:
        raise Undecodable(f"error decoding command: over {COMMAND_BYTES_MAX} bytes")
    return 0


def _decoded(text: bytes) -> str:
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Undecodable from None
