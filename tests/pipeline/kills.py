"""`python -m tests.pipeline.kills --kills 20`: kill a query and its brokers, then count every row.

One program (`kill_query`) takes a topic into Parquet and into another topic. In the middle of its
micro-batches its processes are killed with signal 9 (the driver with its JVM, a Python worker of
a running task, or, with `--executors`, a Java process that runs tasks), and so are brokers. In the
end the source topic, read frame by frame, is the truth: the Parquet files must hold each (topic,
partition, offset, hash) once, and the other topic each value as often as the source does, and each
key's in their order.

Exit status: 0 good, 1 a row is missing, double or out of order, or a query fell for no reason.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from goqueue.wire.batch import RecordBatch
from pipeline.broker import Broker
from pipeline.broker_access import Access
from tests.cluster.processes import ROOT, Cluster, eventually, publish, tail
from tests.pipeline.kill_query import PATHS, SPECULATED

QUERY, WORKER, BROKER, EXECUTOR = "query", "worker", "broker", "executor"
KINDS = (QUERY, BROKER, WORKER, BROKER)
"""What is killed in turn."""
KINDS_WITH_EXECUTORS = (EXECUTOR, BROKER, WORKER, EXECUTOR, QUERY)
"""Where executors are Java processes of their own, which speculate."""
ROWS_A_KILL = 450
KEYS = 7
PARTITIONS = 3
PROGRESS_S_MAX = 240.0
FINISH_S_MAX = 400.0
EXECUTOR_CLASS = "CoarseGrainedExecutorBackend"
STARTS_MAX = 5
"""Of one query between two kills: it may fall to a kill, and not over and over."""


@dataclass(frozen=True)
class Kill:
    """What is killed, how long into a micro-batch, and how long a broker stays down."""

    kind: str
    after_s: float
    down_s: float


def plan(seed: int, count: int, kinds: Sequence[str] = KINDS) -> list[Kill]:
    chance = random.Random(seed)
    return [
        Kill(kinds[number % len(kinds)], chance.uniform(0.0, 1.2), chance.uniform(0.3, 3.0))
        for number in range(count)
    ]


@dataclass
class Tale:
    """What happened, for the report."""

    kills: Counter[str] = field(default_factory=Counter)
    in_batch: Counter[str] = field(default_factory=Counter)
    """Kills that came in the middle of a path's micro-batch."""
    falls: int = 0
    """Queries that ended by themselves after a worker was killed, and were started again."""
    slow_starts: int = 0
    """Queries that Spark gave up before they began: a Python process took over 10 s to start."""
    twins: int = 0
    """Tasks that Spark began a second time beside the first."""
    rows: int = 0
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        kills = ", ".join(f"{count} of a {kind}" for kind, count in sorted(self.kills.items()))
        middle = ", ".join(f"{self.in_batch[path]} of {path}" for path in PATHS)
        verdict = "; ".join(self.faults) or "none missing, none double, each key in order"
        return (
            f"{self.kills.total()} kills a path ({kills}); in the middle of a micro-batch: "
            f"{middle}; {self.falls} falls, {self.slow_starts} slow starts, {self.twins} twins; "
            f"{self.rows} rows: {verdict}; {self.seconds:.0f} s"
        )


