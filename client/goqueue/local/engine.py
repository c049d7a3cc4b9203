"""The engine that opens directories: found by its entry point, where it is installed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from importlib.metadata import entry_points
from typing import Protocol, cast
from urllib.parse import urlencode

from goqueue.models.failures import EngineMissing
from goqueue.transport.channel import Answer, Request
from goqueue.wire.errors import GoQueueError, Timeout
from goqueue.wire.records import Headers

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


class EngineAppended(Protocol):
    """Where a batch is, and how durable; without duplicates, as it had no ids."""

    @property
    def base_offset(self) -> int: ...

    @property
    def durability(self) -> str: ...


class EngineMessage(Protocol):
    """A message that was leased."""

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def time_ms(self) -> int: ...

    @property
    def value(self) -> bytes: ...

    @property
    def key(self) -> bytes | None: ...

    @property
    def headers(self) -> Headers: ...

    @property
    def lane(self) -> int: ...

    @property
    def message_id(self) -> str | None: ...

    @property
    def deliver_at_ms(self) -> int | None: ...

    @property
    def expires_at_ms(self) -> int | None: ...

    @property
    def is_null(self) -> bool: ...

    @property
    def receipt(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    @property
    def reason(self) -> str: ...

    @property
    def redrives(self) -> int: ...

    @property
    def deadline_ms(self) -> int: ...


class EngineSettled(Protocol):
    """What became of one receipt."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def outcome(self) -> str: ...

    @property
    def attempts(self) -> int: ...

    @property
    def committed_offset(self) -> int: ...

    @property
    def in_flight(self) -> int: ...


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

    def append(
        self, topic: str, batch: bytes, timeout_s: float
    ) -> tuple[int, EngineAppended] | None:
        """Append a batch without keys, ids and delays, as one entry of one partition: its number,
        and where it is. None where the topic wants more than that: nothing was stored, and a
        request may do it. Raises GoQueueError."""
        ...

    def take(
        self,
        group: str,
        topic: str,
        limit: int,
        wait_s: float,
        visibility_ms: int | None,
        timeout_s: float,
    ) -> Sequence[EngineMessage]:
        """Lease messages; what is leased to a thread that is interrupted meanwhile is given back.
        Raises GoQueueError."""
        ...

    def settle(
        self, group: str, receipts: Sequence[str], action: str, timeout_s: float
    ) -> Sequence[EngineSettled | GoQueueError]:
        """The end of each receipt, in order. Raises GoQueueError."""
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


Ask = Callable[[str, str, Mapping[str, str], bytes], Future[EngineAnswer]]
"""`ask` of an engine: method, target, headers and body."""


async def answer_of(ask: Ask, request: Request, timeout_s: float, late: str) -> Answer:
    """An engine's answer to a request, on the caller's loop. Raises Timeout, which says `late`, and
    what `ask` does."""
    target = request.path
    if request.params:
        target += f"?{urlencode(request.params)}"
    told = ask(request.method, target, request.headers, request.body or b"")
    try:
        async with asyncio.timeout(timeout_s):
            answer = await asyncio.wrap_future(told)
    except TimeoutError:
        raise Timeout(late) from None
    return Answer(answer.status, answer.headers, answer.body)


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
