"""`goqueue-cli produce`, `consume`, `trace`: what goes in comes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.trace.tree import latency_text
from tests.unit.cli.conftest import T0_MS, Shell


def consumed(shell: Shell, *words: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in shell.ok("consume", "t", *words).splitlines()]


def values(shell: Shell, *words: str) -> list[object]:
    return [message["value"] for message in consumed(shell, *words)]


@pytest.fixture
def topic(shell: Shell) -> Shell:
    shell.ok("topic", "create", "t", "-p", "3")
    return shell


def test_one_message_says_where_it_stands(topic: Shell) -> None:
    out = topic.ok("produce", "t", "-m", "hello", "--partition", "2", "-o", "table")

    assert out == "✓ Published to t partition 2 offset 0 (id t:2:0)\n"


def test_one_message_in_a_pipe_is_a_record(topic: Shell) -> None:
    record = json.loads(topic.ok("produce", "t", "-m", "hello", "-p", "2"))

    assert (record["count"], record["id"]) == (1, "t:2:0")
    assert record["partitions"] == [
        {"partition": 2, "count": 1, "first_offset": 0, "last_offset": 0}
    ]


@pytest.mark.parametrize("durability", ["majority", "relaxed"])
def test_the_record_tells_how_durable_the_messages_are(shell: Shell, durability: str) -> None:
    shell.ok("topic", "create", "t", "--durability", durability)

    one = json.loads(shell.ok("produce", "t", "-m", "hello"))
    lines = json.loads(shell.ok("produce", "t", stdin=b"a\nb\n"))

    assert (one["durability"], lines["durability"]) == (durability, durability)


def test_a_topic_is_created_on_first_publish(shell: Shell) -> None:
    shell.ok("produce", "fresh", "-m", "x")

    assert shell.ok("topic", "list") == '{"name":"fresh"}\n'


def test_a_summary_counts_exactly(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "before", "-p", "1")
    lines = b"".join(b'{"value": "v%d", "partition": %d}\n' % (n, n % 2) for n in range(2501))

    out = topic.ok("produce", "t", "-o", "table", stdin=lines).splitlines()

    assert out[0].startswith("✓ Published 2501 messages to t in ")
    assert out[0].endswith(" messages/s)")
    assert out[1:] == [
        "PARTITION  MESSAGES  FIRST OFFSET  LAST OFFSET",
        "0          1251      0             1250",
        "1          1250      1             1250",
    ]


def test_a_file_comes_back_in_order_per_key_and_byte_for_byte(topic: Shell, tmp_path: Path) -> None:
    lines = [
        {"key": f"k{n % 7}", "value": {"n": n, "text": 'é "quoted" \\ line'}} for n in range(1500)
    ]
    file = tmp_path / "x.jsonl"
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))

    topic.ok("produce", "t", "--file", str(file))

    found = consumed(topic)
    for key in {line["key"] for line in lines}:
        sent = [
            json.dumps(line["value"], ensure_ascii=False, separators=(",", ":"))
            for line in lines
            if line["key"] == key
        ]
        assert [message["value"] for message in found if message["key"] == key] == sent


def test_messages_without_a_key_take_the_one_given(topic: Shell) -> None:
    topic.ok(
        *("produce", "t", "--key", "k", "--header", "a=b=c", "--priority", "high"),
        stdin=b'{"order_id": 123}\n{"value": "own", "key": "mine"}\n',
    )

    by_value = {message["value"]: message for message in consumed(topic)}
    assert by_value['{"order_id": 123}']["key"] == "k"
    assert by_value["own"]["key"] == "mine"
    assert by_value["own"]["headers"] == {"a": "b=c"}
    assert by_value["own"]["priority"] == "high"


def test_plain_takes_every_line_as_it_stands(topic: Shell) -> None:
    topic.ok("produce", "t", "--plain", "-p", "0", stdin=b'{"value": "x"}\n')

    assert values(topic) == ['{"value": "x"}']


def test_bytes_that_are_no_text_survive(topic: Shell) -> None:
    topic.ok("produce", "t", "-p", "0", stdin=b"\xff\x00\xfe\nplain\n")

    assert consumed(topic)[0]["value_encoding"] == "base64"
    result = topic.run("consume", "t", "--raw")
    assert result.stdout_bytes == b"\xff\x00\xfe\nplain\n"


def test_what_is_consumed_can_be_produced_again(topic: Shell) -> None:
    topic.ok("topic", "create", "copy", "-p", "3")
    topic.ok("produce", "t", "--key", "k", stdin=b"a\nb\n\xff\n")

    topic.ok("produce", "copy", stdin=topic.ok("consume", "t").encode())

    copied = topic.ok("consume", "copy").replace('"topic":"copy"', '"topic":"t"')
    assert copied == topic.ok("consume", "t")


def test_a_publish_that_fails_midway_tells_what_was_stored(topic: Shell) -> None:
    result = topic.run(
        "produce", "t", "-o", "table", stdin=b'good\n{"value": "x", "priority": "no"}\n'
    )

    assert result.exit_code == 1
    assert result.stdout.startswith("✓ Published to t partition ")
    assert result.stderr.startswith("Error: line 2: priority 'no' is none of ")


@pytest.mark.parametrize(
    "words",
    [
        ["--priority", "urgent", "-m", "x"],
        ["--header", "x", "-m", "x"],
        ["-m", "x", "--file", "/dev/null"],
    ],
)
def test_options_that_make_no_sense_are_usage_errors(topic: Shell, words: list[str]) -> None:
    assert topic.run("produce", "t", *words).exit_code == 2


def test_an_empty_file_publishes_nothing_in_no_time(topic: Shell, tmp_path: Path) -> None:
    file = tmp_path / "empty.jsonl"
    file.write_bytes(b"")

    record = json.loads(topic.ok("produce", "t", "--file", str(file)))

    assert record == {"topic": "t", "count": 0, "seconds": 0.0, "rate": 0.0, "partitions": []}
    out = topic.ok("produce", "t", "--file", str(file), "-o", "table")
    assert out == "✓ Published 0 messages to t in 0.000 s (0 messages/s)\n"


def test_a_missing_file_is_named(topic: Shell, tmp_path: Path) -> None:
    result = topic.run("produce", "t", "--file", str(tmp_path / "none.jsonl"))

    assert result.exit_code == 2
    assert result.stderr == f"Error: {tmp_path}/none.jsonl: No such file or directory\n"


def test_partitions_are_merged_by_time_then_partition(topic: Shell) -> None:
    for number, (partition, later_ms) in enumerate([(2, 0), (0, 5), (1, 5), (0, 5), (2, 9)]):
        topic.clock.now_ms = T0_MS + later_ms
        topic.ok("produce", "t", "-m", str(number), "-p", str(partition))

    found = [(m["partition"], m["offset"], m["value"]) for m in consumed(topic)]

    assert found == [(2, 0, "0"), (0, 0, "1"), (0, 1, "3"), (1, 0, "2"), (2, 1, "4")]


def test_reading_starts_and_stops_where_it_is_told(topic: Shell) -> None:
    for number in range(10):
        topic.clock.now_ms = T0_MS + number * 1000
        topic.ok("produce", "t", "-m", str(number), "-p", "0")

    assert values(topic, "-n", "3") == ["0", "1", "2"]
    assert values(topic, "--partition", "0", "--offset", "8") == ["8", "9"]
    assert values(topic, "--partition", "1") == []
    assert values(topic, "--offset", "99") == []
    assert values(topic, "--from-latest") == []
    assert values(topic, "--from-time", "2025-01-15T10:30:07Z") == ["7", "8", "9"]
    assert values(topic, "--from-time", str(T0_MS + 2000), "--to-time", "2025-01-15T10:30:04Z") == [
        "2",
        "3",
    ]


def test_many_pages_are_read(topic: Shell) -> None:
    topic.ok("produce", "t", "-p", "1", stdin=b"".join(b"%d\n" % n for n in range(3500)))
    topic.ok("produce", "t", "-p", "2", stdin=b"".join(b"%d\n" % n for n in range(1200)))

    found = consumed(topic)

    assert [m["value"] for m in found if m["partition"] == 1] == [str(n) for n in range(3500)]
    assert [m["value"] for m in found if m["partition"] == 2] == [str(n) for n in range(1200)]


def test_a_table_of_messages(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "hello", "-p", "0", "--key", "k")

    assert topic.ok("consume", "t", "-o", "table").splitlines() == [
        "PARTITION  OFFSET  TIMESTAMP                 KEY  VALUE  PRIORITY",
        "0          0       2025-01-15T10:30:00.000Z  k    hello  normal",
    ]


def test_nothing_to_read_says_so(topic: Shell) -> None:
    assert topic.ok("consume", "t", "-o", "table") == "No messages.\n"


def test_following_prints_offset_key_and_value(topic: Shell) -> None:
    topic.ok("produce", "t", "-p", "1", "--key", "k", "-m", "old")
    topic.ok("produce", "t", "-p", "1", "-m", "new")

    one = topic.ok("consume", "t", "--follow", "-n", "2", "-p", "1", "-o", "table")
    all_ = topic.ok("consume", "t", "--follow", "-n", "2", "-o", "table")

    assert one == "0 [k]: old\n1: new\n"
    assert all_ == "1:0 [k]: old\n1:1: new\n"


def test_starts_exclude_each_other(topic: Shell) -> None:
    result = topic.run("consume", "t", "--offset", "1", "--from-time", "2025-01-15T10:30:00Z")

    assert result.exit_code == 2
    assert result.stderr == "Error: --offset and --from-time exclude each other\n"


def test_unknown_topics_and_partitions_are_not_found(topic: Shell) -> None:
    assert topic.run("consume", "nothing").exit_code == 3
    assert topic.run("consume", "t", "--partition", "3").exit_code == 3


def test_a_trace_is_a_tree(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "x", "-p", "2")

    told = topic.ok("trace", "t:2:0", "-o", "table").splitlines()
    told[6], _, produced_at = told[6].partition(" produced_at=")
    assert produced_at.endswith("Z")
    assert told == [
        "Message: t:2:0",
        "Topic: t",
        "Partition: 2",
        "Offset: 0",
        "",
        "Timeline:",
        "├─ 2025-01-15T10:30:00.000Z  PUBLISHED     lane=normal",
        "├─ 2025-01-15T10:30:00.000Z  REPLICATED    nodes=[node-1] time=not_recorded",
        "└─ 2025-01-15T10:30:00.000Z  RETAINED      expires=2025-01-22T10:30:00.000Z",
        "",
        "Delivery Attempts: 0",
        "Total Latency: -",
    ]


def test_a_trace_is_a_tree_in_a_pipe_too_unless_told_otherwise(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "x", "-p", "2")

    assert topic.ok("trace", "t:2:0") == topic.ok("trace", "t:2:0", "-o", "table")
    assert json.loads(topic.ok("trace", "t:2:0", "-o", "json"))["offset"] == 0
    assert "offset: 0\n" in topic.ok("trace", "t:2:0", "-o", "yaml")


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({}, "5.413s (publish to replicated)"),
        ({"time": "at_latest"}, "at most 5.413s (publish to replicated)"),
        ({"time": "not_recorded"}, "-"),
    ],
)
def test_a_latency_says_how_well_it_is_known(attributes: dict[str, str], text: str) -> None:
    events = [
        {"event_type": "PUBLISHED", "timestamp": "2025-01-15T10:30:00.000Z", "attributes": {}},
        {
            "event_type": "REPLICATED",
            "timestamp": "2025-01-15T10:30:05.413Z",
            "attributes": attributes,
        },
    ]

    assert latency_text(events) == text


@pytest.mark.parametrize("absent", ["t:0:99", "msg-abc123", "urn:uuid:7", "a:b"])
def test_a_trace_of_what_no_message_has_is_not_found(topic: Shell, absent: str) -> None:
    result = topic.run("trace", absent)

    assert result.exit_code == 3
    assert result.stdout == ""
    assert "bad message id" not in result.stderr


@pytest.mark.parametrize("nonsense", ["t:0:x", "t::5", ":0:1", "t:0:-1", "t:-1:0", f"t:0:{10**30}"])
def test_a_trace_of_a_position_that_is_none_is_a_usage_error(topic: Shell, nonsense: str) -> None:
    result = topic.run("trace", nonsense)

    assert result.exit_code == 2
    assert f"bad message id '{nonsense}': want topic:partition:offset" in result.stderr


@pytest.mark.parametrize("verb", ["show", "why"])
@pytest.mark.parametrize("where", [(), ("--topic", "t")])
def test_a_trace_of_an_empty_id_is_a_usage_error(
    topic: Shell, verb: str, where: tuple[str, ...]
) -> None:
    result = topic.run("trace", verb, "", *where)

    assert result.exit_code == 2
    assert "the id is empty" in result.stderr
    assert "topic:partition:offset" in result.stderr


def test_a_producers_id_that_is_almost_a_position_is_found(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "x", "--message-id", "order:5:retry")

    assert "order:5:retry" in topic.ok("trace", "order:5:retry", "-o", "json")


def test_the_latency_of_a_dead_message_ends_with_its_death() -> None:
    names = ("PUBLISHED", "REPLICATED", "DEAD_LETTERED")
    events = [
        {"event_type": name, "timestamp": f"2025-01-15T10:30:0{n}.000Z", "attributes": {}}
        for n, name in enumerate(names)
    ]

    assert latency_text(events) == "2.000s (publish to dead letter)"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nack", "r", "--position", "middle"), "'middle' is not one of 'front', 'back'"),
        (("produce", "t", "-m", "x", "--compression", "rar"), "'rar' is not one of 'none'"),
    ],
)
def test_a_choice_that_there_is_not_is_told_in_words_of_the_command_line(
    shell: Shell, words: tuple[str, ...], told: str
) -> None:
    result = shell.run(*words)

    assert result.exit_code == 2
    assert told in result.stderr
    assert "Value error" not in result.stderr
