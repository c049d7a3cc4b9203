"""Server-sent events, as a stream of bytes has them: https://html.spec.whatwg.org, 9.2."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.wire.errors import ServerError

EVENT_BYTES_MAX = 256 * 1024 * 1024
"""More than any message comes to as JSON; what has no end before is refused."""


@dataclass(frozen=True, slots=True)
class Event:
    """One block; an `id` without data only says how far the stream has come."""

    kind: bytes
    data: bytes
    id: str


class Events:
    """Blocks out of pieces."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._size = 0
        self._tail = b""

    def feed(self, piece: bytes) -> list[Event]:
        """The blocks that end within this piece. Raises ServerError on one without an end."""
        if b"\n\n" not in self._tail + piece:
            self._keep(piece)
            return []
        text = b"".join((*self._rest, piece))
        *blocks, rest = text.split(b"\n\n")
        self._rest, self._size, self._tail = [], 0, b""
        self._keep(rest)
        return [_event(block) for block in blocks]

    def _keep(self, piece: bytes) -> None:
        if not piece:
            return
        self._rest.append(piece)
        self._size += len(piece)
        self._tail = piece[-1:]
        if self._size > EVENT_BYTES_MAX:
            raise ServerError("a stream of events sent one without an end")


def _event(block: bytes) -> Event:
    kind, data, id = b"message", list[bytes](), ""
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"id":
            id = value.decode(errors="replace")
        elif name == b"event":
            kind = value
    return Event(kind, b"\n".join(data), id)
