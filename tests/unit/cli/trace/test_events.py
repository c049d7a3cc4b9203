"""`goqueue-cli trace events`: the events of a topic, one a line."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import Shell


@pytest.fixture
def topic(shell: Shell) -> Shell:
    shell.ok("topic", "create", "t", "--partitions", "2")
    for value, partition in (("a", "1"), ("b", "0"), ("c", "1")):
        shell.ok("produce", "t", "-m", value, "-p", partition, "-k", "k-" + value)
    return shell


def told(shell: Shell, *words: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in shell.ok("trace", "events", *words).splitlines()]


def test_events_are_told_partition_after_partition(topic: Shell) -> None:
    rows = told(topic, "t")

    assert [row["id"] for row in rows] == ["t:0:0", "t:1:0", "t:1:0", "t:1:1"]
    types = ["PUBLISHED", "PUBLISHED", "REPLICATED", "PUBLISHED"]
    assert [row["event_type"] for row in rows] == types
    assert (rows[0]["key"], rows[0]["lane"], rows[0]["index"]) == ("k-b", "normal", 3)


def test_one_goes_on_after_an_index(topic: Shell) -> None:
    first, *others = told(topic, "t", "-p", "1")

    assert told(topic, "t", "-p", "1", "--after", str(first["index"])) == others


def test_a_table_has_the_details_where_it_is_wide(topic: Shell) -> None:
    table = topic.ok("trace", "events", "t", "-o", "wide")

    assert "PUBLISHED" in table
    assert "lane=normal" in table


def test_an_index_is_of_one_partition(topic: Shell) -> None:
    result = topic.run("trace", "events", "t", "--after", "3")

    assert result.exit_code == 2
    assert "--after goes with --partition" in result.stderr
