"""What a node only has to close: the groups of Raft, and the store, which is opened before it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from log.store.directory import Store
from raft.host import RaftHost


class RaftService:
    """Stops all groups before what is beneath them stops."""

    def __init__(self, host: RaftHost) -> None:
        self._host = host

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        self._host.stop()


class StoreService:
    """The store was opened before the loop ran; it closes with it, and the worker threads."""

    def __init__(self, store: Store, workers: ThreadPoolExecutor) -> None:
        self._store = store
        self._workers = workers

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._store.close)
        self._workers.shutdown(wait=False)
