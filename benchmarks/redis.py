"""Redis streams, one server with every write fsynced: a peer, when redis-server is installed."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.payloads import MASK, Sent, fingerprint, numbered, sample
from benchmarks.processes import cpu_seconds, free_ports
from benchmarks.publish import Load
from benchmarks.settling import Settled, begun, work_until

FILL_BATCH = 1000
VALUES = 32
FIELD = b"value"
"""What GoQueue reads as the message's value; to Redis it is a name like others."""
LINES_OF_A_MESSAGE = 8
"""Of a message in an answer to XREADGROUP or XRANGE: *2, $, its id, *2, $5, value, $, its value."""
START_DEADLINE_S = 10.0

Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]


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

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def publish(self, connections: int, size: int, seconds: float, batch: int = 1) -> Load:
        """XADD one message a command, each connection sending so many and waiting for their
        answers."""
        opened = [await self._open() for _ in range(connections)]
        cpu_before, began = cpu_seconds([self.pid]), time.perf_counter()
        times, (sent,) = await add_all(opened, [b"s"], size, seconds, batch)
        took = time.perf_counter() - began
        cpu = cpu_seconds([self.pid]) - cpu_before
        stored = await self.stored(b"s")
        for _, writer in opened:
            writer.close()
        if stored.count < sent.count:
            raise RuntimeError(f"redis acknowledged {sent.count} messages and has {stored.count}")
        return Load(len(times) * batch, took, cpu, 0, times)

    async def ready(self) -> None:
        """Return once it answers."""
        _, writer = await self._open()
        writer.close()

    async def stored(self, stream: bytes) -> Sent:
        """All that is in a stream, read from its begin to its end."""
        link = Link(*await self._open())
        count = total = 0
        after = b"-"
        while found := await link.range(stream, after):
            ids, values = found
            count += len(ids)
            total += fingerprint(values)
            after = b"(" + ids[-1]
        link.close()
        return Sent(count, total & MASK)

    async def settle(
        self, consumers: int, limit: int, size: int, count: int, seconds: float
    ) -> Load:
        """XREADGROUP up to `limit` messages and XACK them, on each of the connections."""
        stream = b"q%d-%d" % (limit, consumers)
        links = [Link(*await self._open()) for _ in range(consumers + 1)]
        control = links.pop()
        await control.fill([_xadd(value, stream) for value in numbered(size, count)])
        await control.ask(b"XGROUP", b"CREATE", stream, b"g", b"0")
        settled = Settled(count)

        async def turn(link: Link) -> int:
            ids, values = await link.read_group(stream, limit)
            if ids:
                done = await link.ask(b"XACK", stream, b"g", *ids)
                if done != b":%d" % len(ids):
                    raise RuntimeError(f"redis acked {done!r} of {len(ids)}")
                settled.add(int(value[:12]) for value in values)
            return len(ids)

        load = await work_until(links, begun, turn, [self.pid], seconds)
        pending = await control.pending(stream)
        for link in (*links, control):
            link.close()
        if pending:
            raise RuntimeError(f"redis: {load.count} messages acked, and {pending} pending")
        return load

    async def _open(self) -> Opened:
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

    async def range(self, stream: bytes, after: bytes) -> tuple[list[bytes], list[bytes]] | None:
        """Ids and values of the next messages of a stream; None at its end."""
        words = (b"XRANGE", stream, after, b"+", b"COUNT", b"%d" % FILL_BATCH)
        self._writer.write(_command(words))
        (head,) = await self._lines(1)
        if not (count := int(head[1:])):
            return None
        found = await self._lines(LINES_OF_A_MESSAGE * count)
        return found[2::LINES_OF_A_MESSAGE], found[7::LINES_OF_A_MESSAGE]

    def close(self) -> None:
        self._writer.close()

    async def _lines(self, count: int) -> list[bytes]:
        """The next lines of the answer; no value of the bench holds a line break."""
        return [(await self._reader.readline())[:-2] for _ in range(count)]


async def add_all(
    opened: Sequence[Opened], streams: Sequence[bytes], size: int, seconds: float, batch: int = 1
) -> tuple[list[float], list[Sent]]:
    """XADD for so long, one connection after the other on another stream, each of which sends so
    many and waits for their answers: the seconds of each batch, and what each stream was sent."""
    values = sample(size, VALUES)
    times: list[float] = []
    sent = [Counter[bytes]() for _ in streams]
    until = time.perf_counter() + seconds

    async def work(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine, at = sent[number % len(streams)], 0
        commands = [_xadd(value, streams[number % len(streams)]) for value in values]
        now = time.perf_counter()
        while not mine or now < until:
            before, turn = now, [(at + step) % VALUES for step in range(batch)]
            writer.write(b"".join(commands[one] for one in turn))
            for _ in turn:
                line = await reader.readline()
                if not line.startswith(b"$"):
                    raise RuntimeError(f"XADD was answered {line!r}")
                await reader.readline()
            now = time.perf_counter()
            times.append(now - before)
            mine.update(values[one] for one in turn)
            at = (at + batch) % VALUES

    async with asyncio.TaskGroup() as tasks:
        for number, (reader, writer) in enumerate(opened):
            tasks.create_task(work(number, reader, writer))
    return times, [Sent(one.total(), fingerprint(one.elements())) for one in sent]


def _xadd(value: bytes, stream: bytes = b"s") -> bytes:
    return _command((b"XADD", stream, b"*", FIELD, value))


def _command(words: Sequence[bytes]) -> bytes:
    parts = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(parts)
