"""What a node only has to close: the groups of Raft, and the store, which is opened before it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

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


class DiskThreads(Protocol):
    """Those that write and sync."""

    def is_writing(self) -> bool: ...

    def join(self) -> None: ...


class StoreService:
    """The store was opened before the loop ran; it closes with it, and the worker threads.

    While a thread is still in a write or a sync that does not end, the store stays open, and the
    directory locked: whoever opened it meanwhile would have it changed under its feet. It is closed
    once that has ended.
    """

    def __init__(self, store: Store, workers: ThreadPoolExecutor, threads: DiskThreads) -> None:
        self._store = store
        self._workers = workers
        self._threads = threads

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        if self._threads.is_writing():
            _log.error("directory_stays_locked", directory=self._store.root)
            threading.Thread(target=self._close_later, name="goqueue-closing", daemon=True).start()
        else:
            await asyncio.get_running_loop().run_in_executor(None, self._store.close)
        self._workers.shutdown(wait=False)

    def _close_later(self) -> None:
        self._threads.join()
        self._store.close()
