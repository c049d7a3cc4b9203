"""Sweeping removes what a manifest has retired, and nothing that lies elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from goqueue.archive.layout import Kind, Series
from goqueue.archive.manifest import File, Manifest, Retired, encode, newest
from goqueue.archive.schema import UnreadableArchive
from pipeline.archive.sweep import sweep

ORDERS = Series(Kind.MESSAGES, "orders", "00000000deadbeef-1f")
DAY = date(2026, 1, 2)
NAME = ORDERS.data_path(DAY, 0, 0, 9).rpartition("/")[2]


class FolderStore:
    """A store in a folder, as far as sweeping asks; it removes whatever it is told to."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, folder: str) -> list[str]:
        there = self._root / folder
        return [path.name for path in there.iterdir()] if there.is_dir() else []

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def create(self, path: str, data: bytes) -> bool:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            return False
        target.write_bytes(data)
        return True

    def remove(self, path: str) -> None:
        target = Path(f"{self._root}/{path}")
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def files(self, folder: str) -> Iterator[Any]:
        for path in sorted((self._root / folder).rglob("*")):
            if path.is_file():
                told_ms = path.stat().st_mtime_ns // 1_000_000
                yield SimpleNamespace(path=str(path.relative_to(self._root)), modified_ms=told_ms)

    def folders(self, folder: str) -> Iterator[Any]:
        return iter(())


class Scene:
    """An archive of one file, whose manifest retires what a test says."""

    def __init__(self, root: Path) -> None:
        self.root = root / "archive"
        self.store = FolderStore(self.root)
        self.kept = ORDERS.data_path(DAY, 0, 0, 19)
        self.outside = root / NAME
        self.outside.write_text("another's")
        self.store.create(f"{ORDERS.folder}/{self.kept}", b"rows")

    def retire(self, *paths: str) -> None:
        file = File(self.kept, 0, 0, 19, 20, 4, "00" * 32, 1, 2)
        manifest = msgspec.structs.replace(
            Manifest.empty(ORDERS),
            version=1,
            files=(file,),
            retired=tuple(Retired(path, 1) for path in paths),
        )
        self.store.create(ORDERS.manifest_path(1), encode(manifest))

    def sweep(self) -> Any:
        return sweep(SimpleNamespace(store=self.store, grace_s=3600.0, id="w"), ORDERS)  # type: ignore[arg-type]

    def files(self) -> set[str]:
        """Below the series' folder, but for manifests."""
        folder = self.root / ORDERS.folder
        found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        return {path for path in found if not path.startswith("_manifest")}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_retired_file_is_removed_and_forgotten(scene: Scene) -> None:
    old = ORDERS.data_path(DAY, 0, 0, 9)
    scene.store.create(f"{ORDERS.folder}/{old}", b"rows")
    scene.retire(old)

    swept = scene.sweep()

    assert swept.replaced == 1
    assert scene.files() == {scene.kept}
    assert newest(scene.store, ORDERS).retired == ()


@pytest.mark.parametrize(
    "lead",
    ["../" * (ORDERS.folder.count("/") + 2), "date=2026-01-02/" + "../" * 7, "{root}/", "/{root}/"],
    ids=["up", "in and up", "absolute", "two slashes"],
)
def test_file_outside_the_archive_survives(scene: Scene, lead: str) -> None:
    scene.retire(lead.format(root=scene.outside.parent) + NAME)

    with pytest.raises(UnreadableArchive, match="no file of this archive"):
        scene.sweep()

    assert scene.outside.read_text() == "another's"
    assert scene.files() == {scene.kept}


@pytest.mark.parametrize("path", ["", ".", "_manifest", "_manifest/x.parquet", "a//b", "a\\..\\b"])
def test_path_of_no_data_file_makes_the_manifest_unreadable(scene: Scene, path: str) -> None:
    scene.retire(path)

    with pytest.raises(UnreadableArchive):
        scene.sweep()

    assert scene.files() == {scene.kept}


def test_folders_and_committed_files_are_left_alone(scene: Scene) -> None:
    scene.retire("date=2026-01-02", scene.kept)

    assert scene.sweep().replaced == 0

    assert scene.files() == {scene.kept}
