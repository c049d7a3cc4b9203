"""Connections of HTTP/2 that were sound once: answered by frames, ended by name, or cut off."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes

from tests.fuzz.mutation import EXTREMES, any_of, mutate
from tests.fuzz.raw import Tally, heard, sent

CONNECTIONS = 16
PREFACE_BYTES = 24
HEAD_BYTES = 9
FRAME_BYTES_MAX = 1 << 14
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 6, 7, 8, 9
TOLD = {DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE}
COMMANDS = ("INIT", "ACK", "NACK", "BACK", "DACK 0", "DACK 1", "DACK", "EAT", "", 'ü\\"')


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags & 0xFF])
    return head + (stream & 0x7FFF_FFFF).to_bytes(4, "big") + payload


def frames_of(data: bytes) -> list[bytes]:
    """Those of a sound connection, without its preface."""
    found, at = list[bytes](), PREFACE_BYTES
    while at < len(data):
        end = at + HEAD_BYTES + int.from_bytes(data[at : at + 3], "big")
        found.append(data[at:end])
        at = end
    return found


def conversation(topic: str, rng: random.Random) -> bytes:
    """A few requests on one connection, some of their frames broken, added, repeated or lost."""
    client = H2Connection(H2Configuration(client_side=True, validate_outbound_headers=False))
    client.initiate_connection()
    for _ in range(rng.randrange(1, 5)):
        _ask(client, topic, rng)
    data = client.data_to_send()
    found = frames_of(data)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
        rng.choice(_CHANGES)(found, rng)
    made = data[:PREFACE_BYTES] + b"".join(found)
    return mutate(made, rng) if rng.random() < 0.2 else made


def _ask(client: H2Connection, topic: str, rng: random.Random) -> None:
    stream = client.get_next_available_stream_id()
    path = rng.choice(
        (f"/publish/{topic}", f"/subscribe/{topic}", f"/subscribe/{topic}?credit=20&group=g", "/x")
    )
    method = rng.choice(("POST", "POST", "POST", "POST", "GET", "DELETE"))
    fields = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "x")]
    if rng.random() < 0.2:
        fields.append((rng.choice(("content-length", "x-api-key", "te")), rng.choice(("5", "x"))))
    client.send_headers(stream, fields)
    for _ in range(rng.randrange(4)):
        said = b"".join(json.dumps(rng.choice(COMMANDS)).encode() for _ in range(rng.randrange(6)))
        room = client.local_flow_control_window(stream)
        body = rng.choice((b'"INIT"' + said, said, rng.randbytes(rng.choice((1, 100, 9000)))))
        client.send_data(stream, body[:room])
    end = rng.random()
    if end < 0.6:
        client.end_stream(stream)
    elif end < 0.7:
        client.reset_stream(stream, rng.choice(list(ErrorCodes)))


def _added(found: list[bytes], rng: random.Random) -> None:
    """One of any kind, on any stream."""
    payload = rng.choice((b"", bytes(4), bytes(8), rng.randbytes(rng.randrange(60))))
    made = frame(rng.randrange(12), payload, rng.randrange(256), rng.choice((0, 1, 2, 3, 9)))
    found.insert(rng.randrange(len(found) + 1), made)


def _repeated(found: list[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(found))
    found[at:at] = [found[at]] * rng.choice((1, 2, 50, 3000))


def _lost(found: list[bytes], rng: random.Random) -> None:
    if len(found) > 1:
        del found[rng.randrange(len(found))]


def _broken(found: list[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(found))
    found[at] = any_of([found[at]], rng)


def _promised(found: list[bytes], rng: random.Random) -> None:
    """A length that nothing comes for."""
    size = rng.choice((FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1, (1 << 24) - 1))
    found.append(size.to_bytes(3, "big") + bytes([rng.randrange(10), 0, 0, 0, 0, 1]) + bytes(50))


def _endless(found: list[bytes], rng: random.Random) -> None:
    """Headers that go on, with much or with nothing in them."""
    piece = rng.choice((b"", b"x", b"\x00\x01x\x01y" * 2000))[:FRAME_BYTES_MAX]
    found.append(frame(HEADERS, piece, stream=99))
    found += [frame(CONTINUATION, piece, stream=99)] * rng.choice((1, 20, 2000))


def _expanding(found: list[bytes], rng: random.Random) -> None:
    """Headers that are little as they are sent: a kept one, named by a byte each time."""
    size = 3900
    kept = b"\x40\x01x\x7f" + bytes([0x80 | (size - 127) & 0x7F, (size - 127) >> 7]) + b"y" * size
    named = b"\xbe" * rng.choice((1, 100, 10_000))
    found.append(frame(HEADERS, b"\x83\x84\x86" + kept + named, 0x05, 99))


def _windows(found: list[bytes], rng: random.Random) -> None:
    """Too large, too small, or taken back."""
    value = rng.choice(EXTREMES) % (1 << 32)
    found.append(frame(WINDOW_UPDATE, value.to_bytes(4, "big"), 0, rng.choice((0, 1, 3))))
    setting = rng.randrange(10).to_bytes(2, "big") + value.to_bytes(4, "big")
    found.insert(1, frame(SETTINGS, setting))


def _takes_back(found: list[bytes], rng: random.Random) -> None:
    """Requests that are begun and taken back."""
    for stream in range(101, 101 + 2 * rng.choice((5, 150, 400)), 2):
        found.append(frame(HEADERS, b"\x83\x84\x86", 0x05, stream))
        found.append(frame(RST_STREAM, bytes(4), 0, stream))


_CHANGES: tuple[Callable[[list[bytes], random.Random], None], ...] = (
    *(_added,) * 4,
    *(_broken,) * 4,
    *(_repeated,) * 2,
    _lost,
    _promised,
    _endless,
    _expanding,
    _windows,
    _takes_back,
)


async def fuzz(host: str, port: int, topic: str, rng: random.Random, count: int) -> Tally:
    """So many connections, a few at once. Statuses are the codes of GOAWAY, 0 where there is none,
    and 400 where the client is told to speak HTTP/2."""
    inputs = [conversation(topic, rng) for _ in range(count)]
    return await sent(inputs, partial(_talk, host, port), CONNECTIONS)


async def _talk(host: str, port: int, data: bytes, tally: Tally) -> None:
    answer = await heard(host, port, data)
    defect = judge(answer, tally)
    if defect:
        tally.defects.append(f"{defect} to {data.hex()[:4000]}")


def judge(answer: bytes, tally: Tally) -> str:
    """What is wrong with an answer, "" where nothing is."""
    if answer.startswith(b"HTTP/1.1 400 "):
        tally.statuses[400] += 1
        return ""
    at, ended = 0, 0
    while at + HEAD_BYTES <= len(answer):
        size, kind = int.from_bytes(answer[at : at + 3], "big"), answer[at + 3]
        payload = answer[at + HEAD_BYTES : at + HEAD_BYTES + size]
        at += HEAD_BYTES + size
        if kind not in TOLD or size > FRAME_BYTES_MAX:
            return f"a frame of kind {kind} and {size} bytes"
        if len(payload) < size:
            break  # it was cut off
        code = int.from_bytes(payload[-4:] if kind == RST_STREAM else payload[4:8], "big")
        if kind in (RST_STREAM, GOAWAY) and code == ErrorCodes.INTERNAL_ERROR:
            return "failed"
        if kind == GOAWAY:
            ended = code
    tally.statuses[ended] += 1
    return ""
