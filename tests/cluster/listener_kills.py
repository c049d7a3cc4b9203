"""Clients of other protocols while the leaders of what they use are killed; then each line is
counted.

`python -m tests.cluster.listener_kills --protocol redis-cli --kills 3 --lines 10000`, or
redis-benchmark, redis-py, curl, h2, grpc, or all. Three nodes listen for all protocols. Lines of
real logs are published and consumed by that client, and three times while this goes on the leader
of a partition is killed with -9, and started again later. In the end each line whose publish was
confirmed is there, exactly, and was read; none was acked twice. What had no answer is published
again: gRPC's producers have numbers, so that it is stored once; Redis and HTTP/2 have no such
thing, so that it may be stored twice, and how often it was is told. Meanwhile each node's health is
asked as grpc_health_probe does it.
"""

from __future__ import annotations

import argparse
import queue
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.processes import HOST, Cluster, Node, eventually, read_all
from tests.cluster.test_real_lines import sample_files
from tests.ports import free_ports
from tests.protocols.client import Client, Door, Line, Unreachable
from tests.protocols.curl import Curl
from tests.protocols.duplex import DuplexClient
from tests.protocols.health import HealthWatch
from tests.protocols.ledger import Ledger
from tests.protocols.redis_programs import COPIES, RedisBenchmark, RedisCli
from tests.protocols.redis_py import RedisPy
from tests.protocols.stubs import Stubs

TOPIC, GROUP = "lines", "readers"
LISTENERS = ("redis", "h2", "grpc")
CHUNK = 50
"""What is sent at once: less than a partition remembers of a producer."""
PUBLISHERS, CONSUMERS = 3, 2
RETRY_S = 0.05
DEADLINE_S = 900.0


@dataclass(frozen=True, slots=True)
class Kind:
    """How a client is used."""

    make: Callable[[int], Client]
    stores_once: bool
    sees_values: bool
    partitions: int = 1
    copies: int = 1
    """Of each line, by one command."""


def _kind(client: type[Client], partitions: int = 1, copies: int = 1) -> Kind:
    return Kind(
        lambda number: client(TOPIC, GROUP, number),
        client.stores_once,
        client.sees_values,
        partitions,
        copies,
    )


KINDS = {
    "redis-py": _kind(RedisPy),
    "redis-cli": _kind(RedisCli),
    "redis-benchmark": _kind(RedisBenchmark, copies=COPIES),
    "curl": _kind(Curl, partitions=3),
    "h2": _kind(DuplexClient, partitions=3),
    # partition 0 can't be named without a key
    "grpc": Kind(lambda n: Stubs(TOPIC, GROUP, n, 1 + n % 3), True, True, partitions=4),
}


@dataclass
class Counted:
    """What a run came to."""

    name: str
    kills: int
    messages: int
    confirmed: int
    problems: list[str]
    told: list[str] = field(default_factory=list[str])
    """How it went."""

    def line(self) -> str:
        return "\n  ".join(
            [
                f"{self.name}: {self.messages} real lines, {self.kills} leaders killed:"
                f" {self.confirmed} publishes confirmed, {len(self.problems)} problems",
                *self.told,
            ]
        )


