"""NATS JetStream on three nodes of this machine, streams with three replicas: a peer, when
nats-server is installed.

It acknowledges what a majority has written and not synced: files are synced every two minutes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.payloads import numbered, sample
from benchmarks.processes import free_ports
from benchmarks.publish import Load
from benchmarks.settling import WAIT_S, Settled, begun, work_until

NODES = 3
START_DEADLINE_S = 30.0
ANSWER_S = 30.0
FILL_BATCH = 1000
VALUES = 32
GROUP = "g"


class Nats:
    """A cluster on a fresh directory. Use as `with`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        first = free_ports(2 * NODES)
        self.ports = list(range(first, first + NODES))
        self._routes = list(range(first + NODES, first + 2 * NODES))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._streams = itertools.count(1)

    @staticmethod
    def installed() -> bool:
        return shutil.which("nats-server") is not None

    def __enter__(self) -> Nats:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for number in range(NODES):
            config = self.folder / f"node-{number}.conf"
            config.write_text(self._config(number))
            with (self.folder / f"node-{number}.out").open("wb") as log:
                command = ["nats-server", "--config", str(config)]
                self._processes.append(
                    subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
                )
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    async def stream(self) -> str:
        """The name of a new stream, which is its subject, too; made once the cluster is ready."""
        name = f"bench-{next(self._streams)}"
        told = {"name": name, "subjects": [name], "num_replicas": NODES, "storage": "file"}
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            try:
                link = await Link.open(self.ports[0])
                answer = await link.ask(f"$JS.API.STREAM.CREATE.{name}", told, 2.0)
                link.close()
                if "error" not in answer or "already" in str(answer["error"]):
                    return name
                problem = str(answer["error"])
            except (OSError, TimeoutError) as error:
                problem = str(error)
            if time.monotonic() > deadline:
                raise RuntimeError(f"nats makes no stream: {problem}")
            await asyncio.sleep(0.2)

    async def publish(self, connections: int, size: int, seconds: float, batch: int = 1) -> Load:
        """Each connection sends so many messages, and waits until all are acknowledged."""
        stream = await self.stream()
        links = [await Link.open(self.ports[at % NODES]) for at in range(connections)]
        values = sample(size, VALUES)
        turns = {
            link: itertools.cycle([link.request_of(stream, one) for one in values])
            for link in links
        }

        async def turn(link: Link) -> int:
            await link.publish([next(turns[link]) for _ in range(batch)])
            return batch

        load = await work_until(links, begun, turn, self.pids(), seconds)
        await self.check(stream, load.count)
        for link in links:
            link.close()
        return load

    async def settle(
        self, consumers: int, limit: int, size: int, count: int, seconds: float
    ) -> Load:
        """Messages of one stream, pulled up to `limit` at a time and each acked, unconfirmed."""
        stream = await self.stream()
        links = [await Link.open(self.ports[at % NODES]) for at in range(consumers + 1)]
        control = links.pop()
        requests = [control.request_of(stream, value) for value in numbered(size, count)]
        for first in range(0, count, FILL_BATCH):
            await control.publish(requests[first : first + FILL_BATCH])
        config = {"durable_name": GROUP, "ack_policy": "explicit", "max_ack_pending": count}
        told = {"stream_name": stream, "config": config}
        made = await control.ask(f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{GROUP}", told)
        if "error" in made:
            raise RuntimeError(f"nats makes no consumer: {made}")
        settled = Settled(count)

        async def turn(link: Link) -> int:
            given = await link.pull(stream, limit)
            link.ack(given)
            settled.add(int(one.payload[:12]) for one in given)
            return len(given)

        load = await work_until(links, begun, turn, self.pids(), seconds)
        await self._check_acked(control, stream, count - load.count)
        for link in (*links, control):
            link.close()
        return load

    async def check(self, stream: str, count: int) -> None:
        """Raises RuntimeError where another number of messages is stored."""
        link = await Link.open(self.ports[-1])
        told = await link.ask(f"$JS.API.STREAM.INFO.{stream}", {})
        link.close()
        stored = told.get("state", {}).get("messages")
        if stored != count:
            raise RuntimeError(f"nats acknowledged {count} messages and has {stored}")

    async def _check_acked(self, link: Link, stream: str, left: int) -> None:
        deadline = time.monotonic() + ANSWER_S
        while True:
            told = await link.ask(f"$JS.API.CONSUMER.INFO.{stream}.{GROUP}", {})
            if (told.get("num_ack_pending"), told.get("num_pending")) == (0, left):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"nats: {left} messages should be left, and are: {told}")
            await asyncio.sleep(0.1)

    def _config(self, number: int) -> str:
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes)
        return (
            f"server_name: bench-{number}\n"
            f"listen: 127.0.0.1:{self.ports[number]}\n"
            f'jetstream {{ store_dir: "{self.folder / f"data-{number}"}" }}\n'
            f"cluster {{ name: bench, listen: 127.0.0.1:{self._routes[number]},"
            f" routes: [{routes}] }}\n"
        )


