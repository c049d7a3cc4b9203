"""The house rules that a machine can check."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = (
    "client/goqueue",
    "log",
    "raft",
    "delivery",
    "coordinator",
    "node",
    "cli",
    "monitoring",
    "pipeline",
)
CLIENT = ROOT / "client"
LINES_MAX = 500
FUNCTION_LINES_MAX = 70
DOCSTRING_CHARACTERS_MIN = 20
FORBIDDEN_IMPORTS = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
FORBIDDEN_CALLS = {"eval", "exec", "__import__"}
RELATIVE = re.compile(r"\.\w+(\.\w+)*")
FORBIDDEN_NAMES = re.compile(r"^(utils?|helpers?|misc|common)\.py$")


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    """Trees of all modules are two million objects: collections of garbage while they are made, and
    after that in whatever test comes next, would look through them again and again."""
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.freeze()
        gc.enable()


def base_of(path: Path) -> Path:
    """The folder that the module's dotted name counts from."""
    return CLIENT if path.is_relative_to(CLIENT) else ROOT


def imported(path: Path) -> set[str]:
    """Dotted names of all that a module may import: modules, names in them, and texts, as
    what is imported when it is needed is named by one, whole or from its package on."""
    found: set[str] = set()
    relative = path.relative_to(base_of(path))
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = relative.parts[: -node.level] if node.level else ()
            package = ".".join((*above, *([node.module] if node.module else [])))
            found |= {package, *(f"{package}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.partition(":")[0])
            if RELATIVE.fullmatch(node.value):
                found.add(resolve_name(node.value, ".".join(relative.parts[:-1])))
    return found


def tracked(pattern: str) -> list[Path]:
    if not (ROOT / ".git").exists():
        return sorted(ROOT.glob(f"**/{pattern}"))
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", pattern, f"**/{pattern}"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    names = sorted({name for name in listed.stdout.split("\0") if name})
    return [ROOT / name for name in names if (ROOT / name).exists()]


def test_no_module_is_longer_than_five_hundred_lines() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in modules()}

    assert lengths, "no modules found"
    assert {str(p): n for p, n in lengths.items() if n > LINES_MAX} == {}


def test_no_function_is_longer_than_seventy_lines() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for path in modules()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    }

    assert long == {}


def test_nothing_of_ours_can_run_code_from_bytes() -> None:
    found = []
    for path in modules():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").split(".")[0]}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = {node.func.id} & FORBIDDEN_CALLS
            else:
                continue
            hits = names & (FORBIDDEN_IMPORTS | FORBIDDEN_CALLS)
            found += [f"{path.relative_to(ROOT)}:{node.lineno} {hit}" for hit in hits]

    assert found == []


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in modules()
        if len(ast.get_docstring(parsed(path)) or "") < DOCSTRING_CHARACTERS_MIN
    ]

    assert silent == []


def test_no_module_is_named_after_nothing() -> None:
    assert [str(p) for p in modules() if FORBIDDEN_NAMES.match(p.name)] == []


def test_every_module_is_imported_by_something() -> None:
    folders = (*PACKAGES, "tests", "benchmarks", "examples", "scripts")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    config = (ROOT / "pyproject.toml").read_text()
    importers: dict[str, set[Path]] = {}
    for path in files:
        for name in imported(path):
            importers.setdefault(name, set()).add(path)
    dead = []
    for path in modules():
        if path.name in ("__init__.py", "__main__.py"):
            continue
        relative = path.relative_to(base_of(path))
        dotted = ".".join(relative.with_suffix("").parts)
        if not importers.get(dotted, set()) - {path} and f'"{dotted}:' not in config:
            dead.append(dotted)

    assert dead == []


@pytest.mark.parametrize("document", tracked("*.md"), ids=lambda p: str(p.relative_to(ROOT)))
def test_links_in_documents_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text())
    local = [link for link in links if not re.match(r"[a-z]+:", link)]

    assert [link for link in local if not (document.parent / link).exists()] == []


def test_every_document_in_docs_is_reachable_from_the_readme() -> None:
    reached: set[Path] = set()
    queue = [ROOT / "README.md"]
    while queue:
        document = queue.pop()
        if document in reached or not document.exists():
            continue
        reached.add(document)
        for link in re.findall(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)", document.read_text()):
            if not re.match(r"[a-z]+:", link):
                queue.append((document.parent / link).resolve())

    assert [str(p.relative_to(ROOT)) for p in tracked("docs/*.md") if p not in reached] == []


def test_every_file_that_a_document_names_exists() -> None:
    folders = "|".join((*PACKAGES, "tests", "scripts", "benchmarks", "examples"))
    named = {
        (document.name, path)
        for document in tracked("*.md")
        for path in re.findall(rf"`((?:{folders})/[\w/]+\.py)", document.read_text())
    }

    assert len(named) > 100
    assert [f"{name}: {path}" for name, path in sorted(named) if not (ROOT / path).exists()] == []


def test_every_test_that_a_document_names_exists() -> None:
    named = {
        (document.name, *found)
        for document in tracked("*.md")
        for found in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", document.read_text())
    }

    assert named, "no document names a test"
    missing = [
        f"{document}: {path}::{name}"
        for document, path, name in sorted(named)
        if not (ROOT / path).exists() or f"def {name}(" not in (ROOT / path).read_text()
    ]
    assert missing == []
