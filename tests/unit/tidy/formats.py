"""Every kind and field that nodes write to disks or send each other, found by walking the code.

    python -m tests.unit.tidy.formats --level 2     lists what is new in formats.txt, with its level

The list says of each with which feature level it came; `test_formats.py` fails for what is not
listed. docs/internals/feature-levels.md says what else a new one needs.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import struct
import types
import typing
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[3]
LIST = Path(__file__).with_name("formats.txt")
FLOORS = ("log", "raft", "delivery", "coordinator", "node")
NOT_SENT = ("node/api/", "node/http/", "node/metrics/", "node/kubernetes/", "node/config/node")
"""What of the node speaks to others than nodes."""
ENUMS = (
    ("entry", "log.entry", "EntryKind"),
    ("wal", "log.wal.format", "RecordKind"),
    ("raft", "raft.frames", "FrameKind"),
    ("link", "raft.link.frames", "Kind"),
    ("handshake", "raft.link.handshake", "Part"),
)
NUMBERS = ("VERSION", "MAGIC", "FORMAT", "LAYOUT")
"""Module constants so named say which format a file or a frame has."""
FLAGS = (
    ("raft.frames", ("REJECTED", "PRE", "GRANTED", "TRANSFER", "EVERYONE", "SUSPECT", "ANSWER")),
    ("goqueue.wire.layout", ("HAS_",)),
    ("log.entry", ("HAS_",)),
)

Row = tuple[str, str]
"""Kind, and what it is: a name with its number, fields or layout."""


def found() -> dict[Row, type | None]:
    """All there are; of structs the class."""
    rows: dict[Row, type | None] = {}
    for kind, module, name in ENUMS:
        members: Iterable[Enum] = getattr(importlib.import_module(module), name)
        rows.update({(kind, f"{one.name} = {one.value}"): None for one in members})
    for module, names in FLAGS:
        values = vars(importlib.import_module(module))
        for name, value in values.items():
            if name.startswith(names) and isinstance(value, int):
                rows["flag", f"{module}.{name} = {value}"] = None
    for module_name in modules():
        rows.update(dict.fromkeys(_of_module(importlib.import_module(module_name))))
    rows.update(dict.fromkeys(methods()))
    for owner in structs():
        rows.update({("field", text): owner for text in _fields(owner)})
    return rows


def modules() -> list[str]:
    """Those whose constants and structs may be on disk or on the link."""
    paths = [path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")]
    wire = [ROOT / "client/goqueue/wire" / name for name in ("layout.py", "batch.py")]
    named = [path.relative_to(ROOT).as_posix() for path in paths]
    kept = [name for name in named if not name.startswith(NOT_SENT)]
    kept += [path.relative_to(ROOT / "client").as_posix() for path in wire]
    return sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in kept
        if "__main__" not in name
    )


def _of_module(module: types.ModuleType) -> Iterator[Row]:
    """Binary layouts, and the numbers of formats, where they are defined."""
    assert module.__file__ is not None
    for node in ast.parse(Path(module.__file__).read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            name = target.id if isinstance(target, ast.Name) else ""
            value = vars(module).get(name)
            if isinstance(value, struct.Struct):
                yield "layout", f"{module.__name__}.{name} {value.format}"
            elif any(word in name for word in NUMBERS) and isinstance(value, int | bytes):
                yield "number", f"{module.__name__}.{name} = {value!r}"


def methods() -> Iterator[Row]:
    """What nodes ask each other over the link: the first argument of each `handle`."""
    for name in modules():
        if not name.startswith("node."):
            continue
        module = importlib.import_module(name)
        assert module.__file__ is not None
        for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("link.handle"):
                yield "method", str(eval(ast.unparse(node.args[0]), vars(module)))


def structs() -> list[type]:
    """What is packed with MessagePack, with all that is inside of it, by name."""
    seen: dict[type, None] = {}
    waiting: list[Any] = [
        value
        for name in modules()
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, type)
        and issubclass(value, msgspec.Struct)
        and value.__module__ == name
    ]
    while waiting:
        one = waiting.pop()
        waiting += typing.get_args(one)
        plain = typing.get_origin(one) or getattr(one, "__supertype__", one)
        if isinstance(plain, type) and plain not in seen and _is_record(plain):
            seen[plain] = None
            waiting += typing.get_type_hints(plain).values()
    return sorted(seen, key=_name)


def _is_record(one: type) -> bool:
    return issubclass(one, msgspec.Struct) or dataclasses.is_dataclass(one)


def _fields(owner: type) -> Iterator[str]:
    if issubclass(owner, msgspec.Struct):
        tag = owner.__struct_config__.tag
        array = " array" * owner.__struct_config__.array_like
        yield f"{_name(owner)}{array}{'' if tag is None else f' tag {tag}'}"
        names = owner.__struct_fields__
    else:
        yield _name(owner)
        names = tuple(field.name for field in dataclasses.fields(owner))
    hints = typing.get_type_hints(owner)
    for number, name in enumerate(names):
        yield f"{_name(owner)} {number} {name}: {_text(hints[name])}"


def _name(one: type) -> str:
    return f"{one.__module__}.{one.__qualname__}"


def _text(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    return text.replace("typing.", "")


def listed() -> dict[Row, int]:
    """The list: each with its level."""
    rows: dict[Row, int] = {}
    for line in LIST.read_text().splitlines() if LIST.exists() else []:
        level, kind, text = line.split(maxsplit=2)
        rows[kind, text] = int(level)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--level", type=int, required=True, help="with which the new ones came")
    level = parser.parse_args().level
    known = listed()
    rows = sorted(found())
    new = [row for row in rows if row not in known]
    gone = known.keys() - set(rows)
    lines = [f"{known.get(row, level)} {row[0]} {row[1]}\n" for row in rows]
    LIST.write_text("".join(lines))
    print(f"{len(new)} new, of level {level}; {len(gone)} gone; {len(rows)} in all")


if __name__ == "__main__":
    main()