class Scene:
    """A topic, its copy, and the program between them; leaves the cluster whole."""

    def __init__(
        self, cluster: Cluster, topic: str, folder: Path, seed: int, *, executors: bool = False
    ) -> None:
        self.tale = Tale()
        self._executors = executors
        self._cluster, self._topic, self._folder = cluster, topic, folder
        self._chance = random.Random(seed)
        self._servers = [node.url for node in cluster.nodes]
        self._process: subprocess.Popen[bytes] | None = None
        self._made = 0

    def run(self, kills: Sequence[Kill]) -> Tale:
        """All kills, one after the other, and the verdict in `faults`."""
        began_s = time.monotonic()
        for topic, partitions in ((self._topic, PARTITIONS), (f"{self._topic}-copy", 2)):
            body: dict[str, object] = {"name": topic, "partitions": partitions}
            assert self._cluster.nodes[0].ask("POST", "/topics", body).status == 201
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
            for kill in kills:
                self._publish(ROWS_A_KILL)
                self._kill_in_batch(kill)
            (self._folder / "finish").touch()
            eventually(
                lambda: f"the query finished; its log ends:\n{tail(self._log, 40)}",
                self._has_finished,
                deadline_s=FINISH_S_MAX,
            )
        finally:
            self._end()
        self._judge()
        log = self._log.read_text(errors="replace")
        self.tale.slow_starts, self.tale.twins = log.count("slow start\n"), log.count(SPECULATED)
        self.tale.seconds = time.monotonic() - began_s
        return self.tale

    # the query

    @property
    def _log(self) -> Path:
        return self._folder / "query.log"

    def _start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), f"{ROOT}/client"))}
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.pipeline.kill_query"),
                    *("--servers", ",".join(self._servers)),
                    *("--topic", self._topic),
                    *("--folder", str(self._folder)),
                    *(["--executors"] if self._executors else []),
                ],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _end(self) -> None:
        """kill -9 to the driver and its JVM. Python workers notice by themselves, in a while."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)

    def _has_finished(self) -> bool:
        assert self._process is not None
        if self._process.poll():
            self._revive(self._last)
        return self._process.poll() == 0

    def _revive(self, because: str) -> None:
        """Start the query again if a kill has made it end."""
        if self._process is None or self._process.poll() is not None:
            if because not in (WORKER, EXECUTOR):
                log = tail(self._log, 40)
                self.tale.faults.append(f"the query fell to the kill of a {because}: {log}")
            self.tale.falls += 1
            self._start()

    def _batch(self, path: str) -> tuple[int, bool]:
        """The newest micro-batch of a path, -1 before the first, and whether it is under way."""
        checkpoint = self._folder / f"checkpoint-{path}"
        begun = _newest(checkpoint / "offsets")
        return begun, begun > _newest(checkpoint / "commits")

    # kills

    def _kill_in_batch(self, kill: Kill) -> None:
        """Once a path is in a micro-batch that it was not in before; paths take turns."""
        path = PATHS[self.tale.kills.total() % 2]
        known, _ = self._batch(path)
        starts = 0

        def is_in_another() -> bool:
            nonlocal starts
            assert self._process is not None
            if self._process.poll() is not None:
                starts += 1
                assert starts <= STARTS_MAX, (
                    f"the query falls; its log ends:\n{tail(self._log, 40)}"
                )
                self._revive(self._last)
            newest, under_way = self._batch(path)
            return newest > known and under_way

        eventually(
            lambda: f"a micro-batch; the query's log ends:\n{tail(self._log, 40)}",
            is_in_another,
            deadline_s=PROGRESS_S_MAX,
        )
        time.sleep(kill.after_s)
        for one in PATHS:
            self.tale.in_batch[one] += self._batch(one)[1]
        self._last = kill.kind
        self._do(kill)
        self.tale.kills[kill.kind] += 1

    def _do(self, kill: Kill) -> None:
        if kill.kind == QUERY:
            self._end()
            self._start()
        elif kill.kind == WORKER:
            os.kill(eventually("a Python worker", self._worker), signal.SIGKILL)
        elif kill.kind == EXECUTOR:
            os.kill(eventually("an executor", self._executor), signal.SIGKILL)
        else:
            topic = self._chance.choice((self._topic, f"{self._topic}-copy"))
            node = self._cluster.leader(topic, self._chance.randrange(2))
            node.kill()
            time.sleep(kill.down_s)
            node.start()
            self._cluster.wait_until_ready()

    _last = QUERY

    def _worker(self) -> int | None:
        """A Python worker of the query's, the newest: it works on a task."""
        assert self._process is not None
        processes = list(below(self._process.pid))
        daemons = {pid for pid in processes if "pyspark.daemon" in _command(pid)}
        workers = [pid for pid in daemons if _parent(pid) in daemons]
        return max(workers, default=None)

    def _executor(self) -> int | None:
        """A Java process of the query's that runs tasks."""
        assert self._process is not None
        found = [pid for pid in below(self._process.pid) if EXECUTOR_CLASS in _command(pid)]
        return self._chance.choice(sorted(found)) if found else None

    # rows

    def _publish(self, count: int) -> None:
        """Some values come often, some keys are missing."""
        messages: list[dict[str, object]] = []
        for _ in range(count):
            self._made += 1
            key = self._chance.randrange(KEYS)
            often = self._chance.random() < 0.1
            message: dict[str, object] = {
                "value": f"{key}:again" if often else f"{key}:{self._made}"
            }
            if key:
                message["key"] = f"key-{key}"
            messages.append(message)
        node = next(node for node in self._cluster.nodes if node.is_running())
        publish(node, self._topic, messages)

    def _judge(self) -> None:
        with Broker(Access(tuple(self._servers))) as broker:
            source = list(_stored(broker, self._topic, PARTITIONS))
            copied = list(_stored(broker, f"{self._topic}-copy", 2))
        self.tale.rows = len(source)
        if len(source) != self._made:
            self.tale.faults.append(f"{self._made} rows made, {len(source)} in the source")
        truth = Counter(
            (self._topic, partition, offset, sha256(value).hexdigest())
            for partition, offset, _key, value in source
        )
        found = json.loads((self._folder / "found.json").read_text())
        self._compare("parquet", truth, Counter(map(tuple, found)))
        values = Counter((key, value) for _partition, _offset, key, value in source)
        copies = Counter((key, value) for _partition, _offset, key, value in copied)
        self._compare("copy", values, copies)
        if _by_key(source) != _by_key(copied):
            self.tale.faults.append("copy: a key's values are in another order")

    def _compare(self, path: str, truth: Counter[Any], found: Counter[Any]) -> None:
        missing, double = truth - found, found - truth
        if missing or double:
            self.tale.faults.append(
                f"{path}: {missing.total()} missing, {double.total()} double, "
                f"such as {next(iter(missing or double))}"
            )


