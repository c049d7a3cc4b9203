"""What the machine itself gives: fdatasync, and aiohttp with nothing behind it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.connection import Connection, post
from benchmarks.processes import cpu_seconds, free_ports
from benchmarks.publish import Load

MACHINE = "The machine itself"
BLOCK_BYTES = 4096
SERVER = """
import asyncio, json, sys, uvloop
from aiohttp import web

async def publish(request):
    body = json.loads(await request.read())
    results = [{"partition": 0, "offset": n} for n, _ in enumerate(body["messages"])]
    return web.Response(body=json.dumps({"results": results}), content_type="application/json")

async def main():
    app = web.Application()
    app.router.add_post("/publish", publish)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(sys.argv[1])).start()
    print("ready", flush=True)
    await asyncio.Event().wait()

uvloop.run(main())
"""


def fdatasync(folder: Path, seconds: float) -> list[float]:
    """Seconds of each write of 4 KiB with its fdatasync, to a preallocated file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "fdatasync"
    block = os.urandom(BLOCK_BYTES)
    handle = os.open(path, os.O_CREAT | os.O_RDWR)
    times: list[float] = []
    try:
        os.posix_fallocate(handle, 0, 64 << 20)
        os.fsync(handle)
        at, until = 0, time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            os.pwrite(handle, block, at)
            os.fdatasync(handle)
            times.append(time.perf_counter() - began)
            at = (at + BLOCK_BYTES) % (64 << 20)
    finally:
        os.close(handle)
        path.unlink()
    return times


async def aiohttp_rate(connections: int, seconds: float) -> Load:
    """Requests of one message to an aiohttp application that parses and answers JSON."""
    async with served(SERVER) as (port, pid):
        return await _load(port, pid, connections, seconds)


@asynccontextmanager
async def served(program: str) -> AsyncIterator[tuple[int, int]]:
    """The port and the process id of a program that is given a port, and prints a line once it
    listens there."""
    port = free_ports(1)
    command = [sys.executable, "-c", program, str(port)]
    server = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        await server.stdout.readline()
        yield port, server.pid
    finally:
        server.terminate()
        await server.wait()


async def _load(port: int, pid: int, connections: int, seconds: float) -> Load:
    request = post("/publish", b'{"messages":[{"value":"%s"}]}' % (b"x" * 100), "application/json")
    opened = [await Connection.open(("127.0.0.1", port)) for _ in range(connections)]
    times: list[float] = []
    cpu_before, began = cpu_seconds([pid]), time.perf_counter()
    until = began + seconds

    async def work(connection: Connection) -> None:
        while (before := time.perf_counter()) < until:
            await connection.ask(request)
            times.append(time.perf_counter() - before)

    async with asyncio.TaskGroup() as tasks:
        for connection in opened:
            tasks.create_task(work(connection))
    took = time.perf_counter() - began
    for connection in opened:
        connection.close()
    return Load(len(times), took, cpu_seconds([pid]) - cpu_before, 0, times)


def aiohttp_row(connections: int) -> str:
    return f"aiohttp + json, connections: {connections}"
