"""Every `goqueue-cli` command that a document shows has that name and those options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.main import app
from tests.unit.tidy.test_tidy import tracked

COMMANDS: Any = typer.main.get_command(app)
ENDS = {"|", "||", "&&", ";", ">", "2>", "&", "<"}


def shown() -> Iterator[tuple[Path, str]]:
    """Each line of a fenced block, and each piece of inline code, that runs the command line."""
    for document in tracked("*.md"):
        text = document.read_text()
        for language, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.S | re.M):
            if language not in ("", "sh", "bash", "console"):
                continue
            for line in block.replace("\\\n", " ").splitlines():
                if found := re.search(r"goqueue-cli\s+(.*)", line):
                    yield document, found[1]
        for found in re.finditer(r"`[^`\n]*goqueue-cli\s+([^`\n]+)`", text):
            yield document, found[1]


def words_of(line: str) -> list[str]:
    words = shlex.split(re.sub(r'"?\$\(.*', "", line), comments=True)
    return words[: next((at for at, word in enumerate(words) if word in ENDS), len(words))]


@pytest.mark.parametrize(
    ("document", "line"), [pytest.param(d, text, id=f"{d.name}: {text}") for d, text in shown()]
)
def test_every_command_in_the_documents_exists(document: Path, line: str) -> None:
    """Options are checked by name; values are not."""
    words = words_of(line)
    command = COMMANDS
    while True:
        known = {
            name: option
            for option in command.params
            for name in (*option.opts, *option.secondary_opts)
        }
        subcommands: Any = getattr(command, "commands", None)
        chosen = _take(words, known, subcommands is not None, f"{document.name}: {line}")
        if chosen is None:
            return
        if chosen not in subcommands and hasattr(command, "default_command"):
            chosen = command.default_command
        assert chosen in subcommands, f"{document.name}: no command {chosen!r} in {line!r}"
        command = subcommands[chosen]


def _take(words: list[str], known: dict[str, Any], has_commands: bool, where: str) -> str | None:
    """Drop one level's options and arguments; the next word, where it must be a command."""
    while words:
        word = words.pop(0)
        if not word.startswith("-") or word == "-":
            if has_commands:
                return word
            continue
        if word in ("--help", "-h", "--"):
            return None
        if word in ("--install-completion", "--show-completion"):
            continue
        name = word.partition("=")[0]
        if not word.startswith("--") and word not in known:
            name = word[:2]
        assert name in known, f"{where}: no option {name}"
        if not getattr(known[name], "is_flag", False) and name == word and words:
            words.pop(0)
    return None
