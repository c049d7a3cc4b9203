"""What a request costs: JSON and binary, of one whole node over a disk in memory.

Prints requests and messages per second, and the server process's CPU time per request, which is
the figure to compare (the client shares the machine). Beside it stands bare aiohttp answering a
constant from the same client in the same run.

    python -m benchmarks.http_front [--seconds 3] [--connections 16]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import time
from multiprocessing.connection import Connection

import uvloop
from aiohttp import web

from goqueue.wire.batch import BATCH_MEDIA_TYPE, encode_columns
from tests.one_node import one_node

TOPIC = "bench"
HISTORY = "history"
READ_BYTES = 2**20
KEPT_BYTES = 256 << 20
Case = tuple[str, str, bytes, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=16)
    arguments = parser.parse_args()
    print(f"{'case':<34}{'req/s':>10}{'msg/s':>12}{'CPU us/req':>12}{'CPU us/msg':>12}")
    for serve, cases in ((_serve_bare, _bare_cases()), (_serve_front, _front_cases())):
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,))
        server.start()
        port, pid = ours.recv()
        try:
            for name, path, request, messages in cases:
                bound = (port, pid, path, request, arguments.connections, arguments.seconds)
                rate, cpu_us = uvloop.run(_measure(*bound))
                print(
                    f"{name:<34}{rate:>10,.0f}{rate * messages:>12,.0f}"
                    f"{cpu_us:>12.1f}{cpu_us / messages:>12.2f}"
                )
        finally:
            server.terminate()
            server.join()


def _front_cases() -> list[Case]:
    path = f"/topics/{TOPIC}/messages"
    texts = ["x" * 100, "x" * 1000]
    one = b'{"messages":[{"key":"k1","value":"%s"}]}' % texts[0].encode()
    cases = [
        ("health", "/health", _get("/health"), 1),
        ("publish 1 x 100 B", path, _post(path, one), 1),
    ]
    for count, text in ((100, texts[1]), (1000, texts[0])):
        rows = ",".join([f'{{"value":"{text}"}}'] * count)
        body = f'{{"messages":[{rows}]}}'.encode()
        cases.append((f"publish {count} x {len(text)} B", path, _post(path, body), count))
    keyed = ",".join(f'{{"key":"k{n}","value":"{texts[0]}"}}' for n in range(1000))
    body = f'{{"messages":[{keyed}]}}'.encode()
    cases.append(("publish 1000 x 100 B, keyed", path, _post(path, body), 1000))
    binary = f"/topics/{TOPIC}/partitions/0/messages"
    batch = encode_columns([texts[0].encode()] * 1000)
    cases.append(
        ("publish binary 1000 x 100 B", binary, _post(binary, batch, BATCH_MEDIA_TYPE), 1000)
    )
    read = f"/topics/{HISTORY}/partitions/0/messages?limit=1000"
    cases.append(("read 1000 x 100 B", read, _get(read), 1000))
    cases.append(("read binary 1000 x 100 B", read, _get(read, BATCH_MEDIA_TYPE), 1000))
    return cases


def _bare_cases() -> list[Case]:
    body = b'{"messages":[{"key":"k1","value":"%s"}]}' % (b"x" * 100)
    return [("bare aiohttp, 1 x 100 B", "/", _post("/", body), 1)]


def _get(path: str, accept: str = "application/json") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: bench\r\nAccept: {accept}\r\n\r\n".encode()


def _post(path: str, body: bytes, media: str = "application/json") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {media}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _measure(
    port: int, pid: int, path: str, request: bytes, connections: int, seconds: float
) -> tuple[float, float]:
    """Requests a second, and the server's CPU microseconds per request."""
    done = 0
    ends_s = time.monotonic() + seconds

    async def one() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=READ_BYTES)
        while time.monotonic() < ends_s:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), (path, head)
            await reader.readexactly(int(head.partition(b"Content-Length: ")[2].split(b"\r")[0]))
            done += 1
        writer.close()

    before_s, started_s = _cpu_s(pid), time.monotonic()
    await asyncio.gather(*(one() for _ in range(connections)))
    took_s = time.monotonic() - started_s
    return done / took_s, (_cpu_s(pid) - before_s) * 1e6 / done


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _serve_front(pipe: Connection) -> None:
    async def serve() -> None:
        async with one_node() as node:
            await node.broker.topics.create_topic(
                TOPIC, {"partitions": 6, "retention_bytes": KEPT_BYTES}
            )
            await node.broker.topics.create_topic(HISTORY, {"partitions": 1})
            batch = encode_columns([b"x" * 100] * 1000)
            await node.broker.records.append(HISTORY, 0, batch, deadline_s=30.0)
            pipe.send((node.front.port, os.getpid()))
            await asyncio.Event().wait()

    uvloop.run(serve())


def _serve_bare(pipe: Connection) -> None:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        return web.Response(body=b'{"results":[]}', content_type="application/json")

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = web.Server(handle, access_log=None)
        listener = await loop.create_server(server, "127.0.0.1", 0)
        pipe.send((listener.sockets[0].getsockname()[1], os.getpid()))
        await asyncio.Event().wait()

    uvloop.run(serve())


if __name__ == "__main__":
    main()
