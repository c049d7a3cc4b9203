"""Each planted bug has its test, and tests find them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.plants.registry import PLANTS, ROOT, is_found

SHARE = 4
"""Of so many bugs one is planted here; `make mutants` plants all of them."""


def test_no_plant_names_a_test_that_is_not_there() -> None:
    for plant in PLANTS.values():
        path, _, name = plant.test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), plant.name


def test_every_plant_replaces_what_is_there() -> None:
    for plant in PLANTS.values():
        plant.place()


def test_a_bug_counts_as_found_only_where_its_test_ran_and_failed() -> None:
    blind = "tests/unit/log/store/test_boot.py::test_machine_tells_one_boot_id_while_it_runs"
    plant = PLANTS["voters-unsynced"]

    assert not is_found(replace(plant, test=blind))
    with pytest.raises(RuntimeError, match="did not run"):
        is_found(replace(plant, test=blind + "_or_not"))


@pytest.mark.parametrize("name", sorted(PLANTS)[::SHARE])
def test_a_planted_bug_is_found(name: str) -> None:
    assert is_found(PLANTS[name])
