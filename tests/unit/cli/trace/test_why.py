"""`goqueue-cli trace why`: what people and programs are told."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import Shell


@pytest.fixture
def topic(shell: Shell) -> Shell:
    shell.ok("topic", "create", "t", "--partitions", "1")
    shell.ok("produce", "t", "-m", "x", "-p", "0")
    return shell


def take(shell: Shell, group: str) -> str:
    """The receipt of what the group receives."""
    (message,) = shell.post(f"/v1/groups/{group}/receive", topic="t", visibility="30s")["messages"]
    return str(message["receipt"])


def test_a_message_that_no_group_reads_says_so(topic: Shell) -> None:
    assert topic.ok("trace", "why", "t:0:0").splitlines() == [
        "Message: t:0:0",
        "As of: 2025-01-15T10:30:00.000Z, the partition's leader is node-1",
        "",
        "State: stored",
        "  └─ no_group: no group reads the topic",
    ]


def test_each_group_is_told_with_its_decisive_reason_first(topic: Shell) -> None:
    topic.ok("group", "create", "waiting")
    topic.ok("group", "reset-offsets", "waiting", "-t", "t", "--to-earliest")
    take(topic, "busy")

    told = topic.ok("trace", "why", "t:0:0").splitlines()[3:]

    assert told == [
        "Group busy: in_flight, 1 attempt",
        "  └─ in_flight: in flight at a consumer since 2025-01-15T10:30:00.000Z, attempt 1: "
        "its lease expires at 2025-01-15T10:30:30.000Z",
        "  Next: delivered again from 2025-01-15T10:30:30.000Z on, unless it is settled before",
        "",
        "Group waiting: ready",
        "  └─ not_asked: group waiting has no members, and nobody has asked this partition's "
        "leader for messages since it leads",
        "  Next: a receive gets it",
    ]


def test_one_group_may_be_named(topic: Shell) -> None:
    topic.ok("group", "create", "one")
    topic.ok("group", "create", "other")

    told = topic.ok("trace", "why", "t:0:0", "--group", "one")

    assert "Group one" in told
    assert "Group other" not in told


def test_programs_get_codes_and_facts(topic: Shell) -> None:
    take(topic, "busy")

    told = json.loads(topic.ok("trace", "why", "t:0:0", "-o", "json"))

    (group,) = told["groups"]
    (reason,) = group["reasons"]
    assert (group["state"], group["deliverable"]) == ("in_flight", False)
    assert (reason["code"], reason["until"]) == ("in_flight", "2025-01-15T10:30:30.000Z")
    assert reason["attributes"]["attempt"] == 1


def test_a_message_not_published_yet_is_an_answer_and_no_error(topic: Shell) -> None:
    told = topic.ok("trace", "why", "t:0:1")

    assert "not_published: not published yet: the partition ends at offset 1" in told


@pytest.mark.parametrize(
    ("words", "exit_code", "code"),
    [
        (("nonsense",), 3, ""),
        (("nope:0:0",), 3, "unknown_topic"),
        (("t:9:0",), 3, "unknown_partition"),
        (("t:0:0", "--group", "nobody"), 3, "unknown_group"),
    ],
)
def test_what_is_not_there_ends_as_other_commands_do(
    topic: Shell, words: tuple[str, ...], exit_code: int, code: str
) -> None:
    failed = topic.run("trace", "why", *words)

    assert failed.exit_code == exit_code
    assert code in failed.stderr


def test_a_message_may_be_named_by_its_producers_id(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "y", "-p", "0", "--message-id", "order-7")

    told = topic.ok("trace", "why", "order-7", "--topic", "t")

    assert told.splitlines()[0] == "Message: t:0:1"
