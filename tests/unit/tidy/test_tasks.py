"""Tasks have an owner: none is created and left to itself.

`goqueue.background.TaskSet` creates them, and asyncio's TaskGroup, which ends with its block. A
function may begin tasks for itself by `ensure_future`, if it ends them before it returns.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.unit.tidy.test_tidy import ROOT, modules, parsed

OWNER = ROOT / "client/goqueue/background.py"
CREATED = ("create_task", "ensure_future")


def calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and last_name(node.func) == name:
            yield node


def last_name(node: ast.expr | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def task_groups(tree: ast.AST) -> set[str]:
    """Names that the module gives to asyncio's task groups."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and "TaskGroup(" in ast.unparse(node.context_expr):
            found.add(last_name(node.optional_vars))
        elif isinstance(node, ast.AnnAssign) and "TaskGroup" in ast.unparse(node.annotation):
            found.add(last_name(node.target))
        elif isinstance(node, ast.arg) and "TaskGroup" in told(node.annotation):
            found.add(node.arg)
    return found


def told(annotation: ast.expr | None) -> str:
    return "" if annotation is None else ast.unparse(annotation)


def bare(tree: ast.AST) -> list[int]:
    """Lines that create a task which nobody owns."""
    groups = task_groups(tree)
    created = [
        call
        for call in calls(tree, "create_task")
        if not (isinstance(call.func, ast.Attribute) and last_name(call.func.value) in groups)
    ]
    ended: set[ast.Call] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ends_tasks(node):
            ended |= set(calls(node, "ensure_future"))
    begun = [call for call in calls(tree, "ensure_future") if call not in ended]
    return sorted(call.lineno for call in [*created, *begun])


def ends_tasks(function: ast.AST) -> bool:
    """Whether it cancels, or waits for, something however it ends."""
    return any(
        isinstance(node, ast.Try)
        and any(last_name(call.func) in ("cancel", "ended") for call in every_call(node.finalbody))
        for node in ast.walk(function)
    )


def every_call(body: list[ast.stmt]) -> Iterator[ast.Call]:
    for statement in body:
        yield from (node for node in ast.walk(statement) if isinstance(node, ast.Call))


def test_every_task_has_an_owner() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in modules()
        if path != OWNER and any(name in path.read_text() for name in CREATED)
        if (lines := bare(parsed(path)))
    }

    assert found == {}


@pytest.mark.parametrize(
    ("source", "is_owned"),
    [
        ("asyncio.create_task(work())", False),
        ("self._task = loop.create_task(work())", False),
        ("async def f(tasks: asyncio.TaskGroup):\n    tasks.create_task(work())", True),
        (
            "async def f():\n    async with asyncio.TaskGroup() as g:\n        g.create_task(w())",
            True,
        ),
        ("async def f():\n    task = asyncio.ensure_future(work())\n    await task", False),
        (
            "async def f():\n    task = asyncio.ensure_future(work())\n    try:\n        await x\n"
            "    finally:\n        task.cancel()",
            True,
        ),
    ],
)
def test_a_task_without_an_owner_is_found(source: str, is_owned: bool) -> None:
    assert (bare(ast.parse(source)) == []) == is_owned
