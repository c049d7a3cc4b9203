"""What every listener is given by the node, and what it is to it."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import Protocol

from node.api.auth.access import OnAccess
from node.api.broker import Broker
from node.api.spans import RequestSpans
from node.http.auth.admission import Admission
from node.http.budget.limits import HttpLimits
from node.http.budget.lines import Lines
from node.http.budget.memory import Budgets
from node.http.connections.crowd import Crowd
from node.http.request.turn import OneTurn


class ListenerMetrics(Protocol):
    """Where listeners tell what they answered: `node.metrics.listeners`."""

    def answered(
        self, protocol: str, operation: str, code: str, seconds: float, count: int = 1
    ) -> None:
        """So many commands of one kind. `operation` is one of the listener's own names, never what
        a client has sent; `code` is an error's, empty for none."""
        ...

    def connected(self, protocol: str, count: int) -> None:
        """So many are open now."""
        ...


class NoListenerMetrics:
    """Counts nothing."""

    def answered(
        self, protocol: str, operation: str, code: str, seconds: float, count: int = 1
    ) -> None:
        return None

    def connected(self, protocol: str, count: int) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Tls:
    """How a listener's clients come by TLS: the certificate files of the HTTP port."""

    context: ssl.SSLContext
    """It follows the files: what was rotated on disk serves the next connection."""
    for_h2: ssl.SSLContext
    """As `context`, for clients that ask for HTTP/2 (ALPN)."""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    """For who reads them itself. With authorities, every client shows a certificate."""


@dataclass(frozen=True, slots=True)
class ListenerParts:
    """What the listeners of a node share with its HTTP front, and with each other."""

    broker: Broker
    limits: HttpLimits = field(default_factory=HttpLimits)
    budgets: Budgets = field(default_factory=Budgets)
    crowd: Crowd = field(default_factory=lambda: Crowd(HttpLimits()))
    """Who is connected, whichever listener they came by: the caps are for all of them."""
    admission: Admission = field(default_factory=lambda: Admission(None))
    metrics: ListenerMetrics = field(default_factory=NoListenerMetrics)
    spans: RequestSpans | None = None
    on_access: OnAccess | None = None
    lines: Lines = field(default_factory=Lines)
    """Of those who wait for room in a budget."""
    turn: OneTurn = field(default_factory=OneTurn)
    """What several connections store in one turn of the loop goes together."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the node is about to stop: waits for messages end then."""


class Listener(Protocol):
    """A port for clients of one protocol. It is a `Service` of the node, too.

    Once `ListenerParts.stopping` is set, its waits for messages end, and commands are still served
    until `stop`.
    """

    @property
    def port(self) -> int:
        """The port that is listened on, also where 0 was asked for."""
        ...

    async def start(self) -> None:
        """Listens when it returns; raises OSError where the address is not to be had."""
        ...

    async def stop(self) -> None:
        """Stop listening, let what is under way finish within `limits.drain_s`, close connections.
        Idempotent."""
        ...
