"""Frames are judged before any is taken in."""

from __future__ import annotations

import pytest
from h2.errors import ErrorCodes

from node.listeners.h2.bounds import H2Bounds
from node.listeners.h2.frame_checks import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RST_STREAM,
    SETTINGS,
    Broken,
    Flood,
    FrameChecks,
)
from tests.steps import peak_bytes

PRIORITY, PING, WINDOW_UPDATE = 0x2, 0x6, 0x8
BOUNDS = H2Bounds(cheap_frames=20, cheap_per_s=10, resets=5, resets_per_s=1)


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 1) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    )


def begun() -> FrameChecks:
    checks = FrameChecks(BOUNDS)
    checks.look(frame(SETTINGS, stream=0), 1.0)
    return checks


def test_a_frame_is_refused_by_the_length_that_it_announces() -> None:
    checks = begun()

    with pytest.raises(Broken, match="at most 16384") as refused:
        checks.look((16_385).to_bytes(3, "big") + bytes([DATA]) + bytes(5), 1.0)

    assert refused.value.goaway == ErrorCodes.FRAME_SIZE_ERROR


def test_frames_are_found_wherever_the_bytes_are_cut() -> None:
    data = frame(DATA, b"x" * 100) * 3 + frame(RST_STREAM, bytes(4)) * 6
    for size in (1, 2, 8, 9, 10, 109, 200):
        checks = begun()
        with pytest.raises(Flood, match="taken back"):
            for at in range(0, len(data), size):
                checks.look(data[at : at + size], 1.0)


def test_the_first_frame_is_settings() -> None:
    with pytest.raises(Broken, match="SETTINGS"):
        FrameChecks(BOUNDS).look(frame(PING, bytes(8), stream=0), 1.0)


CHEAP: dict[str, bytes] = {
    "ping": frame(PING, bytes(8), stream=0),
    "settings": frame(SETTINGS, bytes(6), stream=0),
    "window": frame(WINDOW_UPDATE, b"\0\0\0\1"),
    "priority": frame(PRIORITY, bytes(5)),
    "unknown": frame(0x42, b"x" * 8),
    "empty data": frame(DATA),
    "one byte": frame(DATA, b"x"),
}


@pytest.mark.parametrize("name", CHEAP)
def test_a_flood_of_cheap_frames_ends_and_one_in_time_does_not(name: str) -> None:
    checks = begun()
    checks.look(CHEAP[name] * (BOUNDS.cheap_frames - 1), 1.0)

    with pytest.raises(Flood) as ended:
        checks.look(CHEAP[name], 1.0)

    assert ended.value.goaway == ErrorCodes.ENHANCE_YOUR_CALM
    checks = begun()
    for second in range(10):
        checks.look(CHEAP[name] * BOUNDS.cheap_per_s, 2.0 + second)


def test_what_is_answered_allows_more() -> None:
    checks = begun()
    for _ in range(100):
        checks.look(CHEAP["window"] * 2 + CHEAP["one byte"], 1.0)
        checks.earn(3)

    with pytest.raises(Flood):
        checks.look(CHEAP["window"] * 30, 1.0)


def test_bodies_and_their_ends_cost_nothing() -> None:
    checks = begun()

    checks.look(frame(DATA, b"x" * 64) * 500 + frame(DATA, b"x", END_STREAM) * 500, 1.0)


def test_requests_that_are_taken_back_at_once_end_the_connection() -> None:
    checks, request = begun(), frame(HEADERS, b"\x82\x84", END_HEADERS | END_STREAM)
    checks.look((request + frame(RST_STREAM, bytes(4))) * BOUNDS.resets, 1.0)

    with pytest.raises(Flood, match="taken back"):
        checks.look(request + frame(RST_STREAM, bytes(4)), 1.0)

    checks = begun()
    for second in range(10):
        checks.look(request + frame(RST_STREAM, bytes(4)), 2.0 + second)
    for _ in range(BOUNDS.resets):  # this node resets them, for what the client has sent
        checks.reset(12.0)
    with pytest.raises(Flood):
        checks.reset(12.0)


def test_headers_without_end_are_ended() -> None:
    checks = begun()
    checks.look(frame(HEADERS, b"x"), 1.0)
    checks.look(frame(CONTINUATION) * BOUNDS.continuations_max, 1.0)

    with pytest.raises(Flood, match="CONTINUATION"):
        checks.look(frame(CONTINUATION), 1.0)

    checks = begun()
    checks.look(frame(HEADERS, b"x" * 16_000), 1.0)
    with pytest.raises(Flood, match="over 65536 bytes"):
        checks.look(frame(CONTINUATION, b"x" * 16_000) * 5, 1.0)


def test_nothing_comes_between_headers_and_their_end() -> None:
    checks = begun()
    checks.look(frame(HEADERS, b"x"), 1.0)
    with pytest.raises(Broken, match="CONTINUATION"):
        checks.look(frame(PING, bytes(8)), 1.0)

    with pytest.raises(Broken, match="CONTINUATION"):
        begun().look(frame(CONTINUATION), 1.0)


def test_since_when_something_arrives_is_told_until_it_is_here() -> None:
    checks = begun()
    assert checks.partial_since_s == 0

    for at, piece in enumerate((b"\0", b"\0\5", frame(DATA, b"12345")[3:-1])):
        checks.look(piece, 2.0 + at)
        assert checks.partial_since_s == 2
    checks.look(b"5", 8.0)
    assert checks.partial_since_s == 0

    checks.look(frame(HEADERS, b"x"), 9.0)
    checks.look(frame(CONTINUATION, b"x"), 12.0)
    assert checks.partial_since_s == 9
    checks.look(frame(CONTINUATION, b"x", END_HEADERS), 13.0)
    assert checks.partial_since_s == 0


def test_what_is_announced_takes_no_memory() -> None:
    checks, data = begun(), frame(DATA, b"x" * 16_000) * 10

    assert peak_bytes(lambda: checks.look(data, 1.0)) < 2_000
