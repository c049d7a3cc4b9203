"""No pattern can be made to take for ever: what clients send is matched in one pass, as it comes.

A repetition within a repetition, neither of which keeps what it took, is tried in every way there
is where the text does not match in the end: 40 bytes then hold a node for days.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from tests.unit.tidy.test_tidy import ROOT, parsed

FOLDERS = ("node", "client/goqueue", "coordinator", "delivery", "raft", "log", "pipeline", "cli")
USERS = {"compile", "match", "fullmatch", "search", "sub", "split", "findall", "finditer"}
MANY = 16
"""Repetitions that are bounded by no more than this can't be tried in many ways."""


def test_a_repetition_within_a_repetition_is_found():
    assert explodes(rb'"(?:[^"\\]+|\\.)*"')
    assert explodes(r"^(a+)+$")
    assert not explodes(rb'"(?:[^"\\]++|\\.)*+"')
    assert not explodes(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
    assert not explodes(r"([a-z]+\.)+[a-z]+")


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_pattern_tries_what_it_matched_in_every_other_way(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {pattern!r}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, pattern in patterns(path)
        if explodes(pattern)
    ]

    assert found == []


def patterns(path: Path) -> Iterator[tuple[int, str | bytes]]:
    """Those that are written out where they are used."""
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re"), attr=user),
                args=[ast.Constant(value=str() | bytes() as pattern), *_],
            ) if user in USERS:
                yield node.lineno, pattern


def explodes(pattern: str | bytes) -> bool:
    text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
    return any(_is_nested(one) for one in _repeated(parser.parse(text, re.DOTALL)))


def _repeated(tree: Any) -> Iterator[Any]:
    """What is repeated without an end, and given back where the rest does not match."""
    for code, given in tree:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT) and given[1] > MANY:
            yield given[2]
        if code not in (codes.POSSESSIVE_REPEAT, codes.ATOMIC_GROUP):
            for inner in _within(given):
                yield from _repeated(inner)


def _is_nested(tree: Any) -> bool:
    """Whether one round of it may be nothing but a repetition: two rounds are then as good as one
    longer one, and three, and so on."""
    if len(tree) != 1:
        return False
    code, given = tree[0]
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT) and given[1] > MANY:
        return True
    return any(_is_nested(inner) for inner in _within(given))


def _within(given: Any) -> Iterator[Any]:
    if isinstance(given, parser.SubPattern):
        yield given
    elif isinstance(given, tuple | list):
        for part in given:
            yield from _within(part)