class Doors:
    """Of three nodes."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder, 3, ["cluster.autoFinish=true"])
        ports = free_ports(3 * len(LISTENERS))
        self.doors: list[Door] = []
        for at, node in enumerate(self.cluster.nodes):
            own = ports[3 * at : 3 * at + 3]
            self.doors.append(Door(HOST, node.http_port, *own))
            for name, port in zip(LISTENERS, own, strict=True):
                for setting in (f"{name}.enabled=true", f"{name}.port={port}"):
                    node.arguments += ["--set", f"listeners.{setting}"]

    def pid_of(self, at: int) -> int | None:
        node = self.cluster[at]
        process = node.process
        return process.pid if process is not None and node.is_running() else None

    def make(self, partitions: int) -> None:
        """The topic, and a group from its beginning on, in which no message is ever dead."""
        first = self.cluster[0]
        eventually("level 2", lambda: first.ask("GET", "/v1/version").body.get("level", 0) >= 2)
        topic = {"name": TOPIC, "num_partitions": partitions, "replication_factor": 3}
        assert first.ask("POST", "/topics", topic).status == 201
        settings = {"max_attempts": 0}
        assert first.ask("PUT", f"/groups/{GROUP}", settings).status in (200, 201)


class Work:
    """Threads that publish what is put into `chunks`, and that consume, until it is over."""

    def __init__(self, kind: Kind, doors: Sequence[Door], ledger: Ledger) -> None:
        self.chunks: queue.Queue[list[Line] | None] = queue.Queue(PUBLISHERS)
        self.is_over = threading.Event()
        self._kind, self._doors, self._ledger = kind, doors, ledger
        self.troubles: Counter[str] = Counter()
        """Why consumers went to another node."""
        self._ends = time.monotonic() + DEADLINE_S
        self._pool = ThreadPoolExecutor(PUBLISHERS + CONSUMERS)
        self._publishers = [self._pool.submit(self._publish, n) for n in range(PUBLISHERS)]
        self._consumers = [self._pool.submit(self._consume, n) for n in range(CONSUMERS)]

    def put(self, chunk: list[Line] | None) -> None:
        """Raises what a thread raised."""
        while True:
            try:
                self.chunks.put(chunk, timeout=1.0)
                return
            except queue.Full:
                self.check()

    def published(self) -> None:
        """Return once all that was put is stored."""
        for _ in self._publishers:
            self.put(None)
        for one in self._publishers:
            one.result(DEADLINE_S)

    def check(self) -> None:
        _raised([*self._publishers, *self._consumers])

    def end(self) -> None:
        """All threads have ended; raises what one of them raised."""
        self.is_over.set()
        self._ends = 0.0
        self._pool.shutdown()
        self.check()

    def _publish(self, number: int) -> None:
        client = self._kind.make(number)
        turn = number
        while (left := self.chunks.get()) is not None:
            while left:
                told = client.publish(self._doors[turn % len(self._doors)], left)
                self._ledger.told(told)
                left = [line for line in left if not told.stored[line.number]]
                if left:
                    assert time.monotonic() < self._ends, f"not stored in time: {told.refused}"
                    turn += 1
                    time.sleep(RETRY_S)

    def _consume(self, number: int) -> None:
        client = self._kind.make(PUBLISHERS + number)
        turn = number
        while not self.is_over.is_set():
            try:
                client.consume(self._doors[turn % len(self._doors)], self._ledger, self.is_over)
            except Unreachable as error:
                self.troubles[str(error)[:200]] += 1
                turn += 1
                self.is_over.wait(RETRY_S)


def run(name: str, lines: int, kills: int, seed: int, folder: Path) -> Counted:
    """Publish, kill, consume, count. Raises AssertionError where it comes to no end."""
    kind, rng, began = KINDS[name], random.Random(seed), time.monotonic()
    ledger = Ledger(stores_once=kind.stores_once, sees_values=kind.sees_values)
    doors = Doors(folder / "cluster")
    with doors.cluster as cluster:
        cluster.start()
        doors.make(kind.partitions)
        work = Work(kind, doors.doors, ledger)
        try:
            with HealthWatch(doors.doors, doors.pid_of) as health:
                all_lines = list(_lines(lines // kind.copies, folder))
                killed = _feed(work, ledger, all_lines, cluster, kind.partitions, kills, rng)
                work.published()
                published_s = time.monotonic() - began
                eventually(
                    lambda: (
                        f"the group has nothing left: {_left(cluster, kind.partitions)};"
                        f" consumers had {work.troubles.most_common(5)}"
                    ),
                    lambda: work.check() or not _left(cluster, kind.partitions),
                    deadline_s=180,
                )
        finally:
            work.end()
        values = [
            one["value"].encode()
            for partition in range(kind.partitions)
            for one in read_all(cluster[0], TOPIC, partition)
        ]
    problems = [*ledger.problems(values), *health.wrong]
    confirmed = ledger.confirmed.total()
    counted = Counted(name, killed, lines // kind.copies * kind.copies, confirmed, problems)
    counted.told = [
        *_story(ledger, values, kind),
        health.line(),
        f"published after {published_s:.0f} s, consumed after {time.monotonic() - began:.0f} s",
    ]
    return counted


def _feed(
    work: Work,
    ledger: Ledger,
    lines: list[Line],
    cluster: Cluster,
    partitions: int,
    kills: int,
    rng: random.Random,
) -> int:
    """Give out chunk after chunk; between them a leader is killed, so often, and the one before it
    started again. How many were."""
    chunks = [lines[at : at + CHUNK] for at in range(0, len(lines), CHUNK)]
    kill_at = {len(chunks) * (2 * number + 1) // (2 * kills) for number in range(kills)}
    down: Node | None = None
    for number, chunk in enumerate(chunks):
        if number in kill_at:
            _start(cluster, down)
            down = cluster.leader(TOPIC, rng.randrange(partitions))
            down.kill()
        ledger.begin(chunk)
        work.put(chunk)
    _start(cluster, down)
    return len(kill_at)


def _start(cluster: Cluster, down: Node | None) -> None:
    if down is not None:
        down.start()
        cluster.wait_until_ready()


def _left(cluster: Cluster, partitions: int) -> object:
    """What the group has still to do, or nothing."""
    answer = cluster[0].ask("GET", f"/groups/{GROUP}?topic={TOPIC}")
    rows = answer.body.get("partitions", [])
    busy = [row for row in rows if row["lag"] or row["in_flight"]]
    if answer.status != 200 or len(rows) < partitions:
        return answer.body
    return busy


def _lines(count: int, folder: Path) -> Iterator[Line]:
    texts = [line for file in sample_files(folder) for line in file.read_text().splitlines()]
    for number in range(count):
        yield Line(number, texts[number % len(texts)])


def _story(ledger: Ledger, values: Sequence[bytes], kind: Kind) -> Iterator[str]:
    doubt, twice = ledger.in_doubt.total(), ledger.twice(values)
    why = "by their producer's numbers" if kind.stores_once else "the protocol has no numbers"
    yield (
        f"{len(values)} stored; {doubt} publishes without an answer were repeated,"
        f" {twice} of them are stored twice ({why})"
    )
    if kind.sees_values:
        yield (
            f"{ledger.given.total()} given, {ledger.acked.total()} acks confirmed,"
            f" {ledger.unanswered.total()} acks without an answer"
        )
    else:
        yield "read with NOACK: the group has settled all of them"
    if ledger.refused:
        told = ", ".join(f"{count} × {what}" for what, count in sorted(ledger.refused.items()))
        yield f"publishes that failed: {told}"


def _raised(futures: Sequence[Future[None]]) -> None:
    for one in futures:
        if one.done():
            one.result()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", choices=[*KINDS, "all"], default="all")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    failed = False
    for name in KINDS if given.protocol == "all" else [given.protocol]:
        with tempfile.TemporaryDirectory() as folder:
            counted = run(name, given.lines, given.kills, given.seed, Path(folder))
        print("\n".join([counted.line(), *counted.problems]), flush=True)
        failed = failed or bool(counted.problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
