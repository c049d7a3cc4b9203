"""A server in memory that answers the queue's routes as it is told, for testing the client.

`script` names an answer for a method and path: JSON, an error, or what to do to the connection.
Answers of one route are given in order, the last one for ever.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from goqueue.wire.errors import GoQueueError, NotFound


class Cut(Enum):
    """Close the connection without an answer."""

    NOW = auto()


Answer = dict[str, Any] | GoQueueError | Cut


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    body: Any


class ScriptedServer:
    """Answers what its script says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._script: dict[tuple[str, str], list[Answer]] = {}
        self.hold = asyncio.Event()
        self.hold.set()

    def script(self, method: str, path: str, *answers: Answer) -> None:
        self._script[method, f"/v1{path}"] = list(answers)

    @property
    def last(self) -> Asked:
        return self.asked[-1]

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        server = TestServer(app)
        await server.start_server(shutdown_timeout=0)
        try:
            yield str(server.make_url("")).rstrip("/")
        finally:
            await server.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        path = request.rel_url.raw_path
        asked = Asked(request.method, path, dict(request.query), json.loads(raw) if raw else None)
        self.asked.append(asked)
        await self.hold.wait()
        answers = self._script.get((request.method, path), [NotFound(f"no script for {path}")])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Cut):
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if isinstance(answer, GoQueueError):
            return web.json_response(answer.to_body(), status=answer.http_status)
        return web.json_response(answer)


def received(offset: int = 0, **more: object) -> dict[str, object]:
    """One message of a receive's answer."""
    return {
        "id": f"orders:0:{offset}",
        "topic": "orders",
        "partition": 0,
        "offset": offset,
        "timestamp": "2026-11-21T10:00:00.123Z",
        "value": f"v{offset}",
        "priority": "normal",
        "receipt": f"r{offset}",
        "receipt_handle": f"r{offset}",
        "attempt": 1,
        "visible_until": "2026-11-21T10:00:30.123Z",
        **more,
    }


def settled(offset: int = 0, state: str = "acked", **more: object) -> dict[str, object]:
    """One result of a settle's answer."""
    return {
        "receipt": f"r{offset}",
        "success": True,
        "action": "ack",
        "state": state,
        "topic": "orders",
        "partition": 0,
        "offset": offset,
        "attempts": 1,
        "committed_offset": offset + 1,
        "in_flight": 0,
        **more,
    }
