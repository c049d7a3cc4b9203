"""Bodies in: one way to turn bytes from a client into a typed value, and one to refuse them.

msgspec is strict where the standard library is not: NaN, infinities, lone surrogates, leading
zeros and trailing bytes are errors. Added here: UTF-8 everywhere (msgspec skips unknown fields
unread), a bound on nesting, and every fault told as a 400 with its place.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from aiohttp.web import BaseRequest

from goqueue.wire.errors import BadRequest, UnsupportedMediaType
from node.http.known_fields import unknown_field

DEPTH_MAX = 64
TOKEN_BYTES = 96
"""What an object of a few bytes of text comes to."""
UNCHARGED_BYTES = 64 * 1024
"""Of a document: decoded at once, it takes 6 MiB at most, for a moment."""

T = TypeVar("T")

_CURLS_DEFAULT = "application/x-www-form-urlencoded"
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_STRINGS = re.compile(rb'"(?:[^"\\]+|\\.)*"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ROUND = bytes.maketrans(b"{}", b"[]")


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
        raise BadRequest(f"JSON nested deeper than {DEPTH_MAX}")
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
        raise BadRequest(f"JSON nested deeper than {DEPTH_MAX}") from None


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

    Strings and everything but brackets are dropped, then innermost pairs, `depth` times. Text
    that is no JSON may answer either way: the decoder refuses it.
    """
    if text.count(b"{") + text.count(b"[") <= depth:
        return False
    brackets = _STRINGS.sub(b"", text).translate(_ROUND, _NOT_BRACKETS)
    for _ in range(depth):
        shorter = brackets.replace(b"[]", b"")
        if not shorter:
            return False
        if len(shorter) == len(brackets):
            return b"[" * (depth + 1) in brackets
        brackets = shorter
    return True
