"""The table of holes names only tests and mutants that exist, and forgets no mutant."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from log.partition.log import PartitionLog
from raft.group import Parts, RaftGroup
from raft.host import RaftHost
from tests.unit.raft import mutants

HERE = Path(__file__).parent
ROWS = [
    row.strip("|").split(" | ")
    for row in (HERE.parents[2] / "docs" / "internals" / "raft-holes.md").read_text().splitlines()
    if row.startswith("| ") and not row.startswith("| #")
]
SOURCES = {path.name: path.read_text() for path in HERE.glob("test_*.py")}


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_numbered_hole_has_a_row() -> None:
    numbers = {int(row[0]) for row in ROWS if row[0].strip().isdigit()}
    assert numbers == set(range(1, 17))


def test_every_test_in_the_table_exists_and_runs_its_mutant() -> None:
    defined = {n for text in SOURCES.values() for n in re.findall(r"^def (test_\w+)", text, re.M)}
    for row in ROWS:
        tests, breakers = names(row[3]), names(row[4])
        assert tests, row
        assert set(tests) <= defined, row
        for mutant in breakers:
            assert any(mutant in _guarded_by(test) for test in tests), (mutant, tests)


def _guarded_by(test: str) -> str:
    """The decorator right above a test, with the mutants it must fail under."""
    for text in SOURCES.values():
        found = re.search(
            rf"@(?:fails_under|pytest.mark.parametrize)\(([^)]*)\)\ndef {test}\(", text
        )
        if found:
            return found.group(1)
    return ""


def test_every_mutant_is_in_the_table() -> None:
    known = {
        name
        for name, value in vars(mutants).items()
        if isinstance(value, type)
        and issubclass(value, RaftGroup)
        and value not in (RaftGroup, mutants.Mutant)
    }
    assert known == {name for row in ROWS for name in names(row[4])}


def test_every_part_that_closes_a_hole_exists() -> None:
    kinds: list[type] = [getattr(Parts, field.name) for field in fields(Parts)]
    classes = {kind.__name__: kind for kind in [*kinds, RaftGroup, RaftHost, PartitionLog]}
    for row in ROWS:
        for name in names(row[2]):
            owner, _dot, member = name.partition(".")
            if member and owner[0].isupper():
                assert member in vars(classes[owner]), name
