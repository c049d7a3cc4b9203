"""A run of the command line imports its own noun, and not the others'."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import resolve_name
from typing import Any

import pytest
import typer

from cli.main import app
from cli.nouns import MODULES

COMMANDS: Any = typer.main.get_command(app)


@pytest.mark.parametrize("name", MODULES)
def test_every_noun_and_verb_is_made_by_its_module(name: str) -> None:
    assert COMMANDS.commands[name].name == name


def test_the_command_line_imports_no_noun_and_no_http_until_one_is_asked_for() -> None:
    program = (
        "import sys, typer, cli.main; found = typer.main.get_command(cli.main.app);"
        "assert list(found.commands) == list(cli.nouns.MODULES);"
        "found.commands['serve'];"
        "print(*sorted(sys.modules))"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    imported = set(ran.stdout.split())

    assert "cli.serve" in imported
    assert not imported & {"aiohttp", "yaml", "rich.console", "node"}
    nouns = {resolve_name(name, "cli") for name in MODULES.values()}
    assert nouns & imported == {"cli.serve"}
