"""`produce --delay`, `delayed`, `schedule`, and message ids."""

from __future__ import annotations

import json

import pytest

from cli.output.formats import time_of
from tests.unit.cli.conftest import T0_MS, Shell

HOUR = time_of(T0_MS + 3_600_000)


@pytest.fixture
def topic(shell: Shell) -> Shell:
    shell.ok("topic", "create", "t", "-p", "1")
    return shell


def received(shell: Shell) -> list[object]:
    out = shell.ok("consume", "t", "--group", "g")
    return [json.loads(line)["value"] for line in out.splitlines()]


def test_a_delayed_message_is_received_when_it_is_due(topic: Shell) -> None:
    out = topic.ok("produce", "t", "-m", "later", "--delay", "1h", "-o", "table")
    assert out == (f"✓ Published to t partition 0 offset 0 (id t:0:0), delivered from {HOUR} on\n")
    topic.ok("produce", "t", "-m", "now")
    assert received(topic) == ["now"]

    topic.clock.now_ms += 3_600_000
    topic.passes(2000)  # in which an idle partition's log time goes on

    assert received(topic) == ["later"]


def test_a_moment_and_an_expiry_are_kept(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "at", "--deliver-at", HOUR, "--priority", "high")
    topic.ok("produce", "t", "-m", "short", "--ttl", "5s")

    topic.clock.now_ms += 3_600_000
    topic.passes(2000)  # in which an idle partition's log time goes on

    assert received(topic) == ["at"]


def test_lines_have_times_of_their_own(topic: Shell) -> None:
    body = b'{"value": "a", "delay": "1h"}\n{"value": "b", "delay": 60000}\n{"value": "c"}\n'
    topic.ok("produce", "t", "--delay", "2h", stdin=body)

    rows = [json.loads(line) for line in topic.ok("delayed", "list", "t").splitlines()]

    assert [row["offset"] for row in rows] == [1, 0, 2]
    assert rows[1]["deliver_at"] == HOUR


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--delay", "soon"), "delay: 'soon' is not a duration"),
        (("--delay", "1s", "--deliver-at", HOUR), "delay and deliver_at exclude each other"),
        (("--deliver-at", "tomorrow"), "deliver_at: 'tomorrow' is not a time"),
        (("--delay", "2m", "--ttl", "1m"), "would never be received"),
        (("--message-id", "x", "-m", "another"), "--message-id is for one message"),
    ],
)
def test_what_can_not_be_meant_is_refused(topic: Shell, words: tuple[str, ...], text: str) -> None:
    result = topic.run("produce", "t", "-m", "x", *words)

    assert result.exit_code == 2
    assert text in result.stderr
    assert topic.ok("consume", "t") == ""


def test_a_known_message_id_is_not_stored_again(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "x", "--message-id", "order-1")

    out = topic.ok("produce", "t", "-m", "x", "--message-id", "order-1", "-o", "table")

    assert out == "✓ Nothing stored: published before to t partition 0 offset 0 (id t:0:0)\n"
    assert len(topic.ok("consume", "t").splitlines()) == 1


def test_repeats_in_a_file_are_counted(topic: Shell) -> None:
    body = b'{"value": "x", "message_id": "a"}\n{"value": "x", "message_id": "a"}\n'
    topic.ok("produce", "t", stdin=b'{"value": "x", "message_id": "a"}\n')

    out = topic.ok("produce", "t", "-o", "table", stdin=body)

    assert "2 of them there before" in out


def test_delayed_messages_are_listed_shown_and_cancelled(topic: Shell) -> None:
    assert topic.ok("delayed", "list", "t", "-o", "table") == "No delayed messages.\n"
    topic.ok("produce", "t", "-m", "x", "--key", "k", "--delay", "1h")

    header, row = topic.ok("delayed", "list", "t", "-o", "table").splitlines()
    assert header.split() == ["ID", "DELIVER", "AT", "REMAINING", "STATE", "KEY"]
    assert row.split() == ["t:0:0", HOUR, "1h0m0s", "pending", "k"]
    assert "State:      pending\n" in topic.ok("delayed", "get", "t:0:0", "-o", "table")

    assert topic.ok("delayed", "cancel", "t:0:0", "-o", "table") == "✓ Cancelled t:0:0\n"
    assert topic.ok("delayed", "cancel", "t:0:0", "-o", "table") == "✓ Cancelled t:0:0\n"
    topic.ok("produce", "t", "-m", "due", "--delay", "1h")
    topic.clock.now_ms += 3_600_000
    topic.passes(2000)  # in which an idle partition's log time goes on
    assert received(topic) == ["due"]
    late = topic.run("delayed", "cancel", "t:0:1")
    assert (late.exit_code, "(already_due)" in late.stderr) == (1, True)
    assert json.loads(topic.ok("delayed", "get", "t:0:0"))["state"] == "cancelled"
    assert "Remaining:  -\n" in topic.ok("delayed", "get", "t:0:0", "-o", "table")


