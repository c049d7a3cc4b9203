"""Which tests `make check` runs for which changed files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.changed_tests import (
    FILES_MAX,
    NAMES_MAX,
    READERS,
    SLOW_TIDY,
    TESTS_MAX,
    TREES,
    Plan,
    imported,
    plan,
)

ROOT = Path(__file__).resolve().parents[3]
ONE = "def test_one() -> None: ...\n"
SOURCES = {
    "node/queue/receipt.py": "",
    "client/goqueue/wire/batch.py": "",
    "tests/three_nodes.py": "",
    "tests/unit/tidy/test_tidy.py": ONE,
    "tests/unit/node/test_node.py": ONE,
    "tests/unit/node/queue/test_lag.py": ONE,
    "tests/unit/node/queue/test_receipt.py": "from node.queue.receipt import Receipt\n" + ONE,
    "tests/unit/node/queue/deep/test_deeper.py": ONE,
    "tests/unit/node/http/test_front.py": "from node.queue import lag, receipt\n" + ONE,
    "tests/unit/node/http/test_words.py": "from node.queue import receipts  # receipt\n" + ONE,
    "tests/unit/goqueue/test_names.py": ONE,
    "tests/unit/goqueue/wire/test_stream.py": ONE,
    "tests/chaos/test_nodes.py": "from tests.three_nodes import start\n" + ONE,
    "tests/cluster/test_kills.py": "import node.queue.receipt\n" + ONE,
}


def chosen(*changed: str, **sources: str) -> set[str]:
    """What is run beside the tests of the tidy room."""
    made = plan(changed, SOURCES | sources)
    return {test for test in made.tests if not test.startswith("tests/unit/tidy/")}


def test_a_module_has_the_tests_of_its_room_and_those_that_import_it() -> None:
    assert chosen("node/queue/receipt.py") == {
        "tests/unit/node/queue/test_lag.py",
        "tests/unit/node/queue/test_receipt.py",
        "tests/unit/node/http/test_front.py",
    }


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("client/goqueue/wire/batch.py", {"tests/unit/goqueue/wire/test_stream.py"}),
        ("client/goqueue/errors.py", {"tests/unit/goqueue/test_names.py"}),
        ("node/server.py", {"tests/unit/node/test_node.py"}),
        ("node/queue/deep/deepest/x.py", {"tests/unit/node/queue/deep/test_deeper.py"}),
        ("node/rpc/calls.py", {"tests/unit/node/test_node.py"}),
        ("tests/unit/node/queue/test_lag.py", {"tests/unit/node/queue/test_lag.py"}),
        ("tests/unit/goqueue/vectors/keys.hex", {"tests/unit/goqueue/test_names.py"}),
        ("tests/three_nodes.py", {"tests/chaos/test_nodes.py"}),
        ("docs/reference/settings.md", set()),
        ("tests/unit/node/queue/test_that_is_gone.py", set()),
    ],
)
def test_a_changed_path_has_these_tests(changed: str, tests: set[str]) -> None:
    assert chosen(changed) == tests


def test_all_that_changed_counts() -> None:
    assert chosen("client/goqueue/wire/batch.py", "node/server.py", "tests/three_nodes.py") == {
        "tests/unit/goqueue/wire/test_stream.py",
        "tests/unit/node/test_node.py",
        "tests/chaos/test_nodes.py",
    }


def test_what_a_folders_fixtures_are_for_is_all_below_it() -> None:
    assert chosen("tests/unit/node/queue/conftest.py") == {
        "tests/unit/node/queue/test_lag.py",
        "tests/unit/node/queue/test_receipt.py",
        "tests/unit/node/queue/deep/test_deeper.py",
    }


def test_a_script_has_the_tests_that_name_it() -> None:
    names = {"tests/unit/raft/test_x.py": 'SCRIPT = ROOT / "scripts/image.py"\n' + ONE}

    assert set(plan(["scripts/image.py"], SOURCES | names).tests) == {
        "tests/unit/tidy/test_tidy.py",
        "tests/unit/raft/test_x.py",
    }


def test_the_tidy_room_is_run_whatever_changed_but_for_its_slow_tests() -> None:
    slow = dict.fromkeys(SLOW_TIDY, ONE)

    made = plan([], SOURCES | slow)

    assert made.tests == {"tests/unit/tidy/test_tidy.py": "always"}
    assert all(any(test in line for line in made.left_out) for test in SLOW_TIDY)


def test_a_slow_tidy_test_is_run_when_it_changed() -> None:
    changed = min(SLOW_TIDY)

    assert plan([changed], SOURCES | {changed: ONE}).tests[changed] == "changed"


def test_tests_with_real_processes_are_left_out_and_counted() -> None:
    made = plan(["node/queue/receipt.py", "tests/cluster/test_kills.py"], SOURCES)

    assert "tests/cluster/test_kills.py" not in made.tests
    assert "1 files of tests/cluster, which are no unit tests" in made.left_out


@pytest.mark.parametrize("path", ["pyproject.toml", "tests/conftest.py", "requirements/dev.lock"])
def test_what_concerns_every_test_says_so(path: str) -> None:
    assert any(path in line and "test-unit" in line for line in plan([path], {}).left_out)


@pytest.mark.parametrize(
    ("count", "end"), [(1, "names: 0.md"), (NAMES_MAX, "4.md"), (NAMES_MAX + 1, "4.md, ...")]
)
def test_paths_that_no_test_knows_are_counted_and_the_first_are_named(count: int, end: str) -> None:
    told = plan([f"{n}.md" for n in range(count)], SOURCES).left_out[0]

    assert told.startswith(f"{count} paths that no test mirrors") and told.endswith(end)


@pytest.mark.parametrize(
    ("files", "tests_each"), [(FILES_MAX, 1), (2, TESTS_MAX // 2)], ids=["files", "tests"]
)
def test_over_a_bound_only_the_rooms_are_run(files: int, tests_each: int) -> None:
    text = "import node.queue.receipt\n" + ONE * tests_each
    many = {f"tests/unit/raft/test_{n}.py": text for n in range(files)}
    tidy = {"tests/unit/tidy/test_tidy.py": text}

    made = plan(["node/queue/receipt.py"], SOURCES | many | tidy)

    assert set(made.tests) == {
        "tests/unit/tidy/test_tidy.py",
        "tests/unit/node/queue/test_lag.py",
        "tests/unit/node/queue/test_receipt.py",
    }
    told = [line for line in made.left_out if "outside the rooms" in line]
    assert len(told) == 1 and told[0].startswith(f"{files + 1} files")


def test_at_the_bound_all_are_run() -> None:
    importing = "import node.queue.receipt\n" + ONE
    many = {f"tests/unit/raft/test_{n}.py": importing for n in range(FILES_MAX - 3)}

    assert len(chosen("node/queue/receipt.py", **many)) == FILES_MAX


def test_rooms_that_are_over_the_bound_are_run_and_told() -> None:
    many = {f"tests/unit/raft/test_{n}.py": ONE for n in range(FILES_MAX + 1)}

    made = plan(["raft/host.py"], SOURCES | many)

    assert set(many) <= set(made.tests)
    assert any(f"nothing of {FILES_MAX + 1} files" in line for line in made.left_out)


@pytest.mark.parametrize(
    "line",
    [
        "import node.queue.receipt",
        "import node.queue.receipt as x",
        "from node.queue.receipt import Receipt",
        "from node.queue import receipt",
        "from .receipt import Receipt",
        "from . import receipt",
        "from ..queue import receipt",
        "def f() -> None:\n    from node.queue import receipt",
    ],
)
def test_each_form_of_an_import_is_seen(line: str) -> None:
    assert "node.queue.receipt" in imported("node/queue/service.py", line)


def test_a_file_that_can_not_be_parsed_keeps_the_others_running() -> None:
    broken = {"tests/unit/raft/test_broken.py": "from node.queue import receipt ("}

    assert "tests/unit/raft/test_broken.py" not in chosen("node/queue/receipt.py", **broken)
    assert "tests/unit/raft/test_broken.py" in chosen("tests/unit/raft/test_broken.py", **broken)


def real(*changed: str) -> Plan:
    folders = ("tests", "node", "client")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return plan(changed, {str(path.relative_to(ROOT)): path.read_text() for path in files})


def test_in_this_tree_a_module_of_the_queue_has_its_room() -> None:
    tests = real("node/queue/receipt.py").tests

    assert tests["tests/unit/node/queue/test_receipt.py"] == "room of node/queue/receipt.py"
    assert "tests/unit/tidy/test_wall_clock.py" in tests


def test_trees_are_those_of_the_unit_tests() -> None:
    rule = (ROOT / "Makefile").read_text().partition("\ntest-unit: ")[2].partition("\n\n")[0]

    assert tuple(f"{tree}/" for tree in re.findall(r"tests/\w+", rule)) == TREES


def test_files_that_are_left_out_or_read_by_a_pattern_exist() -> None:
    for path in (*SLOW_TIDY, *READERS.values()):
        assert (ROOT / path).is_file()
    for start in READERS:
        assert list(ROOT.glob(f"{start}*"))
