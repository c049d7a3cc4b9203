"""A client that takes nothing of its answers, nor does the system for it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from node.http.server.app import HttpFront

SOCKET_BYTES = 4096
"""What the system is asked to keep at most, at either end of a connection. By itself it takes some
4 MiB of an answer that nobody reads: half of a page."""


async def ask(front: HttpFront, path: str, *fields: str) -> socket.socket:
    """A connection with one request sent; whoever closes it hangs up."""
    assert front._listener is not None and front._listener._plain is not None
    for listening in front._listener._plain.sockets:  # what is accepted there inherits it
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
    link.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(link, ("127.0.0.1", front.port))
    head = "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *fields, "", ""])
    await loop.sock_sendall(link, head.encode())
    return link


async def rest(link: socket.socket) -> int:
    """How many bytes still come before the end."""
    loop, size = asyncio.get_running_loop(), 0
    with suppress(ConnectionError):
        while piece := await loop.sock_recv(link, 1 << 16):
            size += len(piece)
    link.close()
    return size
