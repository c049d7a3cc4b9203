"""`consume --group`, `ack`, `nack`, `reject`, `extend`, `group`: working a queue by hand."""

from __future__ import annotations

import json
import re

import pytest

from cli.consume.command import Printer
from cli.consume.settle import end_text
from cli.output.formats import time_of
from goqueue.errors import OutcomeUnknown
from tests.unit.cli.conftest import T0_MS, Shell

LATER = time_of(T0_MS + 120_000)


@pytest.fixture
def queue(shell: Shell) -> Shell:
    shell.ok("topic", "create", "t", "-p", "1")
    for n in range(3):
        shell.ok("produce", "t", "-m", f"v{n}", "--key", f"k{n % 2}")
    return shell


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def taken(shell: Shell, *words: str) -> list[dict[str, object]]:
    return lines(shell.ok("consume", "t", "--group", "g", *words))


def receipt(shell: Shell) -> str:
    (message,) = taken(shell, "--no-ack", "-n", "1")
    return str(message["receipt"])


def test_a_group_gets_each_message_once_and_acks_what_was_printed(queue: Shell) -> None:
    assert [message["value"] for message in taken(queue)] == ["v0", "v1", "v2"]
    assert taken(queue) == []
    (partition,) = json.loads(queue.ok("group", "describe", "g"))["partitions"]
    assert (partition["committed_offset"], partition["in_flight"]) == (3, 0)


def test_another_group_gets_them_too(queue: Shell) -> None:
    taken(queue)

    other = lines(queue.ok("consume", "t", "--group", "other"))

    assert [message["value"] for message in other] == ["v0", "v1", "v2"]


def test_a_table_of_a_group_looks_like_any_other(queue: Shell) -> None:
    out = queue.ok("consume", "t", "-g", "g", "-o", "table").splitlines()

    assert out[0].split() == ["PARTITION", "OFFSET", "TIMESTAMP", "KEY", "VALUE", "PRIORITY"]
    assert len(out) == 4
    assert queue.ok("consume", "t", "-g", "g", "-o", "table") == "No messages are ready.\n"


def test_no_ack_holds_messages_and_prints_whole_receipts(queue: Shell) -> None:
    out = queue.ok("consume", "t", "-g", "g", "--no-ack", "-n", "2", "-o", "table").splitlines()

    assert out[0].split()[-2:] == ["ATTEMPT", "RECEIPT"]
    assert re.fullmatch(r"[\w-]{40,}", out[1].split()[-1])
    assert [message["value"] for message in taken(queue, "--no-ack")] == ["v2"]


def test_without_a_limit_no_ack_holds_ten(shell: Shell) -> None:
    shell.ok("topic", "create", "t", "-p", "1")
    shell.ok("produce", "t", stdin=b"".join(b"%d\n" % n for n in range(30)))

    assert len(taken(shell, "--no-ack")) == 10
    assert len(taken(shell, "--max-messages", "15", "--no-ack")) == 15
    assert len(taken(shell, "--no-ack")) == 5


def test_what_was_held_too_long_comes_again(queue: Shell) -> None:
    taken(queue, "--no-ack", "--visibility", "5s")
    assert taken(queue, "--no-ack") == []

    queue.clock.now_ms += 5_001

    assert [message["attempt"] for message in taken(queue)] == [2, 2, 2]


def test_raw_prints_values_of_a_group(queue: Shell) -> None:
    assert queue.ok("consume", "t", "-g", "g", "--raw") == "v0\nv1\nv2\n"


def test_what_a_group_printed_can_be_produced_again(queue: Shell) -> None:
    queue.ok("topic", "create", "copy", "-p", "1")
    held = queue.ok("consume", "t", "-g", "g", "--no-ack")

    queue.ok("produce", "copy", stdin=held.encode())

    copied = lines(queue.ok("consume", "copy"))
    assert [(message["value"], message["key"]) for message in copied] == [
        ("v0", "k0"),
        ("v1", "k1"),
        ("v2", "k0"),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("-g", "g", "--offset", "1"),
        ("-g", "g", "--from-beginning"),
        ("-g", "g", "--from-latest"),
        ("-g", "g", "--offset", "1", "--to-time", LATER),
        ("-g", "g", "--follow", "--to-time", LATER),
        ("-g", "g", "--force"),
        ("--from-time", "0", "--force"),
        ("--no-ack",),
        ("--visibility", "5s"),
        ("-g", "g", "--visibility", "soon"),
    ],
)
def test_options_that_do_not_go_together_are_refused(queue: Shell, words: tuple[str, ...]) -> None:
    result = queue.run("consume", "t", *words)

    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")


