"""Reads request bodies: bounded in size, in rate, in memory, and decompressed within bounds."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from aiohttp import StreamReader
from aiohttp.web import BaseRequest, RequestPayloadError

from goqueue.wire.errors import BadRequest, PayloadTooLarge, UnsupportedMediaType
from node.http.errors import RequestTimeout
from node.http.limits import ByteBudget, HttpLimits

OFF_LOOP_BYTES = 256 * 1024
"""Work on more bytes than this is done in a thread: the loop must not stall."""
INFLATES_TO = 16
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
    return await asyncio.to_thread(work, *arguments, **options)


class HeldBody:
    """The whole body, counted against the budget for as long as the `async with` block lasts.

    Raises PayloadTooLarge, Busy, RequestTimeout, UnsupportedMediaType, BadRequest. Small bodies,
    which arrive with their headers, take no timer.
    """

    __slots__ = ("_budget", "_bytes_max", "_limits", "_request", "_reserved")

    def __init__(
        self, request: BaseRequest, limits: HttpLimits, budget: ByteBudget, bytes_max: int
    ) -> None:
        self._request = request
        self._limits = limits
        self._budget = budget
        self._bytes_max = bytes_max
        self._reserved = 0

    async def __aenter__(self) -> bytes:
        request, bytes_max = self._request, self._bytes_max
        length = request.content_length
        if length is not None and length > bytes_max:
            raise PayloadTooLarge(f"body over {bytes_max} bytes", limit=bytes_max)
        encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", "deflate"):
            raise UnsupportedMediaType(f"Content-Encoding {encoding[:40]!r} is not accepted")
        # A compressed body may grow to the bound, and chunks have not said how many will come.
        known = length is not None and encoding == "identity"
        self._reserve(length if known and length is not None else bytes_max)
        try:
            content = request.content
            if content.is_eof() and length is not None:
                body = content.read_nowait()
            else:
                body = await _read(request, content, self._limits, bytes_max)
            if encoding != "identity":
                body = await off_loop(len(body) * INFLATES_TO, _inflate, body, bytes_max)
        except BaseException:
            self._release()
            raise
        return body

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def _reserve(self, size: int) -> None:
        self._budget.reserve(size)
        self._reserved = size

    def _release(self) -> None:
        self._budget.release(self._reserved)
        self._reserved = 0


async def _read(
    request: BaseRequest, content: StreamReader, limits: HttpLimits, bytes_max: int
) -> bytes:
    if request.headers.get("Expect", "").lower() == "100-continue" and not content.is_eof():
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    clock = asyncio.get_running_loop().time
    started_s = clock()
    chunks: list[bytes] = []
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
        chunks.append(chunk)
    return b"".join(chunks)


def _inflate(body: bytes, bytes_max: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        plain = stream.decompress(body, bytes_max + 1)
    except zlib.error as error:
        raise BadRequest(f"bad compressed body: {error}") from None
    if len(plain) > bytes_max:
        raise PayloadTooLarge(f"body decompresses to over {bytes_max} bytes", limit=bytes_max)
    if not stream.eof or stream.unused_data:
        raise BadRequest("bad compressed body: it ends early or goes on too long")
    return plain
