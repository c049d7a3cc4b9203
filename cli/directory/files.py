"""The files of a directory, as rows: what they are, and which entries they hold."""

from __future__ import annotations

from pathlib import Path

from cli.run.session import Json
from log.config import StorageConfig
from log.disk.files import OsDisk
from log.disk.overlay import OverlayDisk
from log.errors import Damaged
from log.segments.segment import OFFSETS_SUFFIX, SEGMENT_SUFFIX, TERMS_SUFFIX
from log.store.directory import Store
from log.store.opening import GROUPS

HOLDS = {
    "LOCK": "who has the directory open",
    "SOCKET": "by which others ask who has it open",
    "RESERVE": "space for a full disk",
    "LEVEL": "the formats in use",
    ".wal": "what was written last, of all topics",
    "spare": "space for the log that is written next",
    SEGMENT_SUFFIX: "entries",
    TERMS_SUFFIX: "index of entries",
    OFFSETS_SUFFIX: "index of offsets and times",
    ".snapshot": "state after an entry",
    ".hashes": "index of ids, keys and headers",
    ".mentions": "index of timelines",
}


def files_of(directory: Path) -> list[Json]:
    """Every file, sorted by path. Raises OSError; what is damaged is shown by its size alone."""
    ranges = _ranges(directory)
    rows: list[Json] = []
    for path in sorted(directory.rglob("*")):
        if path.is_dir():
            continue
        first, last = ranges.get(str(path), (None, None))
        if path.suffix == ".snapshot":
            first = last = int(path.stem, 16)
        rows.append(
            {
                "file": str(path.relative_to(directory)),
                "bytes": path.stat().st_size,
                "holds": HOLDS.get(path.suffix) or HOLDS.get(path.name),
                "first": first,
                "last": last,
            }
        )
    return rows


def _ranges(directory: Path) -> dict[str, tuple[int, int]]:
    """The first and last entry of each segment; none where the log can't be read."""
    disk = OverlayDisk(OsDisk(), f"{directory}/{GROUPS}")
    try:
        store = Store.open(disk, str(directory), StorageConfig())
        return {
            segment.path(): (segment.first_index, segment.last_index)
            for partition_id in store.partition_ids()
            for segment in store.partition_log(partition_id).disk_segments.chain
        }
    except (Damaged, FileNotFoundError):
        return {}
    finally:
        disk.close_all()
