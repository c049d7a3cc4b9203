"""Commands out of bytes: whole ones only, however they arrive, and nothing on a client's word."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from node.listeners.redis.scan import (
    ARGUMENTS_MAX,
    COMMANDS_AT_ONCE,
    INLINE_BYTES_MAX,
    ProtocolError,
    Scanner,
)
from tests.unit.node.listeners.redis.resp import command

BYTES_MAX = 1 << 16


def commands(scanner: Scanner) -> list[list[bytes]]:
    return [said for run in scanner.runs() for said in run.commands()]


def taken(*pieces: bytes, bytes_max: int = BYTES_MAX) -> list[list[bytes]]:
    """All commands of what arrives in these pieces."""
    scanner, found = Scanner(bytes_max), list[list[bytes]]()
    for piece in pieces:
        scanner.feed(piece)
        while some := commands(scanner):
            found += some
    return found


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_commands_are_the_same_in_whatever_pieces_they_arrive(step: int) -> None:
    said = [[b"XADD", b"s", b"*", b"f", b"\r\n*1\r\n$4\r\nQUIT\r\n"], [b"PING"], [b""], [b"a", b""]]
    data = b"".join(command(*words) for words in said) + b"set  x 'y z'\r\n\r\n*0\r\nget x\n"
    pieces = [data[at : at + step] for at in range(0, len(data), step)]

    assert taken(*pieces) == [*said, [b"set", b"x", b"y z"], [b"get", b"x"]]


def test_what_is_not_whole_is_kept_and_nothing_else() -> None:
    scanner = Scanner(BYTES_MAX)
    scanner.feed(command("PING") + command("ECHO", "hello")[:-4])

    assert commands(scanner) == [[b"PING"]]
    assert commands(scanner) == []
    assert scanner.size == len(command("ECHO", "hello")) - 4


def test_commands_of_as_many_words_come_as_one_run() -> None:
    scanner = Scanner(BYTES_MAX)
    for words in (["SET", "a", "1"], ["SET", "b", "2"], ["PING"], ["GET", "a"], ["DEL", "b"]):
        scanner.feed(command(*words))

    assert [run.columns for run in scanner.runs()] == [
        [[b"SET", b"SET"], [b"a", b"b"], [b"1", b"2"]],
        [[b"PING"]],
        [[b"GET", b"DEL"], [b"a", b"b"]],
    ]


def test_a_pipeline_comes_in_parts() -> None:
    scanner = Scanner(BYTES_MAX)
    scanner.feed(command("PING") * (COMMANDS_AT_ONCE + 5))

    assert [len(commands(scanner)) for _ in range(3)] == [COMMANDS_AT_ONCE, 5, 0]


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (b"*100000000\r\n", "invalid multibulk length"),
        (b"*%d\r\n" % (ARGUMENTS_MAX + 1), "invalid multibulk length"),
        (b"*99999999999999999999", "invalid multibulk length"),
        (b"*1x\r\n", "invalid multibulk length"),
        (b"*1\r\n*1\r\n$1\r\nx\r\n", "expected '$', got '*'"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n\x00", "expected '$', got byte 0"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$04\r\nPING\r\n", "invalid bulk length"),
        (b"*01\r\n$4\r\nPING\r\n", "invalid multibulk length"),
        (b"*1\r\n$2000000000\r\n", "invalid bulk length"),
        (b"*1\r\n$1\r\nabc", "a bulk string does not end where its length says"),
        (b"*3\r\n" + b"$30000\r\n%b\r\n" % bytes(30000) * 2 + b"$30000\r\n", "a command over"),
        (b"x" * (INLINE_BYTES_MAX + 1), "too big inline request"),
        (b'get "x\r\n', "unbalanced quotes"),
        (b"get 'x'y\r\n", "unbalanced quotes"),
    ],
)
def test_what_is_no_command_is_refused_by_name(sent: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        taken(sent)
    assert problem in str(refused.value)


def test_commands_before_what_is_none_are_taken_first() -> None:
    scanner = Scanner(BYTES_MAX)
    scanner.feed(command("PING") + b"*x\r\n")

    assert commands(scanner) == [[b"PING"]]
    with pytest.raises(ProtocolError):
        commands(scanner)


def test_a_count_or_length_reserves_nothing() -> None:
    """hiredis alone takes 770 MiB for the first of these."""
    tracemalloc.start()
    try:
        for declared in (
            b"*100000000\r\n",
            b"*16384\r\n",
            b"*1\r\n$65000\r\n",
            b"*1\r\n$999999999",
        ):
            scanner = Scanner(BYTES_MAX)
            scanner.feed(declared)
            try:
                assert commands(scanner) == []
            except ProtocolError:
                continue
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_a_command_that_arrives_byte_by_byte_is_looked_at_once() -> None:
    """Many arguments in small pieces: what was sound is not scanned again."""
    words = [b"x" * 10] * 2000
    data = command(*words)

    scanner, found = Scanner(1 << 20), list[list[bytes]]()
    for at in range(0, len(data), 50):
        scanner.feed(data[at : at + 50])
        before = scanner._partial.at
        found = commands(scanner)
        assert found or scanner._partial.at >= before
    assert found == [words]


def test_any_bytes_are_commands_or_refused() -> None:
    rng = random.Random(1)
    signs = [
        b"*",
        b"$",
        b"\r\n",
        b"1",
        b"3",
        b"-",
        b"PING",
        b'"',
        b"'",
        b"\\x",
        b" ",
        b"\x00",
        b"9",
    ]
    for _ in range(2000):
        scanner = Scanner(BYTES_MAX)
        for _ in range(rng.randrange(1, 4)):
            scanner.feed(b"".join(rng.choices(signs, k=rng.randrange(1, 30))))
            try:
                while commands(scanner):
                    pass
            except ProtocolError:
                break


def ended(*pieces: bytes) -> tuple[list[list[bytes]], str]:
    """All commands, and how they ended."""
    scanner, found = Scanner(BYTES_MAX), list[list[bytes]]()
    try:
        for piece in pieces:
            scanner.feed(piece)
            while some := commands(scanner):
                found += some
    except ProtocolError as error:
        return found, str(error)
    return found, f"{scanner.size} bytes left"


def test_what_arrives_at_once_is_read_as_what_arrives_byte_by_byte() -> None:
    """Short words are taken as lines, and nothing is whole of what comes in single bytes."""
    rng = random.Random(7)
    words = [b"", b"s", b"*", b"\r\n", b"$1\r\nx", b"*1\r\n$1\r\na\r\n", bytes(600), b"\xff" * 2049]
    for _ in range(60):
        said = [rng.choices(words, k=rng.choice((1, 2, 5, 70))) for _ in range(rng.randrange(1, 6))]
        data = bytearray(b"".join(command(*one) for one in said))
        assert taken(bytes(data)) == said
        data[:0] = rng.choice((b"", b"PING\r\n", b"*1\r\n$04\r\nPING\r\n", b"*0\r\n", b"*-1\r\n"))
        for _ in range(rng.randrange(3)):
            data[rng.randrange(len(data))] = rng.choice(b"*$\r\n019x")
        whole = bytes(data[: rng.randrange(1, len(data) + 1)])
        single = [whole[at : at + 1] for at in range(len(whole))]
        assert ended(whole) == ended(*single)


def test_a_command_over_the_bound_is_refused_though_its_words_are_short() -> None:
    with pytest.raises(ProtocolError, match="a command over 100 bytes"):
        taken(command(*["word"] * 20), bytes_max=100)
