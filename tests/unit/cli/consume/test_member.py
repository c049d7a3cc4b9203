"""`consume --group` as a member: it acks what it printed, gives back the rest, and leaves."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from cli.consume.group import Taking
from cli.consume.member import Joined
from cli.consume.messages import message_row
from cli.output.formats import time_of
from cli.run.session import REPEATS, GlobalOptions, Session
from goqueue.consume.consumer import AsyncConsumer
from goqueue.errors import OutcomeUnknown, Unavailable
from goqueue.models.queued import Received
from node.api.groups import GroupView
from tests.unit.cli.conftest import T0_MS, Shell

ATTEMPTS = REPEATS + 1
"""Of a request to one server."""


@pytest.fixture
def queue(shell: Shell) -> Shell:
    """Topic t of two partitions; of v0 to v5, a second apart, the even ones are in the first."""
    shell.ok("topic", "create", "t", "-p", "2")
    for n in range(6):
        shell.clock.now_ms = T0_MS + n * 1000
        shell.ok("produce", "t", "-m", f"v{n}", "-p", str(n % 2))
    return shell


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def taken(shell: Shell, *words: str) -> list[str]:
    out = shell.ok("consume", "t", "-g", "g", *words)
    return sorted(str(line["value"]) for line in lines(out))


def group(shell: Shell) -> dict[str, object]:
    found: dict[str, object] = json.loads(shell.ok("group", "describe", "g"))
    return found


def committed(shell: Shell) -> list[object]:
    return [one["committed_offset"] for one in lines(shell.ok("group", "offsets", "g"))]


def in_flight(shell: Shell) -> int:
    answer = json.loads(shell.ok("group", "lag", "g"))
    return sum(one["in_flight"] for one in answer["partitions"])


def test_a_consumer_joins_and_leaves(queue: Shell) -> None:
    assert taken(queue) == [f"v{n}" for n in range(6)]

    assert (group(queue)["state"], group(queue)["members"]) == ("empty", [])
    causes = [one["cause"] for one in lines(queue.ok("group", "rebalances", "g"))]
    assert causes == ["leave", "join"]
    assert committed(queue) == [3, 3]


def test_messages_are_pushed_once_the_level_of_streams_is_finished(queue: Shell) -> None:
    queue.ok("cluster", "upgrade", "--finish")

    (first, *_) = lines(queue.ok("consume", "t", "-g", "g", "--max", "2"))
    assert "visible_until" not in first, "its lease had no end but the stream's"
    assert len(taken(queue)) == 4

    assert committed(queue) == [3, 3]
    assert in_flight(queue) == 0


def test_at_most_so_many_are_printed_and_the_rest_is_given_back(queue: Shell) -> None:
    assert len(taken(queue, "--max", "2")) == 2

    assert in_flight(queue) == 0
    left = lines(queue.ok("consume", "t", "-g", "g"))
    assert [message["attempt"] for message in left] == [1] * 4


def test_who_gets_no_partition_is_told_why(queue: Shell) -> None:
    queue.ok("topic", "create", "one", "-p", "1")
    queue.ok("produce", "one", "-m", "x")
    queue.join("g", "one")

    result = queue.run("consume", "one", "-g", "g", "-o", "table")

    assert result.exit_code == 0
    assert result.stdout == "No messages are ready.\n"
    assert result.stderr == "other members of group g have all partitions\n"


def test_members_take_turns_in_a_shared_group(queue: Shell) -> None:
    queue.ok("group", "create", "g", "--mode", "shared")
    queue.join("g", "t")

    assert taken(queue) == [f"v{n}" for n in range(6)]


@pytest.mark.parametrize("words", [("--no-ack",), ("--partition", "0")])
def test_what_does_not_join_takes_nothing_from_members(
    queue: Shell, words: tuple[str, ...]
) -> None:
    queue.join("g", "t")

    result = queue.run("consume", "t", "-g", "g", *words)

    assert result.exit_code == 1
    assert "(stale_generation)" in result.stderr
    assert "Hint: consume without --no-ack and --partition joins them" in result.stderr


def test_one_partition_is_taken_without_joining(queue: Shell) -> None:
    assert taken(queue, "--partition", "1") == ["v1", "v3", "v5"]

    assert group(queue)["generation"] == 0


def test_a_group_is_set_to_a_time_first(queue: Shell) -> None:
    assert taken(queue, "--from-time", time_of(T0_MS + 3000)) == ["v3", "v4", "v5"]
    assert taken(queue) == []

    assert taken(queue, "--from-time", str(T0_MS + 4000)) == ["v4", "v5"]


def test_a_group_with_members_is_set_to_a_time_only_by_force(queue: Shell) -> None:
    queue.ok("topic", "create", "other")
    queue.join("g", "other")
    words = ("--from-time", str(T0_MS + 4000))

    refused = queue.run("consume", "t", "-g", "g", *words)

    assert refused.exit_code == 1
    assert "(group_active)" in refused.stderr
    assert taken(queue, *words, "--force") == ["v4", "v5"]


def test_nothing_from_the_end_on_is_printed_or_acked(queue: Shell) -> None:
    assert taken(queue, "--to-time", time_of(T0_MS + 3000)) == ["v0", "v1", "v2"]
    assert (committed(queue), in_flight(queue)) == ([2, 1], 0)

    assert taken(queue, "--to-time", time_of(T0_MS + 3000)) == []
    left = lines(queue.ok("consume", "t", "-g", "g"))

    assert [message["attempt"] for message in left] == [1] * 3


def test_a_window_of_time_is_replayed(queue: Shell) -> None:
    taken(queue)

    window = ("--from-time", time_of(T0_MS + 2000), "--to-time", time_of(T0_MS + 4000))

    assert taken(queue, *window) == ["v2", "v3"]


def test_an_end_in_the_future_takes_all_there_is(queue: Shell) -> None:
    assert len(taken(queue, "--to-time", time_of(T0_MS + 60_000))) == 6


@pytest.mark.parametrize("words", [(), ("--no-ack", "-n", "100")])
def test_a_partition_that_is_at_its_end_is_left_alone(
    queue: Shell, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("cli.consume.until.ASIDE_MAX", 2)
    taken(queue, "--partition", "0")
    queue.ok("produce", "t", "-p", "0", stdin=b"late\n" * 200)

    result = queue.run("consume", "t", "-g", "g", "--to-time", time_of(T0_MS + 5000), *words)

    assert [line["value"] for line in lines(result.stdout)] == ["v1", "v3"]
    assert result.stderr == ""


@pytest.mark.parametrize("words", [(), ("--no-ack",)])
def test_what_overtakes_the_end_is_put_aside_and_given_back(
    queue: Shell, words: tuple[str, ...]
) -> None:
    for _ in range(3):
        queue.ok("produce", "t", "-m", "late", "-p", "0", "--priority", "high")

    found = taken(queue, "--to-time", time_of(T0_MS + 5000), *words)

    assert found == [f"v{n}" for n in range(5)]
    late = lines(queue.ok("consume", "t", "-g", "g", "-n", "3", "--no-ack", "-p", "0"))
    assert [(message["value"], message["attempt"]) for message in late] == [("late", 1)] * 3


def test_the_end_is_given_up_where_too_much_overtakes_it(
    queue: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.consume.until.ASIDE_MAX", 2)
    for _ in range(3):
        queue.ok("produce", "t", "-m", "late", "-p", "0", "--priority", "high")

    result = queue.run("consume", "t", "-g", "g", "--to-time", time_of(T0_MS + 5000))

    assert result.exit_code == 0
    assert "of --to-time or later came first, and earlier ones may be left" in result.stderr
    assert in_flight(queue) == 0


def test_messages_that_can_not_be_had_are_an_outage(
    queue: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(*_words: object, **_options: object) -> None:
        raise OutcomeUnknown

    monkeypatch.setattr(queue.broker.queue, "receive", lose)

    result = queue.run("consume", "t", "-g", "g", "--timeout", "1")

    assert result.exit_code == 4
    assert "nothing came in 1 s, though not all was delivered" in result.stderr


def test_a_halted_group_is_told_instead_of_nothing(queue: Shell) -> None:
    queue.ok("group", "create", "g", "--dead-max", "1")
    held = lines(queue.ok("consume", "t", "-g", "g", "-p", "0", "--no-ack", "-n", "2"))
    queue.ok("reject", *(str(message["receipt"]) for message in held))

    result = queue.run("consume", "t", "-g", "g")

    assert result.exit_code == 1
    assert "(group_halted)" in result.stderr


def test_a_follower_tells_of_an_outage_once_and_goes_on(
    queue: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = queue.broker.queue.receive
    looks: list[tuple[object, ...]] = []

    async def receive(*words: Any, **options: Any) -> Any:
        if len(looks) <= ATTEMPTS:
            raise Unavailable("no leader")
        return await ask(*words, **options)

    async def group(*words: object) -> GroupView:
        looks.append(words)
        raise Unavailable("no leader")

    monkeypatch.setattr(queue.broker.queue, "receive", receive)
    monkeypatch.setattr(queue.broker.groups, "group", group)

    result = queue.run("consume", "t", "-g", "g", "-f", "-n", "6", "--visibility", "30s")

    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 6)
    assert result.stderr == "no leader; trying again\n"


async def test_who_was_not_told_its_partitions_yet_is_not_done(queue: Shell) -> None:
    await asyncio.to_thread(queue.ok, "topic", "create", "other")
    await asyncio.to_thread(queue.join, "g", "other")
    given = GlobalOptions(server=queue.url)
    taking = Taking("g", "t", None, None, None, ack=True, follow=False)
    async with Session(given) as session:
        told_nothing = AsyncConsumer(session.client, "g", "t")

        assert not await Joined(session, taking, told_nothing).is_drained()


@pytest.fixture
def interrupt(request: pytest.FixtureRequest) -> object:
    """What a process starts with for SIGINT: a shell has it ignored in the background."""
    return getattr(request, "param", signal.default_int_handler)


@pytest.fixture
def following(queue: Shell, interrupt: object) -> Iterator[subprocess.Popen[str]]:
    """A process that follows the group, and has printed what there was."""
    words = ("-s", queue.url, "consume", "t", "-g", "g", "--follow", "-o", "json")
    process = subprocess.Popen(
        [sys.executable, "-m", "cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, interrupt),  # type: ignore[arg-type]
    )
    assert process.stdout is not None
    for _ in range(6):
        assert process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    ("interrupt", "sent", "code"),
    [(signal.default_int_handler, signal.SIGINT, 130), (signal.SIG_IGN, signal.SIGTERM, 0)],
    indirect=["interrupt"],
    ids=["interrupted", "terminated"],
)
def test_an_interrupt_leaves_the_group(
    queue: Shell, following: subprocess.Popen[str], sent: signal.Signals, code: int
) -> None:
    assert group(queue)["state"] == "stable"

    following.send_signal(sent)
    out, err = following.communicate(timeout=30)

    assert (following.returncode, out, err) == (code, "", "")
    assert group(queue)["state"] == "empty"
    assert (committed(queue), in_flight(queue)) == ([3, 3], 0)


def test_a_reader_that_goes_away_ends_the_consumer(
    queue: Shell, following: subprocess.Popen[str]
) -> None:
    assert following.stdout is not None
    following.stdout.close()

    queue.ok("produce", "t", "-m", "unread", "-p", "0")

    assert following.wait(timeout=30) == 0
    assert group(queue)["state"] == "empty"
    assert taken(queue) == ["unread"]


def test_a_message_of_the_library_is_shown_as_an_answer_has_it(queue: Shell) -> None:
    queue.ok("produce", "t", stdin=b"\xff\x00\n")
    queue.ok("produce", "t", "-m", "x", "--key", "k", "-H", "a=b", "--ttl", "1h", "-p", "0")
    queue.ok("produce", "t", "-m", "y", "--priority", "low", "--message-id", "i", "-p", "1")

    shown: list[dict[object, dict[str, object]]] = []
    for words in (("-n", "9"), ("--from-time", "0", "-n", "9", "--no-ack")):
        found = lines(queue.ok("consume", "t", "-g", "g", *words))
        varying = ("receipt", "receipt_handle", "visible_until")
        shown.append(
            {one.pop("id"): {k: v for k, v in one.items() if k not in varying} for one in found}
        )

    assert shown[0] == shown[1]
    assert len(shown[0]) == 9


def test_header_bytes_that_are_no_text_are_shown_as_base64() -> None:
    message = Received("t", 0, 1, T0_MS, b"v", b"\xff", (("h", b"\xfe"), ("i", b"x")))

    row = message_row(message)

    assert (row["key"], row["key_encoding"]) == ("/w==", "base64")
    assert (row["headers"], row["header_encodings"]) == ({"h": "/g==", "i": "x"}, {"h": "base64"})
