"""Finds the elements of an array within JSON text, and decodes none of them.

Whoever decodes a large document at once stalls the loop, and may be made to build millions of
objects of a few bytes each. Here the text is cut at the commas between elements, in steps that each
look at 64 KiB at most. Only strings and brackets are understood: what is no JSON is cut somewhere,
and refused by the decoder of the piece, or here.

Most arrays hold objects of one kind, or strings, and what looks like the end of one is the end. So
a cut is guessed first, and the decoder asked: it reads the piece from the beginning of an element
on, and comes to the end of one only if the cut is right. Brackets are looked at where it is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from goqueue.wire.errors import BadRequest
from node.http.budget.slices import SLICE_BYTES, pause
from node.http.text.json import DEPTH_MAX, require_utf8

T = TypeVar("T")

SIGNS = (b",", b"{", b"[")
"""Each is a step of whoever looks for the end of an element, and begins what is decoded."""
COMMAS = (b",",)
"""One is behind each thing that is decoded."""
SIGNS_AT_ONCE = 2048
"""In a slice: of text that has more of them, which are elements of a few bytes each, less is looked
at and decoded at once. About half a millisecond."""
STEPS_MAX = 1000
"""Brackets that are stepped over, one by one, between two yields."""
NESTED = 8
"""Levels that are passed over without a step for each bracket."""
DEEP_MAX = 1_000_000
"""Steps for brackets in deeper levels, of one document: about a second."""
REST_BYTES_MAX = 64 * 1024
"""Of the document beside the array: ids and numbers."""

_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_FLAT = rb'[^"{}\[\]]*+(?:' + _TEXT + rb'[^"{}\[\]]*+)*+'


def _within(levels: int) -> bytes:
    """What brackets hold that are nested so deep at most. Nothing is ever looked at twice by one
    match: all repetitions are possessive."""
    inner = _FLAT
    for _ in range(levels):
        inner = _FLAT + rb"(?:[{\[]" + inner + rb"[}\]]" + _FLAT + rb")*+"
    return inner


_ELEMENTS = re.compile(
    rb"(?:[ \t\n\r]*+(?:[{\[]"
    + _within(NESTED - 1)
    + rb"[}\]]|"
    + _TEXT
    + rb'|[^"{}\[\],]++)[ \t\n\r]*+,)*+',
    re.DOTALL,
)
"""Whole elements, each with the comma behind it."""
_RUN = re.compile(_within(NESTED), re.DOTALL)
_OPENING = re.compile(rb"[{\[]++")
_CLOSING = re.compile(rb"[}\]]++")
_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_BETWEEN = {b"{": (b'},{"', b'}, {"'), b'"': (b'","', b'", "')}
"""What most likely stands between two elements, by what they begin with. Within a string there are
no such quotes."""
_BLANK = re.compile(rb"[ \t\n\r]*+")
_SCALAR = re.compile(rb"[^\"{}\[\],]*+")


def reach_of(text: bytes, start: int = 0, signs: Sequence[bytes] = SIGNS) -> int:
    """How many bytes from there are looked at in one slice: fewer where signs stand close."""
    reach = SLICE_BYTES
    while sum(text.count(sign, start, start + reach) for sign in signs) > SIGNS_AT_ONCE:
        reach //= 2
    return reach


class Piece(NamedTuple, Generic[T]):
    """Elements from `start` to `end`, without the comma behind them; one alone where it is larger
    than a slice."""

    start: int
    end: int
    decoded: T | None = None
    """What they are, where their end was guessed."""


async def elements_of(
    body: bytes, member: bytes, decode: Callable[[bytes], Sequence[T]], most: int
) -> tuple[list[T], bytes]:
    """All elements of the member, decoded in slices, and the rest of the document. Raises
    BadRequest, also for more than `most`."""
    walked, found = Elements(body, member, decode), list[T]()
    for piece in walked.walk():
        if piece is not None:
            some = piece.decoded
            if some is None:
                text = b"[%s]" % body[piece.start : piece.end]
                require_utf8(text)
                some = decode(text)
            found += some
            if len(found) > most:
                raise BadRequest(f"{member.decode()}: more than {most}")
        await pause()
    if not walked.found:
        raise BadRequest(f"a body of over {SLICE_BYTES} bytes needs the list {member.decode()}")
    return found, walked.rest


class Elements(Generic[T]):
    """Of the array that one member of the document is. Iterate `walk`; then `rest` is the document
    with an empty array in its place, where there is one.

    `decode` returns what the text of an array holds. Where it raises BadRequest the guess may be
    wrong: brackets are looked at then.
    """

    def __init__(
        self, text: bytes, member: bytes, decode: Callable[[bytes], T] | None = None
    ) -> None:
        self._text = text
        self._member = member
        self._decode = decode
        """None once a guess was wrong: so no more than a slice is decoded in vain."""
        self._at = 0
        self._steps = 0
        self._paused = 0
        """Where the last step ended within a long value."""
        self.found = False
        self.rest = text

    def walk(self) -> Iterator[Piece[T] | None]:
        """Each piece; None where only some text was looked at. Raises BadRequest."""
        self._expect(b"{")
        if self._next() == b"}":
            return
        while True:
            name = yield from self._name()
            self._expect(b":")
            if name == self._member and self._next() == b"[":
                if self.found:
                    raise BadRequest(f"{self._member.decode()} is given more than once")
                self.found = True
                start = self._at
                yield from self._pieces()
                self._leave_out(start)
            else:
                yield from self._value()
            if self._next() != b",":
                break
            self._at += 1
        if self.found and len(self.rest) > REST_BYTES_MAX:
            raise BadRequest(f"more than {REST_BYTES_MAX} bytes beside {self._member.decode()}")

    # private

    def _leave_out(self, start: int) -> None:
        self._text = self.rest = self._text[:start] + b"[]" + self._text[self._at :]
        self._at = start + 2

    def _pieces(self) -> Generator[Piece[T] | None, None, None]:
        text = self._text
        self._expect(b"[")
        if self._next() == b"]":
            self._at += 1
            return
        while True:
            start = self._at
            if (likely := self._guessed(start)) is not None:
                self._at = likely.end + 1
                yield likely
                continue
            whole = _ELEMENTS.match(text, start, start + reach_of(text, start))
            assert whole is not None
            if whole.end() > start:
                self._at = whole.end()
                yield Piece(start, self._at - 1)
                continue
            self._next()
            start = self._at
            yield from self._value()
            yield Piece(start, self._at)
            end = self._next()
            self._at += 1
            if end == b"]":
                return
            if end != b",":
                raise BadRequest("invalid JSON: elements without a comma between them")

    def _guessed(self, start: int) -> Piece[T] | None:
        """Elements up to the last place where one seems to end."""
        if self._decode is None:
            return None
        text = self._text
        end = start + reach_of(text, start, COMMAS)
        first = _BLANK.match(text, start, end)
        assert first is not None
        cut = 0
        for between in _BETWEEN.get(text[first.end() : first.end() + 1], ()):
            cut = text.rfind(between, start, end) + 1
            if cut:
                break
        if not cut:
            return None
        piece = b"[%s]" % text[start:cut]
        try:
            require_utf8(piece)
            return Piece(start, cut, self._decode(piece))
        except BadRequest:
            self._decode = None
            return None

    def _value(self) -> Generator[None, None, None]:
        """Behind the next value."""
        text, depth = self._text, 0
        first = self._next()
        if first not in (b'"', b"{", b"["):
            end = _SCALAR.match(text, self._at, self._at + SLICE_BYTES)
            assert end is not None
            if end.end() == self._at or end.end() == self._at + SLICE_BYTES:
                raise BadRequest(f"invalid JSON: no value at byte {self._at}")
            self._at = end.end()
            return
        while True:
            sign = text[self._at : self._at + 1]
            if sign == b'"':
                self._at += 1
                yield from self._string()
            else:
                depth += self._brackets(sign, depth)
            if depth == 0:
                return
            yield from self._run()

    def _brackets(self, sign: bytes, depth: int) -> int:
        """Behind as many as there are; how much deeper it is there. Raises BadRequest."""
        signs = _OPENING if sign in (b"{", b"[") else _CLOSING
        found = signs.match(self._text, self._at, self._at + SLICE_BYTES)
        if found is None:
            raise BadRequest("invalid JSON: it ends early")
        deeper = found.end() - self._at
        if signs is _CLOSING:
            deeper = -min(deeper, depth)
        elif depth + deeper > DEPTH_MAX + 1:
            raise BadRequest(f"JSON nested deeper than {DEPTH_MAX}")
        self._at += abs(deeper)
        return deeper

    def _run(self) -> Generator[None, None, None]:
        """To the next bracket that must be stepped over, or a long string."""
        while True:
            start = self._at
            run = _RUN.match(self._text, start, start + SLICE_BYTES)
            assert run is not None
            self._at = run.end()
            self._steps += 1
            if self._steps > DEEP_MAX:
                raise BadRequest(f"JSON nested deeper than {NESTED} too often")
            if self._at >= self._paused + SLICE_BYTES or not self._steps % STEPS_MAX:
                self._paused = self._at
                yield None
            if self._at < start + SLICE_BYTES:
                return

    def _string(self) -> Generator[None, None, None]:
        """Behind the string that was begun."""
        while True:
            start = self._at
            part = _STRING.match(self._text, start, start + SLICE_BYTES)
            assert part is not None
            self._at = part.end()
            sign = self._text[self._at : self._at + 1]
            if sign == b'"':
                self._at += 1
                return
            if self._at == start or not sign:
                raise BadRequest("invalid JSON: a string without an end")
            yield None

    def _name(self) -> Generator[None, None, bytes]:
        self._expect(b'"')
        start = self._at
        yield from self._string()
        return self._text[start : self._at - 1]

    def _next(self) -> bytes:
        """The byte behind blanks, which are passed over."""
        blank = _BLANK.match(self._text, self._at, self._at + SLICE_BYTES)
        assert blank is not None
        if blank.end() == self._at + SLICE_BYTES:
            raise BadRequest(f"invalid JSON: {SLICE_BYTES} blanks in a row")
        self._at = blank.end()
        return self._text[self._at : self._at + 1]

    def _expect(self, sign: bytes) -> None:
        if self._next() != sign:
            raise BadRequest(f"invalid JSON: expected {sign.decode()!r} at byte {self._at}")
        self._at += 1
