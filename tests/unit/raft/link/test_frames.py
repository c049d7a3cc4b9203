"""Frames: what is put in comes out, in order; what was touched is refused; memory is bounded."""

from __future__ import annotations

import os
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.link.config import KIB, MIB
from raft.link.frames import (
    BODY_BYTES_MAX,
    CHUNK_BYTES_MAX,
    FRAME_BYTES_MAX,
    FRAME_HEADER_BYTES,
    FrameError,
    Kind,
    Opener,
    Outbox,
    Reassembly,
    Sealer,
    messages,
)

KEY = b"k" * 32


def sealed(outbox: Outbox, sealer: Sealer) -> list[bytes]:
    frames = []
    while (body := outbox.take_body()) is not None:
        frames.append(b"".join(sealer.seal(body)))
    return frames


def opened(opener: Opener, reassembly: Reassembly, data: bytes) -> list[tuple[int, bytes]]:
    found = []
    for body in opener.feed(data):
        for kind, payload in messages(body):
            if kind != Kind.CHUNK:
                found.append((kind, bytes(payload)))
            elif (whole := reassembly.add(payload)) is not None:
                found.append((whole[0], bytes(whole[1])))
    return found


@given(
    st.lists(st.tuples(st.sampled_from([Kind.RAFT, Kind.REQUEST, Kind.ANSWER]), st.binary())),
    st.integers(1, 97),
)
def test_messages_arrive_in_order_however_the_stream_is_cut(
    sent: list[tuple[Kind, bytes]], step: int
) -> None:
    outbox, opener, reassembly = Outbox(), Opener(KEY), Reassembly(MIB)
    for kind, payload in sent:
        outbox.put(kind, [payload[:3], payload[3:]])

    stream = b"".join(sealed(outbox, Sealer(KEY)))
    got = [
        message
        for at in range(0, len(stream), step)
        for message in opened(opener, reassembly, stream[at : at + step])
    ]

    assert got == sent
    assert outbox.byte_count == 0


@pytest.mark.parametrize(
    "size", [CHUNK_BYTES_MAX, CHUNK_BYTES_MAX + 1, BODY_BYTES_MAX, 5 * MIB + 17]
)
def test_large_message_travels_in_frames_of_at_most_one_mebibyte(size: int) -> None:
    outbox, payload = Outbox(), os.urandom(size)
    outbox.put(Kind.RAFT, [b"small"])
    outbox.put(Kind.RAFT, [payload[:1000], payload[1000:]])
    outbox.put(Kind.RAFT, [b"after"])

    frames = sealed(outbox, Sealer(KEY))
    got = opened(Opener(KEY), Reassembly(8 * MIB), b"".join(frames))

    assert max(map(len, frames)) <= FRAME_BYTES_MAX
    assert got == [(Kind.RAFT, b"small"), (Kind.RAFT, payload), (Kind.RAFT, b"after")]


def test_urgent_message_overtakes_what_waits() -> None:
    outbox = Outbox()
    for _ in range(10):
        outbox.put(Kind.RAFT, [bytes(200 * KIB)])
    outbox.put_urgent(Kind.STATUS, b"now")

    frames = sealed(outbox, Sealer(KEY))

    assert opened(Opener(KEY), Reassembly(MIB), frames[0]) == [(Kind.STATUS, b"now")]


def test_byte_count_is_what_leaves() -> None:
    outbox = Outbox()
    for size in (0, 10, CHUNK_BYTES_MAX, 3 * CHUNK_BYTES_MAX + 1):
        outbox.put(Kind.RAFT, [bytes(size)])
    outbox.put_urgent(Kind.STATUS, b"x")

    promised, bodies = outbox.byte_count, 0
    while (body := outbox.take_body()) is not None:
        bodies += len(body)

    assert promised == bodies
    assert outbox.byte_count == 0


def test_every_bit_flip_of_a_frame_is_refused() -> None:
    outbox = Outbox()
    outbox.put(Kind.RAFT, [b"term 7, vote for b"])
    (frame,) = sealed(outbox, Sealer(KEY))

    accepted = []
    for bit in range(len(frame) * 8):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            accepted += list(Opener(KEY).feed(bytes(flipped)))
        except FrameError:
            continue

    assert accepted == []


def test_repeated_dropped_and_swapped_frames_are_refused() -> None:
    outbox, sealer = Outbox(), Sealer(KEY)
    frames = []
    for payload in (b"one", b"two", b"three"):
        outbox.put(Kind.RAFT, [payload])
        frames += sealed(outbox, sealer)

    for order in ((0, 0), (1,), (0, 2), (1, 0)):
        with pytest.raises(FrameError, match="seal"):
            list(Opener(KEY).feed(b"".join(frames[i] for i in order)))


