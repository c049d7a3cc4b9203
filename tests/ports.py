"""Ports that are free now, and that no test beside this one, nor a connection going out, takes
before they are listened on.

A port is found by listening on it, and let go at once, as the node that it is for binds it itself.
Until then it is this process's: it holds a lock of that port's byte in a file that all test
processes of this user share, and gives no port twice. The system takes the locks away with the
process.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

HOST = "127.0.0.1"
PORTS = range(12_000, 20_000)
"""Below those of `goqueue-cli dev`, and those that the system gives to connections going out."""
TRIED_MAX = 200
_choice = random.SystemRandom()
"""Tests beside this one choose other ports, whatever seeds they have."""
_given: set[int] = set()
"""A process's own locks don't keep it out."""


def free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in _choice.sample(PORTS, TRIED_MAX):
        if len(found) == count:
            break
        if _take([port]):
            found.append(port)
    assert len(found) == count, "no free ports"
    return found


def neighbouring_ports(count: int) -> int:
    """The first of as many, one after the other."""
    for first in _choice.sample(PORTS[:-count], TRIED_MAX):
        if _take(range(first, first + count)):
            return first
    raise AssertionError("no free ports")


def _take(ports: Sequence[int]) -> bool:
    """Whether all of these are free, and nobody's; they are this process's from then on."""
    if not _given.isdisjoint(ports):
        return False
    held: list[socket.socket] = []
    locked: list[int] = []
    try:
        for port in ports:
            fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            locked.append(port)
            held.append(socket.create_server((HOST, port)))
    except OSError:
        for port in locked:
            fcntl.lockf(_locks(), fcntl.LOCK_UN, 1, port)
        return False
    finally:
        for server in held:
            server.close()
    _given.update(ports)
    return True


@cache
def _locks() -> int:
    """The file, opened once and for good: who closes it loses all locks."""
    path = Path(tempfile.gettempdir()) / f"goqueue-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
