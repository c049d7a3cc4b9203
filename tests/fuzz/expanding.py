"""Requests that are small on the wire and large in memory: sizes, counts, compressions, nestings.

Each is sent to a real node as it is, a few at once. Whatever the answer is, the most memory that
the node took meanwhile is judged, not only what it keeps.
"""

from __future__ import annotations

import asyncio
import gzip
import random
import re
import zlib
from collections.abc import Callable
from pathlib import Path

from goqueue.wire.batch import BATCH_MEDIA_TYPE, encode_columns
from tests.cluster.processes import HOST, Node
from tests.fuzz.raw import BY_DESIGN, Tally

MIB = 1 << 20
PLAIN_BYTES_MAX = 20 * MIB
"""A little more than the largest body, so that its bound is tried from both sides."""
PEAK_BYTES_MAX = 256 * MIB
"""More than before, while requests are answered."""
KEPT_BYTES_MAX = 256 * MIB
"""When all is over: of what is stored, in memory as well, and of what the allocator does not give
back. It does not grow from one round to the next."""
CONNECTIONS = 4
ANSWER_S = 120.0
READ_BYTES = 1 << 16
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")


def request(topic: str, group: str, rng: random.Random) -> bytes:
    """One of any kind."""
    return rng.choice(_KINDS)(topic, group, rng)


def rows(topic: str, _group: str, rng: random.Random) -> bytes:
    """Many rows: empty ones, or of many small things."""
    row = rng.choice((b"{}", b"[]", b"0", b'""', b"null", b'{"value":""}', _headers(rng)))
    return _publish(topic, b'{"messages":[' + _many(row, rng) + b"]}", rng)


def nestings(topic: str, _group: str, rng: random.Random) -> bytes:
    """Lists and maps in each other, closed or not."""
    depth = 10 ** rng.randrange(1, 7)
    opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")))
    text = opened * depth + b"1" + closed * rng.choice((0, depth))
    return _publish(topic, rng.choice((text, b'{"messages":' + text + b"}")), rng)


def unended(topic: str, group: str, rng: random.Random) -> bytes:
    """Documents whose last string does not end: there are many ways to look for an end."""
    part = rng.choice((b"a", b'\\"', b"\\", b"[", b'\\"["'))
    text = b"{" + b"[" * rng.randrange(100) + b'"' + part * 10 ** rng.randrange(1, 6)
    paths = (f"/topics/{topic}/messages", f"/groups/{group}/settle", f"/groups/{group}/join")
    return _packed(rng.choice(paths), text, rng)


