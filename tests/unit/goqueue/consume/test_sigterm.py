"""SIGTERM ends a consumer in order; a second one ends it at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from goqueue import AsyncClient
from tests.one_node import serving

DEADLINE_S = 60.0
BLOCKING = """
import sys, time
from pathlib import Path
from goqueue import Consumer

url, gate = sys.argv[1], Path(sys.argv[2])

def handle(message):
    print("began", message.text, flush=True)
    while not gate.exists():
        time.sleep(0.01)
    print("ended", message.text, flush=True)

Consumer(url, "billing", "orders").run(handle)
print("over", flush=True)
"""
AWAITING = """
import asyncio, sys
from pathlib import Path
from goqueue import AsyncConsumer

url, gate = sys.argv[1], Path(sys.argv[2])

async def handle(message):
    print("began", message.text, flush=True)
    while not gate.exists():
        await asyncio.sleep(0.01)
    print("ended", message.text, flush=True)

async def main():
    async with AsyncConsumer(url, "billing", "orders") as consumer:
        await consumer.run(handle)

asyncio.run(main())
print("over", flush=True)
"""
SEVERAL = AWAITING.replace(
    "asyncio.run(main())",
    """
async def several():
    await asyncio.gather(main(), main(), main())

asyncio.run(several())""",
)
PROGRAMS = {"blocking": BLOCKING, "awaiting": AWAITING, "several": SEVERAL}
KINDS = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    """Of a node that has streams."""
    async with serving() as url, AsyncClient(url) as client:
        await client.admin.finish_upgrade()
        await client.create_topic("orders", partitions=1)
        for number in range(3):
            await client.publish("orders", str(number), partition=0)
        yield client


@asynccontextmanager
async def working(client: AsyncClient, program: str, gate: Path) -> AsyncIterator[Process]:
    """The program in a process, whose handler is at work on the first message."""
    words = [sys.executable, "-c", program, client.transport.servers[0], str(gate)]
    process = await asyncio.create_subprocess_exec(*words, stdout=PIPE)
    try:
        assert await next_line(process) == "began 0"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def send(process: Process) -> None:
    """SIGTERM. Asyncio's own way may collect the process's end, and lose its exit code."""
    os.kill(process.pid, signal.SIGTERM)


async def next_line(process: Process) -> str:
    assert process.stdout is not None
    return (await within(process.stdout.readline())).decode().strip()


async def within(work: Coroutine[Any, Any, Any]) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        return await work


@KINDS
async def test_it_finishes_its_work_leaves_and_exits_0(
    client: AsyncClient, program: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with working(client, program, gate) as process:
        assert (await client.admin.members("billing")).members

        for _ in range(2):  # as `timeout` sends it: to the process, and to its group
            send(process)
        gate.touch()

        lines = ["began 0"]
        while lines[-1] != "over":
            lines.append(await next_line(process))
        assert await within(process.wait()) == 0
    assert not (await client.admin.members("billing")).members
    began, ended = (sum(line.startswith(what) for line in lines) for what in ("began", "ended"))
    (place,) = (await client.group("billing", "orders")).partitions
    assert (began, place.committed_offset, place.in_flight) == (ended, ended, 0)


@KINDS
async def test_a_second_signal_ends_it_at_once(
    client: AsyncClient, program: str, tmp_path: Path
) -> None:
    async with working(client, program, tmp_path / "gate") as process:
        send(process)
        with suppress(ProcessLookupError):
            for _ in range(1000):  # two that come together may count as one
                await asyncio.sleep(0.05)
                send(process)

        assert await within(process.wait()) == -signal.SIGTERM
    assert (await client.admin.members("billing")).members
