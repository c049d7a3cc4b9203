"""Writes the tables of the chart's README and its values.schema.json from values.yaml's comments.

`python scripts/chart_docs.py` writes both; with --check it only says whether they would change.

In values.yaml `# == T` begins a section, and what follows it is its text. `# --` says what the
value below is for, on as many lines as it takes; one without it is a map whose values have some.
`# @` says what the schema can't see in the default: `enum`, `min`, `max`, `pattern`, `port`, `type`
(one or more), `keys` of a map, `items` of a list, `probe`, `config`. Everything else is refused.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "client")]

import yaml  # noqa: E402

from node.config import option as read  # noqa: E402
from node.config.file import options  # noqa: E402

Json = dict[str, Any]
CHART = ROOT / "deploy" / "helm" / "goqueue"
VALUES, README, SCHEMA = CHART / "values.yaml", CHART / "README.md", CHART / "values.schema.json"
MARK = "<!-- what follows is made by scripts/chart_docs.py -->"
DEFAULT_CHARACTERS_MAX = 60
IGNORED = ("cluster.enabled", "cluster.quorumSize")
"""Of the node's configuration: GoQueue's own chart has them."""
_KEY = re.compile(r"( *)([A-Za-z]\w*):(?:\s|$)")
_TYPES = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}
_TIMES = ("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold")
_ITEM_NUMBERS = re.compile(r".*(Threshold|Count)")


@dataclass(slots=True)
class Value:
    """One described value: its path in values.yaml, its default, what is said of it."""

    path: tuple[str, ...]
    default: Any
    text: str
    directives: dict[str, list[str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return ".".join(self.path)


@dataclass(slots=True)
class Section:
    """A heading with a text and values."""

    title: str
    text: str
    values: list[Value]


def sections(text: str) -> list[Section]:
    """The described values of values.yaml, in its order. Raises ValueError for one that is not."""
    tree = yaml.safe_load(text)
    found: list[Section] = []
    path: list[tuple[int, str]] = []
    notes: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# == "):
            found.append(Section(stripped.removeprefix("# == "), "", []))
            notes = []
        elif stripped.startswith("#"):
            notes.append(stripped.removeprefix("#").strip())
        elif not stripped:
            if notes and found and not any(note.startswith(("--", "@")) for note in notes):
                found[-1].text = " ".join(" ".join(notes).split())
            notes = []
        elif key := _KEY.match(line):
            indent = len(key[1])
            while path and path[-1][0] >= indent:
                path.pop()
            path.append((indent, key[2]))
            if notes:
                found[-1].values.append(_value(tuple(name for _, name in path), tree, notes))
            notes = []
    _refuse_undescribed(tree, {value.path for section in found for value in section.values})
    return found


def schema(found: list[Section]) -> Json:
    """values.schema.json: what is not described is refused."""
    root = _closed({})
    for value in (value for section in found for value in section.values):
        at = root
        for name in value.path[:-1]:
            at = at["properties"].setdefault(name, _closed({}))
            if "properties" not in at:
                raise ValueError(f"values.yaml describes {value.name} and what is above it")
        at["properties"][value.path[-1]] = {"description": value.text, **_type(value)}
    root["properties"]["global"]["additionalProperties"] = True
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "GoQueue", **root}


def readme(found: list[Section], written: str) -> str:
    """The whole page; what is above the mark stays as it is written."""
    parts = [written.partition(MARK)[0], MARK, "\n"]
    for section in found:
        parts.append(f"\n### {section.title}\n")
        if section.text:
            parts.append(f"\n{section.text}\n")
        parts.append("\n| value | default | what it is |\n|---|---|---|\n")
        for value in section.values:
            parts.append(f"| `{value.name}` | {_default(value.default)} | {_cell(value.text)} |\n")
    return "".join(parts)


def _value(path: tuple[str, ...], tree: Any, notes: list[str]) -> Value:
    default = tree
    for name in path:
        default = default[name]
    said = [note.removeprefix("--").strip() for note in notes if not note.startswith("@")]
    directives = {
        words[0]: words[1:]
        for note in notes
        if note.startswith("@") and (words := note.removeprefix("@").split())
    }
    return Value(path, default, " ".join(said), directives)


def _refuse_undescribed(tree: Json, described: set[tuple[str, ...]]) -> None:
    missing = []

    def walk(node: Any, path: tuple[str, ...]) -> None:
        if path in described:
            return
        if isinstance(node, dict) and node:
            for name, below in node.items():
                walk(below, (*path, name))
        else:
            missing.append(".".join(path))

    walk(tree, ())
    if missing:
        raise ValueError(f"values.yaml says nothing of {', '.join(missing)}")


def _closed(properties: Json) -> Json:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _type(value: Value) -> Json:
    """The schema of one value, from its default and its directives."""
    told = value.directives
    if "config" in told:
        return _config()
    if "probe" in told:
        times: Json = {name: {"type": "integer", "minimum": 0} for name in _TIMES}
        return _closed({**times, "httpGet": {"type": "object"}})
    if "keys" in told:
        return _closed({name: {"type": ["string", "boolean"]} for name in told["keys"]})
    if "items" in told:
        return {"type": "array", "items": _item(told["items"])}
    if "port" in told:
        return {"type": "integer", "minimum": 1, "maximum": 65535}
    found: Json = {"type": told.get("type") or _TYPES[type(value.default)]}
    if isinstance(found["type"], list) and len(found["type"]) == 1:
        found["type"] = found["type"][0]
    if "enum" in told:
        found["enum"] = ["" if word == '""' else word for word in told["enum"]]
    for word, name in (("min", "minimum"), ("max", "maximum")):
        if word in told:
            found[name] = int(told[word][0])
    if "pattern" in told:
        found["pattern"] = told["pattern"][0]
    return found


def _item(names: list[str]) -> Json:
    properties: Json = {
        name: {"type": "integer", "minimum": 0} if _ITEM_NUMBERS.fullmatch(name) else _NAMED
        for name in names
    }
    return {**_closed(properties), "required": ["name", "group"]}


_NAMED = {"type": "string", "minLength": 1}
_TEXT = {"type": ["string", "number"]}
_NUMBER = {"type": ["integer", "string"]}
_READ: dict[Callable[[Any], Any], Json] = {
    read.flag: {"type": "boolean"},
    read.integer: {"type": "integer"},
    read.size_bytes: _NUMBER,
    read.duration_ms: {"type": "string", "pattern": r"^(\d+(\.\d+)?(ms|s|m|h|d))+$"},
    read.labels: {"type": ["object", "string"]},
    read.peers: {"type": ["object", "array", "string"]},
    read.names: {"type": ["array", "string"]},
    read.text: _TEXT,
}


def _config() -> Json:
    """The schema of the node's configuration: unknown keys are refused before anything is made."""
    root = _closed({})
    for described, _ in options():
        *above, last = described.key.split(".")
        at = root
        for name in above:
            at = at["properties"].setdefault(name, _closed({}))
        leaf: Json = dict(
            _READ.get(described.parse, {"type": ["string", "number", "array", "object"]})
        )
        if described.choices:
            leaf["enum"] = list(described.choices)
        if leaf["type"] == "integer":
            for bound, name in ((described.low, "minimum"), (described.high, "maximum")):
                if bound is not None:
                    leaf[name] = int(bound)
        at["properties"][last] = leaf
    for key in IGNORED:
        part, name = key.split(".")
        root["properties"][part]["properties"][name] = {}
    return root


def _default(default: Any) -> str:
    text = json.dumps(default, ensure_ascii=False)
    if len(text) > DEFAULT_CHARACTERS_MAX:
        return "see values.yaml"
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def pages() -> Iterator[tuple[Path, str]]:
    """Each file that is made, and its text."""
    found = sections(VALUES.read_text())
    written = README.read_text() if README.exists() else ""
    yield README, readme(found, written)
    yield SCHEMA, json.dumps(schema(found), indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    stale = [path for path, text in pages() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is to be made again: python scripts/chart_docs.py")
        return 1 if stale else 0
    for path, text in list(pages()):
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
