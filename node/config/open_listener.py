"""A listener that whoever reaches it may use: beyond loopback, and nobody proves who they are.

A node serves so only where its configuration says that this is meant. One whose data directory
served so before goes on, and warns. What tells is an empty file, `NOT_OPEN`: it stands in a
directory whose node did not listen openly when it last started. Releases before 0.3.0 wrote none.
"""

from __future__ import annotations

from log.disk.files import Disk
from node.api.auth.hosts import is_loopback
from node.config.node import NodeConfig

NOT_OPEN = "NOT_OPEN"
_DATA = ("wal", "groups", "LEVEL")
"""What a data directory that was used has."""


def is_open(config: NodeConfig) -> bool:
    """Whether anybody may do anything who reaches this node."""
    http = config.http
    asks_certificates = http.tls.enabled and bool(http.tls.ca_file)
    return not (config.auth.enabled or asks_certificates or all(map(is_loopback, _hosts(config))))


def refusal(config: NodeConfig, disk: Disk) -> str:
    """Why this node must not start; empty where it may."""
    root = config.data_dir
    is_meant = config.auth.insecure_open or not is_open(config)
    if is_meant or (_is_used(disk, root) and not disk.exists(f"{root}/{NOT_OPEN}")):
        return ""
    return (
        f"{_listens(config)}. Set auth.enabled and auth.adminKeyFile, or listen on loopback"
        f" (--http 127.0.0.1:{config.http.port}), or say that this is meant: --insecure-open"
        " (auth.insecureOpen: true, GOQUEUE_AUTH_INSECURE_OPEN=true)"
    )


def warning(config: NodeConfig) -> str:
    """Of a node that listens openly without being told to, because it did before; else empty."""
    if not is_open(config) or config.auth.insecure_open:
        return ""
    return (
        f"{_listens(config)}. It goes on because it did so before: set auth.enabled and"
        " auth.adminKeyFile, or auth.insecureOpen where this is meant"
    )


def remember(config: NodeConfig, disk: Disk) -> None:
    """In the data directory, for the next start. Raises OSError."""
    path = f"{config.data_dir}/{NOT_OPEN}"
    if is_open(config) == disk.exists(path):
        if is_open(config):
            disk.unlink(path)
        else:
            disk.close(disk.open(path, write=True, create=True))
        disk.sync_directory(config.data_dir)


def _hosts(config: NodeConfig) -> list[str]:
    """Where clients are listened for."""
    http = config.http.host
    return [http, *(listener.host or http for _, listener in config.listeners.each())]


def _is_used(disk: Disk, root: str) -> bool:
    return any(disk.exists(f"{root}/{name}") for name in _DATA)


def _listens(config: NodeConfig) -> str:
    host, port = config.http.listen
    if is_loopback(host):
        host, port = next(
            (one.host, one.port)
            for _, one in config.listeners.each()
            if one.host and not is_loopback(one.host)
        )
    where = f"{host or '*'}:{port}"
    return f"node {config.node_id} serves whoever reaches {where}: it asks for no API keys"
