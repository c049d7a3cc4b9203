"""`goqueue-cli topic archive`: how far a topic is archived, and telling it by hand."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import Shell

HERE = "s3://bucket/archive"


@pytest.fixture
def orders(shell: Shell) -> Shell:
    shell.ok("topic", "create", "orders", "-p", "2", "--require-archive")
    for value in "abc":
        shell.ok("produce", "orders", "-p", "0", "-m", value)
    return shell


def test_the_setting_is_given_shown_and_switched_off(orders: Shell) -> None:
    config = json.loads(orders.ok("topic", "describe", "orders"))["config"]
    assert config["require_archive"] is True
    assert "none (messages wait for it)" in orders.ok("topic", "describe", "orders", "-o", "table")

    orders.ok("topic", "alter", "orders", "--no-require-archive")
    assert "(nothing waits for it)" in orders.ok("topic", "describe", "orders", "-o", "table")


def test_what_is_reported_by_hand_is_shown_by_partition(orders: Shell) -> None:
    at = ["--position", "0=2", "--position", "1=0"]
    orders.ok("topic", "archive", "orders", "--report", HERE, *at)

    lines = orders.ok("topic", "archive", "orders", "-o", "table").splitlines()
    assert lines[1].split()[:3] == ["0", "2", "1"]
    assert HERE in orders.ok("topic", "describe", "orders", "-o", "table")


def test_a_topic_without_an_archive_says_so(shell: Shell) -> None:
    shell.ok("topic", "create", "plain", "-p", "1")

    assert "has no archive" in shell.run("topic", "archive", "plain", "-o", "table").output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--report", HERE], "belong together"),
        (["--position", "0=1"], "belong together"),
        (["--report", HERE, "--position", "0"], "PARTITION=OFFSET"),
        (["--report", HERE, "--position", "0=9"], "outside 0 to 3"),
    ],
)
def test_what_makes_no_sense_is_refused(orders: Shell, words: list[str], said: str) -> None:
    refused = orders.run("topic", "archive", "orders", *words)

    assert refused.exit_code != 0
    assert said in refused.stderr


def test_another_archive_takes_the_place_of_the_first_by_its_option(orders: Shell) -> None:
    orders.ok("topic", "archive", "orders", "--report", HERE, "--position", "0=3")
    words = ["--report", "/other", "--position", "0=1"]

    assert HERE in orders.run("topic", "archive", "orders", *words).stderr
    orders.ok("topic", "archive", "orders", *words, "--replace")
