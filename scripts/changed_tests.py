"""Which tests belong to changed files: a mapping from paths to paths, read from the text of the
files alone. `scripts/check.py` runs them.

Near are a changed test itself and the tests in the folder that mirrors the file's room. Far are
tests elsewhere that import the module or name the file; they are left out where there are many.
`tests/unit/tidy` always belongs to them.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath

TREES = (
    "tests/unit/",
    "tests/check/",
    "tests/chaos/",
    "tests/fuzz/",
    "tests/kubernetes/",
    "tests/protocols/",
)
"""What `make test-unit` runs."""
TIDY = "tests/unit/tidy/"
SLOW_TIDY = {TIDY + "test_bootstrap.py", TIDY + "test_locks.py"}
"""They make whole environments."""
READERS = {
    "tests/scripts/groups/": "tests/cluster/test_group_stories.py",
    "tests/scripts/queue-": "tests/unit/delivery/state/test_transcripts.py",
}
"""Tests that find their files by a pattern."""
EVERYWHERE = ("pyproject.toml", "tests/conftest.py", "requirements/")
"""What any test may depend on."""
FILES_MAX = 40
TESTS_MAX = 1_500
NAMES_MAX = 5


@dataclass
class Plan:
    """Test files, each with the reason for it, and what is left out."""

    tests: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def plan(changed: Iterable[str], sources: Mapping[str, str]) -> Plan:
    """The tests of changed paths; `sources` has the text of each Python file that there is."""
    tests = [path for path in sources if path.startswith("tests/") and is_test(path)]
    near: dict[str, str] = {}
    far: dict[str, str] = {}
    left_out: list[str] = []
    unknown: list[str] = []
    for path in sorted(changed):
        close, distant = mirrors(path, tests), elsewhere(path, tests, sources)
        if path.startswith(EVERYWHERE):
            left_out.append(f"what else depends on {path}: `make test-unit` runs every unit test")
        elif not close and not distant:
            unknown.append(path)
        near, far = close | near, distant | far
    if unknown:
        names = ", ".join(unknown[:NAMES_MAX]) + (", ..." if len(unknown) > NAMES_MAX else "")
        left_out.append(f"{len(unknown)} paths that no test mirrors, imports or names: {names}")
    wanted = far | near
    others = Counter("/".join(t.split("/")[:2]) for t in wanted if not t.startswith(TREES))
    left_out += [f"{n} files of {tree}, which are no unit tests" for tree, n in others.items()]
    unit = {test: why for test, why in wanted.items() if test.startswith(TREES)}
    always = [test for test in tests if test.startswith(TIDY) and test not in SLOW_TIDY]
    chosen, told = bounded(unit, near, always, sources)
    left_out += told
    left_out += [f"{test}: it makes an environment" for test in sorted(SLOW_TIDY - set(chosen))]
    return Plan(dict.fromkeys(always, "always") | chosen, left_out)


def bounded(
    unit: dict[str, str],
    near: Collection[str],
    always: Collection[str],
    sources: Mapping[str, str],
) -> tuple[dict[str, str], list[str]]:
    """All of them, or only those that are near where all are over a bound; and what to tell."""
    if not too_many(unit, sources):
        return unit, []
    chosen = {test: why for test, why in unit.items() if test in near}
    bound = f"{FILES_MAX} files or {TESTS_MAX:,} tests"
    told = []
    if less := set(unit) - set(chosen) - set(always):
        told.append(f"{len(less)} files outside the rooms of what changed: over {bound} with them")
    if too_many(chosen, sources):
        told.append(f"nothing of {len(chosen)} files in these rooms, though they are over {bound}")
    return chosen, told


def too_many(tests: Iterable[str], sources: Mapping[str, str]) -> bool:
    """Whether they are over a bound. Tests are counted as functions, without their parameters."""
    counted = [sources[test].count("def test_") for test in tests if not test.startswith(TIDY)]
    return len(counted) > FILES_MAX or sum(counted) > TESTS_MAX


def mirrors(path: str, tests: Collection[str]) -> dict[str, str]:
    """The test itself, or the tests of the room that a file is in."""
    if is_test(path):
        return {path: "changed"} if path in tests else {}
    name = PurePosixPath(path)
    if name.name == "conftest.py" and path.startswith(TREES):
        under = f"{name.parent}/"
        return {test: f"below {path}" for test in tests if test.startswith(under)}
    room = mirror(path, {parent(test) for test in tests})
    return {test: f"room of {path}" for test in tests if room and parent(test) == room}


def mirror(path: str, rooms: Collection[str]) -> str | None:
    """The folder of a file's room under tests/unit, or the nearest above it that has tests."""
    if path.startswith("tests/"):
        if path.endswith(".py") or not path.startswith(TREES):
            return None
        room = PurePosixPath(path).parent
    else:
        room = "tests/unit" / PurePosixPath(path.removeprefix("client/")).parent
    while len(room.parts) > 2:
        if str(room) in rooms:
            return str(room)
        room = room.parent
    return None


def elsewhere(path: str, tests: Collection[str], sources: Mapping[str, str]) -> dict[str, str]:
    """Tests that import the module, name the script or document, or read it among others."""
    found = dict.fromkeys(importers(path, tests, sources), f"imports {path}")
    if module(path) is None or path.startswith("scripts/"):
        found |= {test: f"names {path}" for test in tests if path in sources[test]}
    found |= {test: f"reads {path}" for start, test in READERS.items() if path.startswith(start)}
    return found


def importers(path: str, among: Iterable[str], sources: Mapping[str, str]) -> list[str]:
    """Files that import the module itself, by any form of the statement."""
    name = module(path)
    if name is None:
        return []
    word = name.rpartition(".")[2]
    maybe = [other for other in among if other != path and word in sources[other]]
    return [other for other in maybe if name in imported(other, sources[other])]


@cache
def imported(path: str, text: str) -> frozenset[str]:
    """Dotted names that may be modules; none of a file that can't be parsed: ruff tells of it."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return frozenset()
    found: set[str] = set()
    folder = path.removeprefix("client/").split("/")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = folder[: -node.level] if node.level else []
            package = ".".join([*above, *([node.module] if node.module else [])])
            found |= {package, *(f"{package}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def module(path: str) -> str | None:
    """Its dotted name; none for what is no module."""
    if not path.endswith(".py"):
        return None
    dotted = path.removeprefix("client/").removesuffix(".py").replace("/", ".")
    return dotted.removesuffix(".__init__")


def is_test(path: str) -> bool:
    return PurePosixPath(path).name.startswith("test_") and path.endswith(".py")


def parent(path: str) -> str:
    return str(PurePosixPath(path).parent)
