"""What is judged of frames before any is taken in: their sizes, their order, and how many come.

The library takes in a frame once all of it is here, whatever length it announces, and says nothing
of most frames that are sent to cost time. Pure: bytes and a clock's seconds in, an error out.
"""

from __future__ import annotations

from h2.errors import ErrorCodes

from goqueue.wire.errors import BadRequest
from node.listeners.h2.bounds import H2Bounds

HEAD_BYTES = 9
DATA, HEADERS, RST_STREAM, SETTINGS, CONTINUATION = 0x0, 0x1, 0x3, 0x4, 0x9
END_STREAM, END_HEADERS = 0x1, 0x4


class Broken(BadRequest):
    """A connection can't go on for what its client has sent; `goaway` is the code that it is told,
    beside the text."""

    code = "bad_frame"

    def __init__(self, message: str, goaway: int = ErrorCodes.PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.goaway = goaway


class Flood(Broken):
    """A client sends more of something than it may."""

    code = "too_many_frames"

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCodes.ENHANCE_YOUR_CALM)


class Allowance:
    """So many at once, and so many a second; more where they are earned."""

    __slots__ = ("_left", "_most", "_per_s", "_seen_s")

    def __init__(self, most: int, per_s: int) -> None:
        self._most = most
        self._per_s = per_s
        self._left = float(most)
        self._seen_s: float | None = None

    def spend(self, now_s: float) -> bool:
        """Whether there was one left."""
        if self._seen_s is not None:
            self.earn((now_s - self._seen_s) * self._per_s)
        self._seen_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def earn(self, count: float) -> None:
        """Never more than may be spent at once."""
        self._left = min(self._most, self._left + count)


class FrameChecks:
    """Of one connection, from after its preface on."""

    def __init__(self, bounds: H2Bounds) -> None:
        self._bounds = bounds
        self._cheap = Allowance(bounds.cheap_frames, bounds.cheap_per_s)
        self._resets = Allowance(bounds.resets, bounds.resets_per_s)
        self._head = b""
        self._left = 0
        self._block_bytes = 0
        self._continuations = -1
        """Of the headers that are arriving; -1 while none are."""
        self._is_first = True
        self.partial_since_s = 0.0
        """Since when a frame, or headers, have been arriving that are not here as a whole; 0 while
        there are none."""

    def look(self, data: bytes, now_s: float) -> None:
        """Every frame that begins in what has arrived. Raises Broken, and none of it is to be taken
        in then."""
        at, size = 0, len(data)
        while at < size:
            if self._left:
                passed = min(self._left, size - at)
                self._left -= passed
                at += passed
                continue
            if not self._head and self._continuations < 0:
                self.partial_since_s = now_s
            missing = HEAD_BYTES - len(self._head)
            self._head += data[at : at + missing]
            at += missing
            if len(self._head) == HEAD_BYTES:
                self._left = int.from_bytes(self._head[:3], "big")
                kind, flags = self._head[3], self._head[4]
                self._head = b""
                self._judge(self._left, kind, flags, now_s)
        if not (self._left or self._head) and self._continuations < 0:
            self.partial_since_s = 0.0

    def reset(self, now_s: float) -> None:
        """A request was taken back, or reset for what its client has sent. Raises Flood."""
        if not self._resets.spend(now_s):
            raise Flood("too many requests are begun and taken back")

    def earn(self, count: int) -> None:
        """Something was answered: so many more cheap frames may come."""
        self._cheap.earn(count)

    # private

    def _judge(self, size: int, kind: int, flags: int, now_s: float) -> None:
        bounds = self._bounds
        if size > bounds.frame_bytes_max:
            text = f"a frame of {size} bytes: at most {bounds.frame_bytes_max}"
            raise Broken(text, ErrorCodes.FRAME_SIZE_ERROR)
        if self._is_first and kind != SETTINGS:
            raise Broken("the first frame of a connection must be SETTINGS")
        self._is_first = False
        if (kind == CONTINUATION) != (self._continuations >= 0):
            raise Broken("CONTINUATION comes after HEADERS, and nothing else before their end")
        if kind in (HEADERS, CONTINUATION):
            self._count_headers(size, flags)
        elif kind == RST_STREAM:
            self.reset(now_s)
        elif (kind != DATA or self._is_small(size, flags)) and not self._cheap.spend(now_s):
            raise Flood("too many pings, settings, windows, priorities or small pieces")

    def _is_small(self, size: int, flags: int) -> bool:
        return size < self._bounds.small_bytes and not flags & END_STREAM

    def _count_headers(self, size: int, flags: int) -> None:
        bounds = self._bounds
        self._block_bytes += size
        self._continuations += 1
        if self._continuations > bounds.continuations_max:
            raise Flood(f"headers in over {bounds.continuations_max} CONTINUATION frames")
        if self._block_bytes > bounds.block_bytes_max:
            raise Flood(f"headers of over {bounds.block_bytes_max} bytes")
        if flags & END_HEADERS:
            self._block_bytes, self._continuations = 0, -1
