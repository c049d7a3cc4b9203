"""`goqueue-cli dev`: a whole cluster of real processes on this machine, for development.

Standard output gets two lines, when every node serves: `ready URL URL URL`, and `console URL`,
where its pages are; then one for each other protocol: `redis HOST:PORT HOST:PORT HOST:PORT`. Exits
and errors of nodes go to standard error; nothing is restarted. A node that someone else starts
again, by the `command` in DIR/cluster.json, is found by its pid file and stopped with the rest.
"""

from __future__ import annotations

import http.client
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from cli.local import processes
from cli.local.layout import HOST, ClusterDirectory, DevNode, listeners_missing, speaks_tls
from cli.output.errors import EXIT_UNAVAILABLE, CliError
from cli.output.terminal import note, warn, write
from cli.run.options import finish

NODES_MAX = 9
POLL_S = 0.1
READY_DEADLINE_S = 60.0
MAJORITY_DEADLINE_S = 10.0
STOP_DEADLINE_S = 10.0
PROBE_TIMEOUT_S = 1.0
LOG_TAIL_LINES = 12
SHOWN_LINES_MAX = 5
ERROR_LINE = re.compile(rb"\[(error|critical) *\]|^Traceback |\"level\": ?\"(error|critical)\"")

Nodes = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=NODES_MAX,
        help="How many nodes (3); a directory keeps its count.",
        show_default=False,
    ),
]
Port = Annotated[
    int, typer.Option(min=1, max=65_535 - NODES_MAX, help="HTTP port of the first node; next +1.")
]
Data = Annotated[Path, typer.Option(help="The cluster's directory; reused when it exists.")]


def dev(nodes: Nodes = None, port: Port = 8080, data: Data = Path("data")) -> None:
    """Run a cluster of real processes on this machine, until Ctrl-C.

    Prints `ready URL URL URL` when it serves, where its console is, and where it speaks other
    protocols. Topics are created on the first publish. The data stays in the directory; pids and
    commands are in its cluster.json, logs in node-N/node.log.
    """
    finish(lambda: run(data.resolve(), nodes, port))


def run(root: Path, count: int | None, port: int) -> None:
    """Start, announce, watch until a signal, stop. Raises `CliError` when the start fails."""
    directory = ClusterDirectory.open(root, count, port)
    cluster = DevCluster(directory)
    with _signals() as stop:
        try:
            cluster.start()
            if cluster.wait_until_ready(stop):
                urls = " ".join(node.url for node in directory.nodes)
                write(sys.stdout, f"ready {urls}\nconsole {directory.nodes[0].url}/ui\n")
                write(sys.stdout, "".join(_listener_lines(directory.nodes)))
                for name in listeners_missing():
                    note(f"no {name} here: pip install 'goqueue-server[{name}]'")
            while not stop.asked:
                cluster.watch()
                time.sleep(POLL_S)
        finally:
            cluster.stop(stop)
            directory.close()


class Stop:
    """How often a signal has asked to stop: twice means at once."""

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked += 1


