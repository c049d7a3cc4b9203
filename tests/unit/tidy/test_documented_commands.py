"""Every `goqueue-cli` command that a document shows has that name and those options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from cli.main import app
from tests.unit.tidy.test_tidy import tracked

COMMANDS = typer.main.get_command(app)
ENDS = {"|", "||", "&&", ";", ">", "2>", "&", "<"}


def shown() -> Iterator[tuple[Path, str]]:
    """Each line of a fenced block that runs the command line, without comment."""
    for document in tracked("*.md"):
        for block in re.findall(r"```(?:sh|bash|console)?\n(.*?)```", document.read_text(), re.S):
            for line in block.replace("\\\n", " ").splitlines():
                found = re.search(r"goqueue-cli\s+(.*)", line)
                if found:
                    yield document, found[1]


def words_of(line: str) -> list[str]:
    words = shlex.split(line, comments=True)
    return words[: next((at for at, word in enumerate(words) if word in ENDS), len(words))]


@pytest.mark.parametrize(
    ("document", "line"), [pytest.param(d, text, id=f"{d.name}: {text}") for d, text in shown()]
)
def test_every_command_in_the_documents_exists(document: Path, line: str) -> None:
    """Options are checked by name; values are not."""
    words = words_of(line)
    if "..." in line or "…" in line:
        pytest.fail(f"{document}: write the command out: {line}")
    command: click.Command = COMMANDS
    context = click.Context(COMMANDS, resilient_parsing=True)
    while True:
        known = {name: option for option in command.params for name in option.opts}
        known |= {name: option for option in command.params for name in option.secondary_opts}
        subcommand = _take(words, known, command, f"{document.name}: {line}")
        if subcommand is None:
            return
        assert isinstance(command, click.Group)
        found = command.get_command(context, subcommand)
        assert found is not None, f"{document.name}: no command {subcommand!r} in {line!r}"
        command = found


def _take(
    words: list[str], known: dict[str, click.Parameter], command: click.Command, where: str
) -> str | None:
    """Drop the options of one level; the next word, if the command is a group."""
    while words:
        word = words.pop(0)
        if not word.startswith("-") or word == "-":
            if isinstance(command, click.Group):
                return word
            continue
        if word in ("--help", "-h", "--"):
            return None
        name = word.split("=")[0]
        if name not in known and not word.startswith("--") and word[:2] in known:
            continue  # a short option with its value
        assert name in known, f"{where}: no option {name}"
        option = known[name]
        if isinstance(option, click.Option) and not option.is_flag and "=" not in word and words:
            words.pop(0)
    return None
