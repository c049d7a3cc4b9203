"""`goqueue-cli topic compact`, and null values on their way in and out."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import Shell


def test_a_topics_compression_is_given_changed_and_shown(shell: Shell) -> None:
    shell.ok("cluster", "upgrade", "--finish")
    shell.ok("topic", "create", "t", "-p", "1", "--compression", "zstd")
    shell.ok("topic", "alter", "t", "--compression", "lz4")

    assert json.loads(shell.ok("topic", "describe", "t"))["config"]["compression"] == "lz4"
    assert "Compression:" in shell.ok("topic", "describe", "t", "-o", "table")


@pytest.fixture
def table(shell: Shell) -> Shell:
    shell.ok("topic", "create", "table", "-p", "1", "--cleanup", "compact")
    return shell


def test_settings_are_given_and_shown(shell: Shell) -> None:
    words = ["--cleanup", "compact,delete", "--delete-retention", "7d"]
    more = ["--min-compaction-lag", "1h", "--min-cleanable-ratio", "0.25"]
    shell.ok("topic", "create", "t", *words, *more)

    config = json.loads(shell.ok("topic", "describe", "t"))["config"]

    assert (config["cleanup"], config["delete_retention_ms"]) == ("compact,delete", 604_800_000)
    assert (config["min_compaction_lag_ms"], config["min_cleanable_ratio"]) == (3_600_000, 0.25)
    shown = shell.ok("topic", "describe", "t", "-o", "table")
    assert "compact,delete (null values are kept " in shown


def test_a_null_value_is_produced_consumed_and_piped(table: Shell) -> None:
    table.ok("produce", "table", "-k", "a", "-m", "1")
    table.ok("produce", "table", "-k", "a", "--null")

    printed = table.ok("consume", "table")
    table.ok("topic", "create", "copy", "-p", "1", "--cleanup", "compact")
    table.ok("produce", "copy", stdin=printed.encode())

    values = [json.loads(line)["value"] for line in table.ok("consume", "copy").splitlines()]
    assert values == ["1", None]
    assert table.ok("consume", "table", "--value-only") == "1\n\n"


def test_messages_without_a_key_are_refused(table: Shell) -> None:
    refused = table.run("produce", "table", "-m", "x")

    assert refused.exit_code != 0
    assert "its messages have keys" in refused.stderr


def test_a_dry_run_tells_what_would_go(table: Shell) -> None:
    for value in "123":
        table.ok("produce", "table", "-k", "a", "-m", value)
    table.clock.now_ms += 25 * 3_600_000  # a segment is a day long, and the newest is left alone
    table.ok("produce", "table", "-k", "b", "-m", "4")

    told = json.loads(table.ok("topic", "compact", "table", "--dry-run"))
    lines = table.ok("topic", "compact", "table", "-o", "table").splitlines()

    assert told["dry_run"] is True
    assert (told["partitions"][0]["run_dropped"], told["partitions"][0]["run_kept"]) == (2, 1)
    assert lines[1].split()[:4] == ["0", "done", "2", "1"]
    assert "DIRTY RATIO" in table.ok("topic", "compact", "table", "--status", "-o", "table")


def test_a_topic_that_is_not_compacted_says_so(shell: Shell) -> None:
    shell.ok("topic", "create", "plain")

    assert "not compacted" in shell.run("topic", "compact", "plain").stderr
