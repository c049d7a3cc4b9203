"""What travels on an authenticated connection: sealed frames that carry messages.

A frame is what one turn of the event loop had to say, so its cost is shared by its messages:

    frame    := body length u32 | seal 16 bytes | body
    body     := message*                       (at most BODY_BYTES_MAX)
    message  := payload length u32 | kind u8 | payload
    chunk    := message length u32 | kind u8 | bytes      (payload of a CHUNK message)

Little-endian. The seal is keyed BLAKE2b over the body; the key belongs to one direction of one
connection and the salt counts frames, so a frame can't be altered, dropped, repeated, reordered,
reflected or carried to another connection unnoticed. A message longer than CHUNK_BYTES_MAX travels
as consecutive chunks; only STATUS and small messages may stand between them.

Pure: no socket, no clock. Payloads are views of immutable bytes; a receiver may keep them.
"""

from __future__ import annotations

import hmac
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from enum import IntEnum
from hashlib import blake2b

from raft.link.config import KIB, MIB

SEAL_BYTES = 16
FRAME_BYTES_MAX = 1 * MIB
FRAME_HEADER_BYTES = 4 + SEAL_BYTES
BODY_BYTES_MAX = FRAME_BYTES_MAX - FRAME_HEADER_BYTES
CHUNK_BYTES_MAX = 256 * KIB

_LENGTH = struct.Struct("<I")
_MESSAGE = struct.Struct("<IB")
_SALT = struct.Struct("<QQ")
MESSAGE_HEADER_BYTES = _MESSAGE.size


class Kind(IntEnum):
    """What a message is."""

    STATUS = 1
    RAFT = 2
    REQUEST = 3
    ANSWER = 4
    FAILURE = 5
    CHUNK = 6


_KINDS = frozenset(Kind)


class FrameError(Exception):
    """The bytes are not what an honest peer sends: the connection must be cut."""


def message(kind: Kind, parts: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """The parts of one message of at most CHUNK_BYTES_MAX, header first."""
    return [_MESSAGE.pack(sum(map(len, parts)), kind), *parts]


class Outbox:
    """Messages waiting to leave, already divided into frame bodies.

    `byte_count` is what waits, headers included. Order is kept, but for urgent messages, which
    leave with the next frame.
    """

    def __init__(self) -> None:
        self.byte_count = 0
        self._urgent: list[bytes | memoryview] = []
        self._bodies: deque[list[bytes | memoryview]] = deque()
        self._last_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._bodies or self._urgent)

    def put(self, kind: Kind, parts: Sequence[bytes | memoryview]) -> None:
        """Queue one message; the parts must not change afterwards."""
        length = sum(map(len, parts))
        if length <= CHUNK_BYTES_MAX:
            self._put_small(kind, length, parts)
            return
        whole = memoryview(b"".join(parts))
        head = _MESSAGE.pack(length, kind)
        for at in range(0, length, CHUNK_BYTES_MAX):
            piece = whole[at : at + CHUNK_BYTES_MAX]
            self._put_small(Kind.CHUNK, len(head) + len(piece), (head, piece))

    def put_urgent(self, kind: Kind, payload: bytes) -> None:
        """Queue one small message ahead of all others."""
        self._urgent += message(kind, (payload,))
        self.byte_count += MESSAGE_HEADER_BYTES + len(payload)

    def take_body(self) -> bytes | None:
        """The next frame's body, or None when nothing waits."""
        if self._urgent:
            body = b"".join(self._urgent)
            self._urgent.clear()
        elif self._bodies:
            parts = self._bodies.popleft()
            if not self._bodies:
                self._last_bytes = 0
            body = b"".join(parts)
        else:
            return None
        self.byte_count -= len(body)
        return body

    def _put_small(self, kind: Kind, length: int, parts: Sequence[bytes | memoryview]) -> None:
        size = MESSAGE_HEADER_BYTES + length
        if not self._bodies or self._last_bytes + size > BODY_BYTES_MAX:
            self._bodies.append([])
            self._last_bytes = 0
        body = self._bodies[-1]
        body.append(_MESSAGE.pack(length, kind))
        body.extend(parts)
        self._last_bytes += size
        self.byte_count += size


