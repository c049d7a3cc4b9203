"""What a terminal would obey is shown to it; pipes get it as it is."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
import yaml

from tests.unit.cli.conftest import Shell

CLIPBOARD = "\x1b]52;c;ZXZpbA==\x07"
TURNED = "a\u202egnp.exe\u2069"
C1 = "\x9b2J"
EVIL = f"{CLIPBOARD}{TURNED}{C1}\x7f\u200b"
SEEN = r"\x1b]52;c;ZXZpbA==\x07a\u202egnp.exe\u2069\x9b2J\x7f\u200b"
SOURCE = Path(__file__).parents[4] / "cli"


@pytest.fixture
def topic(shell: Shell) -> Shell:
    shell.ok("topic", "create", "t", "--partitions", "1")
    envelope = {"key": EVIL, "value": EVIL, "headers": {"h" + EVIL: EVIL}}
    line = json.dumps(envelope).encode()
    shell.ok("produce", "t", "--file", "-", stdin=line + b"\n")
    return shell


def harmful(text: str) -> set[str]:
    return {one for one in EVIL if not one.isprintable()} & set(text)


@pytest.mark.usefixtures("on_a_terminal")
@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml"])
@pytest.mark.parametrize(
    "words",
    [
        ["consume", "t"],
        ["consume", "t", "-n", "1", "--follow"],
        ["consume", "t", "-n", "1", "--follow", "--value-only"],
        ["consume", "t", "--group", "g", "-n", "1"],
        ["consume", "t", "--group", "g", "-n", "1", "--no-ack"],
        ["trace", "t:0:0"],
        ["trace", "search", "--topic", "t", "--key", EVIL],
    ],
)
def test_a_terminal_is_shown_what_it_would_obey(topic: Shell, form: str, words: list[str]) -> None:
    result = topic.run("-o", form, *words)

    assert result.exit_code == 0, result.output
    assert not harmful(result.stdout), repr(result.stdout)
    assert not harmful(result.stderr)


@pytest.mark.usefixtures("on_a_terminal")
def test_a_value_is_readable_on_a_terminal(topic: Shell) -> None:
    assert topic.ok("consume", "t", "--value-only") == SEEN + "\n"
    assert topic.ok("consume", "t", "-f", "-n", "1") == f"0 [{SEEN}]: {SEEN}\n"


@pytest.mark.usefixtures("on_a_terminal")
def test_json_and_yaml_stay_the_same_on_a_terminal(topic: Shell) -> None:
    from_json = json.loads(topic.ok("consume", "t", "-o", "json"))
    (from_yaml,) = yaml.safe_load_all(topic.ok("consume", "t", "-o", "yaml"))

    for found in (from_json, from_yaml):
        assert (found["key"], found["value"]) == (EVIL, EVIL)
        assert found["headers"] == {"h" + EVIL: EVIL}


@pytest.mark.usefixtures("on_a_terminal")
def test_bytes_that_are_no_text_are_shown_on_a_terminal(shell: Shell) -> None:
    shell.ok("topic", "create", "t", "--partitions", "1")
    shell.ok("produce", "t", "--file", "-", stdin=b"\xff\xfe caf\xc3\xa9\tx\n")

    assert shell.ok("consume", "t", "--value-only") == "\\xff\\xfe café\tx\n"


def test_pipes_get_every_byte(topic: Shell) -> None:
    value = topic.run("consume", "t", "--value-only").stdout_bytes
    found = topic.ok("consume", "t", "-o", "json")

    assert value == EVIL.encode() + b"\n"
    assert TURNED + C1 in found  # JSON escapes the rest by itself
    assert json.loads(found)["value"] == EVIL


@pytest.mark.usefixtures("on_a_terminal")
@pytest.mark.parametrize(
    "words",
    [
        ["topic", "describe", "x" + EVIL],
        ["topic", "create", EVIL],
        ["-c", EVIL, "topic", "list"],
        ["consume", EVIL],
        ["consume", "t", "--" + EVIL],
        [EVIL],
        ["consume", "t", "--from-time", EVIL],
        ["produce", "t", "--file", EVIL],
        ["group", "describe", EVIL],
    ],
)
def test_errors_show_it_on_a_terminal(shell: Shell, words: list[str]) -> None:
    result = shell.run(*words)

    assert result.exit_code != 0
    assert not harmful(result.output), repr(result.output)


def test_errors_go_into_a_pipe_as_they_are(shell: Shell) -> None:
    result = shell.run("-c", TURNED, "topic", "list")

    assert TURNED in result.stderr


def test_nothing_writes_past_the_one_place() -> None:
    """`print`, `echo` and the writing of a standard stream stand in terminal.py alone."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name == "terminal.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            is_stream = name.endswith(("stdout.write", "stderr.write", "stdout.buffer.write"))
            if is_stream or name in ("print", "typer.echo", "typer.secho", "Console", "rprint"):
                found.append(f"{path.name}:{node.lineno}: {name}")
    assert not found