def _stored(
    broker: Broker, topic: str, partitions: int
) -> Iterator[tuple[int, int, bytes | None, bytes]]:
    """(partition, offset, key, value) of all that a topic holds."""
    for partition, span in broker.spans(topic, range(partitions)).items():
        at = span.start
        while at < span.end:
            page = broker.read(topic, partition, at)
            for frame in page.frames():
                batch = RecordBatch.parse(frame.batch)
                for row, (key, value) in enumerate(zip(batch.keys(), batch.values(), strict=True)):
                    yield partition, frame.base_offset + row, key, value
            at = page.next_offset


def _by_key(rows: Sequence[tuple[int, int, bytes | None, bytes]]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for _partition, _offset, key, value in rows:
        if key is not None:
            found.setdefault(key, []).append(value)
    return found


def _newest(folder: Path) -> int:
    if not folder.exists():
        return -1
    return max((int(name) for name in os.listdir(folder) if name.isdigit()), default=-1)


def below(pid: int) -> Iterator[int]:
    """All processes that descend from one."""
    parents = {int(name): _parent(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    seen = {pid}
    while more := {one for one, parent in parents.items() if parent in seen} - seen:
        seen |= more
        yield from more


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # gone
        return 0


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--executors", action="store_true", help="Java processes that speculate, killed as well"
    )
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with (
        tempfile.TemporaryDirectory(prefix="goqueue-kills-") as folder,
        Cluster(Path(folder) / "cluster", 3).start() as cluster,
    ):
        query = Path(folder) / "query"
        scene = Scene(cluster, "orders", query, asked.seed, executors=asked.executors)
        kinds = KINDS_WITH_EXECUTORS if asked.executors else KINDS
        tale = scene.run(plan(asked.seed, asked.kills, kinds))
    print(f"seed {asked.seed}: {tale}", flush=True)
    return 1 if tale.faults else 0


if __name__ == "__main__":
    sys.exit(main())
