"""The life of an embedded node, and how its program asks it.

It has a thread with an event loop of its own, whatever loops the program runs. All public methods
may be called from any thread but that one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from coordinator.errors import SnapshotUnreadable
from goqueue.tasks import TaskSet
from goqueue.wire.errors import Conflict, GoQueueError, ServerError, Unavailable
from log.disk.files import Disk, OsDisk
from log.store.directory import Store
from node.assembly import NodeAssembly, assemble
from node.config import open_listener
from node.embedded.settings import embedded_config
from node.http.server.local import LocalAnswer
from node.runtime.clock import Clock
from node.runtime.logger import get_logger
from node.runtime.stored_level import OtherLevel, stored_levels
from node.server import open_store

T = TypeVar("T")

READY_S = 30.0
LOOK_S = 0.002
"""How often a node that is being opened is asked whether it is ready: it takes some 50 ms."""
LEAVE_S = 3.0
"""How long a node whose disk failed takes to stop its parts, at most."""
ACCEPT_PAUSE_S = 0.1

_log = get_logger("embedded")
logging.getLogger("raft").addHandler(logging.NullHandler())  # a busy host stalls it: no news


class DirectoryFailed(ServerError):
    """A write or sync failed: what was asked may have happened, and nothing more does here. What
    was acknowledged is found again when the directory is opened anew."""

    code = "store_failed"


class OtherVersion(Conflict):
    """The directory was used by a version whose formats this one does not speak."""

    code = "other_version"


@dataclass(frozen=True, slots=True)
class EngineTime:
    """What an engine takes for time: the loop of its thread, and its node's clock, the machine's
    if None."""

    make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.SelectorEventLoop
    clock: Clock | None = None


class Engine:
    """A node over one directory, open from `open` to `close`."""

    def __init__(
        self,
        directory: str,
        disk: Disk | None = None,
        *,
        time: EngineTime | None = None,
        settings: Mapping[str, object] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Opens nothing. `disk` is the machine's file system if not given, `time` its clock;
        `settings` are a node's, beside those of every embedded one."""
        self.directory = os.path.abspath(directory)
        self.failure: GoQueueError | None = None
        """Why nothing is done any more, once a write or sync has failed."""
        self._disk = disk or OsDisk()
        self._time = time or EngineTime()
        self._settings = dict(settings or {})
        self._rng = rng
        self._opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="goqueue-engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._node: NodeAssembly | None = None
        self._store: Store | None = None
        self._ending = asyncio.Event()
        self._asking: set[asyncio.Task[LocalAnswer]] = set()
        self._doors = TaskSet("goqueue.embedded", "accept_failed")
        self._listening: list[socket.socket] = []

    def open(self) -> None:
        """Lock the directory, made where it is missing, and recover what it holds; usable when this
        returns. Once only.

        Raises GoQueueError: with the code `directory_locked` where another process has it,
        `wal_damaged` where it is damaged, `other_version`; and OSError. Nothing is left open then.
        """
        self._thread.start()
        try:
            self._opened.result()
        except BaseException:
            self._thread.join()
            raise
        _OPEN.add(self)

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Future[LocalAnswer]:
        """The answer to a request; `target` is the quoted path with its query. Cancelled, it has
        hung up. Fails with `DirectoryFailed` where the disk does meanwhile. Raises Unavailable
        after `close`."""
        return self.run(self.answered(method, target, headers, body))

    def run(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """The result of what is done on the node's loop. Raises as `ask`."""
        loop = self._loop
        assert loop is not None, "it is not open"
        try:
            return asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:  # the loop has ended
            work.close()
            raise self.failure or Unavailable("the directory was closed") from None

    def serve(self, listening: socket.socket, may_come: Callable[[socket.socket], bool]) -> None:
        """Answer other processes that connect to this socket, if they may come. It is the engine's
        from now on."""
        assert self._loop is not None, "it is not open"
        listening.setblocking(False)
        self._listening.append(listening)

        def begin() -> None:
            self._doors.begin(self._accept(listening, may_come))

        self._loop.call_soon_threadsafe(begin)

    def close(self) -> None:
        """Answer what is under way, sync, and let go of the directory. Idempotent, and bounded:
        what can't be ended is left."""
        _OPEN.discard(self)
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._ending.set)
        if self._thread.is_alive():
            self._thread.join()

    @property
    def node(self) -> NodeAssembly:
        """Of the open engine; its parts are asked on its loop only."""
        assert self._node is not None, "it is not open"
        return self._node

    def forget(self) -> None:
        """In a forked child: let go of the lock and sockets that came along, which else would stay
        when the parent is gone. Nothing of the engine runs here."""
        for listening in self._listening:
            listening.close()
        if self._store is not None:
            self._store.disown()

    # the thread

    def _run(self) -> None:
        try:
            # not the loop that the host's policy makes
            with asyncio.Runner(loop_factory=self._time.make_loop) as runner:
                runner.run(self._live())
        except BaseException as error:  # noqa: BLE001 - told to who opens
            if not self._opened.done():
                self._opened.set_exception(error)
            else:
                _log.exception("engine_failed")

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            node = await self._start()
        except OtherLevel as error:
            raise OtherVersion(str(error)) from error
        except SnapshotUnreadable as error:
            raise ServerError(str(error), outcome="none") from error
        self._node = node
        self._opened.set_result(None)
        await self._ending.wait()
        await self._doors.stop()
        for listening in self._listening:
            listening.close()
        node.status.stopping = True
        node.front.begin_stop()
        if self.failure is None:
            await node.services.stop()
        else:
            await self._leave(node)

    async def _start(self) -> NodeAssembly:
        config = embedded_config(self.directory, self._settings)
        levels = stored_levels(self._disk, self.directory)
        self._store = store = open_store(config, disk=self._disk)
        try:
            open_listener.remember(config, self._disk)
            node = assemble(
                config,
                store,
                on_failure=self._failed,
                levels=levels,
                on_outdated=self._outdated,
                clock=self._time.clock,
                rng=self._rng,
            )
        except BaseException:
            store.close()
            raise
        await node.services.start()
        try:
            async with asyncio.timeout(READY_S):
                while not node.broker.node.ready().ready and self.failure is None:  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_S)
            if self.failure is not None:
                raise self.failure
        except BaseException as error:
            await node.services.stop()
            if isinstance(error, TimeoutError):
                raise Unavailable(f"{self.directory} was not ready in {READY_S:g} s") from None
            raise
        return node

    async def _leave(self, node: NodeAssembly) -> None:
        """Stop without writing: what can't write must not speak for what it holds."""
        node.raft.stop()
        try:
            async with asyncio.timeout(LEAVE_S):
                await node.services.stop()
        except TimeoutError:
            _log.warning("parts_left_running")

    # its loop

    async def answered(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> LocalAnswer:
        """As `ask`, on the node's loop."""
        if self.failure is not None:
            raise self.failure
        node, task = self._node, asyncio.current_task()
        assert node is not None
        assert task is not None
        self._asking.add(task)
        try:
            return await node.front.ask(method, target, headers, body)
        except asyncio.CancelledError:
            if self.failure is None:
                raise
            raise self.failure from None
        finally:
            self._asking.discard(task)

    async def _accept(
        self, listening: socket.socket, may_come: Callable[[socket.socket], bool]
    ) -> None:
        assert self._loop is not None
        assert self._node is not None
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(listening)
            except OSError as error:
                _log.warning("accept_failed", reason=str(error))
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            if not may_come(accepted):
                accepted.close()
                continue
            with suppress(OSError):  # it is gone again
                await self._node.front.admit(accepted)

    def _failed(self, error: Exception) -> None:
        self._end(DirectoryFailed(f"{self.directory}: the disk failed: {error}"))

    def _outdated(self) -> None:
        self._end(OtherVersion(f"{self.directory} is of a version that this one does not speak"))

    def _end(self, failure: GoQueueError) -> None:
        self.failure = self.failure or failure
        if self._node is not None:
            self._node.front.begin_stop()
        for task in list(self._asking):
            task.cancel()
        self._ending.set()


def open_engine(directory: str) -> Engine:
    """The engine over a directory, open. See `Engine.open`."""
    engine = Engine(directory)
    engine.open()
    return engine


_OPEN: weakref.WeakSet[Engine] = weakref.WeakSet()


def _forked() -> None:
    for engine in list(_OPEN):
        engine.forget()
    _OPEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
