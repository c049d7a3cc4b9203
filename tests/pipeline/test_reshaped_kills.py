"""Queries that kill -9 ends in the middle of a micro-batch, and that go on in another shape."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from goqueue import Client
from pipeline.session import JAVA_MISSING, has_java
from tests.cluster.processes import ROOT, Cluster, eventually, publish, tail
from tests.pipeline.kill_reshaped import TASKS
from tests.pipeline.kills import below

ROWS = 600
"""Of each partition of the source, which is one task's."""
PADDING = "x" * 1000
ENDS_S = 300.0


class Program:
    """`kill_reshaped` over one folder, started as often as it is asked."""

    def __init__(self, servers: str, topic: str, folder: Path) -> None:
        self._servers, self._topic, self._folder = servers, topic, folder
        self.log = folder / "log"

    def start(
        self, shapes: Sequence[dict[str, Any]], *more: str, output: int | None = None
    ) -> subprocess.Popen[str]:
        arguments = ["--servers", self._servers, "--topic", self._topic]
        arguments += ["--folder", str(self._folder), "--shapes", json.dumps(shapes), *more]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.pipeline.kill_reshaped", *arguments],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT}/client"},
                stdin=subprocess.DEVNULL,
                stdout=log if output is None else output,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def errors(self, shapes: Sequence[dict[str, Any]]) -> list[str]:
        """What each attempt ended with, "" where it ended well."""
        process = self.start(shapes, output=subprocess.PIPE)
        try:
            told, _ = process.communicate(timeout=ENDS_S)
        finally:
            _kill(process)
        lines = [line for line in told.splitlines() if line.startswith('{"error"')]
        assert len(lines) == len(shapes), tail(self.log, 40)
        return [json.loads(line)["error"] for line in lines]


def test_a_query_that_is_killed_goes_on_in_another_shape_without_a_double_or_not_at_all(
    cluster: Cluster, servers: str, tmp_path: Path
) -> None:
    """Fewer Spark partitions are refused before a row is written, as their number is told; another
    minPartitions changes nothing. The first shape completes what was refused."""
    if not has_java():
        pytest.skip(JAVA_MISSING)
    wanted = filled(cluster, "reshaped")
    told, kept = "reshaped-told", "reshaped-kept"
    for topic in (told, kept):
        made(cluster, topic, 2)
    first = {"to": told, "least": TASKS, "told": TASKS}
    program = Program(servers, "reshaped", tmp_path)

    process = program.start([first, {"to": kept, "least": TASKS}], "--stuck")
    try:
        eventually(
            lambda: f"rows of every task in both topics; the log ends:\n{tail(program.log, 40)}",
            lambda: all(len(tasks_in(stored(servers, to))) == TASKS for to in (told, kept)),
            deadline_s=ENDS_S,
        )
    finally:
        _kill(process)
    before = stored(servers, told)
    assert len(before) < len(wanted)
    assert len(stored(servers, kept)) < len(wanted)

    fewer = [{**first, "told": 2, "reshape": [by, 2]} for by in ("coalesce", "repartition")]
    refused = program.errors(fewer)
    after = stored(servers, told)
    completed = program.errors([first, {"to": kept, "least": 2 * TASKS}])

    assert all("this one has 2 Spark partitions only" in error for error in refused), refused
    assert after == before, "what was refused has written rows"
    assert completed == ["", ""]
    assert Counter(stored(servers, told)) == Counter(stored(servers, kept)) == Counter(wanted)


def made(cluster: Cluster, topic: str, partitions: int) -> None:
    body: dict[str, object] = {"name": topic, "partitions": partitions}
    assert cluster.nodes[0].ask("POST", "/topics", body).status == 201


def filled(cluster: Cluster, topic: str) -> list[bytes]:
    """A topic of which each partition is one task's, whose values name it."""
    made(cluster, topic, TASKS)
    values = [f"{number % TASKS}:{number}:{PADDING}" for number in range(ROWS * TASKS)]
    messages: list[dict[str, object]] = [
        {"value": value, "partition": number % TASKS} for number, value in enumerate(values)
    ]
    publish(cluster.nodes[0], topic, messages)
    return [value.encode() for value in values]


def stored(servers: str, topic: str) -> list[bytes]:
    with Client(servers) as client:
        return [message.value for message in client.messages(topic)]


def tasks_in(values: Sequence[bytes]) -> set[bytes]:
    return {value.partition(b":")[0] for value in values}


def _kill(process: subprocess.Popen[str]) -> None:
    """With its JVM and Spark's Python workers; returns once none of them writes any more."""
    if process.poll() is None:
        pids = list(below(process.pid))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        eventually("the workers ended", lambda: not any(map(_is_running, pids)))


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
