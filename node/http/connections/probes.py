"""Who finds that a client's host is gone, while nothing is sent: the kernel."""

from __future__ import annotations

import socket
from asyncio import BaseTransport

LOST = 2
"""After so many questions without an answer the connection is reset."""
SHARES = {"TCP_KEEPIDLE": 1 / 2, "TCP_KEEPINTVL": 1 / 4}
"""When the kernel asks first, and then again, of the time that it has."""


def probe(transport: BaseTransport | None, within_s: float) -> None:
    """Have a TCP connection end once the other host has not answered for so long, 4 s at least; on
    systems without Linux's options, when theirs says. Any other connection stays as it is. A
    program that stands still on a living host is not found."""
    wire = None if transport is None else transport.get_extra_info("socket")
    if wire is None or wire.family not in (socket.AF_INET, socket.AF_INET6):
        return
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = {name: max(1, int(within_s * share)) for name, share in SHARES.items()}
    for name, value in {**seconds, "TCP_KEEPCNT": LOST}.items():
        option = getattr(socket, name, None)
        if option is not None:
            wire.setsockopt(socket.IPPROTO_TCP, option, value)
