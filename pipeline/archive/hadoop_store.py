"""The archive's filesystem, through the JVM's `org.apache.hadoop.fs.FileSystem`.

Three ways to make a file that appears whole, and only where there is none:
- `file:` links a finished temporary file, and syncs it and its folder.
- A store that can create under a condition (S3A from Hadoop 3.4.2 on) does so on closing.
- Others rename a finished temporary file. HDFS refuses where the name is taken; a store that does
  not, such as an older S3A, takes one writer at a time only (`is_exclusive`).
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from goqueue.archive.layout import TEMPORARY
from goqueue.errors import ServerError

T = TypeVar("T")

CONDITIONAL_CREATE = "fs.option.create.conditional.overwrite"
"""Hadoop's name for the capability, and for the option of `createFile`."""
EXCLUSIVE_RENAME_SCHEMES = frozenset(("hdfs", "abfs", "abfss"))
COPY_BYTES = 1 << 20


class StoreFailed(ServerError):
    """The destination's filesystem refused: one sentence with its own words."""

    code = "archive_store_failed"
    text = "the archive's filesystem failed"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file, or a folder, that lies there. `path` is relative to the destination."""

    path: str
    bytes: int
    modified_ms: int


class HadoopStore:
    """A WritableStore at any URL that Spark can write to; every method raises StoreFailed."""

    def __init__(self, spark: SparkSession, destination: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
        with self._failing():
            path = self._jvm.org.apache.hadoop.fs.Path(destination)
            self._fs = path.getFileSystem(self._conf)
            self.root: str = self._fs.makeQualified(path).toString().rstrip("/")
            scheme = urlsplit(self.root).scheme
            self._is_local = scheme == "file"
            self._is_conditional = bool(self._fs.hasPathCapability(path, CONDITIONAL_CREATE))
        self.is_exclusive: bool = (
            self._is_local or self._is_conditional or scheme in EXCLUSIVE_RENAME_SCHEMES
        )
        """Whether two writers at once are told apart, whatever they do."""

    def uri(self, path: str) -> str:
        """As Spark's readers and writers take it."""
        return f"{self.root}/{path}"

    def names(self, folder: str) -> list[str]:
        return [status.getPath().getName() for status in self._listed(folder)]

    def files(self, folder: str) -> Iterator[StoredFile]:
        """All files in a folder and below, hidden ones too."""
        for status in self._listed(folder):
            path = f"{folder}/{status.getPath().getName()}"
            if status.isDirectory():
                yield from self.files(path)
            else:
                yield StoredFile(path, status.getLen(), status.getModificationTime())

    def folders(self, folder: str) -> Iterator[StoredFile]:
        """The folders directly in a folder."""
        for status in self._listed(folder):
            if status.isDirectory():
                path = f"{folder}/{status.getPath().getName()}"
                yield StoredFile(path, 0, status.getModificationTime())

    def read(self, path: str) -> bytes:
        with self._failing():
            stream = self._fs.open(self._path(path))
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def create(self, path: str, data: bytes) -> bool:
        with self._failing():
            if self._is_conditional:
                return self._create_conditionally(path, lambda out: out.write(bytearray(data)))
            temporary = f"{TEMPORARY}/{uuid.uuid4()}"
            if self._is_local:
                return _created(self._local(temporary), self._local(path), data)
            try:
                stream = self._fs.create(self._path(temporary), False)
                stream.write(bytearray(data))
                stream.close()
                return self._renamed(temporary, path)
            finally:
                self._fs.delete(self._path(temporary), False)

    def move(self, source: str, target: str) -> bool:
        """Give a finished file its name; False, leaving it where it is, where the name is taken.

        Where the store knows no exclusive rename but a conditional create, it is copied through
        the driver, and stays where it was as well.
        """
        with self._failing():
            if self._is_conditional:
                return self._create_conditionally(target, lambda out: self._copy(source, out))
            return self._renamed(source, target)

    def remove(self, path: str) -> None:
        with self._failing():
            self._fs.delete(self._path(path), True)

    # private

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.uri(path))

    def _listed(self, folder: str) -> list[Any]:
        try:
            with self._failing():
                return list(self._fs.listStatus(self._path(folder)))
        except FileNotFoundError:
            return []

    def _renamed(self, source: str, target: str) -> bool:
        if self._is_local:
            return _linked(self._local(source), self._local(target))
        to = self._path(target)
        if self._fs.exists(to):
            return False
        self._fs.mkdirs(to.getParent())
        return bool(self._fs.rename(self._path(source), to))

    def _create_conditionally(self, path: str, write: Callable[[Any], object]) -> bool:
        target = self._path(path)
        if self._fs.exists(target):
            return False
        stream = self._fs.createFile(target).must(CONDITIONAL_CREATE, True).recursive().build()
        try:
            write(stream)
            stream.close()
        except Py4JJavaError:
            # Refused as another came first, or the answer was lost. Only what lies there tells,
            # and whoever is told that it was taken looks at that.
            if self._fs.exists(target):
                return False
            raise
        return True

    def _copy(self, source: str, out: Any) -> None:
        stream = self._fs.open(self._path(source))
        try:
            self._jvm.org.apache.hadoop.io.IOUtils.copyBytes(stream, out, COPY_BYTES, False)
        finally:
            stream.close()

    def _local(self, path: str) -> str:
        name = self.uri(path).removeprefix("file:")  # Hadoop's paths are not percent-encoded
        return f"/{name.lstrip('/')}"

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            thrown = error.java_exception
            name = thrown.getClass().getSimpleName()
            if name in ("FileNotFoundException", "NoSuchFileException"):
                raise FileNotFoundError(str(thrown.getMessage())) from None
            raise StoreFailed(_sentence(name, str(thrown.getMessage()))) from None
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise StoreFailed(f"the archive's filesystem: {error}") from None


def _created(temporary: str, target: str, data: bytes) -> bool:
    os.makedirs(os.path.dirname(temporary), exist_ok=True)
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        return _linked(temporary, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _linked(source: str, target: str) -> bool:
    folder = os.path.dirname(target)
    os.makedirs(folder, exist_ok=True)
    _sync(source)
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    os.unlink(source)
    _sync(folder)
    return True


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sentence(name: str, message: str) -> str:
    first = message.splitlines()[0] if message else ""
    if "S3AFileSystem not found" in message:
        first += (
            ": start the job with spark-submit --packages org.apache.hadoop:hadoop-aws:<version>,"
            " the version of Spark's own Hadoop jars"
        )
    return f"the archive's filesystem: {name}: {first}"
