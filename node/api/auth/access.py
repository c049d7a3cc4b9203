"""What became of a request: told once, where it is answered, for whoever keeps a record of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from node.api.auth.principal import Principal


@dataclass(frozen=True, slots=True)
class Access:
    """One request and its end.

    `operation` is the route's, empty where none was found; `target` the path as it was sent,
    without its query. `principal` is None where nobody was asked, or nobody was let in; `code` the
    error's, empty for none. `remote` is the address that the request came from, maybe a proxy's.
    """

    operation: str
    method: str
    target: str
    principal: Principal | None
    status: int
    code: str
    request_id: str
    remote: str


OnAccess = Callable[[Access], None]
"""Called on the loop, before the answer is sent: it must not wait, nor raise."""
