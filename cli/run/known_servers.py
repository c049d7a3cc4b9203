"""The other servers of the clusters that this user's contexts name, in a small file of the user's
cache: when the one that is named is dead, those that were there before are asked.

The file holds URLs, and no secret. It is a convenience: what goes wrong with it is left unsaid.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from goqueue.errors import GoQueueError

if TYPE_CHECKING:
    from goqueue import AsyncClient

CLUSTERS_MAX = 32
"""The least recently learned go first."""
SERVERS_MAX = 16
"""Of one cluster: more than that need not be tried by somebody who waits."""
FILE_BYTES_MAX = 256 << 10
LEARN_EVERY_S = 600
"""A cluster is asked again so often at most; brokers come and go seldom."""
ASK_S = 1.0


class Known(msgspec.Struct):
    """What one cluster said, and when."""

    servers: list[str]
    learned_s: float


_FILE = msgspec.json.Decoder(dict[str, Known])


def path() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "goqueue" / "servers.json"


def beside(named: Sequence[str]) -> list[str]:
    """Servers of the same cluster that are not named, as they were known last."""
    found = _load().get(_name(named))
    return [url for url in found.servers if url not in named] if found else []


async def learn(client: AsyncClient, named: Sequence[str]) -> None:
    """Ask who is there, unless that is known well enough, and keep it."""
    with contextlib.suppress(GoQueueError, OSError, TimeoutError):
        known = _load()
        last = known.pop(_name(named), None)
        now_s = time.time()
        if last is not None and 0 <= now_s - last.learned_s < LEARN_EVERY_S:
            return
        async with asyncio.timeout(ASK_S):
            nodes = await client.admin.cluster_nodes()
        schemes = tuple({f"{url.partition('://')[0]}://" for url in named})
        urls = [node.http_url.rstrip("/") for node in nodes if node.http_url.startswith(schemes)]
        known[_name(named)] = Known(urls[:SERVERS_MAX], now_s)
        _save({name: known[name] for name in list(known)[-CLUSTERS_MAX:]})


def _name(named: Sequence[str]) -> str:
    return ",".join(named)


def _load() -> dict[str, Known]:
    try:
        with path().open("rb") as file:
            return _FILE.decode(file.read(FILE_BYTES_MAX))
    except (OSError, ValueError):  # there is none, or it is none of ours
        return {}


def _save(known: dict[str, Known]) -> None:
    where = path()
    where.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=where.parent, prefix=".servers-")
    with os.fdopen(handle, "wb") as file:
        file.write(msgspec.json.encode(known))
    Path(name).replace(where)
