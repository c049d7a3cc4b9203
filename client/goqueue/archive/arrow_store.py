"""An archive on any filesystem that pyarrow reaches: a local path, file://, s3://, gs://, hdfs://.

pyarrow is imported when an archive is opened, and not before.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from goqueue.archive.schema import UnreadableArchive
from goqueue.wire.errors import BadRequest, GoQueueError

CHUNK_BYTES = 1 << 20
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_HADOOP_S3 = re.compile(r"s3[an]://")


class ExtraMissing(GoQueueError):
    """Reading an archive needs pyarrow, which is not installed."""

    code, http_status = "extra_missing", 400
    text = "reading an archive needs pyarrow: pip install 'goqueue[archive]'"


def require_pyarrow() -> None:
    """Raises ExtraMissing where it is not installed."""
    try:
        import pyarrow  # noqa: F401 - whether it is there
    except ImportError:
        raise ExtraMissing from None


class ArrowStore:
    """The files below an archive's destination, by paths relative to it. Calls block."""

    def __init__(self, url: str) -> None:
        """Raises ExtraMissing, or BadRequest where no filesystem is found for the URL."""
        require_pyarrow()
        self.url = url
        self._fs, self._root = _open(url)

    def names(self, folder: str) -> list[str]:
        """What lies directly in a folder; nothing where there is no such folder."""
        from pyarrow import fs

        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        with self._reading(folder):
            return [info.base_name for info in self._fs.get_file_info(selector)]

    def read(self, path: str) -> bytes:
        """A file's bytes. Raises FileNotFoundError, UnreadableArchive."""
        return b"".join(self.chunks(path))

    def chunks(self, path: str) -> Iterator[bytes]:
        """A file's bytes, a piece at a time. Raises as `read` does."""
        where = self._path(path)
        with self._reading(path), self._fs.open_input_stream(where, compression=None) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                yield chunk

    def replace(self, path: str, data: bytes) -> None:
        """Write a file whole, in place of one that is there: readers see the old or the new one.

        Local files are synced before they get their name. Raises UnreadableArchive.
        """
        from pyarrow import fs

        where = self._path(path)
        with self._reading(path):
            if isinstance(self._fs, fs.LocalFileSystem):
                _replace_local(Path(where), data)
                return
            self._fs.create_dir(where.rpartition("/")[0], recursive=True)
            with self._fs.open_output_stream(where, compression=None) as stream:
                stream.write(data)

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UnreadableArchive(f"{self.url}: {path}: {error}") from error


def _open(url: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow import fs

    named = _HADOOP_S3.sub("s3://", url)
    if not _SCHEME.match(named):
        named = str(Path(named).expanduser().absolute())
    try:
        filesystem, root = fs.FileSystem.from_uri(named)
    except (pa.ArrowInvalid, OSError) as error:
        raise BadRequest(f"no archive can be read at {url}: {error}") from None
    return filesystem, root.rstrip("/")


def _replace_local(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"_{path.name}-")
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
