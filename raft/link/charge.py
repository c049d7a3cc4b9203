"""What a peer's requests and their answers take in memory is charged to somebody's budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from goqueue.wire.types import NodeId


class Charge(Protocol):
    """Charges so many bytes to a peer: what is returned gives them back, once. None where there is
    no room."""

    def __call__(self, node: NodeId, size: int, /) -> Callable[[], None] | None: ...


def free(_node: NodeId, _size: int, /) -> Callable[[], None]:
    """Nobody counts."""
    return lambda: None
