"""The walks of docs/architecture.md, a publish and an ack file by file, lead where they say."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FILES_MAX = 10
STEP = re.compile(r"^\d+\. `([\w/]+\.py)`: ")
NAME = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)?)`")


@dataclass(frozen=True)
class Step:
    """One file, and the functions that are read there."""

    path: str
    names: tuple[str, ...]

    @property
    def room(self) -> str:
        return self.path.rpartition("/")[0]


def walk(title: str) -> list[Step]:
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    steps = []
    for item in re.split(r"\n(?=\d+\. )", section)[1:]:
        found = STEP.match(item)
        assert found is not None, item
        steps.append(Step(found[1], tuple(NAME.findall(item[found.end() :]))))
    return steps


def defined(path: str) -> set[str]:
    """Functions of a module, and methods with their class."""
    names = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{one.name}"
                for one in node.body
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return names


WALKS = ["A publish, file by file", "An ack, file by file"]


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_is_of_ten_files_at_most_each_of_them_once(title: str) -> None:
    paths = [step.path for step in walk(title)]

    assert 5 <= len(paths) <= FILES_MAX
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_does_not_come_back_to_a_room_that_it_has_left(title: str) -> None:
    rooms = [step.room for step in walk(title)]
    entered = [room for room, before in zip(rooms, ["", *rooms], strict=False) if room != before]

    assert len(set(entered)) == len(entered)


@pytest.mark.parametrize("title", WALKS)
def test_the_functions_that_a_walk_names_are_in_their_files(title: str) -> None:
    for step in walk(title):
        assert step.names, step.path
        assert set(step.names) <= defined(step.path), step.path


@pytest.mark.parametrize("title", WALKS)
def test_each_step_of_a_walk_is_called_or_imported_somewhere_before_or_after_it(title: str) -> None:
    """A step that no other one knows, by its last name, is not on the way."""
    steps = walk(title)
    texts = {step.path: (ROOT / step.path).read_text() for step in steps}
    for step in steps:
        others = " ".join(text for path, text in texts.items() if path != step.path)
        used = [name for name in step.names if re.search(rf"\b{name.split('.')[-1]}\(", others)]

        assert used or step is steps[0], step.path
