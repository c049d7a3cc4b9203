"""The engine that opens directories: found by its entry point, where it is installed."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from importlib.metadata import entry_points
from typing import Protocol, cast

from goqueue.models.failures import EngineMissing
from goqueue.wire.errors import GoQueueError

GROUP = "goqueue.engines"
NAME = "local"
LOCKED = "directory_locked"
"""The code of the error that another process has a directory open."""


class EngineAnswer(Protocol):
    """An answer with all of its body."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def body(self) -> bytes: ...


class Engine(Protocol):
    """A directory that is open in this process; each method may be called from any thread."""

    @property
    def failure(self) -> GoQueueError | None:
        """Why nothing is done any more, once the disk has failed."""
        ...

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Future[EngineAnswer]:
        """The answer, of whatever status; the future is cancelled by who gives up. Raises what
        `failure` says, and Unavailable after `close`."""
        ...

    def serve(self, listening: socket.socket, may_come: Callable[[socket.socket], bool]) -> None:
        """Answer by HTTP who connects to this socket and may come; it is the engine's then."""
        ...

    def close(self) -> None:
        """Let go of the directory; what was acknowledged is synced. Idempotent."""
        ...


class ReadingEngine(Protocol):
    """A directory as it was when it was opened for reading; methods may be called from any
    thread."""

    @property
    def failure(self) -> GoQueueError | None:
        """Why nothing can be read any more."""
        ...

    @property
    def is_current(self) -> bool:
        """Whether nobody has written to the directory since it was opened."""
        ...

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Future[EngineAnswer]:
        """As `Engine.ask`. Raises ReadOnlyDirectory for a request that may change something."""
        ...

    def close(self) -> None:
        """Let go of the files. Idempotent."""
        ...


def find_engine() -> Callable[[str], Engine]:
    """What opens a directory. It raises GoQueueError, with the code `LOCKED` where another process
    has it open. Raises EngineMissing where none is installed."""
    return cast(Callable[[str], Engine], _find())


def find_reader() -> Callable[[str], ReadingEngine]:
    """What opens a directory for reading; it locks nothing, and writes nothing. Raises
    EngineMissing where none is installed."""
    return partial(cast(Callable[..., ReadingEngine], _find()), read_only=True)


def _find() -> Callable[..., object]:
    for found in entry_points(group=GROUP, name=NAME):
        return cast(Callable[..., object], found.load())
    raise EngineMissing
