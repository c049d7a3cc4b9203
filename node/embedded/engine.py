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
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from coordinator.errors import SnapshotUnreadable
from goqueue.background import TaskSet
from goqueue.wire.errors import Conflict, GoQueueError, ServerError, Unavailable
from goqueue.wire.types import CLUSTER_GROUP
from log.disk.files import Disk, OsDisk
from log.store.directory import Store
from node.api.queue import QueuedMessage, SettleView
from node.api.records import AppendResult
from node.assembly import NodeAssembly, assemble
from node.config import open_listener
from node.config.node import NodeConfig
from node.embedded.check import refuse_damage
from node.embedded.desk import Desk
from node.embedded.handed import Handed, Hatch
from node.embedded.settings import embedded_config
from node.http.server.local import LocalAnswer
from node.runtime.clock import Clock
from node.runtime.logger import get_logger
from node.runtime.stored_level import OtherLevel, stored_levels
from node.server import open_store

if TYPE_CHECKING:
    from node.embedded.reading import Reader

T = TypeVar("T")

READY_S = 30.0
LOOK_S = 0.002
"""How often a node that is being opened is asked whether it is ready: it takes some 50 ms."""
LEAVE_S = 3.0
"""How long a node whose disk failed takes to stop its parts, at most."""
ACCEPT_PAUSE_S = 0.1
DRAIN_S = 5.0
"""How long `close` waits for what the desk has under way, at most."""
CLOSE_S = 30.0
"""How long it waits for all of it. The loop itself may stand in a sync that does not come back: the
directory stays locked then, and is given back when it does."""

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
        self._config = embedded_config(self.directory, settings)
        self._time = time or EngineTime()
        self._rng = rng
        self._opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="goqueue-engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._node: NodeAssembly | None = None
        self._desk: Desk | None = None
        self._store: Store | None = None
        self._ending = asyncio.Event()
        self._hatch: Hatch | None = None
        self._asking: set[asyncio.Future[Any]] = set()
        self._taking: set[asyncio.Future[Any]] = set()
        """Those of them that wait for what others put."""
        self._work = TaskSet(None)
        """Each is watched, and told to a thread."""
        self._doors = TaskSet("goqueue.embedded", "accept_failed")
        self._listening: list[socket.socket] = []
        self._accepted: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def open(self) -> None:
        """Lock the directory, made where it is missing, and recover what it holds; usable when this
        returns. Once only.

        Raises GoQueueError: with the code `directory_locked` where another process has it,
        `wal_damaged` or `directory_damaged` where it is damaged, `other_version`; and OSError.
        Nothing is left open then.
        """
        _OPEN.add(self)
        self._thread.start()
        try:
            self._opened.result()
        except BaseException:
            self._thread.join()
            _OPEN.discard(self)
            raise

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

    def append(self, topic: str, batch: bytes, timeout_s: float) -> tuple[int, AppendResult] | None:
        """As `Desk.append`, by any other thread, which waits for it. Raises what `ask` does, and
        Timeout."""
        partition = 0

        def append(desk: Desk) -> asyncio.Future[AppendResult | None]:
            nonlocal partition
            partition, appended = desk.append(topic, batch)
            return appended

        stored = self._handed(append, timeout_s)
        return None if stored is None else (partition, stored)

    def take(
        self,
        group: str,
        topic: str,
        limit: int,
        wait_s: float,
        visibility_ms: int | None,
        timeout_s: float,
    ) -> list[QueuedMessage]:
        """As `Desk.take` and `append`. What is leased to a thread that has been interrupted, or
        whose `timeout_s` was over, is given back."""

        def give_back(found: list[QueuedMessage]) -> None:
            if self._desk is not None and found:
                receipts = [message.receipt for message in found]
                self._watch(self._work.begin(self._desk.settle(group, receipts, "release")))

        def take(desk: Desk) -> asyncio.Future[list[QueuedMessage]]:
            taking = self._work.begin(desk.take(group, topic, limit, wait_s, visibility_ms))
            self._taking.add(taking)
            taking.add_done_callback(self._taking.discard)
            return taking

        return self._handed(take, timeout_s, give_back)

    def settle(
        self, group: str, receipts: Sequence[str], action: str, timeout_s: float
    ) -> list[SettleView | GoQueueError]:
        """As `Desk.settle` and `append`."""
        return self._handed(
            lambda desk: self._work.begin(desk.settle(group, receipts, action)), timeout_s
        )

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
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._ending.set)
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        if not self._thread.is_alive():  # else a forked child must let go of its lock, still
            _OPEN.discard(self)

    @property
    def node(self) -> NodeAssembly:
        """Of the open engine; its parts are asked on its loop only."""
        assert self._node is not None, "it is not open"
        return self._node

    def forget(self) -> None:
        """In a forked child: let go of the lock and sockets that came along, which else would stay
        when the parent is gone. Nothing of the engine runs here."""
        for inherited in [*self._listening, *self._accepted]:
            inherited.close()
        if self._store is not None:
            with suppress(OSError):  # it was being closed as the process forked
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
        self._desk, self._hatch = desk_of(node, self._config), Hatch(self._loop)
        self._opened.set_result(None)
        await self._ending.wait()
        self._hatch.shut()
        for taking in list(self._taking):
            taking.cancel()
        await self._doors.stop()
        for listening in self._listening:
            listening.close()
        node.status.stopping = True
        node.front.begin_stop()
        if self.failure is None:
            if self._asking:
                await asyncio.wait(self._asking, timeout=DRAIN_S)
            await node.services.stop()
        else:
            await self._leave(node)

    async def _start(self) -> NodeAssembly:
        config = self._config
        levels = stored_levels(self._disk, self.directory)
        with _FORKS:
            self._store = store = open_store(config, disk=self._disk)
        try:
            refuse_damage(self.directory, store, self._disk)
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
                while not _is_whole(node) and self.failure is None:
                    await asyncio.sleep(LOOK_S)
                    refuse_damage(self.directory, store, self._disk)
            refuse_damage(self.directory, store, self._disk)
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

    # the desk

    def _handed(
        self,
        work: Callable[[Desk], asyncio.Future[T]],
        timeout_s: float,
        undo: Callable[[T], object] = lambda _result: None,
    ) -> T:
        """What work of the desk comes to. Raises as `append` says."""
        hatch, desk = self._hatch, self._desk
        assert hatch is not None, "it is not open"
        assert desk is not None, "it is not open"

        def begin() -> asyncio.Future[T]:
            if self.failure is not None:
                raise self.failure
            begun = work(desk)
            self._asking.add(begun)
            return begun

        handed = Handed(hatch, begin, undo, self._asking.discard)
        if not handed.is_begun:
            raise self.failure or Unavailable("the directory was closed", outcome="none")
        try:
            return handed.wait(timeout_s)
        except asyncio.CancelledError:  # by `_end`, or a wait for what others put by `_live`
            raise self.failure or Unavailable("the directory was closed", outcome="none") from None

    def _watch(self, work: asyncio.Future[T]) -> asyncio.Future[T]:
        """It ends with the engine."""
        self._asking.add(work)
        work.add_done_callback(self._asking.discard)
        return work

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
            self._accepted.add(accepted)
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


