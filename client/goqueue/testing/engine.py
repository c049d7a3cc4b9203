"""The node for tests: found by its entry point, where the server is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from importlib.metadata import entry_points
from typing import Protocol, cast

from goqueue.local.engine import GROUP, EngineAnswer
from goqueue.models.failures import EngineMissing

NAME = "testing"


class VirtualEngine(Protocol):
    """A node in this process, on time that is moved by hand; each method may be called from any
    thread."""

    @property
    def now_ms(self) -> int:
        """The node's time, in milliseconds since the epoch."""
        ...

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Future[EngineAnswer]:
        """The answer, of whatever status; cancelled by who gives up. Raises Unavailable after
        `close`."""
        ...

    def advance(self, passed_ms: int) -> None:
        """Let so much time pass, and all happen that it brings about."""
        ...

    def run_until_idle(self, within_ms: int, timeout_s: float) -> list[str]:
        """As `advance`, with time for consumers; what they have not finished."""
        ...

    def restart(self, *, power_cut: bool) -> None:
        """Close the node, or cut its power, and open it on its disk."""
        ...

    def close(self) -> None:
        """Idempotent."""
        ...


OpenEngine = Callable[[int, int], VirtualEngine]
"""Of the time at which it begins, and of a seed."""


def find_engine() -> OpenEngine:
    """What opens nodes for tests. Raises EngineMissing where none is installed."""
    for found in entry_points(group=GROUP, name=NAME):
        return cast(OpenEngine, found.load())
    raise EngineMissing('tests need the server: pip install "goqueue[local]"')
