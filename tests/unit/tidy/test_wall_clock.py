"""No test judges how long something took: a busy machine would decide it. Costs are counted in
steps (`tests/steps.py`), what has to be timed is a row of `benchmarks/`, and a deadline only ends
what hangs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.tidy.test_tidy import ROOT, parsed

FOLDERS = (
    "tests/unit",
    "tests/check",
    "tests/chaos",
    "tests/fuzz",
    "tests/kubernetes",
    "tests/protocols",
)
"""What `make test-unit` runs. Of the chaos tests, whose tools do measure, only the tests."""
STOPWATCHES = ("perf_counter", "process_time", "thread_time")
READINGS = ("monotonic", "time")
DEADLINES = ("timeout", "wait_for", "eventually")
DEADLINE_S_MIN = 20.0
"""Less than this a busy machine may take for anything."""
ALLOWED = {
    "tests/unit/node/placement/test_moves.py:"
    "test_a_new_replica_of_a_large_log_is_copied_at_the_rate_of_its_plan": "a least time",
    "tests/chaos/test_storm_parts.py:round_trip_s": "a least time",
    "tests/chaos/test_shim.py:test_a_slow_sync_takes_its_time_and_succeeds": "a least time",
    "tests/fuzz/raw.py:heard": "ends nothing: whom the node still listens to is let go",
    "tests/fuzz/raw.py:_send": "ends nothing: what awaits more of a broken request is let go",
}
"""Where a clock may be read for a difference, or a deadline is short, and why that is no judgement
of the machine: it only adds to what takes at least so long."""

Constants = dict[str, float]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_reading(node: ast.AST) -> bool:
    """A call of `time.monotonic()`, `loop.time()` and the like."""
    if not isinstance(node, ast.Call) or node.args or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr.removesuffix("_ns") in READINGS


def has_reading(node: ast.AST, names: set[str]) -> bool:
    return any(
        is_reading(one) or (isinstance(one, ast.Name) and one.id in names) for one in ast.walk(node)
    )


def named_readings(function: ast.AST) -> set[str]:
    """Variables that are given a clock's reading."""
    return {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and is_reading(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def last_name(function: ast.expr) -> str:
    """`timeout`, of `asyncio.timeout`."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def number(node: ast.AST | None, constants: Constants) -> float | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    return constants.get(node.id) if isinstance(node, ast.Name) else None


def deadlines(node: ast.AST) -> Iterator[ast.AST | None]:
    """The seconds after which this would end a test."""
    if isinstance(node, ast.Call) and last_name(node.func) in DEADLINES:
        keywords = {one.arg: one.value for one in node.keywords}
        match ast.unparse(node.func), node.args:
            case "asyncio.timeout", [deadline]:
                yield deadline
            case "asyncio.wait_for" | "eventually", [_, *deadline]:
                yield from deadline
                yield keywords.get("timeout") or keywords.get("deadline_s")
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and is_reading(node.left):
        yield node.right
    elif isinstance(node, Function) and node.name == "eventually":
        yield from node.args.defaults


def problems(tree: ast.Module) -> Iterator[tuple[str, int, str]]:
    """(function, line, what is wrong)."""
    constants = {
        target.id: value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and (value := number(node.value, {})) is not None
    }
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    for place in [tree, *functions]:
        names, name = named_readings(place), place.name if isinstance(place, Function) else ""
        for node in own(place):
            told = " ".join(wrong(node, names, constants))
            if told:
                yield name, getattr(node, "lineno", 0), told


def own(place: ast.AST) -> Iterator[ast.AST]:
    """All that stands in it, but for what stands in functions of its own."""
    yield place
    for node in ast.iter_child_nodes(place):
        if not isinstance(node, Function):
            yield from own(node)


def wrong(node: ast.AST, names: set[str], constants: Constants) -> Iterator[str]:
    if isinstance(node, ast.Attribute | ast.alias):
        called = node.attr if isinstance(node, ast.Attribute) else node.name
        if called.removesuffix("_ns") in STOPWATCHES:
            yield f"{called} is a stopwatch"
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and (has_reading(node.left, names) or has_reading(node.right, names))
    ):
        yield "a difference of a clock's readings"
    for deadline in deadlines(node):
        found = number(deadline, constants)
        if found is not None and found < DEADLINE_S_MIN:
            yield f"a deadline of {found:g} s"


def files() -> list[Path]:
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if "chaos" not in path.parts or path.name.startswith("test_")]


def test_no_test_judges_the_wall_clock_but_those_that_may() -> None:
    found = {
        (f"{path.relative_to(ROOT)}:{function}", f"{path.relative_to(ROOT)}:{line}: {what}")
        for path in files()
        for function, line, what in problems(parsed(path))
    }

    assert sorted(told for place, told in found if place not in ALLOWED) == []
    assert set(ALLOWED) - {place for place, _told in found} == set(), "they are not there any more"


@pytest.mark.parametrize(
    ("code", "is_refused"),
    [
        ("began = time.monotonic()\nassert time.monotonic() - began < 5", True),
        ("assert abs(int(process.do('wall')) - time.time_ns()) < 2e9", True),
        ("began = loop.time()\ntook = loop.time() - began", True),
        ("before = time.perf_counter()", True),
        ("from time import process_time", True),
        ("ends = time.monotonic() + 5.0", True),
        ("WAIT_S = 3\nends = time.monotonic() + WAIT_S", True),
        ("ends = time.monotonic() + 30.0\nassert time.monotonic() < ends", False),
        ("asyncio.timeout(5)", True),
        ("asyncio.timeout(30)", False),
        ("asyncio.wait_for(waiting, 5)", True),
        ("asyncio.wait_for(waiting, timeout=5)", True),
        ("eventually(lambda: held, 2.0)", True),
        ("eventually(lambda: held, deadline_s=30)", False),
        ("def eventually(condition, deadline_s=5.0): ...", True),
        ("before = time.time()\nassert before <= told <= time.time()", False),
    ],
)
def test_what_judges_the_wall_clock_is_found(code: str, *, is_refused: bool) -> None:
    assert bool(list(problems(ast.parse(code)))) == is_refused
