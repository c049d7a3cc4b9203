"""The finished level in a data directory: kept whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from log.disk.files import OsDisk
from log.store.level_file import NAME, LevelFile


@pytest.fixture
def file(tmp_path: Path) -> LevelFile:
    return LevelFile(OsDisk(), str(tmp_path))


def test_directory_without_the_file_knows_no_level(file: LevelFile) -> None:
    assert file.read() == 0


def test_level_is_read_back_and_replaced(file: LevelFile) -> None:
    assert file.write(3, "0.4.0")
    assert file.write(4, "0.5.0")

    assert file.read() == 4
    assert "written by 0.5.0" in Path(file.root, NAME).read_text()


def test_any_flipped_bit_makes_it_unknown_never_another_level(file: LevelFile) -> None:
    file.write(12, "0.4.0")
    path = Path(file.root, NAME)
    whole = path.read_bytes()

    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        assert file.read() in (0, 12), bit


def test_level_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    assert not LevelFile(OsDisk(), str(tmp_path / "missing")).write(2, "0.2.0")
