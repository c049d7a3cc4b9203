"""Whether a node can listen where it is to: looked at before anything is founded on its disk."""

from __future__ import annotations

import errno
import socket

from node.config.node import NodeConfig
from node.config.option import Address

_WHY = {
    errno.EADDRINUSE: "is in use by another program",
    errno.EADDRNOTAVAIL: "is no address of this machine",
    errno.EACCES: "needs rights that this process does not have",
}


def refusal(config: NodeConfig) -> str:
    """Why this node can't listen, a line for each address, with the option that names another one;
    empty where it can. That nobody takes a port later is not promised."""
    wanted = [(config.http.listen, "--http (broker.listeners.http, GOQUEUE_LISTENERS_HTTP)")]
    if config.takes_peers:
        internal = "--peer-listen (broker.listeners.internal, GOQUEUE_LISTENERS_INTERNAL)"
        wanted.append((config.cluster.listen, internal))
    for name, listener in config.listeners.each():
        at = (listener.host or config.http.host, listener.port)
        wanted.append((at, f"--set listeners.{name}.port=N"))
    return "\n".join(
        f"{address[0]}:{address[1]} {why}; another one is named with {option}"
        for address, option in wanted
        if (why := _problem(address))
    )


def _problem(address: Address) -> str:
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        return _WHY.get(error.errno or 0) or f"can't be listened on: {error.strerror or error}"
    return ""