def test_an_acked_message_is_done(queue: Shell) -> None:
    held = receipt(queue)

    assert queue.ok("ack", held, "-o", "table") == "✓ Acknowledged t:0:0\n"

    again = queue.run("ack", held)
    assert again.exit_code == 3
    assert "already processed (not_in_flight)" in again.stderr


def test_a_nacked_message_comes_again_after_its_delay_with_the_reason(queue: Shell) -> None:
    out = queue.ok("nack", receipt(queue), "--delay", "2m", "-r", "bad gateway", "-o", "table")
    assert out == f"✓ t:0:0 comes again from {LATER} on (attempt 1 failed)\n"
    assert [message["value"] for message in taken(queue)] == ["v1", "v2"]

    queue.clock.now_ms += 120_000

    (message,) = taken(queue, "--no-ack", "--follow", "-n", "1")
    assert (message["attempt"], message["last_reason"]) == (2, "bad gateway")


def test_a_message_that_failed_too_often_is_dead(queue: Shell) -> None:
    queue.ok("group", "create", "g", "--max-attempts", "1")

    out = queue.ok("nack", receipt(queue), "-o", "table")

    assert out == "✓ t:0:0 is dead (attempt 1 failed)\n"


def test_a_rejected_message_is_dead_and_an_extended_one_is_held(queue: Shell) -> None:
    assert queue.ok("reject", receipt(queue), "-r", "no", "-o", "table") == "✓ t:0:0 is dead\n"

    out = queue.ok("extend", receipt(queue), "--visibility", "2m", "-o", "table")
    assert out == f"✓ t:0:1 is held until {LATER}\n"


def test_every_receipt_gets_its_turn(queue: Shell) -> None:
    result = queue.run("ack", "nonsense", receipt(queue), "-o", "table")

    assert result.exit_code == 1
    assert result.stdout == "✓ Acknowledged t:0:0\n"
    assert result.stderr.count("Error: ") == 1


@pytest.mark.parametrize("receipt", ["-" + "r" * 63, "--" + "x" * 62])
def test_a_receipt_may_begin_with_a_dash(queue: Shell, receipt: str) -> None:
    result = queue.run("nack", receipt, "-r", "busy")

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: this is not a receipt of this server")


def test_a_group_is_created_changed_shown_and_deleted(queue: Shell) -> None:
    assert queue.ok("group", "list", "-o", "table") == "No groups.\n"
    queue.ok("group", "create", "g", "--visibility", "1m", "--ordering", "key")

    out = queue.ok("group", "set", "g", "--backoff", "2s", "--max-attempts", "5", "-o", "table")
    assert out == "✓ Changed group g: max_attempts=5, backoff=2s\n"

    header, row = queue.ok("group", "list", "-o", "wide").splitlines()
    assert header.split()[-5:] == ["TOPICS", "MODE", "VISIBILITY", "ATTEMPTS", "ORDERING"]
    assert row.split()[-4:] == ["exclusive", "1m", "5", "key"]

    refused = queue.run("group", "delete", "g")
    assert (refused.exit_code, "needs --yes" in refused.stderr) == (2, True)
    assert queue.ok("group", "delete", "g", "--yes", "-o", "table") == "✓ Deleted group g\n"
    assert queue.run("group", "describe", "g").exit_code == 3


def test_a_group_that_exists_is_not_created_again(queue: Shell) -> None:
    queue.ok("group", "create", "g")

    result = queue.run("group", "create", "g")

    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "Error: group already exists: g",
        "Hint: `goqueue-cli group set g` changes it",
    ]


def test_a_group_is_described_partition_by_partition(queue: Shell) -> None:
    taken(queue, "--no-ack", "-n", "1")

    out = queue.ok("group", "describe", "g", "-o", "table").splitlines()

    assert out[0] == "Group:              g"
    assert "Visibility Timeout: 30s" in out
    assert out[-2].split()[5:9] == ["BEHIND", "READY", "IN", "FLIGHT"]
    assert out[-1].split() == ["t", "0", "0", "3", "3", "0s", "2", "1", "0", "0", "-", "no"]


def test_a_group_is_sought_back_and_gets_everything_again(queue: Shell) -> None:
    taken(queue)

    out = queue.ok("group", "seek", "g", "-t", "t", "--to", "earliest", "-o", "table")

    assert out == "✓ Group g goes on in t: partition 0 at 0\n"
    assert len(taken(queue)) == 3


