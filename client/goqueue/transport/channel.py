"""What carries requests to a cluster: HTTP to its servers, or a directory that a program opens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """One attempt of a request; `path` is quoted, without its query."""

    method: str
    path: str
    params: Mapping[str, str] | None = None
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

    async def close(self) -> None:
        """Give back what is open. Idempotent."""
        ...
