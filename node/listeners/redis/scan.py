"""Commands out of bytes: what a client declares is checked before anything of that size is made.

A parser of RESP believes what it reads: hiredis reserves 770 MiB for the 12 bytes `*100000000`. So
counts and lengths are looked at here first, and hiredis parses whole commands only, whose size is
known. A command is an array of bulk strings, or a line of words (inline).

Most commands are of short words without an end of line in them. Those are the lines between such
ends, which `bytes.split` finds faster than anything else; each is held against its declared length.
A pipeline is mostly one command again and again, so it is given as runs of commands of as many
words, by columns: what holds for a whole column is found out once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import hiredis

INLINE_BYTES_MAX = 1 << 16
"""Of a line, as in Redis."""
ARGUMENTS_MAX = 1 << 14
"""Of one command: as many ids as one XACK may name."""
COMMANDS_AT_ONCE = 1024
"""Of those that arrived together: the others are parsed once these are answered."""

LINES_BYTES_MAX = 1 << 16
"""Of what is taken as lines at once."""
_COUNTS = {b"*%d" % count: count for count in range(1, 65)}
_HEADS = [b"$%d" % length for length in range(2049)]
"""Of commands and of words that are taken as lines."""
_RUN_MAX = 128
"""Commands in one run, so that finding its end costs little however short the runs are."""

_COUNT = re.compile(rb"\*(-?[1-9]\d{0,9}|0)\r\n")
_LENGTH = re.compile(rb"\$(-?[1-9]\d{0,9}|0)\r\n")
_HEAD_BYTES_MAX = 14
_HEAD = re.compile(rb"[*$]-?\d{0,10}\r?")
_SPACE = re.compile(rb"[ \t]*")
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


class ProtocolError(Exception):
    """What was sent is no command, and where the next one would begin is not known."""


@dataclass(slots=True)
class Run:
    """Commands of as many words each, one behind the other: their first words, their second words
    and so on. There is one command at least, and one word."""

    columns: list[list[bytes]]

    def __len__(self) -> int:
        return len(self.columns[0])

    @classmethod
    def of(cls, command: list[bytes]) -> Run:
        return cls([[word] for word in command])

    def commands(self) -> list[list[bytes]]:
        return list(map(list, zip(*self.columns, strict=True)))


@dataclass(slots=True)
class _Partial:
    """How far the command that has not arrived as a whole was looked at."""

    at: int = 0
    """Where the next length is to stand; everything before it is sound."""
    left: int = 0
    """Arguments that are still to come."""
    is_begun: bool = False


@dataclass(slots=True)
class Scanner:
    """The unread end of one connection's bytes. `feed` it, then take commands until there is none.

    `bytes_max` bounds one command, with all of its arguments.
    """

    bytes_max: int
    _data: bytearray = field(default_factory=bytearray)
    _partial: _Partial = field(default_factory=_Partial)
    _reader: hiredis.Reader = field(default_factory=hiredis.Reader)

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return len(self._data)

    def feed(self, data: bytes) -> None:
        self._data += data

    def runs(self) -> list[Run]:
        """The commands that are here as a whole, at most `COMMANDS_AT_ONCE`. Raises ProtocolError
        once what is before it was taken."""
        found: list[Run] = []
        begin, left = 0, COMMANDS_AT_ONCE
        if not self._partial.is_begun and self.bytes_max >= LINES_BYTES_MAX:
            begin, left = self._short(found)
        try:
            while begin < len(self._data) and left:
                end = self._end_of(begin)
                if end is None:
                    break
                words = self._words(begin, end)
                begin = end
                self._partial = _Partial()
                if words:
                    found.append(Run.of(words))
                    left -= 1
        except ProtocolError:
            if not found:
                raise
        if begin:
            del self._data[:begin]
            if self._partial.is_begun:
                self._partial.at -= begin
        return found

    def _short(self, found: list[Run]) -> tuple[int, int]:
        """Take what is at the beginning as long as it is commands of short words. How many bytes
        that were, and how many more commands may be taken at once."""
        size = min(len(self._data), LINES_BYTES_MAX)
        lines = bytes(memoryview(self._data)[:size]).split(b"\r\n")
        whole = len(lines) - 1  # behind the last end of a line nothing is
        at, left = 0, COMMANDS_AT_ONCE
        while at < whole and left:
            run = _run_of(lines, at, whole, left)
            if run is None:
                break
            found.append(run)
            at += len(run) * (1 + 2 * len(run.columns))
            left -= len(run)
        if at == whole:
            return size - len(lines[-1]), left
        return sum(map(len, lines[:at])) + 2 * at, left

    def _end_of(self, begin: int) -> int | None:
        """Where the command that begins there ends; None where it is not here as a whole."""
        data, partial = self._data, self._partial
        if data[begin] != 0x2A:
            return self._line_end(begin)
        if not partial.is_begun:
            head = _COUNT.match(data, begin)
            if head is None:
                self._check_head(begin, "multibulk length")
                return None
            count = int(head[1])
            if count > ARGUMENTS_MAX:
                raise ProtocolError("invalid multibulk length")
            partial.is_begun, partial.left, partial.at = True, max(0, count), head.end()
        at, left, size = partial.at, partial.left, len(data)
        match, limit = _LENGTH.match, begin + self.bytes_max
        while left:
            head = match(data, at)
            if head is None:
                partial.at, partial.left = at, left
                if at < size:
                    self._check_length(at)
                return None
            length = int(head[1])
            end = head.end() + length
            if length < 0 or end > limit:
                raise ProtocolError(
                    "invalid bulk length"
                    if length < 0 or length > self.bytes_max
                    else f"a command over {self.bytes_max} bytes"
                )
            if size < end + 2:
                partial.at, partial.left = at, left
                return None
            if data[end] != 0x0D or data[end + 1] != 0x0A:
                raise ProtocolError("a bulk string does not end where its length says")
            at, left = end + 2, left - 1
        return at

    def _check_length(self, at: int) -> None:
        if self._data[at] != 0x24:
            raise ProtocolError(f"expected '$', got {_shown(self._data[at])}")
        self._check_head(at, "bulk length")

    def _check_head(self, at: int, what: str) -> None:
        """Whether what is there may still become a count or a length."""
        head = bytes(self._data[at : at + _HEAD_BYTES_MAX])
        if len(head) >= _HEAD_BYTES_MAX or not _HEAD.fullmatch(head):
            raise ProtocolError(f"invalid {what}")

    def _line_end(self, begin: int) -> int | None:
        end = self._data.find(b"\n", begin, begin + INLINE_BYTES_MAX + 1)
        if end >= 0:
            return end + 1
        if len(self._data) - begin > INLINE_BYTES_MAX:
            raise ProtocolError("too big inline request")
        return None

    def _words(self, begin: int, end: int) -> list[bytes]:
        whole = bytes(memoryview(self._data)[begin:end])
        if whole[0] != 0x2A:
            return _inline_words(whole.rstrip(b"\r\n"))
        self._reader.feed(whole)
        found = self._reader.gets()
        return found if isinstance(found, list) else []


def _run_of(lines: list[bytes], at: int, whole: int, most: int) -> Run | None:
    """The commands of as many words that begin with this line; None where it is not a whole one of
    short words. Of `lines`, the first `whole` are whole."""
    head = lines[at]
    stride = 1 + 2 * _COUNTS.get(head, whole)
    count = min((whole - at) // stride, most, _RUN_MAX)
    if not count:
        return None
    heads = lines[at : at + count * stride : stride]
    if heads.count(head) < count:
        count = next(number for number, other in enumerate(heads) if other != head)
    end = at + count * stride
    columns: list[list[bytes]] = []
    try:
        for first in range(at + 2, at + stride, 2):
            column = lines[first:end:stride]
            if lines[first - 1 : end : stride] != [_HEADS[size] for size in map(len, column)]:
                return None
            columns.append(column)
    except IndexError:
        return None
    return Run(columns)


def _inline_words(line: bytes) -> list[bytes]:
    """As a shell has them: quoted by " with escapes, or by '. Raises ProtocolError."""
    words: list[bytes] = []
    at = 0
    while True:
        space = _SPACE.match(line, at)
        at = space.end() if space is not None else at
        if at >= len(line):
            return words
        if len(words) >= ARGUMENTS_MAX:
            raise ProtocolError("too many words in an inline request")
        word, at = _inline_word(line, at)
        words.append(word)


