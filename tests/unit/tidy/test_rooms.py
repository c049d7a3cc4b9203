"""Each folder of the program is a room: few files, one subject, a text that leads through it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("client/goqueue", "log", "raft", "delivery", "coordinator", "node", "cli", "monitoring")
FILES_MAX = 25
GUIDE_CHARACTERS_MIN = 80


def rooms() -> list[Path]:
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    return sorted(folders)


def test_a_room_has_at_most_twenty_five_files() -> None:
    sizes = {str(room.relative_to(ROOT)): len(list(room.glob("*.py"))) for room in rooms()}

    assert len(sizes) > 50
    assert {room: size for room, size in sizes.items() if size > FILES_MAX} == {}


@pytest.mark.parametrize("room", rooms(), ids=lambda room: str(room.relative_to(ROOT)))
def test_a_room_says_what_it_is_for(room: Path) -> None:
    guide = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""

    assert len(guide) >= GUIDE_CHARACTERS_MIN


def test_a_file_does_not_repeat_the_name_of_its_room() -> None:
    repeating = [
        str(path.relative_to(ROOT))
        for room in rooms()
        for path in room.glob("*.py")
        if path.stem.startswith((f"{room.name}_", f"{room.name.removesuffix('s')}_"))
    ]

    assert repeating == []


def test_the_tests_of_a_room_stand_in_a_folder_of_its_name() -> None:
    strangers = []
    for package in PACKAGES:
        tests = ROOT / "tests" / "unit" / Path(package).name
        folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
        strangers += [
            f"{package}/{folder}" for folder in folders if not (ROOT / package / folder).is_dir()
        ]

    assert strangers == []