class DevCluster:
    """The processes of one directory. `start` starts them all; `stop` leaves none behind."""

    def __init__(self, directory: ClusterDirectory) -> None:
        self.directory = directory
        self.nodes = directory.nodes
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._read: dict[str, int] = {}
        self._is_new = directory.is_new()
        self._listing = directory.root / "cluster.json"
        self.is_ready = False

    @property
    def majority(self) -> int:
        return len(self.nodes) // 2 + 1

    def start(self) -> None:
        for node in self.nodes:
            self._read[node.id] = node.log.stat().st_size if node.log.exists() else 0
            child = processes.start(node.command, node.log)
            self._children[node.id] = child
            node.pid = child.pid
        self.directory.write()

    def wait_until_ready(self, stop: Stop) -> bool:
        """True once the cluster serves, False if a signal came first.

        A directory with data may start with a majority, after a while and with a warning; a new
        one needs every node. Raises `CliError` when that can't be any more, or takes too long.
        """
        began = time.monotonic()
        needed = len(self.nodes) if self._is_new else self.majority
        while not stop.asked:
            self.watch()
            ready = [node for node in self.nodes if node.pid is not None and serves(node)]
            self.is_ready = len(ready) == len(self.nodes)
            if self.is_ready:
                return True
            waited = time.monotonic() - began
            alive = [node for node in self.nodes if node.pid is not None]
            if len(ready) >= needed and (len(ready) == len(alive) or waited > MAJORITY_DEADLINE_S):
                for node in self.nodes:
                    if node not in ready:
                        warn(f"{node.id} doesn't serve yet: see {node.log}")
                self.is_ready = True
                return True
            if len(alive) < needed or waited > READY_DEADLINE_S:
                raise self._failure(ready, alive)
            time.sleep(POLL_S)
        return False

    def watch(self) -> None:
        """Notice what ended and what came back, show errors, and keep cluster.json true."""
        for node in self.nodes:
            self._show_errors(node)
            before, node.pid = node.pid, self._current_pid(node)
            if node.pid is None and before is not None:
                advice = f"; start it again by its command in {self._listing}" * self.is_ready
                note(f"{node.id} {self._end(node, before)}{advice}")
            elif node.pid is not None and node.pid != before:
                note(f"{node.id} runs again as process {node.pid}")
        self.directory.write()

    def stop(self, stop: Stop) -> None:
        """SIGTERM to every node, whoever started it; SIGKILL after the deadline or a second ask."""
        running = [node for node in self.nodes if self._refresh(node)]
        for node in running:
            if node.pid is not None:
                processes.send(node.pid, signal.SIGTERM)
        asked, deadline = stop.asked, time.monotonic() + STOP_DEADLINE_S
        while running and time.monotonic() < deadline and stop.asked <= asked:
            time.sleep(POLL_S / 4)
            running = [node for node in running if self._refresh(node)]
        for node in running:
            if node.pid is not None:
                warn(f"{node.id} didn't stop in time and is killed")
                processes.send(node.pid, signal.SIGKILL)
        for child in self._children.values():
            child.wait()
        for node in self.nodes:
            node.pid = None
        self.directory.write()

    def _refresh(self, node: DevNode) -> bool:
        node.pid = self._current_pid(node)
        return node.pid is not None

    def _current_pid(self, node: DevNode) -> int | None:
        child = self._children.get(node.id)
        if child is not None and child.poll() is None:
            return child.pid
        return node.find_pid()

    def _end(self, node: DevNode, pid: int) -> str:
        child = self._children[node.id]
        if child.pid == pid and child.returncode is not None:
            return processes.exit_text(child.returncode)
        return "is gone"

    def _failure(self, ready: list[DevNode], alive: list[DevNode]) -> CliError:
        bad = next((n for n in self.nodes if n not in alive), None)
        bad = bad or next(node for node in self.nodes if node not in ready)
        what = "ended" if bad not in alive else f"didn't serve within {READY_DEADLINE_S:.0f} s"
        tail = "\n".join(f"  {line}" for line in _tail(bad.log))
        return CliError(
            f"{bad.id} {what}; the end of its log:\n{tail}",
            hint=f"the whole log is {bad.log}",
            exit_code=EXIT_UNAVAILABLE,
        )

    def _show_errors(self, node: DevNode) -> None:
        try:
            with node.log.open("rb") as file:
                file.seek(self._read[node.id])
                fresh = file.read()
        except FileNotFoundError:
            return
        whole = fresh.rpartition(b"\n")[0]
        self._read[node.id] += len(whole) + 1 if whole else 0
        errors = [line for line in whole.split(b"\n") if ERROR_LINE.search(line)]
        for line in errors[:SHOWN_LINES_MAX]:
            note(f"{node.id}: {line.decode('utf-8', 'replace')}")
        if len(errors) > SHOWN_LINES_MAX:
            note(f"{node.id}: {len(errors) - SHOWN_LINES_MAX} more errors in {node.log}")


def serves(node: DevNode) -> bool:
    """Whether the node says that it may be sent work."""
    connection = http.client.HTTPConnection(HOST, node.http_port, timeout=PROBE_TIMEOUT_S)
    if speaks_tls():  # as the kubelet does, it looks and trusts nothing that it is told
        connection = http.client.HTTPSConnection(
            HOST,
            node.http_port,
            timeout=PROBE_TIMEOUT_S,
            context=ssl._create_unverified_context(),
        )
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _listener_lines(nodes: list[DevNode]) -> Iterator[str]:
    """One for each protocol beside HTTP: where each node speaks it."""
    for name in nodes[0].listeners:
        yield f"{name} {' '.join(node.listeners[name] for node in nodes)}\n"


def _tail(log: Path) -> list[str]:
    try:
        return log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    except FileNotFoundError:
        return []


@contextmanager
def _signals() -> Iterator[Stop]:
    stop = Stop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop.ask) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def register(app: typer.Typer) -> None:
    app.command("dev")(dev)
