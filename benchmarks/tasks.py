"""`python -m benchmarks.tasks`: tasks a second with an empty function, one worker of 16.

GoQueue on a directory and on three nodes, beside Dramatiq and RQ on a redis-server of the same
machine in the same run, each with its tasks sent before its worker begins. Peers run by a Python of
their own (`--peers PYTHON`, in which `pip install "dramatiq[redis]" rq` was done); what is missing
is left out and said.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import ROOT, DevCluster, free_ports
from goqueue.everyday.opening import open_async
from goqueue.tasks import Ended, Tasks, Worker

CONCURRENCY = 16
CHUNK = 1000
PARTITIONS = 6

DRAMATIQ = """
import json, sys, time
import dramatiq
from dramatiq.brokers.redis import RedisBroker
port, count, concurrency = map(int, sys.argv[1:])
broker = RedisBroker(host="127.0.0.1", port=port)
broker.middleware[:] = [m for m in broker.middleware if type(m).__name__ != "Prometheus"]
dramatiq.set_broker(broker)
@dramatiq.actor
def nothing(): pass
for _ in range(count): nothing.send()
worker = dramatiq.Worker(broker, worker_threads=concurrency)
began = time.perf_counter()
worker.start()
broker.join("default")
worker.join()
print(json.dumps(time.perf_counter() - began))
worker.stop()
"""
RQ = """
import json, sys, time, logging
from redis import Redis
from rq import Queue, SimpleWorker
port, count, _ = map(int, sys.argv[1:])
connection = Redis(port=port)
queue = Queue(connection=connection)
queue.enqueue_many([Queue.prepare_data("time.time") for _ in range(count)])
worker = SimpleWorker([queue], connection=connection)
began = time.perf_counter()
worker.work(burst=True, logging_level="ERROR")
print(json.dumps(time.perf_counter() - began))
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """Tasks a second, or why there is none."""

    what: str
    rate: float | None
    note: str = ""

    def line(self) -> str:
        if self.rate is None:
            return f"{self.what:<44} left out: {self.note}"
        return f"{self.what:<44} {self.rate:>9,.0f} tasks/s  {self.note}"


async def goqueue(target: str, count: int, *, run_in: str, partitions: int) -> float:
    """Tasks a second of one worker in this process, until it has left with all of them acked.
    Raises RuntimeError where one is left."""
    app = Tasks(target, partitions=partitions)

    async def on_loop() -> None:
        return None

    def in_thread() -> None:
        return None

    task = app.task(queue=f"empty-{run_in}")(on_loop if run_in == "loop" else in_thread)
    for _ in range(count // CHUNK):
        await task.send_many_async([()] * CHUNK)
    done, began = 0, 0.0
    all_done = asyncio.Event()

    def ended(_: Ended) -> None:
        nonlocal done
        done += 1
        if done == count // CHUNK * CHUNK:
            all_done.set()

    def started() -> None:
        nonlocal began
        began = time.perf_counter()

    worker = Worker(app, concurrency=CONCURRENCY, ended=ended)
    running = asyncio.ensure_future(worker.run_async(started))
    await asyncio.wait(
        {running, asyncio.ensure_future(all_done.wait())}, return_when="FIRST_COMPLETED"
    )
    worker.stop()
    await running
    took = time.perf_counter() - began
    await asyncio.to_thread(app.close)
    async with open_async(target) as client:
        left = (await client.lag("tasks", task.settings.queue)).total_lag
    if left or done != count // CHUNK * CHUNK:
        raise RuntimeError(f"{done} of {count} tasks are done, and {left} are not acked")
    return done / took


@contextmanager
def redis_server(folder: Path) -> Iterator[int]:
    """A server with Debian's settings but for its files: nothing is synced. Yields its port."""
    port = free_ports(1)
    words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir"]
    process = subprocess.Popen([*words, str(folder)], stdout=subprocess.DEVNULL)
    try:
        while subprocess.run(
            ["redis-cli", "-p", str(port), "ping"], capture_output=True, check=False
        ).returncode:
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


def peer(name: str, program: str, python: str, count: int, folder: Path) -> Figure:
    """Tasks a second of another library, in a process of its own."""
    module = name.split(",")[0].lower()
    if shutil.which("redis-server") is None:
        return Figure(name, None, "redis-server is not installed: apt-get install redis-server")
    if subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode:
        return Figure(name, None, f"{python} has no {module}: --peers PYTHON names one that has")
    with redis_server(folder) as port:
        ended = subprocess.run(
            [python, "-c", program, str(port), str(count), str(CONCURRENCY)],
            capture_output=True,
            text=True,
            check=True,
        )
    return Figure(name, count / float(json.loads(ended.stdout.splitlines()[-1])), "no fsync")


def measure(count: int, python: str, folder: Path) -> list[Figure]:
    """All rows."""
    found = [
        peer("Dramatiq, 16 threads, Redis", DRAMATIQ, python, count, folder),
        peer("RQ, one SimpleWorker, Redis", RQ, python, count, folder),
    ]
    for where in ("directory", "three nodes"):
        for run_in, kind in (("loop", "async"), ("thread", "threads")):
            what = f"GoQueue, {where}, {kind}"
            if where == "directory":
                target = str(folder / f"jobs-{run_in}")
                rate = asyncio.run(goqueue(target, count, run_in=run_in, partitions=1))
            else:
                with DevCluster(3, folder / f"three-{run_in}") as cluster:
                    servers = ",".join(cluster.urls)
                    rate = asyncio.run(
                        goqueue(servers, count, run_in=run_in, partitions=PARTITIONS)
                    )
            found.append(Figure(what, rate, "fsync" if where == "directory" else "fsync, majority"))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tasks", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="tasks a row")
    parser.add_argument("--peers", default=sys.executable, help="a Python that has the peers")
    given = parser.parse_args()
    scratch = ROOT / ".benchmarks"
    scratch.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        found = measure(max(CHUNK, given.count // CHUNK * CHUNK), given.peers, Path(folder))
    print("\n".join(figure.line() for figure in found))
    base = found[0].rate
    for figure in found[2:]:
        if base is not None and figure.rate is not None:
            print(f"{figure.what}: {figure.rate / base:.2f} x Dramatiq")
    return 0


if __name__ == "__main__":
    sys.exit(main())
