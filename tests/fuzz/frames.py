"""WebSocket frames that were sound once, to streams: answered by frames, or cut off."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.fuzz.mutation import any_of, mutate
from tests.fuzz.raw import Tally, heard, sent

CONNECTIONS = 16
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
TOLD = {"subscribed", "messages", "settled", "assignment", "error", "moved"}
FAILED = 1011
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


@dataclass(frozen=True)
class Names:
    topic: str
    group: str


def samples(names: Names) -> list[list[bytes]]:
    """What sound clients say, frame by frame."""
    subscribe = {"type": "subscribe", "topics": [names.topic], "credit": {"messages": 5}}
    by_pattern = {"type": "subscribe", "patterns": ["f*", "other"], "lowest_priority": "low"}
    timed = {**subscribe, "visibility_timeout_ms": "1s", "partitions": [0, 1]}
    credit = {"type": "credit", "messages": 3, "bytes": 1000}
    settles = [{"receipt": "AAAA", "action": action} for action in ("ack", "nack", "extend")]
    settle = {"type": "settle", "id": 1, "settles": settles}
    of_member = {"type": "subscribe", "member_id": "m", "generation": 1}
    heartbeat = {"type": "heartbeat", "let_go": [{"topic": names.topic, "partition": 0}]}
    said: list[list[object]] = [
        [subscribe, credit, settle],
        [by_pattern, settle, settle, credit],
        [timed, credit],
        [of_member, heartbeat],
        [subscribe, subscribe],
        [{"type": "subscribe", "topics": []}, {"type": "subscribe", "topics": [names.topic] * 90}],
    ]
    return [[json.dumps(one).encode() for one in conversation] for conversation in said]


def conversation(names: Names, kept: list[list[bytes]], rng: random.Random) -> bytes:
    """A request for a stream, and frames on it, some of them broken; closed at the end, mostly."""
    made = bytearray(_asked(names.group))
    texts = [text for one in kept for text in one]
    for text in rng.choice(kept):
        if rng.random() < 0.1:
            made += frame(PING, rng.randbytes(rng.randrange(126)), rng)
        kind = TEXT if rng.random() < 0.95 else rng.choice((BINARY, PONG, 3, 0, 11))
        payload = text if rng.random() < 0.6 else any_of(texts, rng)
        made += rng.choice(_FORMS)(frame(kind, payload, rng), payload, rng)
    if rng.random() < 0.9:
        code = rng.choice((1000, 1000, 1001, 1006, 4000, 0, 65535))
        made += frame(CLOSE, code.to_bytes(2, "big") + b"bye", rng)
    return bytes(made)


def frame(kind: int, payload: bytes, rng: random.Random, *, is_last: bool = True) -> bytes:
    """Masked, as clients' are."""
    mask = rng.randbytes(4)
    head = bytes([kind | (0x80 if is_last else 0)])
    size = len(payload)
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([0x80 | 127]) + size.to_bytes(8, "big")
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def _sound(framed: bytes, _payload: bytes, _rng: random.Random) -> bytes:
    return framed


def _mutated(framed: bytes, _payload: bytes, rng: random.Random) -> bytes:
    return mutate(framed, rng)


def _split(_framed: bytes, payload: bytes, rng: random.Random) -> bytes:
    """In fragments, with a ping between them."""
    at = rng.randrange(len(payload) + 1)
    first = frame(TEXT, payload[:at], rng, is_last=False)
    return first + frame(PING, b"", rng) + frame(0, payload[at:], rng)


def _long(_framed: bytes, payload: bytes, rng: random.Random) -> bytes:
    """Blanks, up to beyond what a frame may have."""
    return frame(TEXT, payload + b" " * rng.choice((1000, 200_000, 300_000)), rng)


def _promised(_framed: bytes, payload: bytes, rng: random.Random) -> bytes:
    """A length that nothing comes for."""
    size = rng.choice((1 << 17, 1 << 31, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1))
    return bytes([0x80 | TEXT, 0xFF]) + size.to_bytes(8, "big") + bytes(4) + payload


_FORMS: tuple[Callable[[bytes, bytes, random.Random], bytes], ...] = (
    *(_sound,) * 12,
    *(_mutated,) * 3,
    *(_split,) * 2,
    _long,
    _promised,
)


async def fuzz(host: str, port: int, names: Names, rng: random.Random, count: int) -> Tally:
    """So many conversations, a few at once. Statuses are those of HTTP, and codes of closes."""
    kept = samples(names)
    inputs = [conversation(names, kept, rng) for _ in range(count)]
    return await sent(inputs, partial(_talk, host, port), CONNECTIONS)


async def _talk(host: str, port: int, data: bytes, tally: Tally) -> None:
    answer = await heard(host, port, data, head=b"\r\n\r\n")
    defect = judge(answer, tally)
    if defect:
        tally.defects.append(f"{defect} to {data.hex()[:4000]}")


def judge(answer: bytes, tally: Tally) -> str:
    """What is wrong with an answer, "" where nothing is."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    status = _STATUS.match(head)
    if status is None:
        tally.statuses[0] += 1
        return f"no HTTP: {head[:60]!r}" if head else ""
    tally.statuses[int(status[1])] += 1
    if status[1] != b"101":
        return f"answered {status[1]!r}" if status[1] >= b"500" else ""
    at = 0
    while at + 2 <= len(rest):
        kind, size, at = rest[at], rest[at + 1], at + 2
        if size > 125:
            width = 2 if size == 126 else 8
            size, at = int.from_bytes(rest[at : at + width], "big"), at + width
        payload, at = rest[at : at + size], at + size
        if kind not in (0x80 | TEXT, 0x80 | CLOSE, 0x80 | PING, 0x80 | PONG):
            return f"a frame of kind {kind:#x}"
        if len(payload) < size:
            return ""  # it was cut off
        if kind == 0x80 | CLOSE:
            code = int.from_bytes(payload[:2], "big")
            tally.statuses[code] += 1
            return "failed" if code == FAILED else ""
        if kind == 0x80 | TEXT:
            try:
                told = json.loads(payload)
            except ValueError:
                return f"no JSON: {payload[:200]!r}"
            if told["type"] not in TOLD or told.get("code") == "internal":
                return f"told {payload[:200]!r}"
    return ""


def _asked(group: str) -> bytes:
    return (
        f"GET /v1/groups/{group}/stream HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()
