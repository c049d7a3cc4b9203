"""`goqueue-cli dlq`: list, look, count, redrive, purge."""

from __future__ import annotations

import json

import pytest

from cli.run.session import Session
from tests.unit.cli.conftest import Shell

DLQ = ("-g", "g", "-o", "table")


@pytest.fixture
def dead(shell: Shell) -> Shell:
    """Three dead letters, t:0:0 to t:0:2: two of a timeout."""
    shell.ok("topic", "create", "t", "-p", "1")
    for n, reason in enumerate(("no account", "timeout", "timeout")):
        shell.ok("produce", "t", "-m", f"v{n}", "--key", f"k{n}", "--header", f"n={n}")
        held = json.loads(shell.ok("consume", "t", "-g", "g", "--no-ack", "-n", "1"))
        shell.ok("reject", held["receipt"], "--reason", reason)
        shell.clock.now_ms += 1000
    return shell


def ids(shell: Shell, *words: str) -> list[str]:
    out = shell.ok("dlq", "list", "t", "-g", "g", *words)
    return [json.loads(line)["id"] for line in out.splitlines()]


def test_a_list_says_why_each_died(dead: Shell) -> None:
    header, *rows = dead.ok("dlq", "list", "t", *DLQ).splitlines()

    assert header.split() == ["ID", "DIED", "ATTEMPTS", "REASON", "KEY", "VALUE"]
    assert rows[0].split() == [
        "t:0:0",
        "2025-01-15T10:30:00.000Z",
        "1",
        "no",
        "account",
        "k0",
        "v0",
    ]
    assert len(rows) == 3


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        (("--reason", "time"), [1, 2]),
        (("--key", "k0"), [0]),
        (("--header", "n=2"), [2]),
        (("--id", "t:0:1", "--id", "t:0:2"), [1, 2]),
        (("--from", "2025-01-15T10:30:01Z"), [1, 2]),
        (("--to", "2025-01-15T10:30:01Z"), [0]),
        (("--partition", "0", "-n", "2"), [0, 1]),
        (("--reason", "time", "--header", "n=0"), []),
    ],
)
def test_filters_choose(dead: Shell, words: tuple[str, ...], offsets: list[int]) -> None:
    assert ids(dead, *words) == [f"t:0:{offset}" for offset in offsets]


def test_a_long_list_comes_page_by_page(dead: Shell) -> None:
    dead.ok("produce", "t", stdin=b"".join(b'{"value": "x"}\n' for _ in range(250)))
    taken = dead.ok("consume", "t", "-g", "g", "--no-ack", "-n", "250").splitlines()
    dead.ok("reject", *(json.loads(line)["receipt"] for line in taken))

    assert len(ids(dead, "-n", "1000")) == 253
    assert len(ids(dead)) == 100


def test_a_peek_shows_one_whole(dead: Shell) -> None:
    out = dead.ok("dlq", "peek", "t", "--id", "t:0:1", *DLQ)

    assert "ID:        t:0:1\n" in out
    assert "Headers:   n=1\n" in out
    assert out.splitlines()[-2:] == [
        "TIME                      REASON",
        "2025-01-15T10:30:01.000Z  timeout",
    ]


def test_counts_are_by_reason(dead: Shell) -> None:
    assert dead.ok("dlq", "counts", "t", *DLQ).splitlines() == [
        "REASON      MESSAGES",
        "no account  1",
        "timeout     2",
        "",
        "3 dead letters",
    ]


def test_a_redrive_makes_messages_come_again(dead: Shell) -> None:
    out = dead.ok("dlq", "redrive", "t", "--reason", "timeout", "--dry-run", *DLQ)
    assert out == "✓ Would redrive 2 dead letters of t for group g\n"
    assert len(ids(dead)) == 3

    out = dead.ok("dlq", "redrive", "t", "--reason", "timeout", *DLQ)

    job = out.removesuffix(")\n").split()[-1]
    assert out == f"✓ Redriving 2 dead letters of t for group g (job {job})\n"
    jobs = ("dlq", "jobs", "-g", "g", "-o", "table")
    header, row = dead.until(
        lambda: dead.ok(*jobs).splitlines(), lambda told: told[1].split()[2] == "done"
    )
    again = [json.loads(line) for line in dead.ok("consume", "t", "-g", "g").splitlines()]
    assert [message["id"] for message in again] == ["t:0:1", "t:0:2"]
    assert header.split()[:4] == ["JOB", "TOPIC", "STATE", "MATCHED"]
    assert row.split()[:7] == [job, "t", "done", "2", "2", "0", "full"]
    assert dead.ok("dlq", "stop", job, *DLQ) == f"✓ Redrive {job} is done: 2 of 2 moved\n"


@pytest.mark.parametrize(("job", "exit_code"), [("x", 2), ("1.5", 2), ("9" * 30, 2), ("7", 3)])
def test_what_is_no_redrive_can_not_be_stopped(dead: Shell, job: str, exit_code: int) -> None:
    result = dead.run("dlq", "stop", job, "-g", "g")

    assert result.exit_code == exit_code
    assert result.stderr.startswith("Error: ")


def test_a_purge_wants_to_be_sure(dead: Shell) -> None:
    refused = dead.run("dlq", "purge", "t", "--reason", "timeout", "-g", "g")
    assert refused.exit_code == 2
    assert refused.stderr == "Error: purging 2 dead letters of t, group g needs --yes\n"
    out = dead.ok("dlq", "purge", "t", "--dry-run", *DLQ)
    assert out == "✓ Would purge 3 dead letters of t, group g\n"
    assert len(ids(dead)) == 3

    out = dead.ok("dlq", "purge", "t", "--reason", "timeout", "--yes", *DLQ)

    assert out == "✓ Purged 2 dead letters of t for group g\n"
    assert ids(dead) == ["t:0:0"]


@pytest.mark.parametrize(("answer", "left"), [(b"n\n", 3), (b"y\n", 0)])
def test_a_person_is_asked_before_a_purge(
    dead: Shell, monkeypatch: pytest.MonkeyPatch, answer: bytes, left: int
) -> None:
    monkeypatch.setattr(Session, "can_ask", lambda _self: True)

    dead.run("dlq", "purge", "t", "-g", "g", stdin=answer)

    assert json.loads(dead.ok("dlq", "counts", "t", "-g", "g", "-o", "json"))["total"] == left


def test_nothing_dead_is_said_so(shell: Shell) -> None:
    shell.ok("topic", "create", "t")
    shell.ok("group", "create", "g")

    assert shell.ok("dlq", "list", "t", *DLQ) == "No dead letters.\n"
    assert shell.ok("dlq", "peek", "t", *DLQ) == "No dead letters.\n"
    assert shell.ok("dlq", "counts", "t", *DLQ) == "0 dead letters\n"
    assert shell.ok("dlq", "jobs", *DLQ) == "No redrives.\n"
