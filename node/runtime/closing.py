"""What a node only has to close: the groups of Raft, and the store, which is opened before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from log.store.directory import Store
from node.runtime.logger import get_logger
from raft.host import RaftHost

_log = get_logger("node")


class RaftService:
    """Stops all groups before what is beneath them stops."""

    def __init__(self, host: RaftHost) -> None:
        self._host = host

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        self._host.stop()


class StoreService:
    """The store was opened before the loop ran; it closes with it, and the worker threads.

    While a thread is still in a write or a sync that does not end, the store stays as it is, and
    its lock with it until the process ends: whoever opened the directory meanwhile would have it
    changed under its feet.
    """

    def __init__(
        self, store: Store, workers: ThreadPoolExecutor, is_writing: Callable[[], bool]
    ) -> None:
        self._store = store
        self._workers = workers
        self._is_writing = is_writing

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        if self._is_writing():
            _log.error("directory_stays_locked", directory=self._store.root)
        else:
            await asyncio.get_running_loop().run_in_executor(None, self._store.close)
        self._workers.shutdown(wait=False)
