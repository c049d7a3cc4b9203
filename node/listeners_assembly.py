"""How clients reach a node: its HTTP front, and the listeners for other protocols beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from node.broker.node import NodeBroker
from node.config.listeners import ListenerConfig
from node.config.node import NodeConfig
from node.factories import PortServices, front_of
from node.http.budget.memory import Budgets
from node.http.server.app import HttpFront
from node.listeners.parts import Listener, ListenerParts, Tls
from node.metrics import Metrics
from node.observe.otel import OtelExport
from node.runtime.logger import get_logger
from node.runtime.service import Service
from node.security.certificates import Certificates

_log = get_logger("node")


class Listeners:
    """A `Service`: all that are wanted, started one after the other before HTTP is, so that a node
    that says it is ready listens for all."""

    def __init__(self, of: dict[str, Listener]) -> None:
        self.of = of
        """By name."""

    async def start(self) -> None:
        """Raises OSError where an address is not to be had; none listens then."""
        try:
            for name, listener in self.of.items():
                await listener.start()
                _log.info("listening", protocol=name, port=listener.port)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """All at once: each lets its clients finish for as long as the node lets all of them."""
        ends = [listener.stop() for listener in self.of.values()]
        for failed in await asyncio.gather(*ends, return_exceptions=True):
            if failed is not None:
                raise failed


@dataclass(frozen=True, slots=True)
class ClientPorts:
    """All that clients can reach."""

    front: HttpFront
    listeners: Listeners

    @property
    def services(self) -> list[tuple[str, Service]]:
        return [("listeners", self.listeners), ("http", self.front)]


def client_ports(
    config: NodeConfig,
    broker: NodeBroker,
    metrics: Metrics,
    spans: OtelExport | None,
    ports: PortServices,
    budgets: Budgets,
) -> ClientPorts:
    """The front, and the listeners that are wanted: they share its budgets, its caps, and its rule
    for keys."""
    front = front_of(config, broker, metrics, spans, ports, budgets)
    parts = ListenerParts(
        broker,
        limits=front.limits,
        budgets=budgets,
        crowd=front.crowd,
        admission=front.admission,
        metrics=metrics.listeners,
        spans=spans,
        on_access=ports.audit,
        stopping=front.stopping,
    )
    tls = None if ports.certificates is None else _tls(config, ports.certificates)
    found: dict[str, Listener] = {}
    for name, wanted in config.listeners.each():
        host = wanted.host or config.http.host
        found[name] = _MAKERS[name](wanted, parts, tls, host)
    return ClientPorts(front, Listeners(found))


def _redis(config: ListenerConfig, parts: ListenerParts, tls: Tls | None, host: str) -> Listener:
    from node.listeners.redis.listener import RedisListener  # its extra may not be installed

    return RedisListener(parts, host, config.port, tls)


def _h2(config: ListenerConfig, parts: ListenerParts, tls: Tls | None, host: str) -> Listener:
    from node.listeners.h2.listener import H2Listener  # its extra may not be installed

    return H2Listener(parts, host, config.port, tls)


def _grpc(config: ListenerConfig, parts: ListenerParts, tls: Tls | None, host: str) -> Listener:
    from node.listeners.grpc.server import GrpcListener  # its extra may not be installed

    return GrpcListener(parts, host=host, port=config.port, tls=tls)


_MAKERS: dict[str, Callable[[ListenerConfig, ListenerParts, Tls | None, str], Listener]] = {
    "redis": _redis,
    "h2": _h2,
    "grpc": _grpc,
}


def _tls(config: NodeConfig, certificates: Certificates) -> Tls:
    files = config.http.tls
    context, for_h2 = certificates.contexts
    return Tls(context, for_h2, files.cert_file, files.key_file, files.ca_file)
