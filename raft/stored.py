"""What a replica's log says of its group before the replica is started."""

from __future__ import annotations

from goqueue.wire.types import Index
from log.entry import EntryKind
from log.errors import EntryDamaged
from raft.configuration import Configuration, read_configuration, unpack_snapshot
from raft.interfaces import Log

_SCAN_BYTES = 4 << 20


def stored_configuration(log: Log) -> Configuration:
    """The newest configuration that the log or its snapshot holds, committed or not; an empty one
    where there is none. Damage ends the search. Raises msgspec.DecodeError, struct.error."""
    newest = Configuration()
    at = int(log.first_index)
    found = log.latest_snapshot()
    if found is not None:
        configuration, _state = unpack_snapshot(found[1])
        if configuration is not None:
            newest, at = configuration, max(at, found[0] + 1)
    try:
        while at <= log.last_index:
            entries = log.entries(Index(at), max_bytes=_SCAN_BYTES)
            for entry in entries:
                if entry.kind == EntryKind.VOTERS:
                    newest = read_configuration(entry)
            at = entries[-1].index + 1
    except EntryDamaged:
        pass
    return newest
