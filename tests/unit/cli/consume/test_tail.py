"""`tail` prints what is stored, from where it is asked to, and takes nothing."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.cli.conftest import Shell


def told(shell: Shell, *words: str) -> list[Any]:
    """The values that a tail prints before it has waited long enough."""
    lines = shell.ok("tail", "orders", "--wait", "1ms", *words).splitlines()
    return [json.loads(line)["value"] for line in lines]


def test_a_tail_prints_json_lines_from_where_it_is_asked_to(shell: Shell) -> None:
    shell.ok("topic", "create", "orders", "--partitions", "2")
    for value, partition, key in (("a", "0", "k"), ("b", "0", "l"), ("c", "1", "k")):
        words = ("-m", value, "--partition", partition, "--key", key, "--header", f"h={value}")
        shell.ok("produce", "orders", *words)

    assert told(shell) == []
    assert sorted(told(shell, "--from-beginning")) == ["a", "b", "c"]
    assert told(shell, "--partition", "0", "--offset", "1") == ["b"]
    assert sorted(told(shell, "--from-time", "2000-01-01")) == ["a", "b", "c"]
    assert sorted(told(shell, "--from-beginning", "--key", "k")) == ["a", "c"]
    assert told(shell, "--from-beginning", "--header", "h=b") == ["b"]
    assert told(shell, "--partition", "0", "--from-beginning", "-n", "1") == ["a"]
    lines = shell.ok("tail", "orders", "-p", "0", "--from-beginning", "-n", "2", "-o", "table")
    assert lines.splitlines() == ["0 [k]: a", "1 [l]: b"]
    assert shell.ok("tail", "orders", "-p", "1", "--from-beginning", "-n", "1", "--raw") == "c\n"


def test_a_tail_that_is_asked_for_what_is_not_there_says_so(shell: Shell) -> None:
    shell.ok("topic", "create", "orders", "--partitions", "2")

    assert shell.run("tail", "orders", "--offset", "1", "--from-beginning").exit_code == 2
    assert shell.run("tail", "orders", "--header", "nonsense").exit_code == 2
    assert shell.run("tail", "orders", "--wait", "long").exit_code == 2
    assert shell.run("tail", "none").exit_code == 3
    assert shell.run("tail", "orders", "-p", "7").exit_code == 3
