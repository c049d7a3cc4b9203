"""Lines of a file or a pipe as messages: an envelope, or plain text.

A line is an envelope when it is a JSON object with a `value` and no field but those below;
anything else is a message whose value is the line as it stands, without its line end. A value in
an envelope is a text, or null, which deletes its key in a compacted topic, or any other JSON value,
which is stored as compact JSON: only the whitespace between its tokens goes, so numbers and escapes
keep their bytes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import BinaryIO, get_args

import msgspec

from cli.output.errors import EXIT_USAGE, CliError
from goqueue.errors import BadRequest
from goqueue.models.options import Priority, did_you_mean
from goqueue.models.times import Duration, Time
from goqueue.publish.outgoing import to_deliver_at, to_expiry
from goqueue.wire.unreadable import UNREADABLE

PRIORITIES: tuple[Priority, ...] = get_args(Priority)
LINE_BYTES_MAX = 16 << 20
BLOCK_BYTES = 256 << 10
_TOKENS = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")|[ \t\r\n]+', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Message:
    """One message to publish; None is not said, but for a `value` of None, which is null."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    priority: Priority | None = None
    message_id: str | None = None
    delay: Duration | None = None
    deliver_at: Time | None = None
    ttl: Duration | None = None


class Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of an envelope. What `consume` prints is one, so topics can be piped: fields that
    only say what became of a message are taken and say nothing."""

    value: msgspec.Raw
    key: str | None = None
    headers: dict[str, str] | None = None
    partition: int | None = None
    priority: str | None = None
    value_encoding: str | None = None
    key_encoding: str | None = None
    topic: str | None = None
    offset: int | None = None
    timestamp: str | None = None
    id: str | None = None
    message_id: str | None = None
    header_encodings: dict[str, str] | None = None
    delay: str | int | float | None = None
    deliverAt: str | int | None = None
    deliver_at: str | int | None = None
    ttl: str | int | float | None = None
    expires_at: str | None = None
    receipt: str | None = None
    receipt_handle: str | None = None
    attempt: int | None = None
    last_reason: str | None = None
    redrives: int | None = None
    visible_until: str | None = None


_ENVELOPE = msgspec.json.Decoder(Envelope)
_TEXT = msgspec.json.Decoder(str)
_ANY = msgspec.json.Decoder()


class LineSplitter:
    """Cuts what is read into numbered lines without their ends; empty ones are left out."""

    def __init__(self) -> None:
        self._number = 0
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The lines that are whole now. Raises `CliError` on an endless one."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            number = self._number + len(lines) + 1
            raise CliError(f"line {number} is longer than {LINE_BYTES_MAX} bytes")
        return self._numbered(lines)

    def end(self) -> list[tuple[int, bytes]]:
        """The last line, if no line end followed it."""
        rest, self._rest = self._rest, b""
        return self._numbered([rest])

    def _numbered(self, lines: list[bytes]) -> list[tuple[int, bytes]]:
        first = self._number + 1
        self._number += len(lines)
        numbered = ((n, line.removesuffix(b"\r")) for n, line in enumerate(lines, first))
        return [(n, line) for n, line in numbered if line]


async def read_blocks(stream: BinaryIO) -> AsyncIterator[bytes]:
    """What a file or pipe has, as it comes; while there is nothing, the loop goes on."""
    try:
        handle = stream.fileno()
    except (OSError, ValueError):
        yield stream.read()
        return
    while True:
        with suppress(PermissionError):  # a regular file: always readable
            await _readable(handle)
        block = os.read(handle, BLOCK_BYTES)
        if not block:
            return
        yield block


async def _readable(handle: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(handle, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(handle)


def parse(line: bytes) -> Message:
    """The message of a line. Raises `CliError` for an envelope that can't be meant."""
    if not line.lstrip().startswith(b"{"):
        return Message(line)
    try:
        envelope = _ENVELOPE.decode(line)
    except UNREADABLE:
        return Message(line)
    deliver_at = envelope.deliver_at if envelope.deliverAt is None else envelope.deliverAt
    delay, ttl = _duration(envelope.delay), _duration(envelope.ttl)
    check_times(delay, deliver_at, ttl)
    return Message(
        value=_value(bytes(envelope.value), envelope.value_encoding),
        key=_key(envelope.key, envelope.key_encoding),
        headers=_headers(envelope),
        partition=envelope.partition,
        priority=priority_of("priority", envelope.priority),
        message_id=envelope.message_id,
        delay=delay,
        deliver_at=deliver_at,
        ttl=ttl,
    )


def priority_of(what: str, text: str | None) -> Priority | None:
    """Raises `CliError` for what is none."""
    if text is None:
        return None
    for known in PRIORITIES:
        if text == known:
            return known
    wanted = f"{what} {text!r} is none of {', '.join(PRIORITIES)}"
    raise CliError(wanted + did_you_mean(text, PRIORITIES), exit_code=EXIT_USAGE)


def check_times(delay: Duration | None, deliver_at: Time | None, ttl: Duration | None) -> None:
    """Raises `CliError` where a message can't have these."""
    try:
        to_expiry(ttl, to_deliver_at(delay, deliver_at))
    except BadRequest as error:
        raise CliError(error.message, exit_code=EXIT_USAGE) from None


def compact(text: bytes) -> bytes:
    """JSON without the whitespace between its tokens; every token keeps its bytes."""
    return _TOKENS.sub(lambda match: match[1] or b"", text)


def _value(raw: bytes, encoding: str | None) -> bytes | None:
    if raw.startswith(b'"'):
        return _decoded(_TEXT.decode(raw), encoding)
    if raw == b"null":
        return None
    _ANY.decode(raw)
    return compact(raw)


def _headers(envelope: Envelope) -> tuple[tuple[str, bytes], ...]:
    encodings = envelope.header_encodings or {}
    headers = (envelope.headers or {}).items()
    return tuple((name, _decoded(text, encodings.get(name))) for name, text in headers)


def _duration(given: str | int | float | None) -> Duration | None:
    """As a publish over HTTP has it: a bare number is milliseconds."""
    if isinstance(given, str):
        return timedelta(milliseconds=int(given)) if given.isdigit() else given
    return None if given is None else timedelta(milliseconds=given)


def _key(text: str | None, encoding: str | None) -> bytes | None:
    return None if text is None else _decoded(text, encoding)


def _decoded(text: str, encoding: str | None) -> bytes:
    if encoding in (None, "utf-8", "utf8"):
        return text.encode()
    if encoding != "base64":
        raise CliError(f"encoding {encoding!r} is neither utf-8 nor base64", exit_code=EXIT_USAGE)
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise CliError(f"bad base64: {error}") from None
