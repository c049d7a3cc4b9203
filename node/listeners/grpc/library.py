"""grpcio, told once what a node wants of it before it is loaded."""

from __future__ import annotations

import os
from typing import Any, Protocol

# it logs what clients do wrong to stderr, in no form of ours: a call's end is told in metrics
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# a node never forks: handlers for it would hold up whoever starts a process of another program
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
import grpc.aio

__all__ = ["EOF", "Context", "Metadata", "grpc"]

EOF: Any = grpc.aio.EOF  # pyright: ignore[reportAttributeAccessIssue]
"""What a read gives where the client has said all."""
Metadata = tuple[tuple[str, str | bytes], ...]


class Context(Protocol):
    """What a handler is given by grpcio of its call: the part that this listener uses."""

    async def read(self) -> Any:
        """The next message's bytes, or `EOF`."""
        ...

    async def write(self, message: bytes) -> None:
        """Returns once HTTP/2's flow control has let it out."""
        ...

    def invocation_metadata(self) -> Metadata | None: ...

    def peer(self) -> str: ...

    def time_remaining(self) -> float | None: ...

    def set_code(self, code: Any) -> None: ...

    def set_details(self, details: str) -> None: ...

    def set_trailing_metadata(self, metadata: Metadata) -> None: ...
