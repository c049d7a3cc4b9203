"""An archive's files on the filesystems of pyarrow: found, read as they are, replaced whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from goqueue.archive.arrow_store import ArrowStore
from goqueue.archive.rows import DamagedFile, read_messages
from goqueue.errors import BadRequest
from tests.pipeline.archive_writer import FolderStore, write_files
from tests.unit.goqueue.archive.partition import SERIES, message


@pytest.mark.parametrize("prefix", ["", "file://", "file:"])
def test_files_are_found_and_read_as_they_are(tmp_path: Path, prefix: str) -> None:
    store = ArrowStore(f"{prefix}{tmp_path}/")
    packed = zstandard.compress(b"as it is")
    store.replace("a/b/one.json.zst", packed)
    store.replace("a/two", b"")

    assert store.names("a/b") == ["one.json.zst"]
    assert sorted(store.names("a")) == ["b", "two"]
    assert store.names("nowhere") == []
    assert store.read("a/b/one.json.zst") == packed  # not unpacked by the way
    assert store.read("a/two") == b""
    with pytest.raises(FileNotFoundError):
        store.read("a/none")


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    store = ArrowStore(str(tmp_path))
    for content in (b"first", b"second"):
        store.replace("state.json", content)
    assert store.read("state.json") == b"second"
    assert store.names("") == ["state.json"]


def test_places_are_named_as_hadoop_does_too_and_unknown_ones_are_refused() -> None:
    assert ArrowStore("s3a://lake/goqueue?region=eu-west-1").url.startswith("s3a:")
    with pytest.raises(BadRequest, match="no archive can be read at memory://x"):
        ArrowStore("memory://x")


def test_a_file_that_is_another_than_was_committed_gives_out_nothing(tmp_path: Path) -> None:
    (file,) = write_files(FolderStore(tmp_path), SERIES, map(message, range(2500)), 5000)
    store, path = ArrowStore(str(tmp_path)), tmp_path / SERIES.folder / file.path
    data = path.read_bytes()

    whole = [one for run in read_messages(store, SERIES, file) for one in run]
    assert whole == [message(offset) for offset in range(2500)]
    rest = [one for run in read_messages(store, SERIES, file, 2100) for one in run]
    assert rest == [message(offset) for offset in range(2100, 2500)]

    for broken in (data[:-1], data + b"x", data[:99] + bytes([data[99] ^ 1]) + data[100:]):
        path.write_bytes(broken)
        with pytest.raises(DamagedFile, match="orders:0: offsets 0 to 2499"):
            next(read_messages(store, SERIES, file))