@pytest.mark.parametrize(("id", "exit_code"), [("t:0:9", 3), ("t", 2), ("t:x:0", 2)])
def test_a_message_that_is_not_delayed_is_not_found(topic: Shell, id: str, exit_code: int) -> None:
    assert topic.run("delayed", "get", id).exit_code == exit_code


def test_a_schedule_is_created_paused_resumed_and_deleted(topic: Shell) -> None:
    assert topic.ok("schedule", "list", "-o", "table") == "No schedules.\n"
    out = topic.ok("schedule", "create", "tick", "t", "-m", "x", "--every", "10s", "-o", "table")
    first = time_of(T0_MS + 10_000)
    assert out == f"✓ Scheduled tick: every 10s to t, first at {first}\n"

    header, row = topic.ok("schedule", "list", "-o", "table").splitlines()
    assert header.split() == ["NAME", "TOPIC", "WHEN", "STATE", "NEXT", "RUNS"]
    assert row.split() == ["tick", "t", "every", "10s", "active", first, "0"]

    assert topic.ok("schedule", "pause", "tick", "-o", "table") == "✓ Paused schedule tick\n"
    assert json.loads(topic.ok("schedule", "get", "tick"))["state"] == "paused"
    assert topic.ok("schedule", "resume", "tick", "-o", "table").startswith("✓ Resumed schedule t")
    assert topic.run("schedule", "delete", "tick").exit_code == 2
    topic.ok("schedule", "delete", "tick", "--yes")
    assert topic.run("schedule", "get", "tick").exit_code == 3


def test_a_cron_schedule_tells_its_time_zone(topic: Shell) -> None:
    topic.ok(
        *("schedule", "create", "nightly", "t", "-m", "report", "--cron", "0 3 * * *"),
        *("--timezone", "Europe/Berlin", "--key", "k", "--header", "a=b", "--missed", "skip"),
    )

    out = topic.ok("schedule", "get", "nightly", "-o", "table")

    assert "When:         0 3 * * * (Europe/Berlin)\n" in out
    assert "Headers:      a=b\n" in out
    assert "Missed Times: skip\n" in out


def test_a_schedule_has_one_kind_of_time(topic: Shell) -> None:
    assert topic.run("schedule", "create", "x", "t", "-m", "v").exit_code == 2


def test_a_topics_queue_settings_are_set_changed_and_shown(shell: Shell) -> None:
    shell.ok("topic", "create", "q", "--ttl", "1d", "--delay-max", "30d", "--dedup-window", "0s")
    out = shell.ok("topic", "describe", "q", "-o", "table")
    assert "Message TTL:        24h\n" in out
    assert "Delays:             up to 720h, at most 100000 in a partition\n" in out
    assert "Message IDs:        not remembered\n" in out

    shell.ok("topic", "alter", "q", "--delayed-max", "5", "--dead-retention", "1h", "--ttl", "0s")

    out = shell.ok("topic", "describe", "q", "-o", "table")
    assert "Message TTL:        none\n" in out
    assert "at most 5 in a partition\n" in out
    assert "Dead Letters:       kept 1h\n" in out
    assert shell.run("topic", "alter", "q", "--ttl", "soon").exit_code == 2


def test_dead_letters_can_be_kept_for_ever(shell: Shell) -> None:
    shell.ok("topic", "create", "q", "--dead-retention", "-1")
    assert "Dead Letters:       kept for ever\n" in shell.ok(
        "topic", "describe", "q", "-o", "table"
    )

    shell.ok("topic", "alter", "q", "--dead-retention", "7d")
    assert "Dead Letters:       kept 168h\n" in shell.ok("topic", "describe", "q", "-o", "table")
    shell.ok("topic", "alter", "q", "--dead-retention", "-1")

    assert json.loads(shell.ok("topic", "describe", "q"))["config"]["dead_retention_ms"] == -1
