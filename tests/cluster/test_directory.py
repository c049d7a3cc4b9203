"""A directory that several processes use: killed, held up, and served by a server afterwards.

`GOQUEUE_DIRECTORY_KILLS` says how many owners are killed, for a longer run.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

import goqueue
from goqueue.errors import GoQueueError
from tests.cluster.nursery import fork_program
from tests.cluster.processes import HOST, ROOT, Cluster, Node, eventually, stand_still
from tests.ports import free_ports

KILLS = int(os.environ.get("GOQUEUE_DIRECTORY_KILLS", "4"))
PROCESSES = 5
"""The owner, and four that ask it."""
LEASE_MS = 2000
"""By the log's time; `WORKER` asks for it."""
EARLY_MS = 50
"""By so much the log's time may be ahead of a process's that reads its clock later."""
GONE_S = 60.0

WORKER = """
import os, sys, time, goqueue
from goqueue.errors import GoQueueError
directory, name, log = sys.argv[1:]
told = open(log, "a", buffering=1)
client = goqueue.open(directory)
number, is_stored = 0, True
while not os.path.exists(f"{log}.stop"):
    number += is_stored
    value = f"{name}-{number}"
    try:
        is_stored = False  # else it is sent again, with the same id
        client.publish("jobs", value, partition=0, message_id=value)
        is_stored = True
        told.write(f"stored {value}\\n")
        found = client.receive("workers", "jobs", limit=2, visibility="2s")
        now_ms = time.time_ns() // 1_000_000  # an ack may wait for the next owner
        for message in found:
            told.write(f"got {message.text}\\n")
            told.write(f"held {message.text}:{now_ms}:{message.visible_until_ms}\\n")
            try:
                message.ack()
            except GoQueueError as error:
                told.write(f"failed {error.code} {error.outcome}\\n")
            else:
                told.write(f"acked {message.text}\\n")
    except GoQueueError as error:
        assert error.retriable or error.outcome == "unknown", error
        told.write(f"failed {error.code} {error.outcome}\\n")
client.close()
"""


class Worker:
    """A process that publishes, receives and acks, and writes down what it was told."""

    def __init__(self, folder: Path, name: str) -> None:
        self.log = folder / f"{name}.log"
        self.log.touch()
        self.errors = folder / f"{name}.err"
        arguments = [str(folder / "jobs"), name, str(self.log)]
        self.process = fork_program(WORKER, arguments, self.errors)

    def told(self, what: str) -> list[str]:
        return re.findall(rf"(?m)^{what} (\S+)$", self.log.read_text())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(GONE_S)

    def stop(self) -> None:
        Path(f"{self.log}.stop").touch()
        assert self.process.wait(GONE_S) == 0, self.errors.read_text()


