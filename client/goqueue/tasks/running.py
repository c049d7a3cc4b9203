"""Where tasks run: on the event loop, in threads, in processes."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any

import msgspec

from goqueue.models.outcomes import Reject, Retry, reason_of
from goqueue.tasks.arguments import BadArguments, as_json
from goqueue.tasks.task import AnyTask
from goqueue.wire.errors import BadRequest

if TYPE_CHECKING:
    from goqueue.tasks.app import Tasks


class Current(msgspec.Struct, frozen=True):
    """The message that a task runs for: its `id` is the same however often it comes."""

    id: str
    attempt: int = 1
    task: str = ""


_CURRENT: ContextVar[Current | None] = ContextVar("goqueue_task", default=None)


def current() -> Current:
    """The message that the task which calls this runs for. Raises BadRequest outside of tasks."""
    found = _CURRENT.get()
    if found is None:
        raise BadRequest("no task runs here")
    return found


class Places:
    """Threads and processes for up to `concurrency` tasks at once. `path` (`MODULE:app`) is where
    processes find the app. Use on one event loop, and `close` it."""

    def __init__(self, concurrency: int, path: str | None) -> None:
        self._concurrency = concurrency
        self._path = path
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="goqueue-task")
        self._processes: ProcessPoolExecutor | None = None

    async def run(self, task: AnyTask, value: bytes, about: Current) -> bytes:
        """The task's result as JSON. Raises Reject for arguments that it does not take, and what it
        raises; a process tells that as a `Retry` with the reason."""
        if task.run_in == "process":
            return await self._in_process(task, value, about)
        if task.run_in == "loop":
            return await run_awaited(task, value, about)
        context = contextvars.copy_context()

        def run() -> bytes:
            return context.run(run_blocking, task, value, about)

        return await asyncio.get_running_loop().run_in_executor(self._threads, run)

    def close(self) -> None:
        """Wait for what runs, and end threads and processes. Idempotent."""
        self._threads.shutdown()
        if self._processes is not None:
            self._processes.shutdown(cancel_futures=True)

    async def _in_process(self, task: AnyTask, value: bytes, about: Current) -> bytes:
        if self._path is None:
            raise Reject(f"{task.name} runs in a process: its worker needs the path MODULE:app")
        if self._processes is None:
            self._processes = ProcessPoolExecutor(
                min(self._concurrency, os.cpu_count() or 1), get_context("spawn"), _begin
            )
        pool = self._processes
        loop = asyncio.get_running_loop()
        try:
            ended = await loop.run_in_executor(
                pool, _in_child, self._path, task.name, task.version, value, about
            )
        except BrokenProcessPool:
            if self._processes is pool:  # the next task has new ones
                self._processes = None
            raise Retry("the process that it ran in ended at once") from None
        if isinstance(ended, Exception):
            raise ended
        return ended


async def run_awaited(task: AnyTask, value: bytes, about: Current) -> bytes:
    """Run an async task here. Raises as `Places.run`."""
    args, kwargs = _arguments(task, value)
    with _running(about):
        return as_json(await task.function(*args, **kwargs), "result")


def run_blocking(task: AnyTask, value: bytes, about: Current) -> bytes:
    """Run a task here. Raises as `Places.run`."""
    args, kwargs = _arguments(task, value)
    with _running(about):
        return as_json(task.function(*args, **kwargs), "result")


def load_app(path: str) -> Tasks:
    """The app that `MODULE:app` names; the module may stand in the current directory. Raises
    BadRequest where there is none."""
    from goqueue.tasks.app import Tasks

    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise BadRequest(f"{path}: want MODULE:app, such as jobs:app")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise BadRequest(f"{path}: there is no module {error.name} here") from None
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Tasks):
        raise BadRequest(f"{path}: {name} is no Tasks, but {type(found).__name__}")
    return found


def _arguments(task: AnyTask, value: bytes) -> tuple[list[Any], dict[str, Any]]:
    try:
        return task.arguments.unpack(value)
    except BadArguments as error:
        raise Reject(error.message) from None


@contextmanager
def _running(about: Current) -> Iterator[None]:
    """A task runs within."""
    token = _CURRENT.set(about)
    try:
        yield
    except SystemExit as error:  # of the task, not of its worker
        raise RuntimeError(f"it asked its process to exit, with {error.code!r}") from error
    finally:
        _CURRENT.reset(token)


def _begin() -> None:
    """A process begins: it ends with its parent, whatever that dies of, and not by signals that the
    whole group is sent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent_process(),), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _in_child(
    path: str, name: str, version: int, value: bytes, about: Current
) -> bytes | Exception:
    try:
        return run_blocking(load_app(path).find(name, version), value, about)
    except Reject as error:
        return error
    except Exception as error:  # noqa: BLE001 - whatever it is, only its text crosses
        told = error if isinstance(error, Retry) else Retry()
        told.reason = reason_of(error)
        return told
