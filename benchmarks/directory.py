"""A queue in a directory, beside other small queues that sync as it does.

    python -m benchmarks.directory [--seconds 1.5] [--rounds 3] [--write]

Each figure is the median of its rounds, in which the peers take turns with it, as a disk that is
shared is not the same from one second to the next. litequeue and persist-queue are installed into
an environment of their own, and left out, with the reason, where they can't be.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.processes import ROOT
from benchmarks.report import Report, Row, Target, number
from goqueue import Queue

SECTION = "A queue in a directory"
INTRO = """Items of 100 B, in one process. Every peer syncs each put and each ack: SQLite (WAL,
`synchronous=FULL`), [litequeue](https://pypi.org/project/litequeue/) set to that, and
[persist-queue](https://pypi.org/project/persist-queue/)'s `SQLiteAckQueue`. `bare` is a loop of a
write of 128 B into preallocated space and an fdatasync: nothing that syncs can be faster. Rows are
medians of rounds in which all take turns; a target that is a share of a peer is one of the same
rounds. CPU is this process's, for an item. What was stored is counted and read back."""
PACKAGES = ("litequeue==0.9", "persist-queue==1.1.0")
ITEM = b"x" * 100
MANY = [ITEM] * 1000
THREADS = 16
PENDING, PENDING_STEP = 1_000_000, 50_000
MIB = 1 << 20
PUT_OF_PEER, PUT_OF_BARE, THREADS_OF_ONE = 0.6, 0.5, 3.0
TURBO_RATE, MANY_TURBO_RATE, MANY_RATE = 50_000.0, 1_000_000.0, 500_000.0
GET_OF_PEER, GET_MANY_RATE = 1.0, 300_000.0
OPEN_S, OPEN_MIB = 1.0, 60.0
SOCKET_OF_DIRECT = 0.5
"""The targets."""

Rates = dict[str, list[float]]


@dataclass(slots=True)
class Bench:
    """Rounds of work, each in a folder of its own."""

    folder: Path
    seconds: float
    rounds: int
    python: Path | None
    """Of the environment that holds the peers."""
    rates: Rates = field(default_factory=Rates)
    cpus_us: Rates = field(default_factory=Rates)
    """Of this process, for each item."""
    _number: int = 0

    def note(self, name: str, rate: float) -> None:
        self.rates.setdefault(name, []).append(rate)

    def figure(self, name: str) -> float | None:
        found = self.rates.get(name)
        return statistics.median(found) if found else None

    def place(self) -> Path:
        self._number += 1
        place = self.folder / str(self._number)
        shutil.rmtree(place, ignore_errors=True)
        return place

    def peer(self, kind: str, work: str) -> None:
        """One round of a peer, noted as `KIND WORK`."""
        standard = kind in ("bare", "sqlite")
        python = sys.executable if standard else self.python
        if python is None:
            return
        place = self.place()
        command = [python, ROOT / "benchmarks/small_queues.py", kind, work, place, self.seconds]
        told = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        shutil.rmtree(place, ignore_errors=True)
        if told.returncode:
            raise RuntimeError(f"{kind} {work}: {told.stderr[-500:]}")
        self.note(f"{kind} {work}", json.loads(told.stdout)["rate"])

    def best_peer(self, work: str) -> tuple[str, float]:
        found = {kind: self.figure(f"{kind} {work}") or 0.0 for kind in PEERS}
        best = max(found, key=found.__getitem__)
        return best, found[best]

    def timed(self, name: str, queue: Queue[bytes], act: Callable[[], int]) -> None:
        """One round of ours: `act` tells how many items it was."""
        act()
        done, began, cpu_s = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - began < self.seconds:
            done += act()
        self.note(name, done / (time.perf_counter() - began))
        self.cpus_us.setdefault(name, []).append((time.process_time() - cpu_s) / done * 1e6)


PEERS = ("sqlite", "litequeue", "persist-queue")


def put_one(queue: Queue[bytes]) -> Callable[[], int]:
    def act() -> int:
        queue.put(ITEM)
        return 1

    return act


def put_many(queue: Queue[bytes]) -> Callable[[], int]:
    def act() -> int:
        return len(queue.put_many(MANY))

    return act


def put_by_threads(queue: Queue[bytes], each: int = 10) -> Callable[[], int]:
    def act() -> int:
        def puts() -> None:
            for _ in range(each):
                queue.put(ITEM)

        threads = [threading.Thread(target=puts) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return THREADS * each

    return act


def get_one(queue: Queue[bytes]) -> Callable[[], int]:
    def act() -> int:
        item = queue.get(timeout=0)
        _check(item.value)
        item.ack()
        return 1

    return act


def get_many(queue: Queue[bytes]) -> Callable[[], int]:
    def act() -> int:
        items = queue.get_many(1000, timeout=0)
        for item in items:
            _check(item.value)
        return len(queue.ack(*items))

    return act


def puts(bench: Bench, name: str, make: Callable[[Queue[bytes]], Callable[[], int]]) -> None:
    """A round in a new directory; all that was put is there afterwards."""
    place = bench.place()
    durability = "turbo" if "turbo" in name else "safe"
    with Queue(place, durability=durability) as queue:
        count = 0
        act = make(queue)

        def counted() -> int:
            nonlocal count
            done = act()
            count += done
            return done

        bench.timed(name, queue, counted)
        if queue.size() != count:
            raise RuntimeError(f"{queue.size()} items are stored, and {count} were put")
    with Queue(place) as queue:
        if queue.size() != count or queue.peek() != ITEM:
            raise RuntimeError("other items are stored than were put")
    shutil.rmtree(place)


def takes(
    bench: Bench, name: str, make: Callable[[Queue[bytes]], Callable[[], int]], stored: int
) -> None:
    """A round on a directory with so many items; those that were acked are gone."""
    place = bench.place()
    with Queue(place) as queue:
        for _ in range(stored // len(MANY)):
            queue.put_many(MANY)
        act, done = make(queue), 0

        def counted() -> int:
            nonlocal done
            if stored - done < len(MANY):
                for _ in range(stored // len(MANY)):
                    queue.put_many(MANY)
                done -= stored // len(MANY) * len(MANY)
            taken = act()
            done += taken
            return taken

        bench.timed(name, queue, counted)
        if queue.size() != stored - done:
            raise RuntimeError(f"{queue.size()} items are left, and should be {stored - done}")
    shutil.rmtree(place)


@contextlib.contextmanager
def owned(place: Path) -> Iterator[None]:
    """Another process has the directory open."""
    code = "import goqueue, sys; c = goqueue.open(sys.argv[1]); print(flush=True); input()"
    command = [sys.executable, "-c", code, str(place)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdin is not None
        owner.stdout.readline()
        try:
            yield
        finally:
            with contextlib.suppress(BrokenPipeError):
                owner.stdin.write("\n")
                owner.stdin.close()


def by_socket(bench: Bench, name: str, make: Callable[[Queue[bytes]], Callable[[], int]]) -> None:
    place = bench.place()
    with owned(place), Queue(place) as queue:
        bench.timed(name, queue, make(queue))
    shutil.rmtree(place)


def opened(bench: Bench, pending: int) -> tuple[float, float]:
    """Seconds, and MiB above the import, of opening a directory with so many items pending."""
    place = bench.place()
    with Queue(place) as queue:
        for _ in range(pending // PENDING_STEP):
            queue.put_many([ITEM] * PENDING_STEP)
        if queue.size() != pending:
            raise RuntimeError(f"{queue.size()} of {pending} items")
    command = [sys.executable, "-c", OPENING, str(place), str(pending)]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    shutil.rmtree(place)
    took_s, grown = json.loads(told.stdout)
    return took_s, grown / MIB


OPENING = """
import json, sys, time
import node.embedded.engine
from goqueue import Queue

def rss():
    with open("/proc/self/status") as status:
        return next(int(l.split()[1]) << 10 for l in status if l.startswith("VmRSS"))

before, began = rss(), time.perf_counter()
queue = Queue(sys.argv[1])
took, grown = time.perf_counter() - began, rss() - before
assert queue.size() == int(sys.argv[2])
queue.close()
print(json.dumps([took, grown]))
"""


def installed(folder: Path, report: Report) -> Path | None:
    """The Python of an environment with the peers; None, and told why, where there is none."""
    python = folder / "peers/bin/python"
    try:
        venv.create(folder / "peers", with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", *PACKAGES]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        report.tell(f"litequeue and persist-queue are left out: {str(reason).strip()[-200:]}")
        return None
    return python


def measure(bench: Bench, report: Report) -> None:
    for _ in range(bench.rounds):
        for kind in ("bare", *PEERS):
            bench.peer(kind, "put")
        puts(bench, "put safe", put_one)
        puts(bench, "put safe threads", put_by_threads)
        puts(bench, "put turbo", put_one)
        puts(bench, "put_many safe", put_many)
        puts(bench, "put_many turbo", put_many)
        by_socket(bench, "socket put", put_one)
        by_socket(bench, "socket put_many", put_many)
        for kind in PEERS:
            bench.peer(kind, "take")
        takes(bench, "get ack", get_one, 2 * len(MANY))
        takes(bench, "get_many ack", get_many, 50 * len(MANY))
    told(bench, report)
    took_s, grown_mib = opened(bench, PENDING)
    name = f"open with {PENDING:,} pending"
    report.add(SECTION, Row(name, took_s, "s", Target.at_most(OPEN_S, "s")))
    target = Target.at_most(OPEN_MIB, "MiB")
    report.add(SECTION, Row(f"{name}: RSS above the import", grown_mib, "MiB", target))


def told(bench: Bench, report: Report) -> None:
    """The rows of all rounds."""

    def row(name: str, key: str, *targets: tuple[float, str]) -> None:
        figure = bench.figure(key)
        if figure is None:
            return
        wanted = max(targets, default=None)
        target = Target.at_least(wanted[0], "/s") if wanted else None
        of = f"{wanted[1]}; " if wanted and wanted[1] else ""
        spread = f"{number(min(bench.rates[key]))} to {number(max(bench.rates[key]))}"
        cpu_us = statistics.median(bench.cpus_us[key]) if key in bench.cpus_us else None
        report.add(SECTION, Row(name, figure, "/s", target, cpu_us, f"{of}rounds: {spread}"))

    for kind in ("bare", *PEERS):
        row(f"{kind}: put", f"{kind} put")
    for kind in PEERS:
        row(f"{kind}: get + ack", f"{kind} take")
    best, rate = bench.best_peer("put")
    bare = bench.figure("bare put") or 0.0
    one = bench.figure("put safe") or 0.0
    row(
        "put, safe, threads: 1",
        "put safe",
        (PUT_OF_PEER * rate, f"{PUT_OF_PEER:g} x {best}"),
        (PUT_OF_BARE * bare, f"{PUT_OF_BARE:g} x bare"),
    )
    row(
        f"put, safe, threads: {THREADS}",
        "put safe threads",
        (THREADS_OF_ONE * one, f"{THREADS_OF_ONE:g} x one thread"),
    )
    row("put, turbo, threads: 1", "put turbo", (TURBO_RATE, ""))
    row("put_many of 1,000, safe", "put_many safe", (MANY_RATE, ""))
    row("put_many of 1,000, turbo", "put_many turbo", (MANY_TURBO_RATE, ""))
    best, rate = bench.best_peer("take")
    row("get + ack, safe", "get ack", (GET_OF_PEER * rate, f"{GET_OF_PEER:g} x {best}"))
    row("get_many(1000) + ack, safe", "get_many ack", (GET_MANY_RATE, ""))
    share = f"{SOCKET_OF_DIRECT:g} x direct"
    row("put, safe, by the socket", "socket put", (SOCKET_OF_DIRECT * one, share))
    many = bench.figure("put_many safe") or 0.0
    row("put_many, safe, by the socket", "socket put_many", (SOCKET_OF_DIRECT * many, share))


def _check(value: bytes) -> None:
    if value != ITEM:
        raise RuntimeError("other bytes than were put")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1.5, help="of each figure of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=ROOT / ".benchmarks", help="scratch folder")
    parser.add_argument(
        "--write", action="store_true", help="into docs/reference/benchmarks.md, as its section"
    )
    given = parser.parse_args()
    folder = given.data.resolve() / "directory"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    report, began = Report(), time.monotonic()
    try:
        bench = Bench(folder, given.seconds, given.rounds, installed(folder, report))
        measure(bench, report)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if given.write:
        path = ROOT / "docs/reference/benchmarks.md"
        command = f"python -m benchmarks.directory --seconds {given.seconds:g} --write"
        report.write_section(SECTION, INTRO, path, command, time.monotonic() - began)
    for row in report.misses():
        print(f"missed: {row.name}: {row.target.text if row.target else ''}")


if __name__ == "__main__":
    main()
