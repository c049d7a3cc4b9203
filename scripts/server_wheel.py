"""The build backend of goqueue-server: setuptools, and a wheel that has one name, `goqueue_server`.

A checkout, and an editable install of it, imports `log`, `node` and `cli`. In a user's environment
these names are the user's, so a wheel holds the packages below `goqueue_server`, and each statement
`from node.x import y` is `from goqueue_server.node.x import y` there (docs/adr/0022). Nothing else
is renamed: what names one of the packages in another way fails the build, with file and line.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import re
import tempfile
import zipfile
from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = "goqueue_server"
MOVED = ("log", "raft", "delivery", "coordinator", "node", "cli", "monitoring", "pipeline")
STAYS = re.compile(r"pyspark_goqueue\w*\.py")
"""Spark looks for formats in top-level modules whose names begin with `pyspark_`, nowhere else."""
ADDED = {
    f"{ROOT}/__init__.py": b'"""GoQueue: the server, its command line, and the data pipeline."""\n',
    f"{ROOT}/py.typed": b"",
}

_MOVED = "|".join(MOVED)
_DOTTED = re.compile(rf"(?<![\w./-])(?:{_MOVED})(?:\.\w+)+")
_ENTRY_POINT = re.compile(rf"(?m)^([^=\n]+=\s*)(?=(?:{_MOVED})[.:])")
_IMPORTERS = {"import_module", "__import__", "find_spec", "run_module", "files", "PackageLoader"}


class NotRenamed(Exception):
    """The wheel names a moved package in a way that is not renamed; each line says where."""


# what build frontends call


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Raises NotRenamed. Setuptools builds in a folder of its own, as it would pack what earlier
    builds have left in build/; it makes the metadata anew, so that they are renamed once."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"--global-option": ["build", f"--build-base={folder}/build"]}
        name = build_meta.build_wheel(folder, {**(config_settings or {}), **options})
        rename_wheel(Path(folder, name), Path(wheel_directory, name))
    return name


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: dict[str, Any] | None = None
) -> str:
    name = build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings)
    for path in filter(Path.is_file, Path(metadata_directory, name).iterdir()):
        path.write_bytes(rename_metadata(path.name, path.read_bytes()))
    return name


# the wheel


def rename_wheel(made: Path, target: Path) -> None:
    """Write the wheel that setuptools made with its packages moved. Raises NotRenamed."""
    with zipfile.ZipFile(made) as source:
        entries = {entry.filename: entry for entry in source.infolist()}
        contents = {name: source.read(name) for name in entries}
    first = next(iter(entries.values()))
    (listing,) = (name for name in entries if name.endswith(".dist-info/RECORD"))
    modules = {module_name(name) for name in entries if name.endswith(".py")}
    problems: list[str] = []
    files = [(name, first, content) for name, content in ADDED.items()]
    for name, entry in entries.items():
        if name == listing:
            continue
        content = contents[name]
        if ".dist-info/" in name:
            content = rename_metadata(Path(name).name, content)
        elif name.endswith(".py"):
            content, found = rename_imports(content, name, modules)
            problems += found
        files.append((new_name(name), entry, content))
    problems += [f"{name}: whose is it?" for name in entries if not is_expected(name)]
    if problems:
        raise NotRenamed("\n" + "\n".join(problems))
    record = "".join(f"{name},{digest(content)}\n" for name, _, content in files)
    files.append((listing, entries[listing], f"{record}{listing},,\n".encode()))
    with zipfile.ZipFile(target, "w") as packed:
        for name, like, content in files:
            entry = zipfile.ZipInfo(name, like.date_time)
            entry.external_attr, entry.compress_type = like.external_attr, like.compress_type
            packed.writestr(entry, content)


def is_expected(name: str) -> bool:
    """Whether the wheel's file of this name is one of a moved package, or may stay where it is."""
    top = name.partition("/")[0]
    return top in MOVED or top.endswith(".dist-info") or STAYS.fullmatch(name) is not None


def new_name(name: str) -> str:
    return f"{ROOT}/{name}" if name.partition("/")[0] in MOVED else name


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def digest(content: bytes) -> str:
    """The hash and the size, as RECORD has them."""
    code = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"sha256={code},{len(content)}"


def rename_metadata(name: str, content: bytes) -> bytes:
    """A file of the `dist-info`: two of them name packages."""
    text = content.decode()
    if name == "entry_points.txt":
        text = _ENTRY_POINT.sub(rf"\g<1>{ROOT}.", text)
    elif name == "top_level.txt":
        names = {ROOT if line in MOVED else line for line in text.splitlines()}
        text = "".join(f"{line}\n" for line in sorted(names))
    return text.encode()


# a module


def rename_imports(source: bytes, path: str, modules: Collection[str]) -> tuple[bytes, list[str]]:
    """The module with its `from` imports renamed, and what in it can't be: "path:line: problem"."""
    lines = source.split(b"\n")
    nodes = list(ast.walk(ast.parse(source, path)))
    problems = [f"{path}:{line}: {problem}" for line, problem in unrenamed(nodes, modules)]
    found = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    for node in sorted(found, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        if node.level == 0 and is_moved(name := node.module or ""):
            line, at = lines[node.lineno - 1], node.col_offset + len("from ")
            if not line[at:].startswith(name.encode()):
                problems.append(f"{path}:{node.lineno}: write it as `from {name} import ...`")
            lines[node.lineno - 1] = line[:at] + f"{ROOT}.".encode() + line[at:]
    return b"\n".join(lines), problems


def unrenamed(nodes: list[ast.AST], modules: Collection[str]) -> Iterator[tuple[int, str]]:
    """Line and problem of all that names a moved package, other than imports with `from` and
    texts that nobody evaluates, as docstrings are."""
    prose = {node.value for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Import):
            for name in (alias.name for alias in node.names if is_moved(alias.name)):
                yield node.lineno, f"`import {name}` is not renamed, `from ... import` is"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose:
            for name in _DOTTED.findall(node.value):
                if ".".join(name.split(".")[:2]) in modules:
                    yield node.lineno, f'"{name}" names a module: use __package__ or __name__'
        elif isinstance(node, ast.Call | ast.List | ast.Tuple):
            for name in _bare_names(node):
                yield node.lineno, f'"{name}" names a package: use __package__ or __name__'


def is_moved(name: str) -> bool:
    return name.partition(".")[0] in MOVED


def _bare_names(node: ast.Call | ast.List | ast.Tuple) -> Iterator[str]:
    """Packages without a dot, which are words as well: what is imported, and what follows "-m"."""
    parts = node.args if isinstance(node, ast.Call) else node.elts
    values = [getattr(one, "value", None) for one in parts]
    if isinstance(node, ast.Call):
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        yield from (name for name in values if called in _IMPORTERS and name in MOVED)
    yield from (name for flag, name in pairwise(values) if flag == "-m" and name in MOVED)
