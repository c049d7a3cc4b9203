"""The table of others' faults is complete, and names only tests that exist and run."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "docs" / "internals" / "faults.md"
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in TABLE.read_text().splitlines()
    if re.match(r"\| [A-Z]\d", line)
]
FAULTS = {
    "G0.": set(range(1, 21)) - {7},  # measured on the Go system; its list has no seventh
    "G1.": set(range(1, 33)),
    "G7.": set(range(1, 15)),
    "G8.": set(range(1, 19)),
    "L": set(range(1, 18)),
    "D": set(range(1, 18)),
    "M": set(range(1, 10)),
}
DONE = 7
"""The newest issue whose faults must have tests."""
LAST_ISSUE = 8
NOT_RUN = {"skip", "skipif", "xfail"}


def named_tests(cell: str) -> list[tuple[str, str]]:
    return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", cell)


@cache
def defined(path: str) -> dict[str, list[str]]:
    """The functions of a test module, each with the names in its decorators and the module's."""
    tree = ast.parse((ROOT / path).read_text())
    everywhere = [
        name
        for node in tree.body
        if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node.targets[0])
        for name in re.findall(r"\w+", ast.unparse(node.value))
    ]
    return {
        node.name: everywhere
        + [name for one in node.decorator_list for name in re.findall(r"\w+", ast.unparse(one))]
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_fault_has_a_row() -> None:
    for prefix, numbers in FAULTS.items():
        found = {
            int(match[1])
            for row in ROWS
            if (match := re.fullmatch(rf"{re.escape(prefix)}(\d+)[a-z]?", row[0]))
        }
        assert found == numbers, prefix


def test_no_row_is_there_twice_and_none_has_a_blank_but_for_named_tests_later_issues() -> None:
    numbers = [row[0] for row in ROWS]
    assert sorted(set(numbers)) == sorted(numbers)
    for row in ROWS:
        assert len(row) in (4, 5), row
        assert all(row[:4]), row


def test_a_fault_of_a_finished_issue_names_a_test_and_any_other_its_issue_or_its_reason() -> None:
    for row in ROWS:
        number, _fault, _whose, issue = row[:4]
        proof = row[4] if len(row) > 4 else ""
        if issue == "none":
            assert len(proof) > 10 and not named_tests(proof), f"{number}: say why"
            continue
        issues = [int(one) for one in issue.split(", ")]
        assert all(2 <= one <= LAST_ISSUE for one in issues), row
        if min(issues) <= DONE:
            assert named_tests(proof), f"{number} is of a finished issue and names no test"


def test_every_named_test_exists_and_is_run() -> None:
    named = {test for row in ROWS if len(row) > 4 for test in named_tests(row[4])}
    assert named
    for path, name in sorted(named):
        assert (ROOT / path).exists(), path
        assert name in defined(path), f"{path} has no {name}"
        assert not NOT_RUN & set(defined(path)[name]), f"{path}::{name} is not always run"


def test_the_page_of_small_queues_names_tests_that_exist_and_run() -> None:
    text = (ROOT / "docs" / "internals" / "small-queues.md").read_text()
    everyday = "tests/unit/goqueue/everyday"
    text = text.replace("`E/", f"`{everyday}/").replace(
        "`C::", "`tests/unit/cli/directory/test_local.py::"
    )
    named = named_tests(text)
    assert len(named) > 30
    for path, name in sorted(set(named)):
        assert name in defined(path), f"{path} has no {name}"
        assert not NOT_RUN & set(defined(path)[name]), f"{path}::{name} is not always run"
    own = f"{everyday}/test_small_queues.py"
    assert {name for name in defined(own) if name.startswith("test_")} <= {
        name for path, name in named if path == own
    }


def test_every_test_named_after_a_fault_is_in_the_table() -> None:
    text = TABLE.read_text()
    modules = [
        *(ROOT / "tests/unit/faults").glob("test_*_faults.py"),
        ROOT / "tests/cluster/test_faults.py",
    ]
    tests = [
        f"`{module.relative_to(ROOT)}::{name}`"
        for module in modules
        for name in defined(str(module.relative_to(ROOT)))
        if name.startswith("test_")
    ]
    assert [test for test in tests if test not in text] == []
