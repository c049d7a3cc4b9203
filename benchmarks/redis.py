"""Redis streams, one server with every write fsynced: a peer, when redis-server is installed."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from pathlib import Path

from benchmarks.payloads import sample
from benchmarks.processes import cpu_seconds, free_ports
from benchmarks.publish import Load

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

        async with asyncio.TaskGroup() as group:
            for reader, writer in opened:
                group.create_task(work(reader, writer))
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

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)


def _xadd(value: bytes) -> bytes:
    words = (b"XADD", b"s", b"*", b"v", value)
    parts = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(parts)
