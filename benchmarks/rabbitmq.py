"""RabbitMQ quorum queues on three nodes of this machine: the peer, when it is installed."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import shutil
import subprocess
import time
from pathlib import Path

from benchmarks.amqp import Channel, Consumer, Publisher, request_of
from benchmarks.payloads import numbered, sample
from benchmarks.processes import family, free_ports
from benchmarks.publish import Load
from benchmarks.settling import WAIT_S, Settled, begun, work_until

START_DEADLINE_S = 90.0
SCRIPTS = Path("/usr/lib/rabbitmq/bin")
NODES = 3


class RabbitMq:
    """A cluster on a fresh directory, with a port mapper of its own. Use as `with`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        first = free_ports(2 * NODES + 1)
        self.ports = list(range(first, first + NODES))
        self._distribution = list(range(first + NODES, first + 2 * NODES))
        self._epmd_port = first + 2 * NODES
        self._processes: list[subprocess.Popen[bytes]] = []
        self._queues = itertools.count(1)

    @staticmethod
    def installed() -> bool:
        return shutil.which("rabbitmq-server") is not None

    def __enter__(self) -> RabbitMq:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / ".erlang.cookie").write_text(secrets.token_hex(16))
        (self.folder / ".erlang.cookie").chmod(0o400)
        (self.folder / "plugins").write_text("[].\n")
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            for pid in family(process.pid)[1:]:
                _kill(pid)
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def pids(self) -> list[int]:
        return [pid for process in self._processes for pid in family(process.pid)]

    async def publish(self, connections: int, size: int, seconds: float, batch: int = 1) -> Load:
        """Persistent messages to a quorum queue of three: each connection sends so many, and waits
        until all are confirmed."""
        queue = f"bench-{next(self._queues)}"
        requests = [request_of(queue, value) for value in sample(size, 32)]
        opened = [
            await Publisher.open(self.ports[number % NODES], queue, quorum=NODES)
            for number in range(connections)
        ]
        turns = itertools.cycle(requests)

        async def turn(publisher: Publisher) -> int:
            await publisher.fill([next(turns) for _ in range(batch)])
            return batch

        load = await work_until(opened, begun, turn, self.pids(), seconds)
        stored = await self.stored(opened[0], queue, load.count)
        for publisher in opened:
            publisher.close()
        if stored != load.count:
            raise RuntimeError(f"rabbitmq confirmed {load.count} messages and has {stored}")
        return load

    async def settle(
        self, consumers: int, prefetch: int, size: int, count: int, seconds: float
    ) -> Load:
        """Messages of one quorum queue of three, `prefetch` of them acked by one frame."""
        queue = f"bench-{next(self._queues)}"
        publisher = await Publisher.open(self.ports[0], queue, quorum=NODES)
        await publisher.fill([request_of(queue, value) for value in numbered(size, count)])
        opened = [
            await Consumer.open(self.ports[n % NODES], queue, quorum=NODES, prefetch=prefetch)
            for n in range(consumers)
        ]
        settled = Settled(count)

        async def turn(consumer: Consumer) -> int:
            bodies = await consumer.receive(prefetch, WAIT_S)
            if bodies:
                consumer.ack()
                settled.add(int(body[:12]) for body in bodies)
            return len(bodies)

        async def begin(consumer: Consumer) -> None:
            await consumer.start(queue)

        load = await work_until(opened, begin, turn, self.pids(), seconds)
        for consumer in opened:
            await consumer.stop()
            consumer.close()
        stored = await self.stored(publisher, queue, count - load.count)
        publisher.close()
        if stored != count - load.count:
            raise RuntimeError(f"rabbitmq: {load.count} of {count} acked, and {stored} are left")
        return load

    async def stored(self, channel: Channel, queue: str, expected: int) -> int:
        """The count that RabbitMQ tells is some seconds old; wait for it to be exact."""
        deadline = time.monotonic() + 10
        while (stored := await channel.declare(queue, NODES)) != expected:
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.2)
        return stored

    def _start(self) -> None:
        mapper = ["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"]
        self._processes.append(subprocess.Popen(mapper, start_new_session=True))
        for number in range(NODES):
            log = (self.folder / f"node-{number}.out").open("wb")
            self._processes.append(
                subprocess.Popen(
                    [_script("rabbitmq-server")],
                    env=self._environment(number),
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
            log.close()
            self._control(number, "await_startup")
            if number:
                self._control(number, "stop_app")
                self._control(number, "join_cluster", f"{self._name(0)}")
                self._control(number, "start_app")

    def _name(self, number: int) -> str:
        return f"bench{number}@localhost"

    def _environment(self, number: int) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_NODENAME": self._name(number),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.ports[number]),
            "RABBITMQ_DIST_PORT": str(self._distribution[number]),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "none"),
        }

    def _control(self, number: int, *words: str) -> None:
        """Run rabbitmqctl until it succeeds, or the deadline."""
        command = [_script("rabbitmqctl"), "--node", self._name(number), "--timeout", "60", *words]
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            done = subprocess.run(
                command, env=self._environment(number), capture_output=True, check=False
            )
            if done.returncode == 0:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{command}: {done.stdout!r} {done.stderr!r}")
            time.sleep(0.5)


def _script(name: str) -> str:
    """Debian's own `rabbitmq-server` changes user and directory; the scripts behind it don't."""
    plain = SCRIPTS / name
    return str(plain) if plain.exists() else name


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return