@dataclass(frozen=True, slots=True)
class Message:
    """What came; one without a payload, and with a status, says that no message will."""

    reply: bytes
    payload: bytes
    is_status: bool


class Link(asyncio.Protocol):
    """One connection: as much of NATS as publishing and pulling need. One call at a time."""

    _numbers = itertools.count(1)

    def __init__(self) -> None:
        self._inbox = f"_INBOX.{next(self._numbers)}"
        self._transport: asyncio.Transport | None = None
        self._unread = b""
        self._came: list[Message] = []
        self._wanted = 0
        self._waiting: asyncio.Future[None] | None = None
        self._is_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, port: int) -> Link:
        """Connected to 127.0.0.1. Raises OSError, TimeoutError."""
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(cls, "127.0.0.1", port)
        hello = json.dumps({"verbose": False, "pedantic": False, "headers": True})
        link._write(f"CONNECT {hello}\r\nSUB {link._inbox} 1\r\nPING\r\n".encode())
        await asyncio.wait_for(link._is_open, ANSWER_S)
        return link

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def request_of(self, subject: str, value: bytes) -> bytes:
        """A message that is to be acknowledged, as one write."""
        return f"PUB {subject} {self._inbox} {len(value)}\r\n".encode() + value + b"\r\n"

    async def publish(self, requests: Sequence[bytes]) -> None:
        """Send all, and wait until each is stored. Raises RuntimeError, TimeoutError."""
        self._write(b"".join(requests))
        for answer in await self._next(len(requests), ANSWER_S):
            if b'"error"' in answer.payload or b'"seq"' not in answer.payload:
                raise RuntimeError(f"nats answered {answer.payload[:200]!r}")

    async def ask(self, subject: str, body: object, wait_s: float = ANSWER_S) -> dict[str, Any]:
        """The answer to a call of its API. Raises TimeoutError."""
        self._write(self.request_of(subject, json.dumps(body).encode()))
        (answer,) = await self._next(1, wait_s)
        found: dict[str, Any] = json.loads(answer.payload or b"{}")
        return found

    async def pull(self, stream: str, limit: int) -> list[Message]:
        """The next messages; none where none came in time."""
        body = json.dumps({"batch": limit, "expires": int(WAIT_S * 1e9)}).encode()
        self._write(self.request_of(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{GROUP}", body))
        try:
            came = await self._next(limit, 2 * WAIT_S)
        except TimeoutError:
            came, self._came = self._came, []
        return [one for one in came if not one.is_status]

    def ack(self, messages: Sequence[Message]) -> None:
        """Of each; the server confirms nothing of it."""
        self._write(b"".join(b"PUB %s 4\r\n+ACK\r\n" % one.reply for one in messages))

    # the protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        error = ConnectionError(f"nats closed: {exc}")
        for waiting in (self._is_open, self._waiting):
            if waiting is not None and not waiting.done():
                waiting.set_exception(error)

    def data_received(self, data: bytes) -> None:
        data = self._unread + data
        at = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            words = data[at:end].split()
            if words[0] in (b"MSG", b"HMSG"):
                size = int(words[-1])
                if len(data) < end + 2 + size + 2:
                    break
                self._take(words, data[end + 2 : end + 2 + size])
                at = end + 2 + size + 2
                continue
            at = end + 2
            if words[0] == b"PING":
                self._write(b"PONG\r\n")
            elif words[0] == b"PONG" and not self._is_open.done():
                self._is_open.set_result(None)
            elif words[0] == b"-ERR":
                self.connection_lost(RuntimeError(repr(words)))
        self._unread = data[at:]

    def _take(self, words: list[bytes], content: bytes) -> None:
        """`MSG subject sid [reply] size`, `HMSG subject sid [reply] head-size size`."""
        is_headed = words[0] == b"HMSG"
        head_size = int(words[-2]) if is_headed else 0
        reply = words[3] if len(words) == 5 + is_headed else b""
        payload = content[head_size:]
        is_status = is_headed and not payload
        self._came.append(Message(reply, payload, is_status))
        waiting = self._waiting
        if (is_status or len(self._came) >= self._wanted) and waiting and not waiting.done():
            waiting.set_result(None)

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    async def _next(self, count: int, wait_s: float) -> list[Message]:
        """The next so many, or those up to a status. Raises TimeoutError."""
        if len(self._came) < count:
            self._wanted = count
            self._waiting = asyncio.get_running_loop().create_future()
            await asyncio.wait_for(self._waiting, wait_s)
        came, self._came = self._came, []
        return came
