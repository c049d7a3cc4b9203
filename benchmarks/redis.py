"""Redis streams, one server with every write fsynced: a peer, when redis-server is installed."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.payloads import numbered, sample
from benchmarks.processes import cpu_seconds, free_ports
from benchmarks.publish import Load
from benchmarks.settling import Settled, work_until

FILL_BATCH = 1000
LINES_OF_A_MESSAGE = 8
"""Of a message in an answer to XREADGROUP: *2, $, its id, *2, $1, v, $, its value."""
START_DEADLINE_S = 10.0


class Redis:
    """A server of its own on a fresh directory. Use as `with`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def installed() -> bool:
        return shutil.which("redis-server") is not None

    def __enter__(self) -> Redis:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", str(self.folder), "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "always"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def publish(self, connections: int, size: int, seconds: float) -> Load:
        """XADD one message a command, each connection waiting for its answer."""
        assert self._process is not None
        pid = self._process.pid
        commands = [_xadd(value) for value in sample(size, 32)]
        opened = [await self._open() for _ in range(connections)]
        times: list[float] = []
        cpu_before, began = cpu_seconds([pid]), time.perf_counter()
        until = began + seconds

        async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            number = 0
            while (before := time.perf_counter()) < until:
                writer.write(commands[number % len(commands)])
                line = await reader.readline()
                if not line.startswith(b"$"):
                    raise RuntimeError(f"redis said {line!r}")
                await reader.readline()
                times.append(time.perf_counter() - before)
                number += 1

        async with asyncio.TaskGroup() as tasks:
            for reader, writer in opened:
                tasks.create_task(work(reader, writer))
        took = time.perf_counter() - began
        cpu = cpu_seconds([pid]) - cpu_before
        reader, writer = opened[0]
        writer.write(b"*2\r\n$4\r\nXLEN\r\n$1\r\ns\r\n")
        stored = int((await reader.readline())[1:])
        for _, writer in opened:
            writer.close()
        if stored < len(times):
            raise RuntimeError(f"redis acknowledged {len(times)} messages and has {stored}")
        return Load(len(times), took, cpu, 0, times)

    async def settle(
        self, consumers: int, limit: int, size: int, count: int, seconds: float
    ) -> Load:
        """XREADGROUP up to `limit` messages and XACK them, on each of the connections."""
        assert self._process is not None
        stream = b"q%d-%d" % (limit, consumers)
        links = [Link(*await self._open()) for _ in range(consumers + 1)]
        control = links.pop()
        await control.fill([_xadd(value, stream) for value in numbered(size, count)])
        await control.ask(b"XGROUP", b"CREATE", stream, b"g", b"0")
        settled = Settled(count)

        async def begin(_: Link) -> None:
            return

        async def turn(link: Link) -> int:
            ids, values = await link.read_group(stream, limit)
            if ids:
                done = await link.ask(b"XACK", stream, b"g", *ids)
                if done != b":%d" % len(ids):
                    raise RuntimeError(f"redis acked {done!r} of {len(ids)}")
                settled.add(int(value[:12]) for value in values)
            return len(ids)

        load = await work_until(links, begin, turn, [self._process.pid], seconds)
        pending = await control.pending(stream)
        for link in (*links, control):
            link.close()
        if pending:
            raise RuntimeError(f"redis: {load.count} messages acked, and {pending} pending")
        return load

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)


class Link:
    """One connection that reads a stream for the group `g`, as a consumer of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._name = b"c%d" % id(self)

    async def fill(self, commands: list[bytes]) -> None:
        """Commands whose answer is one bulk string, many at a time."""
        for first in range(0, len(commands), FILL_BATCH):
            batch = commands[first : first + FILL_BATCH]
            self._writer.write(b"".join(batch))
            await self._lines(2 * len(batch))

    async def ask(self, *words: bytes) -> bytes:
        """A command whose answer is one line."""
        self._writer.write(_command(words))
        (line,) = await self._lines(1)
        if line.startswith(b"-"):
            raise RuntimeError(f"redis said {line!r}")
        return line

    async def pending(self, stream: bytes) -> int:
        """How many messages the group was given and has not acked."""
        self._writer.write(_command((b"XPENDING", stream, b"g")))
        found = await self._lines(2)
        return int(found[1][1:])

    async def read_group(self, stream: bytes, limit: int) -> tuple[list[bytes], list[bytes]]:
        """Ids and values of the next messages."""
        words = (b"XREADGROUP", b"GROUP", b"g", self._name, b"COUNT", b"%d" % limit)
        self._writer.write(_command((*words, b"STREAMS", stream, b">")))
        (head,) = await self._lines(1)
        if head == b"*-1":
            return [], []
        count = int((await self._lines(4))[3][1:])
        found = await self._lines(LINES_OF_A_MESSAGE * count)
        return found[2::LINES_OF_A_MESSAGE], found[7::LINES_OF_A_MESSAGE]

    def close(self) -> None:
        self._writer.close()

    async def _lines(self, count: int) -> list[bytes]:
        """The next lines of the answer; no value of the bench holds a line break."""
        return [(await self._reader.readline())[:-2] for _ in range(count)]


def _xadd(value: bytes, stream: bytes = b"s") -> bytes:
    return _command((b"XADD", stream, b"*", b"v", value))


def _command(words: Sequence[bytes]) -> bytes:
    parts = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(parts)
