"""A cluster of real processes on loopback for tests: started, killed, restarted, asked over HTTP.

Each node is `cli.serve` with a port that was free a moment ago. Only processes
started here are ever signalled, by their pid.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.cluster.nursery import SERVE, Process, execute, fork
from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
T = TypeVar("T")


def eventually(
    what: str | Callable[[], str], condition: Callable[[], T | None], *, deadline_s: float = 60.0
) -> T:
    """The first truthy value of `condition`, asked again and again until the deadline; `what` is
    told then, and may be found out only then."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            told = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {deadline_s} s: {told}")
        time.sleep(0.02)


def stand_still(pid: int) -> None:
    """SIGSTOP, and wait until all of its threads have stopped: each may run on for a moment."""
    os.kill(pid, signal.SIGSTOP)
    eventually(f"process {pid} stands still", lambda: _states(pid) == {"T"})


def _states(pid: int) -> set[str]:
    found = set[str]()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # that thread has ended
            found.add(stat.read_text().rpartition(")")[2].split()[0])
    return found


@dataclass
class Answer:
    """An HTTP answer: JSON where it is JSON."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.content)


@dataclass
class Node:
    """One node's process. `url` serves when it is ready."""

    id: str
    http_port: int
    peer_port: int
    folder: Path
    arguments: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    """What its process finds there besides what the tests' own finds."""
    has_interpreter: bool = False
    """Started by its command, not forked; so is a node that has an environment."""
    module: str = SERVE
    """What that command runs."""
    process: Process | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.http_port}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "node.log"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        around = {k: v for k, v in os.environ.items() if not k.startswith("GOQUEUE_")}
        environment = {**around, **self.environment}
        if self.has_interpreter or self.environment:
            self.process = execute(self.arguments, environment, self.log, self.module)
        else:
            self.process = fork(self.arguments, environment, self.log)

    def kill(self) -> None:
        """kill -9, and wait until the system has taken the process away."""
        self._end(signal.SIGKILL, 10)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM, 20)

    def pause(self) -> None:
        """There, and silent."""
        assert self.process is not None
        stand_still(self.process.pid)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> Answer:
        """One request on a connection of its own. Raises OSError where nobody answers."""
        connection = http.client.HTTPConnection(HOST, self.http_port, timeout=timeout_s)
        try:
            payload = content if body is None else json.dumps(body).encode()
            sent = {"Content-Type": "application/json", **(headers or {})}
            connection.request(method, path, body=payload, headers=sent)
            answer = connection.getresponse()
            return Answer(
                answer.status,
                {name.lower(): value for name, value in answer.getheaders()},
                answer.read(),
            )
        finally:
            connection.close()

    def is_ready(self) -> bool:
        try:
            return self.ask("GET", "/readyz", timeout_s=2).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def is_up(self) -> bool:
        """Whether it is ready. Raises where its process has ended."""
        code = self.process.poll() if self.process else None
        assert code is None, f"{self.id} exited with {code}; its log ends:\n{tail(self.log)}"
        return self.is_ready()

    def _end(self, number: signal.Signals, timeout_s: float) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout_s)


class Cluster:
    """Nodes that know each other. A context: leaves no process behind."""

    def __init__(
        self, folder: Path, size: int = 3, settings: Sequence[str] = (), auto_create: bool = True
    ) -> None:
        self._folder, self._settings, self._auto_create = folder, tuple(settings), auto_create
        folder.mkdir(parents=True, exist_ok=True)
        self.secret = folder / "secret"
        self.secret.write_text("the tests' cluster secret, which nobody guesses\n")
        self.nodes: list[Node] = []
        self.nodes = self._make(size)
        for node in self.nodes:
            node.arguments = self._arguments(node, self.nodes if size > 1 else [])

    def add(self, count: int = 1, *, seeds: Sequence[Node] = ()) -> list[Node]:
        """New nodes, not started, that know only the seeds, or else all nodes there are."""
        known = list(seeds or self.nodes)
        added = self._make(count)
        for node in added:
            node.arguments = self._arguments(node, known)
        self.nodes += added
        return added

    def _make(self, count: int) -> list[Node]:
        ports = free_ports(2 * count)
        first = len(self.nodes) + 1
        return [
            Node(
                f"node-{first + number}",
                ports[2 * number],
                ports[2 * number + 1],
                self._folder / f"node-{first + number}",
            )
            for number in range(count)
        ]

    def _arguments(self, node: Node, peers: Sequence[Node]) -> list[str]:
        arguments = [
            "--node-id",
            node.id,
            "--data",
            str(node.data),
            "--http",
            f"{HOST}:{node.http_port}",
            "--peer-listen",
            f"{HOST}:{node.peer_port}",
        ]
        if self._auto_create:
            arguments += ["--auto-create-topics"]
        if peers:
            arguments += ["--secret-file", str(self.secret)]
        for peer in peers:
            arguments += ["--peer", f"{peer.id}={HOST}:{peer.peer_port}"]
        for setting in self._settings:
            arguments += ["--set", setting]
        return arguments

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            if node.is_running():
                node.kill()

    def __getitem__(self, number: int) -> Node:
        return self.nodes[number]

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.id == name)

    def start(self) -> Cluster:
        for node in self.nodes:
            node.start()
        return self.wait_until_ready()

    def wait_until_ready(self, deadline_s: float = 60.0) -> Cluster:
        """Raises where one of those that run now ends before."""
        waiting = [node for node in self.nodes if node.is_running()]

        def all_are_up() -> bool:
            waiting[:] = [node for node in waiting if not node.is_up()]
            return not waiting

        eventually(
            lambda: "\n".join(
                f"{node.id} ready; its log ends:\n{tail(node.log)}" for node in waiting
            ),
            all_are_up,
            deadline_s=deadline_s,
        )
        return self

    def kill_all(self) -> None:
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.process.send_signal(signal.SIGKILL)
        for node in self.nodes:
            if node.process is not None:
                node.process.wait(10)

    def leader(self, topic: str, partition: int = 0, *, ask: Node | None = None) -> Node:
        """The node that leads a partition, once there is one."""

        def find() -> Node | None:
            for node in [ask] if ask else self.nodes:
                if not node.is_running():
                    continue
                answer = node.ask("GET", f"/topics/{topic}/partitions")
                if answer.status != 200:
                    continue
                name = answer.body["partitions"][partition]["leader"]
                if name and self.node(name).is_running():
                    return self.node(name)
            return None

        return eventually(f"a leader of {topic}-{partition}", find)


def publish(node: Node, topic: str, messages: Sequence[dict[str, object]]) -> list[dict[str, Any]]:
    """The per-message results of one publish; every one must be acked."""
    answer = node.ask("POST", f"/topics/{topic}/messages", {"messages": list(messages)})
    assert answer.status == 200, answer.content
    results: list[dict[str, Any]] = answer.body["results"]
    assert [result for result in results if "error" in result] == []
    return results


def read_all(node: Node, topic: str, partition: int) -> list[dict[str, Any]]:
    """Every message of a partition, by following `next_offset` to the end."""
    found: list[dict[str, Any]] = []
    at = 0
    while True:
        answer = node.ask(
            "GET", f"/topics/{topic}/partitions/{partition}/messages?offset={at}&limit=1000"
        )
        assert answer.status == 200, answer.content
        if not answer.body["messages"]:
            return found
        found += answer.body["messages"]
        at = answer.body["next_offset"]


def tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""
