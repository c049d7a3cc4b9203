"""Reads request bodies: bounded in size, in rate, in memory, and decompressed within bounds."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from io import BytesIO
from typing import ParamSpec, TypeVar

from aiohttp import StreamReader
from aiohttp.web import BaseRequest, RequestPayloadError

from goqueue.wire.errors import BadRequest, OverBudget, PayloadTooLarge, UnsupportedMediaType
from node.http.budget.limits import HttpLimits
from node.http.budget.memory import Held
from node.http.budget.slices import SLICE_BYTES, in_thread, pause
from node.http.connections.client import client_of
from node.http.text.errors import RequestTimeout

OFF_LOOP_BYTES = 256 * 1024
"""Work on more bytes than this is done in a thread: the loop must not stall."""
_GZIP_OR_ZLIB = 47

P = ParamSpec("P")
T = TypeVar("T")


async def off_loop(
    size_bytes: int, work: Callable[P, T], *arguments: P.args, **options: P.kwargs
) -> T:
    """What the work returns; done here while it is small, in a thread where it is not.

    The work must be pure: while a thread has it, the loop serves others.
    """
    if size_bytes <= OFF_LOOP_BYTES:
        return work(*arguments, **options)
    return await in_thread(partial(work, *arguments, **options))


class HeldBody:
    """The whole body, charged as it arrives and until the `async with` block ends.

    Raises PayloadTooLarge, OverBudget, RequestTimeout, UnsupportedMediaType, BadRequest. Small
    bodies, which arrive with their headers, take no timer. `more` waits for room to charge.
    """

    __slots__ = ("_bytes_max", "_held", "_limits", "_more", "_request")

    def __init__(
        self,
        request: BaseRequest,
        limits: HttpLimits,
        held: Held,
        bytes_max: int,
        more: Callable[[Callable[[], None]], Awaitable[None]] | None = None,
    ) -> None:
        self._request = request
        self._limits = limits
        self._held = held
        self._bytes_max = bytes_max
        self._more = more

    async def __aenter__(self) -> bytes:
        request, bytes_max = self._request, self._bytes_max
        length = request.content_length
        if length is not None and length > bytes_max:
            raise PayloadTooLarge(f"body over {bytes_max} bytes", limit=bytes_max)
        encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", "deflate"):
            raise UnsupportedMediaType(f"Content-Encoding {encoding[:40]!r} is not accepted")
        content = request.content
        try:
            if encoding == "identity" and length is not None and content.is_eof():
                body = content.read_nowait()
                await self._grow(len(body))
                return body
            return await self._read(content, None if encoding == "identity" else Inflation())
        except BaseException:
            self._held.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._held.release()

    async def _grow(self, size: int) -> float:
        """How many seconds it took to find the room: they are not the client's."""
        client = client_of(self._request)

        def charge() -> None:
            client.have_in_hand(0)
            try:
                self._held.grow(size)
            except OverBudget:
                client.have_in_hand(size)
                raise

        try:
            charge()
            return 0.0
        except OverBudget:
            if self._more is None:
                client.have_in_hand(0)
                raise
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        try:
            await self._more(charge)
        finally:
            client.have_in_hand(0)
        return loop.time() - started_s

    async def _read(self, content: StreamReader, inflation: Inflation | None) -> bytes:
        request, limits, bytes_max = self._request, self._limits, self._bytes_max
        if request.headers.get("Expect", "").lower() == "100-continue" and not content.is_eof():
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        started_s = asyncio.get_running_loop().time()
        arrived = BytesIO()  # whose value is taken without a copy: there is one of a body, not two
        size = 0
        while True:
            allowed_s = limits.body_grace_s + size / limits.body_bytes_per_s_min
            try:
                async with asyncio.timeout_at(started_s + allowed_s):
                    chunk = await content.readany()
            except TimeoutError:
                raise RequestTimeout("the body arrives too slowly", received_bytes=size) from None
            except RequestPayloadError as error:
                raise BadRequest(f"malformed body: {str(error)[:200]}") from None
            if not chunk:
                break
            size += len(chunk)
            if size > bytes_max:
                raise PayloadTooLarge(f"body over {bytes_max} bytes", limit=bytes_max)
            for piece in (chunk,) if inflation is None else inflation.pieces(chunk):
                started_s += await self._grow(len(piece))
                if self._held.size > bytes_max:
                    raise PayloadTooLarge(
                        f"body decompresses to over {bytes_max} bytes", limit=bytes_max
                    )
                arrived.write(piece)
                if len(piece) == SLICE_BYTES:
                    started_s += await pause()
        if inflation is not None:
            inflation.finish()
        return arrived.getvalue()


class Inflation:
    """Decompresses what arrives, never more than a slice at a time. Raises BadRequest."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Of at most `SLICE_BYTES`; full ones are followed by others."""
        stream = self._stream
        while True:
            if stream.eof and chunk:
                raise BadRequest("bad compressed body: it expands beyond the limit")
            try:
                piece = stream.decompress(chunk, SLICE_BYTES)
            except zlib.error as error:
                raise BadRequest(f"bad compressed body: {error}") from None
            if stream.unused_data:
                raise BadRequest("bad compressed body: it expands beyond the limit")
            chunk = stream.unconsumed_tail
            if piece:
                yield piece
            if stream.eof or (len(piece) < SLICE_BYTES and not chunk):
                return

    def finish(self) -> None:
        """Nothing more comes."""
        if not self._stream.eof:
            raise BadRequest("bad compressed body: it ends early")
