"""Classes have parts instead of ancestors: what they inherit counts, and so do constructors.

A class counts with all that it inherits of this repository. It is as deep as its longest line of
such ancestors, itself included. Three kinds may be deeper: errors, whose ancestors are what callers
catch; Protocols, which declare and hold nothing; and msgspec's Structs, which inherit fields, as
the bodies of requests that share some of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.unit.tidy.test_tidy import ROOT, modules, parsed

LINES_MAX = 500
DEPTH_MAX = 2
PARAMETERS_MAX = 8
ERRORS = {"Exception", "BaseException"}


@dataclass(frozen=True)
class Class:
    """One at the top of a module; `bases` are dotted names, of this repository or not."""

    bases: tuple[str, ...]
    lines: int
    parameters: int


@cache
def classes() -> dict[str, Class]:
    return {name: found for path in modules() for name, found in classes_in(path)}


def classes_in(path: Path) -> Iterator[tuple[str, Class]]:
    tree, module = parsed(path), dotted(path)
    named = names(tree)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            assert node.end_lineno is not None
            bases = tuple(full_name(base, named, module) for base in node.bases)
            lines = node.end_lineno - node.lineno + 1
            yield f"{module}.{node.name}", Class(bases, lines, parameters(node))


def dotted(path: Path) -> str:
    relative = path.relative_to(
        ROOT / "client" if "client" in path.relative_to(ROOT).parts else ROOT
    )
    return ".".join(relative.with_suffix("").parts).removesuffix(".__init__")


def names(tree: ast.Module) -> dict[str, str]:
    """What the module's imported names stand for."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.asname or a.name.split(".")[0]: a.asname or a.name for a in node.names}
    return found


def full_name(base: ast.expr, named: dict[str, str], module: str) -> str:
    if isinstance(base, ast.Subscript):
        base = base.value
    first, _, rest = ast.unparse(base).partition(".")
    name = named.get(first, f"{module}.{first}")
    return f"{name}.{rest}" if rest else name


def parameters(node: ast.ClassDef) -> int:
    """Of the constructor, without `self`; one that a decorator writes holds fields only."""
    for made in node.body:
        if isinstance(made, ast.FunctionDef) and made.name == "__init__":
            given = made.args
            variable = (given.vararg is not None) + (given.kwarg is not None)
            return len([*given.posonlyargs, *given.args, *given.kwonlyargs]) + variable - 1
    return 0


def ancestors(name: str) -> list[str]:
    """Those of this repository, each once."""
    found: dict[str, None] = {}
    for base in classes()[name].bases:
        if base in classes():
            found |= dict.fromkeys([base, *ancestors(base)])
    return list(found)


def depth(name: str) -> int:
    return 1 + max(map(depth, filter(classes().__contains__, classes()[name].bases)), default=0)


def roots(name: str) -> set[str]:
    """The last names of what it inherits from elsewhere."""
    every = (base for one in (name, *ancestors(name)) for base in classes()[one].bases)
    return {base.rpartition(".")[2] for base in every if base not in classes()}


def is_protocol(name: str) -> bool:
    return any(base.endswith(".Protocol") for base in classes()[name].bases)


def test_the_classes_of_this_repository_are_found_with_what_they_inherit() -> None:
    assert len(classes()) > 1000
    assert ancestors("log.errors.WalDamaged") == [
        "log.errors.Damaged",
        "log.errors.LogError",
        "goqueue.wire.errors.GoQueueError",
    ]
    assert depth("log.errors.WalDamaged") == 4
    assert roots("log.errors.WalDamaged") == {"Exception"}


def test_a_class_is_no_longer_than_five_hundred_lines_with_its_ancestors() -> None:
    long = {
        name: lines
        for name in classes()
        if not is_protocol(name)
        and (lines := sum(classes()[one].lines for one in (name, *ancestors(name)))) > LINES_MAX
    }

    assert long == {}


def test_no_class_is_more_than_two_deep() -> None:
    deep = {
        name: ancestors(name)
        for name in classes()
        if depth(name) > DEPTH_MAX
        and not is_protocol(name)
        and not roots(name) & (ERRORS | {"Struct"})
    }

    assert deep == {}


def test_no_constructor_takes_more_than_eight_parameters() -> None:
    many = {
        name: one.parameters for name, one in classes().items() if one.parameters > PARAMETERS_MAX
    }

    assert many == {}