def texts(topic: str, _group: str, rng: random.Random) -> bytes:
    """Values, names and numbers that are long, escaped or both."""
    unit = rng.choice((b"\\u0000", b"\\ud83d\\ude00", b"x", b'\\"', b"9", "ä".encode()))
    long = unit * rng.randrange(1, PLAIN_BYTES_MAX // len(unit))
    fields = ((b'"value":"', b'"'), (b'"key":"', b'"'), (b'"headers":{"', b'":""}'), (b'"x":', b""))
    before, after = rng.choice(fields)
    return _publish(topic, b'{"messages":[{' + before + long + after + b"}]}", rng)


def batches(topic: str, _group: str, rng: random.Random) -> bytes:
    """Values of one byte again and again, stored in a few bytes."""
    size = rng.choice((1, 1000, 64 * 1024, MIB, 8 * MIB))
    count = min(rng.choice((1, 10, 1000, 100_000)), 15 * MIB // size)
    codec = rng.choice(("zstd", "lz4", "gzip"))
    body = encode_columns([bytes([rng.randrange(256)]) * size] * count, codec=codec)
    body *= rng.choice((1, 2, 4, 8, 64))
    return _post(
        f"/topics/{topic}/partitions/0/messages", body, f"Content-Type: {BATCH_MEDIA_TYPE}"
    )


def reads(topic: str, group: str, rng: random.Random) -> bytes:
    """What was stored, read in every way that makes it larger."""
    start = rng.randrange(50)
    body = b'{"topic":"%s","limit":1000,"visibility":"1s"}' % topic.encode()
    return rng.choice(
        (
            _get(f"/topics/{topic}/partitions/0/messages?offset={start}&limit=1000"),
            _get(f"/topics/{topic}/messages?limit=1000"),
            _get(f"/ui/topics/{topic}/messages?partition=0&offset={start}"),
            _post(f"/groups/{group}/receive", body),
        )
    )


def lists(topic: str, group: str, rng: random.Random) -> bytes:
    """Many elements where other routes take a list or a map."""
    settle = b'{"receipt":"%s","action":"ack"}' % (b"x" * rng.randrange(200))
    offsets = b'{"offsets":{"%s":{%s}}}'
    told = rng.choice(
        (
            (f"/groups/{group}/settle", b'{"settles":[' + _many(settle, rng) + b"]}"),
            (f"/groups/{group}/offsets", offsets % (topic.encode(), _many(b'"0":1', rng))),
            (f"/groups/{group}/join", b'{"topics":[' + _many(b'"a"', rng) + b"]}"),
        )
    )
    return _packed(*told, rng)


def _headers(rng: random.Random) -> bytes:
    names = (b'"%d":""' % number for number in range(rng.randrange(1, 200)))
    return b'{"value":"","headers":{' + b",".join(names) + b"}}"


def _many(unit: bytes, rng: random.Random) -> bytes:
    most = PLAIN_BYTES_MAX // (len(unit) + 1)
    return b",".join([unit] * min(most, 10 ** rng.randrange(1, 8)))


def _publish(topic: str, body: bytes, rng: random.Random) -> bytes:
    return _packed(f"/topics/{topic}/messages", body, rng)


def _packed(path: str, body: bytes, rng: random.Random) -> bytes:
    """Compressed as a rule; small ones now and then as they are."""
    pack: Callable[[bytes], bytes]
    name, pack = rng.choice((("gzip", gzip.compress), ("deflate", zlib.compress)))
    if len(body) < MIB and rng.random() < 0.3:
        return _post(path, body)
    return _post(path, pack(body), f"Content-Encoding: {name}")


def _post(path: str, body: bytes, *fields: str) -> bytes:
    return (
        "\r\n".join(
            [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *fields, "", ""]
        ).encode()
        + body
    )


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


_KINDS = (rows, nestings, unended, texts, batches, reads, reads, lists)


async def fuzz(node: Node, topic: str, group: str, rng: random.Random, count: int) -> Tally:
    """Sends so many, each on a connection of its own, a few at once; judges the peak of memory."""
    tally = Tally()
    before = forget_peak(node)

    async def work() -> None:
        while tally.sent < count:
            tally.sent += 1
            await _send(node.http_port, request(topic, group, rng), tally)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(CONNECTIONS):
            tasks.create_task(work())
    grown = _memory(node, "VmHWM") - before
    if grown > PEAK_BYTES_MAX:
        tally.defects.append(f"the node took {grown >> 20} MiB more meanwhile")
    return tally


async def _send(port: int, data: bytes, tally: Tally) -> None:
    """All of the answer is read. Who gets none in time is a defect: each request is whole."""
    reader, writer = await asyncio.open_connection(HOST, port)
    answer = b""
    try:
        async with asyncio.timeout(ANSWER_S):
            writer.write(data)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", answer)
            left = int(length[1]) if length else 0
            while left > 0 and (piece := await reader.read(READ_BYTES)):
                left -= len(piece)
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    except TimeoutError:
        tally.defects.append(f"no answer to {data[:300]!r}")
    finally:
        writer.close()
    found = [int(status) for status in _STATUS.findall(answer)] or [0]
    tally.statuses.update(found)
    if any(status >= 500 and status not in BY_DESIGN for status in found):
        tally.defects.append(f"{found} to {data[:300]!r}")


def forget_peak(node: Node) -> int:
    """The resident memory from which the peak is counted anew."""
    assert node.process is not None
    Path(f"/proc/{node.process.pid}/clear_refs").write_text("5")
    return _memory(node, "VmRSS")


def _memory(node: Node, name: str) -> int:
    assert node.process is not None
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024