def _inline_word(line: bytes, at: int) -> tuple[bytes, int]:
    word = bytearray()
    while at < len(line) and line[at : at + 1] not in b" \t":
        quote = line[at : at + 1]
        if quote not in (b'"', b"'"):
            word += quote
            at += 1
            continue
        at += 1
        while line[at : at + 1] != quote:
            if at >= len(line):
                raise ProtocolError("unbalanced quotes in request")
            if line[at : at + 1] == b"\\" and quote == b'"':
                code = line[at + 2 : at + 4]
                if line[at + 1 : at + 2] == b"x" and re.fullmatch(rb"[0-9a-fA-F]{2}", code):
                    word.append(int(code, 16))
                    at += 4
                    continue
                escaped = line[at + 1 : at + 2]
                word += _ESCAPES.get(escaped, escaped)
                at += 2
            elif line[at : at + 2] == b"\\'" and quote == b"'":
                word += b"'"
                at += 2
            else:
                word += line[at : at + 1]
                at += 1
        at += 1
        if at < len(line) and line[at : at + 1] not in b" \t":
            raise ProtocolError("unbalanced quotes in request")
    return bytes(word), at


def _shown(byte: int) -> str:
    return repr(chr(byte)) if 0x20 < byte < 0x7F else f"byte {byte}"
