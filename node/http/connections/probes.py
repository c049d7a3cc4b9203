"""Who finds that a client's host is gone, while nothing is sent: the kernel."""

from __future__ import annotations

import socket
from asyncio import BaseTransport
from contextlib import suppress

LOST = 2
"""After so many questions without an answer the connection is reset."""
SHARES = {"TCP_KEEPIDLE": 1 / 2, "TCP_KEEPINTVL": 1 / 4}
"""After which share of the time the kernel asks first, and after which share again."""
SECONDS_MAX = 32_767
"""Linux takes no more."""


def probe(transport: BaseTransport | None, within_s: float) -> None:
    """Have a TCP connection end once the other host has not answered for about so long, 3 s at
    least; on systems without Linux's options, when theirs says. Any other connection, and one that
    is broken already, stays as it is. The kernel asks only where nothing is unacknowledged, asks
    the proxy where there is one, and does not find a program that stands still. Raises nothing."""
    wire = None if transport is None else transport.get_extra_info("socket")
    if wire is None or wire.family not in (socket.AF_INET, socket.AF_INET6):
        return
    wanted = {"TCP_KEEPCNT": LOST}
    for name, share in SHARES.items():
        wanted[name] = min(max(1, int(within_s * share)), SECONDS_MAX)
    with suppress(OSError):
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in wanted.items():
            option = getattr(socket, name, None)
            if option is not None:
                wire.setsockopt(socket.IPPROTO_TCP, option, value)