def around() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GOQUEUE_")}
    return {**own, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def owner(jobs: Path) -> int:
    """The process that has the directory's lock; 0 for none."""
    lock = jobs / "LOCK"
    found = re.match(r"pid (\d+)", lock.read_text() if lock.exists() else "")
    return int(found[1]) if found else 0


def test_owners_are_killed_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    workers = {worker.process.pid: worker for worker in begun(tmp_path, 0, PROCESSES)}
    everyone = list(workers.values())
    try:
        for kill in range(KILLS):
            pid = eventually("an owner", lambda: owner(jobs) if owner(jobs) in workers else None)
            progress(list(workers.values()))
            workers.pop(pid).kill()
            progress(list(workers.values()))
            (new,) = begun(tmp_path, PROCESSES + kill, 1)
            workers[new.process.pid] = new
            everyone.append(new)
        progress(list(workers.values()))
        for worker in workers.values():
            worker.stop()
    finally:
        for worker in everyone:
            worker.kill()

    stored = [value for worker in everyone for value in worker.told("stored")]
    acked = [value for worker in everyone for value in worker.told("acked")]
    with goqueue.open(jobs) as client:
        kept = [message.text for message in client.messages("jobs")]
        left: list[str] = []
        while found := client.receive("workers", "jobs", limit=100, wait="3s"):
            left += [message.text for message in found]
            client.ack(found)
    assert len(kept) == len(set(kept)), "a message with an id is stored once"
    assert set(stored) <= set(kept)
    assert set(kept) - set(acked) <= {*left, *in_doubt(everyone)}
    assert not set(left) & set(acked), "what was acked came again"
    assert leased_twice(everyone) == []


def leased_twice(workers: list[Worker]) -> list[str]:
    """Messages that somebody was given while they were another's; and those that were acked, and
    given out again."""
    given: dict[str, list[tuple[int, int]]] = {}
    for worker in workers:
        for line in worker.told("held"):
            value, now_ms, until_ms = line.split(":")
            given.setdefault(value, []).append((int(until_ms), int(now_ms)))
    acked = [value for worker in workers for value in worker.told("acked")]
    twice = [value for value in set(acked) if acked.count(value) > 1]
    for value, times in given.items():
        for (until_ms, _), (again_until_ms, again_ms) in itertools.pairwise(sorted(times)):
            if again_until_ms - LEASE_MS < until_ms or again_ms < until_ms - EARLY_MS:
                twice.append(f"{value}: leased until {until_ms}, given out at {again_ms}")
    return twice


def begun(folder: Path, first: int, count: int) -> list[Worker]:
    return [Worker(folder, f"w{number}") for number in range(first, first + count)]


def progress(workers: list[Worker]) -> None:
    """Each of them stores something more, by whichever owner."""
    for worker in workers:
        before = len(worker.told("stored"))

        def goes_on(worker: Worker = worker, before: int = before) -> bool:
            assert worker.process.poll() is None, worker.errors.read_text()
            return len(worker.told("stored")) > before + 2

        eventually(f"{worker.log} goes on", goes_on)


def in_doubt(workers: list[Worker]) -> set[str]:
    """Received, and the answer to the ack, or the process, was lost: it may have been acked."""
    found: set[str] = set()
    for worker in workers:
        found |= set(worker.told("got")) - set(worker.told("acked"))
    return found


HOLDER = """
import sys, goqueue
with goqueue.open(sys.argv[1]) as client:
    client.publish("jobs", "first", partition=0)
    print("open", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holding(jobs: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the directory open until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(jobs)],
        cwd=ROOT,
        env=around(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stdin, stdout = _pipe(process.stdin), _pipe(process.stdout)
    try:
        assert stdout.readline() == "open\n"
        yield process
        stdin.close()
        assert process.wait(GONE_S) == 0
    finally:
        process.kill()
        process.wait()
        stdout.close()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def test_an_owner_that_stands_still_gives_others_an_error_in_time(tmp_path: Path) -> None:
    with holding(tmp_path / "jobs") as process:
        with goqueue.open(tmp_path / "jobs", timeout_s=0.5) as client:
            stand_still(process.pid)
            try:
                with pytest.raises(GoQueueError) as slow:
                    client.publish("jobs", "second", partition=0)
            finally:
                process.send_signal(signal.SIGCONT)
            assert (slow.value.code, slow.value.outcome) == ("timeout", "unknown")

        with goqueue.open(tmp_path / "jobs") as client:
            client.publish("jobs", "third", partition=0)


def test_an_owner_that_ends_hands_over_to_who_waits(tmp_path: Path) -> None:
    with holding(tmp_path / "jobs") as process, goqueue.open(tmp_path / "jobs") as client:
        (message,) = client.receive("workers", "jobs", wait=20)
        _pipe(process.stdin).close()
        process.wait(GONE_S)

        message.ack()
        client.publish("jobs", "second", partition=0)
        (message,) = client.receive("workers", "jobs", wait=20)
        assert message.text == "second"


def test_a_server_serves_a_directory_and_gives_it_back(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    with goqueue.open(jobs) as client:
        client.create_topic("jobs", partitions=1)
        for value in ("leased", "acked", "ready"):
            client.publish("jobs", value)
        client.publish("jobs", "delayed", delay="1h")
        leased, acked = client.receive("workers", "jobs", limit=2, wait=20, visibility="1h")
        acked.ack()

    with served(jobs) as url:
        with pytest.raises(GoQueueError) as taken:
            goqueue.open(jobs)
        assert taken.value.code == "directory_in_use"
        with goqueue.open(url) as client:
            kept = [message.text for message in client.read("jobs")]
            received = client.receive("workers", "jobs", limit=10, wait=20)
            client.ack(leased)  # its lease goes on
            client.ack(received)
            (delayed,) = client.delayed("jobs")
            client.publish("jobs", "from the server")

    assert kept == ["leased", "acked", "ready", "delayed"]
    assert [message.text for message in received] == ["ready"]
    assert delayed.offset == 3
    with goqueue.open(jobs) as client:
        (message,) = client.receive("workers", "jobs", limit=10, wait=20)
        assert message.text == "from the server"


def test_a_directory_grows_to_three_nodes_and_outlives_the_first(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, size=1)
    first = cluster[0]
    first.arguments += ["--secret-file", str(cluster.secret)]
    with goqueue.Queue(first.data) as jobs:
        jobs.put_many(["leased", "acked", "ready"])
        jobs.put("delayed", delay="1h")
        jobs.get().message.extend("1h")
        jobs.get().ack()

    with cluster.start():
        for node in cluster.add(2, seeds=[first]):
            node.start()
        cluster.wait_until_ready()
        with goqueue.open(first.url) as client:
            client.alter_topic("queue", replication_factor=3)

            def is_everywhere() -> bool:
                (partition,) = client.partitions("queue")
                brokers = first.ask("GET", "/cluster/health").body["nodes"]
                return len(partition.isr) == 3 and len(brokers) == 3

            eventually("three replicas", is_everywhere)
            eventually("three voters", lambda: voters(first) == 3)
        first.kill()
        with goqueue.Queue([node.url for node in cluster.nodes[1:]]) as jobs:
            job = jobs.get(timeout=60)
            stats = jobs.stats()

    assert job.value == "ready"
    assert (stats.in_flight, stats.delayed, stats.acked, stats.dead) == (2, 1, 1, 0)


def voters(node: Node) -> int:
    """How many vote in the cluster group."""
    return len(node.ask("GET", "/cluster/info").body["voters"])


@contextmanager
def served(jobs: Path) -> Iterator[str]:
    """The directory by `goqueue --data`, in a process of its own."""
    (port,) = free_ports(1)
    log = jobs.parent / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "cli.serve", "--data", str(jobs), "--http", f"{HOST}:{port}"],
            cwd=ROOT,
            env=around(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        url = f"http://{HOST}:{port}"

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text()
            with goqueue.Client(url, retry=goqueue.RetryPolicy(attempts_max=1)) as client:
                try:
                    return bool(client.topic("jobs", current=True))
                except GoQueueError:
                    return False

        eventually(log.read_text, is_ready)
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(GONE_S) == 0
    finally:
        process.kill()
        process.wait()
