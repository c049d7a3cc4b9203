"""What subscribers say: JSON strings, however they are cut."""

from __future__ import annotations

import pytest

from node.api.times import DURATION_MS_MAX
from node.listeners.h2.commands import (
    COMMAND_BYTES_MAX,
    BadCommand,
    Command,
    Commands,
    Undecodable,
    Verb,
    command_of,
)

ALL = b'"INIT"\n"ACK" "NACK"\r\n\t"BACK""DACK 5"'


def test_commands_are_strings_with_blanks_between_or_without() -> None:
    assert list(Commands().feed(ALL)) == [
        Command(Verb.INIT),
        Command(Verb.ACK),
        Command(Verb.NACK),
        Command(Verb.BACK),
        Command(Verb.DACK, 5),
    ]


def test_commands_are_found_wherever_they_are_cut() -> None:
    whole = list(Commands().feed(ALL))
    for size in range(1, len(ALL)):
        commands, found = Commands(), list[object]()
        for at in range(0, len(ALL), size):
            found += commands.feed(ALL[at : at + size])
        commands.end()
        assert found == whole


@pytest.mark.parametrize(
    ("text", "told"),
    {
        "": "unrecognised command received",
        "ack": "unrecognised command received",
        "ACK 1": "unrecognised command received",
        "PING": "unrecognised command received",
        "DACK": "too few arguments provided to DACK",
        "DACK 1 2": "too many arguments provided to DACK",
        "DACK x": r"invalid DACK duration argument at position \[1\]",
        "DACK -1": r"invalid DACK duration argument at position \[1\]",
        "DACK 1.5": r"invalid DACK duration argument at position \[1\]",
        "DACK ٣": r"invalid DACK duration argument at position \[1\]",
        f"DACK {DURATION_MS_MAX // 1000 + 1}": "at most 31622400",
    }.items(),
)
def test_what_is_not_understood_is_told_in_miniqueues_words(text: str, told: str) -> None:
    found = command_of(text)

    assert isinstance(found, BadCommand)
    with pytest.raises(BadCommand, match=told):
        raise found


def test_what_follows_an_unknown_command_is_still_one() -> None:
    first, second = Commands().feed(b'"EAT""ACK"')

    assert isinstance(first, BadCommand)
    assert second == Command(Verb.ACK)


@pytest.mark.parametrize("data", [b"ACK", b"{}", b"1", b'["ACK"]', b'"\xff"', b'"\\x"', b'"\n"'])
def test_what_is_no_string_ends_it_after_what_came_before(data: bytes) -> None:
    feeding = Commands().feed(b'"ACK"' + data)

    assert next(feeding) == Command(Verb.ACK)
    with pytest.raises(Undecodable, match="error decoding command"):
        next(feeding)


def test_escapes_end_no_string() -> None:
    (found,) = Commands().feed(rb'"\"\\"')
    assert isinstance(found, BadCommand)
    (found,) = Commands().feed(rb'"\u0041CK"')
    assert found == Command(Verb.ACK)


def test_a_string_without_end_is_refused_in_time() -> None:
    commands = Commands()
    assert list(commands.feed(b'"' + b"x" * (COMMAND_BYTES_MAX - 2))) == []
    with pytest.raises(Undecodable, match="over 256 bytes"):
        list(commands.feed(b"x"))

    commands = Commands()
    list(commands.feed(b'"AC'))
    with pytest.raises(Undecodable):
        commands.end()
