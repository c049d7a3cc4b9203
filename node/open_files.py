"""How many files this process may have open, and how many of them clients' connections may be.

A log that can't open its next file ends the node, so connections must leave it what it needs.
"""

from __future__ import annotations

import dataclasses
import resource
from contextlib import suppress

from node.http.budget.limits import HttpLimits
from node.runtime.logger import get_logger

WANTED = 1 << 16
"""More than a node can use; a limit beyond it stays as it is."""
OWN = 512
"""Files and sockets that are no client's: 256 of the log between uses, what is copied and indexed
beside them, peers, and 128 that have not proven to be peers."""
UNSYNCED_MAX = 4096
"""Files of the log that were written to and not synced yet, at most: two for each partition that is
written to between two checkpoints."""
UNSYNCED_SHARE = 8
"""The log takes no more for those than one in so many of the files that are allowed."""
REFUSED_AT_ONCE = 1024
"""Connections that may be open for the moment in which they are refused: as many as the listening
socket holds."""
CONNECTIONS_LEAST = 16

_log = get_logger("node")


def raise_limit() -> None:
    """Let this process open as many files as it may allow itself.

    Systems set the soft limit to 1024 for the sake of `select`, which nothing here uses.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # some systems have a lower limit than they tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def allowed() -> int | None:
    """How many files this process may have open; None where there is no limit."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def unsynced_max(files_max: int | None) -> int:
    """How many files the log may keep open because they are not synced yet."""
    return UNSYNCED_MAX if files_max is None else min(UNSYNCED_MAX, files_max // UNSYNCED_SHARE)


def within(limits: HttpLimits, files_max: int | None) -> HttpLimits:
    """With as many connections as leave the node the files that it needs itself."""
    if files_max is None:
        return limits
    left = max(0, files_max - OWN - unsynced_max(files_max))
    connections = max(CONNECTIONS_LEAST, left - min(REFUSED_AT_ONCE, left // 2))
    if connections >= limits.connections_max:
        return limits
    _log.warning("few_files_allowed", files=files_max, connections=connections)
    return dataclasses.replace(
        limits,
        connections_max=connections,
        connections_per_address_max=min(connections, limits.connections_per_address_max),
    )
