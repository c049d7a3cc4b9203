"""What chaos asks of a node: JSON and record batches over HTTP, nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

_GONE = (aiohttp.ClientError, TimeoutError, OSError, ValueError)


class NoAnswer(Exception):
    """Nothing usable came back. `is_unsent`: no byte of the request can have arrived."""

    def __init__(self, text: str, *, is_unsent: bool) -> None:
        super().__init__(text)
        self.is_unsent = is_unsent


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Any


class Http:
    """One pool of connections, to any node."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=False)
        )

    async def close(self) -> None:
        await self._session.close()

    async def ask(
        self,
        method: str,
        url: str,
        *,
        json: object = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
    ) -> Answer:
        """One attempt. Raises NoAnswer; an error status is an answer."""
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(method, url, json=json, data=data, headers=headers) as found,
            ):
                return Answer(found.status, await found.json(content_type=None))
        except aiohttp.ClientConnectorError as error:
            raise NoAnswer(repr(error), is_unsent=True) from None
        except _GONE as error:
            raise NoAnswer(repr(error), is_unsent=False) from None

    async def partitions(self, url: str, topic: str) -> list[dict[str, Any]] | None:
        """A node's view of a topic's partitions, or None while it has none to give."""
        try:
            answer = await self.ask("GET", f"{url}/topics/{topic}/partitions", timeout_s=3)
        except NoAnswer:
            return None
        if answer.status != 200:
            return None
        found: list[dict[str, Any]] = answer.body["partitions"]
        return found