class Sealer:
    """Makes frames of bodies for one direction of one connection."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0

    def seal(self, body: bytes) -> list[bytes]:
        """Header and body, to be written in this order."""
        return [_LENGTH.pack(len(body)) + _seal(self._key, self._take(), body), body]

    def _take(self) -> int:
        self._count += 1
        return self._count


class Opener:
    """Cuts a received byte stream into frame bodies and checks their seals.

    Holds at most one incomplete frame. Whole frames inside one read are not copied.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0
        self._partial = bytearray()

    @property
    def held_bytes(self) -> int:
        return len(self._partial)

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """Bodies completed by `data`. Raises FrameError on a bad length or seal."""
        at = 0
        if self._partial:
            at = self._complete_partial(data)
            if at < 0:
                return
            whole = bytes(self._partial)
            self._partial.clear()
            yield self._open(memoryview(whole), 0, len(whole))
        view, end = memoryview(data), len(data)
        while end - at >= FRAME_HEADER_BYTES:
            frame_end = at + FRAME_HEADER_BYTES + _body_length(data, at)
            if frame_end > end:
                break
            yield self._open(view, at, frame_end)
            at = frame_end
        if end - at >= _LENGTH.size:
            _body_length(data, at)
        self._partial += view[at:]

    def _complete_partial(self, data: bytes) -> int:
        """Fill the incomplete frame; the position in `data` after it, or -1 if still incomplete."""
        partial, at = self._partial, 0
        if len(partial) < FRAME_HEADER_BYTES:
            at = FRAME_HEADER_BYTES - len(partial)
            partial += data[:at]
            if len(partial) >= _LENGTH.size:
                _body_length(partial, 0)
            if len(partial) < FRAME_HEADER_BYTES:
                return -1
        missing = FRAME_HEADER_BYTES + _body_length(partial, 0) - len(partial)
        partial += memoryview(data)[at : at + missing]
        return at + missing if len(data) - at >= missing else -1

    def _open(self, view: memoryview, at: int, end: int) -> memoryview:
        body_at = at + FRAME_HEADER_BYTES
        body = view[body_at:end]
        self._count += 1
        expected = _seal(self._key, self._count, body)
        if not hmac.compare_digest(expected, view[at + _LENGTH.size : body_at]):
            raise FrameError("the seal does not match")
        return body


def messages(body: memoryview) -> Iterator[tuple[int, memoryview]]:
    """(kind, payload) of every message in a frame's body. Raises FrameError."""
    at, end = 0, len(body)
    while at < end:
        if end - at < MESSAGE_HEADER_BYTES:
            raise FrameError("a message header is cut short")
        length, kind = _MESSAGE.unpack_from(body, at)
        at += MESSAGE_HEADER_BYTES
        if kind not in _KINDS:
            raise FrameError(f"unknown message kind {kind}")
        if length > end - at:
            raise FrameError("a message is longer than its frame")
        yield kind, body[at : at + length]
        at += length


class Reassembly:
    """Puts one chunked message together; bounded by `message_bytes_max`."""

    def __init__(self, message_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._kind = 0
        self._length = 0
        self._data = bytearray()

    @property
    def held_bytes(self) -> int:
        return len(self._data)

    def add(self, chunk: memoryview) -> tuple[int, memoryview] | None:
        """The message that this chunk completes, or None. Raises FrameError."""
        if len(chunk) <= MESSAGE_HEADER_BYTES:
            raise FrameError("an empty chunk")
        length, kind = _MESSAGE.unpack_from(chunk, 0)
        if not self._data:
            self._begin(length, kind)
        elif (length, kind) != (self._length, self._kind):
            raise FrameError("a chunk of another message")
        self._data += chunk[MESSAGE_HEADER_BYTES:]
        if len(self._data) < self._length:
            return None
        if len(self._data) > self._length:
            raise FrameError("chunks exceed their message")
        whole, self._data = self._data, bytearray()
        return self._kind, memoryview(whole).toreadonly()

    def _begin(self, length: int, kind: int) -> None:
        if length > self._message_bytes_max:
            raise FrameError(f"a message of {length} bytes exceeds {self._message_bytes_max}")
        if kind not in _KINDS or kind == Kind.CHUNK:
            raise FrameError(f"chunks of unknown message kind {kind}")
        self._length, self._kind = length, kind


def _body_length(data: bytes | bytearray, at: int) -> int:
    (length,) = _LENGTH.unpack_from(data, at)
    if not 0 < length <= BODY_BYTES_MAX:
        raise FrameError(f"a frame of {length} bytes")
    return int(length)


def _seal(key: bytes, count: int, body: bytes | memoryview) -> bytes:
    salt = _SALT.pack(count, 0)
    return blake2b(body, key=key, digest_size=SEAL_BYTES, salt=salt).digest()
