"""A whole node that lets in whoever has an API key, and requests to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from log.disk.memory import MemoryDisk
from node.assembly import NodeAssembly
from tests.unit.node.test_node import config, eventually, running

ROOT = "root.0123456789abcdef"


class Keyed:
    """A node that is asked with keys."""

    def __init__(self, session: aiohttp.ClientSession, node: NodeAssembly) -> None:
        self._session = session
        self.node = node
        self.url = f"http://127.0.0.1:{node.front.port}"

    async def __call__(
        self, method: str, path: str, body: Any = None, token: str | None = ROOT
    ) -> tuple[int, Any]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with self._session.request(
            method, self.url + path, json=body, headers=headers
        ) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await (answer.json() if is_json else answer.read())

    async def ok(self, method: str, path: str, body: Any = None, token: str | None = ROOT) -> Any:
        status, answer = await self(method, path, body, token)
        assert status < 300, (method, path, status, answer)
        return answer

    async def key(self, role: str, *prefixes: str, **more: Any) -> str:
        made = await self.ok("POST", "/admin/keys", {"role": role, "prefixes": prefixes, **more})
        return str(made["key"])

    async def finish_level(self) -> None:
        """All that this version knows may be written."""
        finished = (await self.node.broker.upgrade.finish_level()).finished
        levels = self.node.broker.topics._cluster.levels
        await eventually(lambda: levels.finished == finished)


@asynccontextmanager
async def keyed_node(disk: MemoryDisk, folder: Path, **more: object) -> AsyncIterator[Keyed]:
    """A node with the admin's key `ROOT`."""
    file = folder / "admin-key"
    file.write_text(ROOT)
    settings = config(**{"auth.enabled": True, "auth.adminKeyFile": str(file), **more})
    async with running(disk, settings) as node, aiohttp.ClientSession() as session:
        keyed = Keyed(session, node)
        await eventually(lambda: "root" in node.broker.topics._cluster.state.keys.by_id)
        yield keyed
