"""What all calls of the client stand on: a path and a body out, an answer in a shape back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from goqueue.transport.channel import Answer
from goqueue.transport.http import Transport
from goqueue.transport.leaders import Place
from goqueue.wire.errors import ServerError
from goqueue.wire.unreadable import UNREADABLE

T = TypeVar("T")

JSON = {"Content-Type": "application/json"}


class Calls:
    """Asks a cluster in JSON over a transport. Each part of the client, such as groups or
    schedules, is made with one. All of it raises the server's errors."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def get(self, path: str, shape: type[T], params: Mapping[str, str] | None = None) -> T:
        """The answer to a GET, decoded."""
        answer = await self.transport.request("GET", path, params=params, repeatable=True)
        return decode(answer.body, shape)

    async def send(
        self, method: str, path: str, body: object, shape: type[T], *, repeatable: bool = False
    ) -> T:
        """The answer to a request with a body, decoded; `repeatable` as of `Transport.request`."""
        answer = await self.post(method, path, body, repeatable=repeatable)
        return decode(answer.body, shape)

    async def post(
        self,
        method: str,
        path: str,
        body: object,
        *,
        repeatable: bool = False,
        wait_s: float = 0.0,
        timeout_s: float | None = None,
        towards: Place | None = None,
    ) -> Answer:
        """The answer to a request with a body, as it came."""
        return await self.transport.request(
            method,
            path,
            body=msgspec.json.encode(body),
            headers=JSON,
            repeatable=repeatable,
            wait_s=wait_s,
            timeout_s=timeout_s,
            towards=towards,
        )


def given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Without what was not said."""
    return {name: value for name, value in settings.items() if value is not None}


def decode(body: bytes, shape: type[T]) -> T:
    """Raises ServerError on an answer of another shape."""
    try:
        return msgspec.json.decode(body, type=shape)
    except UNREADABLE as error:
        raise ServerError(f"an answer that is not understood: {error}") from None