def _is_whole(node: NodeAssembly) -> bool:
    """Whether it serves, and has applied all that was found, of the cluster and of each partition:
    nobody else leads these, however long its host keeps it from its elections."""
    if not node.broker.node.ready().ready:
        return False
    leads = node.raft.raft_group(CLUSTER_GROUP).is_ready_leader
    return leads and not node.timed.replicas.are_replaying


def desk_of(node: NodeAssembly, config: NodeConfig) -> Desk:
    """Of a node that is ready, with the bounds of its front."""
    return Desk(node.broker, config.http.long_poll_max_ms / 1000)


def open_engine(directory: str, *, read_only: bool = False) -> Engine | Reader:
    """The engine over a directory, open: see `Engine.open`. Read-only, nothing is written or
    locked: see `Reader.open`."""
    if read_only:
        from node.embedded.reading import open_reader  # it opens an engine itself

        return open_reader(directory)
    engine = Engine(directory)
    engine.open()
    return engine


_OPEN: weakref.WeakSet[Engine] = weakref.WeakSet()


_FORKS = threading.Lock()
"""Held while a directory's lock is taken: a fork in between waits, as nobody could say yet what the
child has to let go of."""


def _forked() -> None:
    _FORKS.release()
    for engine in list(_OPEN):
        with suppress(Exception):  # that one can't let go must not keep the others from it
            engine.forget()
    _OPEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_FORKS.acquire, after_in_parent=_FORKS.release, after_in_child=_forked
    )
