"""Requests of this process: made without a socket, and answered as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import HttpVersion11, StreamReader, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_parser import RawRequestMessage
from aiohttp.payload import Payload
from aiohttp.streams import EMPTY_PAYLOAD
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from node.http.connections.client import LocalClient

HOST = "localhost"
BODY_BUFFER_BYTES = 1 << 30
"""A body is here as a whole: nothing pauses whoever sends it."""
_NOWHERE = URL("/")
"""Nothing looks at a request's URL but at its raw path."""


@dataclass(frozen=True, slots=True)
class LocalAnswer:
    """An answer with all of its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def local_request(
    client: LocalClient, method: str, target: str, headers: Mapping[str, str], body: bytes
) -> web.BaseRequest:
    """A request as a connection would have read it; `target` is the quoted path with its query."""
    loop = asyncio.get_running_loop()
    fields = CIMultiDict(headers)
    fields[hdrs.HOST] = HOST
    content = EMPTY_PAYLOAD
    if method != hdrs.METH_GET:
        fields[hdrs.CONTENT_LENGTH] = str(len(body))
    if body:
        content = StreamReader(cast(BaseProtocol, client), BODY_BUFFER_BYTES, loop=loop)
        content.feed_data(body)
        content.feed_eof()
    message = RawRequestMessage(
        method,
        target,
        HttpVersion11,
        CIMultiDictProxy(fields),
        (),
        should_close=False,
        compression=None,
        upgrade=False,
        chunked=False,
        url=_NOWHERE,
    )
    protocol, task = cast(Any, client), cast(Any, asyncio.current_task())
    return web.BaseRequest(message, content, protocol, cast(Any, _Kept()), task, loop)


async def whole(answer: web.StreamResponse) -> LocalAnswer:
    """The answer with its body, of which large ones come in pieces. Raises ConnectionError where
    its client has given up."""
    assert isinstance(answer, web.Response), "a stream is refused to who has no connection"
    body = answer.body
    if isinstance(body, Payload):
        kept = _Kept()
        await body.write(cast(AbstractStreamWriter, kept))
        body = b"".join(kept.pieces)
    return LocalAnswer(answer.status, answer.headers, bytes(body or b""))


class _Kept:
    """What is written stays here."""

    output_size = 0

    def __init__(self) -> None:
        self.pieces: list[bytes | memoryview] = []

    async def write(self, piece: bytes | memoryview) -> None:
        self.pieces.append(piece)
