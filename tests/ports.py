"""Ports that are free now, and that no connection going out takes before they are listened on."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

HOST = "127.0.0.1"
PORT_MIN = 12_000
TRIED_MAX = 200
_choice = random.SystemRandom()
"""Tests beside this one choose other ports, whatever seeds they have."""


def free_ports(count: int) -> list[int]:
    """Ports below those that the system gives to connections going out."""
    held: list[socket.socket] = []
    for port in _choice.sample(range(PORT_MIN, _outgoing_min()), TRIED_MAX):
        if len(held) == count:
            break
        with suppress(OSError):
            held.append(socket.create_server((HOST, port)))
    assert len(held) == count, "no free ports"
    ports = [int(server.getsockname()[1]) for server in held]
    for server in held:
        server.close()
    return ports


def _outgoing_min() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except FileNotFoundError:  # not Linux
        return 49_152
