"""What a connection has sent and no handler has read: a head that is not done, and unread bodies.

Both are charged to the address: whose key it is, nobody knows yet. The first `FREE_BYTES` are not,
so that usual requests cost no count; how many connections there are bounds them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from aiohttp.http_parser import RawRequestMessage

from node.http.budget.memory import Budgets, Held, Kind, Owner, owner_of

FREE_BYTES = 4096
HEAD_COPIES = 2
"""The parser keeps each header as bytes and as text."""
LINE_BYTES = 256
"""What the parser's objects for one header come to."""
HEAD_END = b"\r\n\r\n"


class Arrivals:
    """Of one connection. Loop thread only."""

    __slots__ = ("_bodies", "_heads", "head_bytes", "head_lines", "tail")

    def __init__(self, budgets: Budgets, address: str, connection: Hashable) -> None:
        owner: Owner = owner_of(address, connection)
        self._heads: Held = budgets.hold(Kind.HEADS, owner)
        self._bodies: Held = budgets.hold(Kind.BODIES, owner)
        self.head_bytes = 0
        """Of a head that is not done."""
        self.head_lines = 0
        self.tail = b""
        """Its last bytes: its end may be split."""

    def head_goes_on(self, part: bytes) -> None:
        """More of a head that is not done. Raises OverBudget."""
        self.head_bytes += len(part)
        self.head_lines += part.count(b"\n")
        self.tail = (self.tail + part[-3:])[-3:]
        cost = self.head_bytes * HEAD_COPIES + self.head_lines * LINE_BYTES
        if cost > FREE_BYTES:
            self._heads.resize(cost)

    def head_is_done(self) -> None:
        if self.head_bytes:
            self.head_bytes = self.head_lines = 0
            self.tail = b""
            self._heads.release()

    def unread(self, size: int) -> None:
        """So many bytes of bodies wait to be read. Raises OverBudget."""
        if size > FREE_BYTES:
            self._bodies.resize(size)
        elif self._bodies.size:
            self._bodies.release()

    @property
    def is_charged(self) -> bool:
        """Whether `unread` charged anything."""
        return self._bodies.size > 0

    def release(self) -> None:
        self._heads.release()
        self._bodies.release()


@dataclass(frozen=True, slots=True)
class Piece:
    """A request, as far as it lies in the bytes that were received at once."""

    body_bytes: int
    is_chunked: bool = False
    has_head: bool = True
    """Whether its head ends there too."""


def head_size(message: object) -> int:
    """Bytes of a parsed request's line and headers; 0 of what could not be parsed."""
    if not isinstance(message, RawRequestMessage):
        return 0
    fields = sum(len(name) + len(value) + 4 for name, value in message.raw_headers)
    return len(message.method) + len(message.path) + fields


def head_cost(message: object) -> int:
    """What a parsed head takes in memory."""
    if not isinstance(message, RawRequestMessage):
        return 0
    return head_size(message) * HEAD_COPIES + len(message.raw_headers) * LINE_BYTES


def rest_after(data: bytes, pieces: Iterable[Piece], tail: bytes = b"") -> int:
    """Where in `data` the next head begins, after whole requests; `tail` came before it. Bodies in
    chunks have no length: their end is looked for behind what they hold."""
    at = 0
    text, shift = (tail + data, len(tail)) if tail else (data, 0)
    for piece in pieces:
        if piece.has_head:
            at = _after_end(text, at + shift if at else 0) - shift
        at += piece.body_bytes
        if piece.is_chunked:
            at = _after_end(text, at + shift) - shift
    last = text.rfind(HEAD_END)  # none lies within a head that is not done
    if last >= 0:
        at = max(at, last + len(HEAD_END) - shift)
    return min(at, len(data))


def _after_end(text: bytes, start: int) -> int:
    found = text.find(HEAD_END, start)
    return len(text) if found < 0 else found + len(HEAD_END)
