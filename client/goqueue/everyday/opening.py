"""`goqueue.open`: the same client on a directory, on one server and on a cluster."""

from __future__ import annotations

from typing import Unpack

from goqueue.api.client import AsyncClient
from goqueue.api.options import ClientOptions
from goqueue.blocking.client import Client
from goqueue.everyday.targets import Mode, Target, read_target


def open(target: Target = None, *, mode: Mode = "rw", **options: Unpack[ClientOptions]) -> Client:
    """A client of a directory (`"./jobs"`), of a server (`"http://127.0.0.1:8080"`), or of a
    cluster (some of its servers, in a list or with commas between them).

    With no target: what `GOQUEUE_SERVER` names, else the current context of `goqueue-cli`, else the
    server at http://127.0.0.1:8080. See `ClientOptions` for the options; those that are for servers
    are refused with a directory.

    A directory is made where it is missing, and is open when this returns: in this process, or in
    another one of the same user that has it open already and is asked over a socket. It takes
    `pip install "goqueue[local]"`. What is acknowledged is synced to the disk, and there after a
    crash, whoever opens the directory next. Servers are first asked by the first call.

    With `mode="r"` a directory is only read: nothing is written to it, locked or repaired, so it
    may be in use, on a read-only file system, or a copy. Each call sees it as it is, or was a
    quarter of a second before; what would change something raises ReadOnlyDirectory. Raises
    NotFound where nothing is there, GoQueueError with the code `directory_damaged` or `wal_damaged`
    where something is damaged, naming file and byte; what a crash has cut short is no damage.

    Raises BadRequest for a target that is none; for a directory EngineMissing, DirectoryInUse where
    another process has it and does not answer, Forbidden where that is another user's,
    DirectoryUnusable where the system does not allow it, and GoQueueError with the code
    `wal_damaged` where it is damaged.
    """
    servers, usual = read_target(target, mode)
    usual.update(options)
    client = Client(servers, **usual)
    try:
        client.connect()
    except BaseException:
        client.close()
        raise
    return client


def open_async(
    target: Target = None, *, mode: Mode = "rw", **options: Unpack[ClientOptions]
) -> AsyncClient:
    """As `open`, for programs with an event loop: use it as `async with`, which opens a directory;
    else its first call does."""
    servers, usual = read_target(target, mode)
    usual.update(options)
    return AsyncClient(servers, **usual)
