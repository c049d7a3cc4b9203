"""What carries requests to a cluster: HTTP to its servers, or a directory that a program opens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """One attempt of a request; `path` is quoted, without its query."""

    method: str
    path: str
    params: Mapping[str, str] | Sequence[tuple[str, str]] | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_repeat: bool = False
    """An earlier attempt of the same request may have happened: its effects are in the answer."""

    @property
    def media_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()


class Streamed(Protocol):
    """An answer that is read as it comes."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def pieces(self) -> AsyncIterator[bytes]:
        """The body, to its end; once. Raises what `Channel.ask` does where it is broken off."""
        ...


class Socket(Protocol):
    """A WebSocket: texts, both ways, each whole."""

    async def send(self, text: bytes) -> None:
        """Raises what `Channel.ask` does where it is broken off."""
        ...

    async def receive(self) -> str | None:
        """The next text; None once it was closed, by whichever side: `close_code` says how then.
        Raises what `Channel.ask` does where it is broken off without a close."""
        ...

    @property
    def close_code(self) -> int | None:
        """What it was closed with, by the other side or in answer to it."""
        ...

    async def close(self) -> None:
        """Close it in order, and wait for a while until the other side has. Idempotent."""
        ...


class Channel(Protocol):
    """Carries requests, each once. Everything is opened when it is first used; a channel is used on
    one event loop, and may be made anywhere."""

    @property
    def servers(self) -> Sequence[str]:
        """The names of those that may be asked, one or more."""
        ...

    async def connect(self) -> None:
        """Open now what can tell that it can't be opened. Raises GoQueueError."""
        ...

    async def ask(self, server: str, request: Request, timeout_s: float) -> Answer:
        """The server's answer, of whatever status.

        Raises `ConnectionFailed` where nothing was sent, `Timeout` or `OutcomeUnknown` where
        something may have been, `Closed` after `close`.
        """
        ...

    def stream(
        self, server: str, request: Request, quiet_s: float
    ) -> AbstractAsyncContextManager[Streamed]:
        """As `ask`, for an answer without an end; it is broken off where nothing comes for
        `quiet_s`."""
        ...

    def socket(
        self, server: str, request: Request, answer_s: float, quiet_s: float
    ) -> AbstractAsyncContextManager[Socket | Answer]:
        """The WebSocket that a request without a body opens within `answer_s`; or the answer, but
        for its body, of who opens none. It is broken off where nothing, not even an answer to a
        ping, came for `quiet_s`. Raises as `ask`, and BadRequest where the channel has none."""
        ...

    async def close(self) -> None:
        """Give back what is open. Idempotent."""
        ...
