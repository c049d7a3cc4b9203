"""Listeners for other protocols than HTTP."""

from __future__ import annotations

from node.metrics.declare import Declarations
from node.metrics.family import Distribution, Value
from node.metrics.meaning import Moves, Teller


class ListenerMetrics:
    """Of Redis' protocol, duplex HTTP/2 and gRPC at the node that was asked."""

    def __init__(self, of: Declarations) -> None:
        self.requests = of.counter(
            "goqueue_listener_requests_total",
            "Commands and calls answered by listeners for other protocols, by what was asked and"
            " the code of the error, ok for none",
            ("protocol", "operation", "code"),
            told=Teller.FRONT,
            moves=Moves.LISTENER,
        )
        self.latency = of.histogram(
            "goqueue_listener_request_seconds",
            "From a command or call to its answer, with the waiting it asked for",
            ("protocol", "operation"),
            told=Teller.FRONT,
            moves=Moves.LISTENER,
        )
        self.connections = of.gauge(
            "goqueue_listener_connections",
            "Connections of listeners for other protocols",
            ("protocol",),
            told=Teller.NODE,
            moves=Moves.LISTENER,
        )
        self._known: dict[tuple[str, str, str], tuple[Value, Distribution]] = {}

    def answered(
        self, protocol: str, operation: str, code: str, seconds: float, count: int = 1
    ) -> None:
        """So many of one kind. `operation` is one of the listener's own names, never what a client
        has sent; `code` is an error's, empty for none."""
        key = (protocol, operation, code or "ok")
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = (
                self.requests.labels(*key),
                self.latency.labels(protocol, operation),
            )
        known[0].inc(count)
        known[1].observe(seconds)

    def connected(self, protocol: str, count: int) -> None:
        """So many are open now."""
        self.connections.labels(protocol).set(count)
