"""Foreign bytes as a page shows them: cut, JSON laid out, what is no text as a hex dump."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import msgspec

from node.http.console.cells import is_unseen, seen

TEXT_MAX = 4000
"""Characters of one value on a page."""
BRIEF_MAX = 140
BRIEF_BYTES = 24
SAMPLE = 1000
"""Characters by which text is told from what is none: less than a tenth of it is controls."""
DUMP_BYTES_MAX = 512
JSON_BYTES_MAX = 64 * 1024
_ROW_BYTES = 16
_OPENS_JSON = (b"{", b"[")


@dataclass(frozen=True, slots=True)
class Payload:
    """Bytes to look at. `kind` is text, JSON, binary, empty or null; `left_out` says how much of
    them is not in `text`."""

    kind: str
    text: str
    size: int
    left_out: str = ""
    brief: str = ""
    """In one line."""

    @property
    def is_short(self) -> bool:
        """Whether the line says all."""
        return self.kind != "binary" and self.text == self.brief


def look(blob: bytes | None) -> Payload:
    if blob is None:
        return Payload("null", "", 0)
    if not blob:
        return Payload("empty", "", 0)
    try:
        text = blob.decode()
    except UnicodeDecodeError:
        return _dump(blob)
    if sum(map(is_unseen, text[:SAMPLE])) * 10 > len(text[:SAMPLE]):
        return _dump(blob)
    kind, brief = "text", _line(text)
    if len(blob) <= JSON_BYTES_MAX and blob.lstrip()[:1] in _OPENS_JSON:
        with suppress(msgspec.DecodeError, RecursionError):
            text, kind = msgspec.json.format(blob, indent=2).decode(), "JSON"
    left = len(text) - TEXT_MAX
    told = f"{left:,} more characters" if left > 0 else ""
    return Payload(kind, seen(text, TEXT_MAX), len(blob), told, brief)


def _line(text: str) -> str:
    return seen(" ".join(text[: 4 * BRIEF_MAX].split()), BRIEF_MAX)


def _dump(blob: bytes) -> Payload:
    """Rows of an offset, 16 bytes in hex, and what of them is ASCII."""
    rows = []
    for at in range(0, min(len(blob), DUMP_BYTES_MAX), _ROW_BYTES):
        row = blob[at : min(at + _ROW_BYTES, DUMP_BYTES_MAX)]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:06x}  {row.hex(' '):<47}  {plain}")
    left = len(blob) - DUMP_BYTES_MAX
    told = f"{left:,} more bytes" if left > 0 else ""
    brief = f"0x{blob[:BRIEF_BYTES].hex()}{'…' * (len(blob) > BRIEF_BYTES)}"
    return Payload("binary", "\n".join(rows), len(blob), told, brief)