def test_frame_of_another_direction_is_refused() -> None:
    outbox = Outbox()
    outbox.put(Kind.RAFT, [b"x"])
    (frame,) = sealed(outbox, Sealer(b"a" * 32))

    with pytest.raises(FrameError, match="seal"):
        list(Opener(b"b" * 32).feed(frame))


@pytest.mark.parametrize("length", [0, BODY_BYTES_MAX + 1, 0xFFFF_FFFF])
@pytest.mark.parametrize("step", [1, 4, 1000])
def test_impossible_length_is_refused_with_its_fourth_byte(length: int, step: int) -> None:
    data = length.to_bytes(4, "little") + bytes(100)
    opener = Opener(KEY)

    with pytest.raises(FrameError, match="frame of"):
        for at in range(0, 4, step):
            list(opener.feed(data[at : min(at + step, 4)]))


def test_incomplete_frame_holds_no_more_than_one_frame() -> None:
    opener = Opener(KEY)
    head = BODY_BYTES_MAX.to_bytes(4, "little") + bytes(16)

    assert list(opener.feed(head)) == []
    for _ in range(15):
        assert list(opener.feed(bytes(64 * KIB))) == []

    assert opener.held_bytes <= FRAME_BYTES_MAX


def test_random_bytes_never_yield_a_body_or_another_error() -> None:
    rng = random.Random(5)
    for _ in range(3000):
        opener = Opener(KEY)
        data = rng.randbytes(rng.randrange(1, 400))
        if rng.random() < 0.5:
            data = rng.randrange(1, 300).to_bytes(4, "little") + data
        try:
            assert list(opener.feed(data)) == []
        except FrameError:
            continue


def test_malformed_messages_in_a_sealed_body_are_refused_and_nothing_else_is_raised() -> None:
    rng = random.Random(6)
    outcomes = set()
    for _ in range(3000):
        body = memoryview(rng.randbytes(rng.randrange(1, 60)))
        if rng.random() < 0.7:
            body = memoryview(bytes([rng.randrange(40), 0, 0, 0, rng.randrange(9)]) + bytes(body))
        reassembly = Reassembly(MIB)
        try:
            for kind, payload in messages(body):
                if kind == Kind.CHUNK:
                    reassembly.add(payload)
            outcomes.add("read")
        except FrameError:
            outcomes.add("refused")

    assert outcomes == {"read", "refused"}


def test_chunk_that_announces_much_allocates_nothing() -> None:
    reassembly = Reassembly(32 * MIB)
    chunk = memoryview((32 * MIB).to_bytes(4, "little") + bytes([Kind.RAFT]) + b"x")

    tracemalloc.start()
    reassembly.add(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 64 * KIB


def test_chunks_never_hold_more_than_one_message() -> None:
    reassembly = Reassembly(2 * MIB)
    chunk = memoryview((2 * MIB).to_bytes(4, "little") + bytes([Kind.RAFT]) + bytes(255 * KIB))

    with pytest.raises(FrameError, match="exceed"):
        for _ in range(100):
            reassembly.add(chunk)

    assert reassembly.held_bytes < 2 * MIB + 256 * KIB


@pytest.mark.parametrize(
    "head",
    [
        (2 * MIB).to_bytes(4, "little") + bytes([Kind.RAFT]),
        (9).to_bytes(4, "little") + bytes([Kind.CHUNK]),
        (9).to_bytes(4, "little") + bytes([77]),
    ],
    ids=["too long", "chunk of chunks", "unknown kind"],
)
def test_chunk_of_an_impossible_message_is_refused(head: bytes) -> None:
    with pytest.raises(FrameError):
        Reassembly(MIB).add(memoryview(head + b"x"))


def test_chunk_of_another_message_in_between_is_refused() -> None:
    reassembly = Reassembly(MIB)
    reassembly.add(memoryview((9).to_bytes(4, "little") + bytes([Kind.RAFT]) + b"x"))

    with pytest.raises(FrameError, match="another message"):
        reassembly.add(memoryview((8).to_bytes(4, "little") + bytes([Kind.RAFT]) + b"x"))


def test_frame_header_is_counted_in_the_limit() -> None:
    assert BODY_BYTES_MAX + FRAME_HEADER_BYTES == FRAME_BYTES_MAX == MIB
