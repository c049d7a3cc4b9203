"""The end of the log that another process left, made durable before anybody acts on what it says.

What was read may be in the page cache alone: the process was killed before its sync, or its sync
failed. In the second case those pages pass for clean, and another sync writes nothing of them. A
power cut would take away what segments were cut and files deleted for, and what the next file's
header is about to vouch for.
"""

from __future__ import annotations

from log.disk.files import Disk, is_full
from log.wal.reader import LoadedFile, WalImage
from log.wal.writer import NEW


def settle(disk: Disk, image: WalImage) -> None:
    """Writes what nobody knew as synced once more, and syncs it. Raises OSError.

    Where its place takes nothing any more, the file is made anew in another one.
    """
    last = image.last
    begin, end = last.position(image.known_lsn), last.position(image.end_lsn)
    if begin >= end:
        return
    handle = disk.open(last.path, write=True)
    try:
        disk.pwritev(handle, [last.data[begin:end]], begin)
        disk.fdatasync(handle)
    except OSError as error:
        if is_full(error):
            raise
        _renew(disk, last, end)
    finally:
        disk.close(handle)


def _renew(disk: Disk, file: LoadedFile, end: int) -> None:
    """A file that holds nothing yet takes the place of this one, with its bytes up to here."""
    new = file.path + NEW
    handle = disk.open(new, write=True, create=True)
    try:
        disk.preallocate(handle, file.header.file_bytes)
        disk.pwritev(handle, [file.data[:end]], 0)
        disk.fdatasync(handle)
    finally:
        disk.close(handle)
    disk.rename(new, file.path)
    disk.sync_directory(file.path.rpartition("/")[0])
