"""JSON made a slice at a time, so that one large answer does not hold up everybody else's.

msgspec holds the interpreter's lock while it encodes, in whatever thread: so large answers are
encoded on the loop, at most `SLICE_BYTES` of plain bytes at once, and others run in between. A text
that is longer than that is encoded when it is sent: until then only its plain bytes are held.
"""

from __future__ import annotations

import base64
import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET
from msgspec.structs import astuple, replace

from node.http.budget.memory import Reserved
from node.http.budget.slices import SLICE_BYTES, pause

KIB = 1024
TEXT_SLICE = SLICE_BYTES // 4
"""Characters; each is up to four bytes."""
BASE64_SLICE = 48 * KIB
"""A multiple of three, so that slices of base64 are base64."""
FIELD_SLICE = SLICE_BYTES // 16
"""A larger field of a struct is encoded apart from the others; no struct has many more fields."""
FIELD_BYTES = 16
"""What a number, or the name of a field, is taken to cost."""

_ELSEWHERE = msgspec.Raw(b"\0")
"""Stands for a field that is encoded apart: no JSON holds such a byte."""
_SHORT = b'\b\t\n\f\r"\\'
"""What is escaped by two bytes."""
_PLAIN = bytes(set(range(32, 256)) - set(b'"\\'))
_encoder = msgspec.json.Encoder()

T = TypeVar("T")


class LongText:
    """A long value of a message, in the place of a text: bytes that are shown as text, or as base64
    where they are not UTF-8. Encoded when it is sent."""

    __slots__ = ("blob", "is_text", "size")

    def __init__(self, blob: bytes) -> None:
        self.blob = blob
        self.is_text = True
        self.size = 0
        """Encoded, once it is measured."""

    async def measure(self) -> None:
        """Learn the size, and whether it is text."""
        if self.size:
            return
        decoder, size = codecs.getincrementaldecoder("utf-8")(), 2
        try:
            for piece in _cut(self.blob, SLICE_BYTES):
                decoder.decode(piece)
                size += encoded_bytes(piece)
                await pause()
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            self.is_text = False
            size = 2 + base64_bytes(len(self.blob))
        self.size = size

    def slices(self) -> Iterator[bytes]:
        """The JSON string; each slice is encoded when it is asked for."""
        yield b'"'
        if self.is_text:
            decoder = codecs.getincrementaldecoder("utf-8")()
            for piece in _cut(self.blob, SLICE_BYTES):
                yield encode(decoder.decode(piece))[1:-1]
        else:
            for piece in _cut(self.blob, BASE64_SLICE):
                yield base64.b64encode(piece)
        yield b'"'


@dataclass(frozen=True, slots=True)
class Chunk:
    """Neighbours in an array, and what their texts come to: of several rows at most a slice."""

    rows: Sequence[Any]
    weight: int


class Chunks:
    """An array, in the place of a list, whose rows were weighed beforehand."""

    __slots__ = ("chunks",)

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self.chunks = [chunk for chunk in chunks if chunk.rows]


