"""What no leader confirms is shown as stale, and ends no reading."""

from __future__ import annotations

import json

import pytest

from tests.lagging import Lagging
from tests.unit.cli.conftest import Shell


@pytest.fixture
def topic(shell: Shell) -> Shell:
    """`t` with six messages in one partition."""
    shell.ok("topic", "create", "t", "-p", "1")
    for number in range(6):
        shell.post("/v1/topics/t/messages", value=str(number))
    return shell


@pytest.fixture
def lagging(topic: Shell) -> Lagging:
    return Lagging(topic.broker)


def values(output: str) -> list[str]:
    return [str(json.loads(line)["value"]) for line in output.splitlines()]


@pytest.mark.parametrize("end", [0, 2])
@pytest.mark.parametrize("answers", [1, 2, 5])
@pytest.mark.parametrize("start", [["--from-beginning"], ["--offset", "0"]])
def test_consume_waits_until_the_end_is_confirmed(
    topic: Shell, lagging: Lagging, end: int, answers: int, start: list[str]
) -> None:
    lagging.hide(end, answers)

    assert values(topic.ok("consume", "t", *start)) == ["0", "1", "2", "3", "4", "5"]


def test_consume_fails_where_nobody_confirms_the_end(topic: Shell, lagging: Lagging) -> None:
    lagging.hide(2, answers=1 << 30)

    told = topic.run("consume", "t", "--from-beginning", "--timeout", "0.5")

    assert told.exit_code != 0
    assert values(told.stdout) == ["0", "1"]
    assert "t:0 from offset 2 on: no leader has confirmed for 0.5 s" in told.stderr


def test_tables_and_json_say_what_is_stale(topic: Shell, lagging: Lagging) -> None:
    lagging.hide(2, answers=1)
    told = topic.run("topic", "describe", "t", "-o", "table")
    assert "Total Messages:     2 (stale)" in told.stdout
    assert "2 (stale)" in told.stdout.splitlines()[-1]
    assert "t: stale. Leaders did not confirm these figures in time" in told.stderr

    lagging.hide(2, answers=1)
    found = json.loads(topic.ok("topic", "describe", "t", "-o", "json"))
    assert (found["stale"], found["partition_details"][0]["stale"]) == (True, True)

    lagging.hide(2, answers=1)
    listed = topic.run("topic", "partitions", "t", "-o", "json")
    assert json.loads(listed.stdout)["stale"]
    assert "t: stale" in listed.stderr

    lagging.hide(2, answers=1)
    assert "2 (stale)" in topic.run("topic", "list", "-o", "wide").stdout
    assert "stale" not in topic.ok("topic", "list", "-o", "wide")
