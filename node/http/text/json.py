"""Bodies in: one way to turn bytes from a client into a typed value, and one to refuse them.

msgspec is strict where the standard library is not: NaN, infinities, lone surrogates, leading
zeros and trailing bytes are errors. Added here: UTF-8 everywhere (msgspec skips unknown fields
unread), a bound on nesting, and every fault told as a 400 with its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import TypeVar

import msgspec
from aiohttp.web import BaseRequest

from goqueue.wire.errors import BadRequest, UnsupportedMediaType
from node.http.budget.slices import SLICE_BYTES, pause
from node.http.text.known_fields import unknown_field

DEPTH_MAX = 64
TOKEN_BYTES = 96
"""What an object of a few bytes of text comes to."""
UNCHARGED_BYTES = 64 * 1024
"""Of a document: decoded at once, it takes 6 MiB at most, for a moment."""

T = TypeVar("T")

_CURLS_DEFAULT = "application/x-www-form-urlencoded"
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_WHOLE = re.compile(rb'(?:[^"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
"""Up to a string without an end. All repetitions are possessive: what is no JSON, such as that
string, would else be tried in every way there is, and take the node for days."""
_WITHIN = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_QUOTE = ord('"')
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""One level deeper, or one less."""


def require_json(request: BaseRequest) -> None:
    """Raises UnsupportedMediaType unless the body is said to be JSON, or nothing is said.

    A form's media type, which `curl -d` sends when told nothing, says nothing.
    """
    told = request.headers.get("Content-Type", "")
    if not told or told == "application/json":
        return
    media, _, parameters = told.partition(";")
    media = media.strip().lower()
    if media not in ("application/json", _CURLS_DEFAULT) and not (
        media.startswith("application/") and media.endswith("+json")
    ):
        raise UnsupportedMediaType(f"Content-Type {told[:80]!r} is not application/json")
    charset = re.search(r'charset\s*=\s*"?([^";\s]+)', parameters, re.IGNORECASE)
    if charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedMediaType(f"charset {charset[1][:40]!r} is not utf-8")


def decode(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """The typed value of a document. Raises BadRequest; never anything else."""
    require_utf8(body)
    if depth_exceeds(body, DEPTH_MAX):
        raise _too_deep()
    return decode_text(body, decoder)


async def decode_long(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """As `decode`, of more than a slice: others run while its depth is judged."""
    require_utf8(body)
    for is_deeper in _judged(body, DEPTH_MAX):
        if is_deeper:
            raise _too_deep()
        await pause()
    return decode_text(body, decoder)


def decode_text(body: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """As `decode`, of bytes already known to be UTF-8 and shallow enough."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        told = str(error)
        raise unknown_field(told, decoder.type) or BadRequest(_fault(told)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise BadRequest(f"invalid JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> BadRequest:
    return BadRequest(f"JSON nested deeper than {DEPTH_MAX}")


def _fault(told: str) -> str:
    """What msgspec tells of a document that is JSON, but not what it should be: field first."""
    text, _, place = told.partition(" - at `$")
    place = place.rstrip("`").lstrip(".")
    missing = _MISSING.fullmatch(text)
    if missing:
        return f"{place}.{missing[1]} is required" if place else f"{missing[1]} is required"
    return f"{place or 'the body'}: {text[:1].lower()}{text[1:]}"


def weight(body: bytes) -> int:
    """What a document of this text may take in memory once it is decoded, at most about."""
    tokens = body.count(b",") + body.count(b"{") + body.count(b"[")
    return 2 * len(body) + TOKEN_BYTES * tokens


def require_utf8(body: bytes) -> None:
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise BadRequest(f"invalid JSON: not UTF-8 at byte {error.start}") from None


def depth_exceeds(text: bytes, depth: int) -> bool:
    """Whether brackets nest deeper than `depth`, without a Python step per byte.

    Text that is no JSON may answer either way: the decoder refuses it.
    """
    return any(_judged(text, depth))


def _judged(text: bytes, depth: int) -> Iterator[bool]:
    """Whether each slice in turn goes too deep. What it costs grows with the text's length alone,
    whatever it is."""
    if text.count(b"{") + text.count(b"[") <= depth:
        return
    at = level = 0
    is_within = False
    while at < len(text):
        end = at + SLICE_BYTES
        found = (_WITHIN if is_within else _WHOLE).match(text, at, end)
        assert found is not None
        if not is_within:
            brackets = _STRINGS.sub(b"", found[0]).translate(_STEPS, _NOT_BRACKETS)
            levels = memoryview(brackets).cast("b")
            yield max(accumulate(levels, initial=level)) > depth
            level += 2 * brackets.count(b"\x01") - len(brackets)
        else:
            yield False
        if found.end() == at and is_within and text[at] != _QUOTE:
            return  # a backslash is the last byte
        at = found.end()
        if text[at : at + 1] == b'"':
            is_within = not is_within
            at += 1
