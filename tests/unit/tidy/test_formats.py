"""Whatever nodes write or send has a feature level: a new kind or field is listed with its own."""

from __future__ import annotations

import dataclasses

import pytest

from coordinator.commands import codec as commands
from delivery.entries import ops
from log.levels import FIRST, HIGHEST, LOWEST, Feature
from tests.unit.tidy import formats
from tests.unit.tidy.formats import Row, found, listed

HOW = (
    "docs/internals/feature-levels.md says what a new one needs; then list it:"
    " python -m tests.unit.tidy.formats --level LEVEL"
)


@pytest.fixture(scope="module")
def rows() -> dict[Row, type | None]:
    return found()


def test_every_kind_and_field_is_listed_with_its_level(rows: dict[Row, type | None]) -> None:
    new = [" ".join(row) for row in rows.keys() - listed().keys()]

    assert sorted(new) == [], HOW


def test_nothing_that_is_listed_is_gone(rows: dict[Row, type | None]) -> None:
    """What a level has brought is read by every later version."""
    gone = [" ".join(row) for row in listed().keys() - rows.keys()]

    assert sorted(gone) == [], HOW


def test_listed_levels_are_spoken() -> None:
    assert {level for level in listed().values() if not FIRST <= level <= HIGHEST} == set()
    assert FIRST <= LOWEST <= HIGHEST
    assert {int(feature) for feature in Feature} == set(range(FIRST, HIGHEST + 1))


def test_operations_and_commands_above_level_one_are_asked_for_before_they_are_written(
    rows: dict[Row, type | None],
) -> None:
    """Who writes them refuses what is not finished, by these two tables."""
    levels = listed()
    kinds = {row: owner for row, owner in rows.items() if " tag " in row[1]}
    asked = {**ops.FEATURES, **commands.FEATURES}
    written = (ops.__name__, "coordinator.")

    later = {
        owner: levels.get(row, FIRST)
        for row, owner in kinds.items()
        if owner is not None and levels.get(row, FIRST) > FIRST
        if owner.__module__.startswith(written) and not owner.__name__.endswith("Result")
    }
    assert later == {owner: int(feature) for owner, feature in asked.items()}


@pytest.mark.parametrize(
    "row",
    [
        ("entry", "RECORDS = 2"),
        ("method", "append"),
        ("link", "REQUEST = 3"),
        ("raft", "VOTE = 3"),
        ("handshake", "HELLO = 1"),
        ("wal", "APPEND = 1"),
        ("flag", "goqueue.wire.layout.HAS_NULLS = 16"),
        ("number", "coordinator.cluster.snapshot.SNAPSHOT_VERSION = 4"),
        ("field", "delivery.entries.ops.Own array tag 17"),
        ("field", "coordinator.commands.codec.RegisterBroker 9 highest_level: int"),
        ("field", "coordinator.placement.layout.LayoutRecord 5 level: int"),
        ("layout", "raft.frames._VOTE <BBHQQQQ"),
    ],
    ids=lambda row: row[1],
)
def test_walk_finds_one_of_every_sort(rows: dict[Row, type | None], row: Row) -> None:
    assert row in rows


def test_new_field_of_a_record_in_a_snapshot_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    grown = dataclasses.make_dataclass("Broker", [("of_tomorrow", int)])
    grown.__module__, grown.__qualname__ = "coordinator.brokers.registry", "Broker"
    known = formats.structs()
    monkeypatch.setattr(formats, "structs", lambda: [*known, grown])

    new = found().keys() - listed().keys()

    assert {text for _, text in new} == {"coordinator.brokers.registry.Broker 0 of_tomorrow: int"}
