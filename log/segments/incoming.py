"""Files of a copied replica: their names until they are in place, and the renames into place.

Each rename is a step that may be repeated, so power may go between any two. See `log.wal.install`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from log.disk.files import Disk
from log.segments.segment import SUFFIXES
from log.snapshots.file import SUFFIX as SNAPSHOT_SUFFIX
from log.snapshots.file import snapshot_name
from log.wal.install import Install

INCOMING = ".incoming"


def incoming_suffix(id: int) -> str:
    """What the names of a copy's files end with until they are in place."""
    return f".{id:016x}{INCOMING}"


def incoming_id(name: str) -> int | None:
    """Whose file this is; None for any other file."""
    if not name.endswith(INCOMING):
        return None
    try:
        return int(name.removesuffix(INCOMING).rpartition(".")[2], 16)
    except ValueError:
        return None


def move_in(disk: Disk, directory: str, install: Install, forget: Callable[[str], None]) -> None:
    """Renames what is still to be renamed, after deleting files of the log that was.

    Unsynced; `forget` is told every path whose file is now another one. May be repeated, also
    where earlier attempts came to a part of it only.
    """
    names = disk.list_directory(directory)
    wanted = set(_names(install))
    for name in names:
        old = name.endswith(SUFFIXES) and name not in wanted
        if old or _is_useless_snapshot(name, install):
            forget(f"{directory}/{name}")
            with suppress(FileNotFoundError):  # a newer snapshot has pushed it out meanwhile
                disk.unlink(f"{directory}/{name}")
    suffix = incoming_suffix(install.id)
    for name in names:
        if name.endswith(suffix):
            target = name.removesuffix(suffix)
            forget(f"{directory}/{name}")
            forget(f"{directory}/{target}")
            disk.rename(f"{directory}/{name}", f"{directory}/{target}")


def _names(install: Install) -> list[str]:
    """The files it consists of, by the names they are to have."""
    names = [f"{first:016x}{suffix}" for first in install.segments for suffix in SUFFIXES]
    return [*names, snapshot_name(install.snapshot_index)] if install.snapshot_index else names


def _is_useless_snapshot(name: str, install: Install) -> bool:
    """Of a state before the log's new beginning."""
    if not name.endswith(SNAPSHOT_SUFFIX):
        return False
    return int(name.removesuffix(SNAPSHOT_SUFFIX), 16) < install.first_index - 1
