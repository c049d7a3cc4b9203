"""The socket in a directory by which its owner serves other processes of the same user."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from typing import Any

import aiohttp

from goqueue.wire.errors import Forbidden

NAME = "SOCKET"
PATH_BYTES_MAX = 100
"""Systems take 104 to 108 bytes, their end included."""
BACKLOG = 512
_FOLDERS = "/proc/self/fd"
_LINUX = struct.Struct("3i")
"""Of SO_PEERCRED: process, user, group."""
_BSD = struct.Struct("2I")
"""Of LOCAL_PEERCRED: version, user, and more."""
_BSD_BYTES = 76


class SocketPath:
    """Where the socket of a directory is, in a path that is short enough for one.

    A path that is too long goes by a descriptor of the directory, which is open until `close`.
    Raises OSError where the directory is none, or its path is too long on a system without /proc.
    """

    def __init__(self, directory: str) -> None:
        self.text = os.path.join(directory, NAME)
        self._folder = -1
        if len(os.fsencode(self.text)) > PATH_BYTES_MAX:
            if not os.path.isdir(_FOLDERS):
                raise OSError(f"the path of {directory} is too long for a socket")
            self._folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.text = f"{_FOLDERS}/{self._folder}/{NAME}"

    def close(self) -> None:
        """Idempotent."""
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1


class OwnUserConnector(aiohttp.UnixConnector):
    """Connections to a socket whose owner runs as this user: each is looked at, as another process
    may be the owner by then. Raises Forbidden where it is another user's."""

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> Any:
        made = await super()._create_connection(req, traces, timeout)
        transport = made.transport
        connected = None if transport is None else transport.get_extra_info("socket")
        if connected is None or not is_own_user(connected):
            made.close()
            raise Forbidden(f"{self.path} is served by another user")
        return made


def listen(directory: str) -> socket.socket:
    """A listening socket in the directory, in place of what an earlier owner left; for its owner
    only, who has the lock. Raises OSError where there can be none."""
    path = SocketPath(directory)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError):
            os.unlink(path.text)
        made.bind(path.text)
        os.chmod(path.text, 0o600)  # before anybody can connect
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    finally:
        path.close()
    return made


def remove(directory: str) -> None:
    """Of its owner, before it goes: nobody comes to it any more."""
    with suppress(OSError):
        os.unlink(os.path.join(directory, NAME))


def is_served(path: SocketPath) -> bool:
    """Whether somebody answers there now. Raises Forbidden where that is another user."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
        tried.settimeout(1.0)
        try:
            tried.connect(path.text)
        except OSError:
            return False
        if not is_own_user(tried):
            raise Forbidden(f"{path.text} is served by another user")
    return True


def is_own_user(connected: socket.socket) -> bool:
    """Whether the process at the other end runs as this one's user, as the kernel says."""
    linux, bsd = getattr(socket, "SO_PEERCRED", None), getattr(socket, "LOCAL_PEERCRED", None)
    try:
        if linux is not None:
            told = connected.getsockopt(socket.SOL_SOCKET, linux, _LINUX.size)
            user = _LINUX.unpack(told)[1]
        elif bsd is not None:
            user = _BSD.unpack_from(connected.getsockopt(0, bsd, _BSD_BYTES))[1]
        else:
            return False
    except OSError:
        return False
    return bool(user == os.geteuid())
