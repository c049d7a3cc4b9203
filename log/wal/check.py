"""Reading the write-ahead log of a running node again: it is needed at the next start, or never.

What it holds is in memory, too: where it is damaged, a new file that states everything takes its
place, before anybody depends on the old one.
"""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.wire.types import Lsn
from log.disk.files import Disk
from log.errors import WalDamaged
from log.wal.format import (
    BLOCK_BYTES,
    PREFIX,
    FileHeader,
    block_length,
    decode_header,
    goes_on,
    read_block,
)
from log.wal.writer import WalFile

STEP_BYTES = 256 << 10


class WalCheck:
    """One pass over files of the log, up to an LSN that was synced when it began; any thread."""

    def __init__(self, disk: Disk, files: Sequence[WalFile], until: Lsn) -> None:
        self._disk = disk
        self._files = list(files)
        self._until = until
        self._handle = -1
        self._header: FileHeader | None = None
        self._lsn = 0
        self.path = ""
        """The file that is being read."""

    def step(self) -> int:
        """Verifies some more; the bytes read, 0 once all is verified. Raises WalDamaged, OSError;
        also of a file that was dropped meanwhile."""
        header = self._header
        if header is None:
            return self._begin() if self._files else 0
        at = header.header_bytes + self._lsn - header.start_lsn
        if self._lsn >= self._end():
            if len(self._files) > 1:
                self._verify_goes_on(header, at)
            self.close()
            del self._files[0]
            return 1
        data = self._disk.pread(self._handle, STEP_BYTES, at)
        size = BLOCK_BYTES + block_length(data)
        if size > len(data):
            data = self._disk.pread(self._handle, min(size, header.file_bytes), at)
        return self._verify(data, at)

    def close(self) -> None:
        """Lets go of the file; safe to call twice."""
        if self._handle >= 0:
            self._disk.close(self._handle)
        self._handle, self._header = -1, None

    # -- private

    def _begin(self) -> int:
        file = self._files[0]
        self.path = file.path
        try:
            self._disk.uncache(file.path)
            self._handle = self._disk.open(file.path)
        except FileNotFoundError:
            raise WalDamaged(file.path, 0, "the file is missing") from None
        prefix = self._disk.pread(self._handle, PREFIX.size, 0)
        length = PREFIX.unpack(prefix)[-1] if len(prefix) == PREFIX.size else 0
        size = self._disk.size(file.path)
        header = decode_header(self._disk.pread(self._handle, min(length, size), 0), file.path)
        if (header.number, header.start_lsn) != (file.number, file.start_lsn):
            raise WalDamaged(file.path, 0, "holds another file")
        if size < header.file_bytes:
            raise WalDamaged(file.path, size, "shorter than allocated")
        self._header, self._lsn = header, header.start_lsn
        return header.header_bytes

    def _end(self) -> int:
        return self._files[1].start_lsn if len(self._files) > 1 else self._until

    def _verify_goes_on(self, header: FileHeader, position: int) -> None:
        """The block that tells a later start of the next file; this process has written it."""
        data = memoryview(self._disk.pread(self._handle, BLOCK_BYTES, position))
        if read_block(data, 0, header.file_id, self._lsn) is None or not goes_on(data, 0):
            raise WalDamaged(self.path, position, "nothing says that the log goes on")

    def _verify(self, data: bytes, position: int) -> int:
        """The blocks at the beginning of these bytes, one at least."""
        assert self._header is not None
        view = memoryview(data)
        at = 0
        while self._lsn < self._end():
            block = read_block(view, at, self._header.file_id, self._lsn)
            if block is None:
                if at:
                    break
                raise WalDamaged(self.path, position, f"the block of LSN {self._lsn} is bad")
            at += BLOCK_BYTES + block[0]
            self._lsn += BLOCK_BYTES + block[0]
        return at