class Pieces:
    """A JSON document in the making. What it holds is charged to `held`: OverBudget ends it."""

    def __init__(self, held: Reserved | None = None) -> None:
        self.parts: list[bytes | memoryview | LongText] = []
        self._held = held
        self.held_bytes = 0
        """What the parts take in memory."""
        self.size = 0
        """Encoded bytes of what is in `parts`."""
        self._buffer = bytearray()
        self._plain = 0
        """Bytes that were encoded since others ran."""

    def put(self, encoded: bytes) -> None:
        """What is JSON already."""
        self._flush()
        self._keep(encoded, len(encoded), len(encoded))

    async def add(self, value: Any) -> None:
        """Anything that msgspec encodes, and `LongText` where a text is expected."""
        weight = weigh(value, SLICE_BYTES)
        if weight <= SLICE_BYTES:
            await self._turn(weight)
            self._buffer += encode(value)
        elif isinstance(value, LongText):
            await value.measure()
            self._flush()
            self._keep(value, len(value.blob), value.size)
        elif isinstance(value, Chunks):
            await self._add_chunks(value)
        elif isinstance(value, str):
            await self._add_text(value)
        elif isinstance(value, msgspec.Struct):
            await self._add_struct(value)
        elif isinstance(value, Mapping):
            await self._add_mapping(value)
        elif isinstance(value, list | tuple | set | frozenset):
            self._buffer += b"["
            await self.add_rows(value)
            self._buffer += b"]"
        else:
            assert isinstance(value, bytes | msgspec.Raw), f"a large {type(value).__name__}"
            await self._turn(SLICE_BYTES)
            self._buffer += encode(value)

    async def add_rows(self, rows: Iterable[Any]) -> None:
        """The elements of an array, without its brackets."""
        separator = b""
        for row in rows:
            self._buffer += separator
            separator = b","
            weight = weigh(row, SLICE_BYTES)
            if self._plain + weight <= SLICE_BYTES:
                self._plain += weight
                self._buffer += encode(row)
            else:
                await self.add(row)

    def finish(self) -> list[bytes | memoryview | LongText]:
        """All of the document, in order."""
        self._flush()
        return self.parts

    async def _add_chunks(self, value: Chunks) -> None:
        separator = b"["
        for chunk in value.chunks:
            self._buffer += separator
            separator = b","
            if chunk.weight > SLICE_BYTES:
                await self.add_rows(chunk.rows)
            else:
                await self._turn(chunk.weight)
                self._buffer += encode(chunk.rows)[1:-1]
        self._buffer += b"]" if value.chunks else b"[]"

    async def _add_text(self, text: str) -> None:
        self._buffer += b'"'
        for at in range(0, len(text), TEXT_SLICE):
            await self._turn(SLICE_BYTES)
            self._buffer += encode(text[at : at + TEXT_SLICE])[1:-1]
        self._buffer += b'"'

    async def _add_struct(self, value: msgspec.Struct) -> None:
        """What is large is encoded apart, and put where the rest has left its place."""
        apart: dict[str, Any] = {}
        told: dict[str, Any] = {}
        for name, field in zip(value.__struct_fields__, astuple(value), strict=True):
            if isinstance(field, LongText):
                await field.measure()
                if not field.is_text:
                    told[f"{name}_encoding"] = "base64"
            if weigh(field, FIELD_SLICE) > FIELD_SLICE:
                apart[name] = field
        shell = replace(value, **dict.fromkeys(apart, _ELSEWHERE), **told)
        await self._fill(encode(shell), apart.values())

    async def _add_mapping(self, value: Mapping[Any, Any]) -> None:
        self._buffer += b"{"
        separator = b""
        for name, field in value.items():
            self._buffer += separator + encode(str(name)) + b":"
            separator = b","
            await self.add(field)
        self._buffer += b"}"

    async def _fill(self, shell: bytes, fields: Iterable[Any]) -> None:
        await self._turn(len(shell))
        parts = iter(shell.split(b"\0"))
        self._buffer += next(parts)
        for field, part in zip(fields, parts, strict=True):
            await self.add(field)
            self._buffer += part

    async def _turn(self, weight: int) -> None:
        """Let others run before more than a slice is encoded at once."""
        if self._plain and self._plain + weight > SLICE_BYTES:
            self._flush()
            await pause()
            self._plain = 0
        self._plain += weight

    def _flush(self) -> None:
        if self._buffer:
            self._keep(bytes(self._buffer), len(self._buffer), len(self._buffer))
            self._buffer.clear()

    def _keep(self, part: bytes | LongText, held_bytes: int, size: int) -> None:
        if self._held is not None:
            self._held.grow(held_bytes)
        self.held_bytes += held_bytes
        self.parts.append(part)
        self.size += size


def encode(value: Any) -> bytes:
    """JSON of at most about a slice: the one place where answers are encoded."""
    return _encoder.encode(value)


def weigh(value: Any, enough: int) -> int:
    """About how many plain bytes it has; it stops counting beyond `enough`."""
    if value is None or isinstance(value, int | float):
        return FIELD_BYTES
    if isinstance(value, str | bytes):
        return FIELD_BYTES + len(value)
    if isinstance(value, LongText | Chunks):
        return enough + 1
    fields: Iterable[Any] = ()
    if isinstance(value, msgspec.Struct):
        fields = astuple(value)
    elif isinstance(value, list | tuple | set | frozenset):
        fields = value
    elif isinstance(value, msgspec.Raw):
        with suppress(TypeError):
            return len(memoryview(value))
    elif isinstance(value, Mapping):
        fields = (*value, *value.values())
    total = FIELD_BYTES
    for field in fields:
        kind = type(field)
        if kind is str:
            total += FIELD_BYTES + len(field)
        elif kind is int or kind is bool:
            total += FIELD_BYTES
        elif field is not None and field is not UNSET:
            total += weigh(field, enough - total)
        if total > enough:
            break
    return total


def chunked(rows: list[T], weights: Sequence[int]) -> list[T]:
    """An array as an answer holds it, whose rows were weighed by who made them: where they are more
    than a slice together, `Chunks`."""
    if sum(weights) <= SLICE_BYTES:
        return rows
    chunks: list[Chunk] = []
    first = weight = 0
    for row, size in enumerate(weights):
        if row > first and weight + size > SLICE_BYTES:
            chunks.append(Chunk(rows[first:row], weight))
            first, weight = row, 0
        weight += size
    chunks.append(Chunk(rows[first:], weight))
    return cast("list[T]", Chunks(chunks))


def encoded_bytes(blob: bytes) -> int:
    """What UTF-8 comes to inside a JSON string: controls are six bytes, quotes and the like two."""
    escaped = blob.translate(None, _PLAIN)
    return len(blob) + len(escaped) + 4 * len(escaped.translate(None, _SHORT))


def base64_bytes(size: int) -> int:
    return (size + 2) // 3 * 4


def _cut(blob: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(blob), size):
        yield blob[at : at + size]
