"""Listeners for other protocols than HTTP, each off until it is wanted."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from node.config.option import flag, option, port_number, text


def _enabled(name: str) -> Any:
    return option(
        False,
        key=f"listeners.{name}.enabled",
        parse=flag,
        why=f"a port that nobody uses is one more to guard; it needs goqueue-server[{name}]",
    )


def _host(name: str) -> Any:
    return option(
        "",
        key=f"listeners.{name}.host",
        parse=text,
        why="empty: where HTTP listens, with its TLS and its keys",
    )


@dataclass(frozen=True, slots=True)
class RedisConfig:
    """Redis' protocol."""

    enabled: bool = _enabled("redis")
    host: str = _host("redis")
    port: int = option(
        6379, key="listeners.redis.port", parse=port_number, why="Redis' own; 0 is any free one"
    )


@dataclass(frozen=True, slots=True)
class GrpcListenerConfig:
    """gRPC, with the services of `goqueue.v1`."""

    enabled: bool = _enabled("grpc")
    host: str = _host("grpc")
    port: int = option(
        9000, key="listeners.grpc.port", parse=port_number, why="GoQueue's own; 0 is any free one"
    )


@dataclass(frozen=True, slots=True)
class H2Config:
    """miniqueue's API over HTTP/2."""

    enabled: bool = _enabled("h2")
    host: str = _host("h2")
    port: int = option(
        8443, key="listeners.h2.port", parse=port_number, why="beside 8080; 0 is any free one"
    )


ListenerConfig = RedisConfig | H2Config | GrpcListenerConfig
"""What all of them say: whether, and where."""


@dataclass(frozen=True, slots=True)
class ListenersConfig:
    """All of them; `each` goes through them by name."""

    redis: RedisConfig = field(default_factory=RedisConfig)
    h2: H2Config = field(default_factory=H2Config)
    grpc: GrpcListenerConfig = field(default_factory=GrpcListenerConfig)

    def each(self) -> Iterator[tuple[str, ListenerConfig]]:
        """Those that are wanted."""
        for name in EXTRAS:
            listener: ListenerConfig = getattr(self, name)
            if listener.enabled:
                yield name, listener


EXTRAS = {
    "redis": ("hiredis",),
    "h2": ("h2",),
    "grpc": ("grpc", "grpc_reflection", "grpc_health"),
}
"""What each listener imports that only the extra of its name installs."""


def is_installed(name: str) -> bool:
    """Whether this listener's extra is."""
    return all(importlib.util.find_spec(module) is not None for module in EXTRAS[name])


def missing(config: ListenersConfig) -> str:
    """Why this node can't have the listeners that are wanted, empty where it can."""
    lacking = [name for name, _ in config.each() if not is_installed(name)]
    return "\n".join(
        f"listeners.{name} is enabled and what it needs is not installed:"
        f" pip install 'goqueue-server[{name}]'"
        for name in lacking
    )