def test_a_parked_key_waits_until_it_is_released(queue: Shell) -> None:
    queue.ok("group", "create", "g", "--ordering", "key")
    out = queue.ok("group", "park", "g", "k0", "-t", "t", "-o", "table")
    assert out == "✓ Key k0 of t is parked for group g (2 messages)\n"
    assert queue.ok("group", "describe", "g", "-o", "table").endswith(
        "PARKED KEYS:\nTOPIC  KEY  WAITING\nt      k0   2\n"
    )
    assert [message["value"] for message in taken(queue)] == ["v1"]

    queue.ok("group", "release", "g", "k0", "-t", "t")

    assert [message["value"] for message in taken(queue)] == ["v0", "v2"]


def test_resuming_says_whether_the_group_was_halted(queue: Shell) -> None:
    queue.ok("group", "create", "g")

    assert queue.ok("group", "resume", "g", "-o", "table") == "✓ Group g was not halted\n"


def test_a_missing_group_is_told_with_a_hint(queue: Shell) -> None:
    result = queue.run("group", "describe", "nope")

    assert result.exit_code == 3
    assert "`goqueue-cli group list` shows the groups" in result.stderr


def test_following_a_group_goes_on_until_the_limit(queue: Shell) -> None:
    out = queue.ok("consume", "t", "-g", "g", "-f", "-n", "3", "-o", "table")

    assert out == "0:0 [k0]: v0\n0:1 [k1]: v1\n0:2 [k0]: v2\n"


def test_what_was_printed_too_late_is_told(queue: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Printer.messages

    def slowly(printer: Printer, messages: list[dict[str, object]]) -> None:
        queue.clock.now_ms += 60_000
        shown(printer, messages)

    monkeypatch.setattr(Printer, "messages", slowly)

    result = queue.run("consume", "t", "-g", "g", "-n", "3")

    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 3
    assert result.stderr == ("Warning: 3 messages printed too late to be acked: delivered again\n")


def test_what_could_not_be_printed_is_given_back(
    queue: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(_printer: Printer, _messages: list[dict[str, object]]) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Printer, "messages", closed)
    assert queue.run("consume", "t", "-g", "g").exit_code == 1
    monkeypatch.undo()
    monkeypatch.setenv("NO_COLOR", "1")

    assert [message["attempt"] for message in taken(queue)] == [1, 1, 1]


def test_a_lost_answer_costs_a_visibility_timeout_and_says_so(queue: Shell) -> None:
    async def lose(*_words: object, **_options: object) -> None:
        raise OutcomeUnknown()

    queue.broker.queue.receive = lose  # type: ignore[assignment, method-assign]

    result = queue.run("consume", "t", "-g", "g", "--no-ack")

    assert result.exit_code == 4
    assert result.stderr.startswith("Error: the outcome is not known (outcome_unknown)\n")
    assert "comes again after its visibility timeout" in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("schedule", "create", "s", "t", "-m", "x", "--every", "0s"), "at least 1s"),
        (("schedule", "create", "s", "t", "-m", "x", "--every", "10"), "'10' is not a duration"),
        (("dlq", "list", "t", "-g", "g", "--id", "t"), "bad message id 't'"),
    ],
)
def test_what_a_server_could_only_misunderstand_is_refused_here(
    queue: Shell, words: tuple[str, ...], told: str
) -> None:
    result = queue.run(*words)

    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.parametrize(
    "words", [("group", "create", ""), ("produce", "", "-m", "x"), ("consume", "t", "-g", "")]
)
def test_an_empty_name_is_refused_as_such(queue: Shell, words: tuple[str, ...]) -> None:
    result = queue.run(*words)

    assert result.exit_code == 1
    assert "a name is empty" in result.stderr


@pytest.mark.parametrize("state", ["halted", "parked"])
def test_a_message_that_is_kept_back_is_not_called_dead(state: str) -> None:
    answer = {"topic": "t", "partition": 0, "offset": 1, "state": state}

    assert end_text(answer).startswith("t:0:1 is not dead: it comes again when its " + state)


def test_a_reason_in_another_encoding_is_refused_as_it_was_typed(queue: Shell) -> None:
    result = queue.run("nack", receipt(queue), "-r", "caf\udce9")

    assert result.exit_code == 2
    assert result.stderr == "Error: 'caf\\udce9' is not UTF-8\n"
