"""`goqueue-cli dev`: real processes, with a stub in the place of the node."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from cli.local import layout
from cli.local.layout import listeners_here, listeners_missing

ROOT = Path(__file__).resolve().parents[4]
STUB = Path(__file__).with_name("stub_node.py")
DEADLINE_S = 20.0
DEV = f"""
import sys
from cli.local import layout
layout.SERVE = (sys.executable, "-S", {str(STUB)!r})
from cli.main import main
main()
"""


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


class Dev:
    """One run of `goqueue-cli dev` on a directory."""

    def __init__(self, data: Path, port: int, *words: str) -> None:
        self.data = data
        self.errors = data.with_suffix(".stderr")
        command = [sys.executable, "-c", DEV, "dev", "--data", str(data), "--port", str(port)]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*command, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def ready(self) -> str:
        assert self.process.stdout is not None
        line: str = self.process.stdout.readline()
        assert line, self.errors.read_text()
        return line

    def console(self) -> str:
        """The line after the first one."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def nodes(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = json.loads((self.data / "cluster.json").read_text())["nodes"]
        return nodes

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit status and what else was printed."""
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, rest


@pytest.fixture
def port() -> int:
    """The first of three ports that are free now."""
    for candidate in range(12_000 + os.getpid() % 4000, 19_000, 3):
        with suppress(OSError):
            for number in range(candidate, candidate + 3):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
            return candidate
    raise AssertionError("no free ports")


@pytest.fixture
def start(tmp_path: Path, port: int) -> Iterator[Callable[..., Dev]]:
    started: list[Dev] = []

    def start(*words: str) -> Dev:
        started.append(Dev(tmp_path / "data", port, *words))
        return started[-1]

    yield start
    for dev in started:
        with suppress(FileNotFoundError):
            for node in dev.nodes():
                if node["pid"]:
                    with suppress(ProcessLookupError):
                        os.kill(node["pid"], signal.SIGKILL)
        dev.process.kill()
        dev.process.communicate()


def test_it_tells_when_all_nodes_serve_and_where_the_console_is(
    start: Callable[..., Dev], port: int
) -> None:
    dev = start("--nodes", "3")

    assert (
        dev.ready()
        == "ready "
        + " ".join(f"http://127.0.0.1:{number}" for number in range(port, port + 3))
        + "\n"
    )
    assert dev.console() == f"console http://127.0.0.1:{port}/ui\n"
    for name in listeners_here():
        told = dev.console().split()
        assert told == [name, *(node["listeners"][name] for node in dev.nodes())]
        assert f"listeners.{name}.enabled=true" in dev.nodes()[0]["command"]
    pids = [node["pid"] for node in dev.nodes()]
    assert all(alive(pid) for pid in pids)
    assert stat.S_IMODE((dev.data / "secret").stat().st_mode) == 0o600

    assert dev.stop() == (0, "")
    assert dev.errors.read_text().count("pip install 'goqueue-server[") == len(listeners_missing())
    assert not any(alive(pid) for pid in pids)
    assert [node["pid"] for node in dev.nodes()] == [None, None, None]


def test_a_directory_keeps_its_ports_and_its_size(start: Callable[..., Dev]) -> None:
    first = start("--nodes", "3")
    first.ready()
    before = [
        (node["id"], node["peer"], node["listeners"], node["command"]) for node in first.nodes()
    ]
    secret = (first.data / "secret").read_text()
    first.stop(signal.SIGINT)

    again = start()
    again.ready()
    assert [
        (node["id"], node["peer"], node["listeners"], node["command"]) for node in again.nodes()
    ] == before
    assert (again.data / "secret").read_text() == secret
    again.stop()

    other = start("--nodes", "1")
    assert other.process.wait(DEADLINE_S) == 2
    assert other.errors.read_text().splitlines() == [
        f"Error: {other.data} holds a cluster of 3 nodes, not 1",
        "Hint: start it with --nodes 3, or choose another directory with --data",
    ]


def test_a_killed_node_is_told_of_and_the_one_started_in_its_place_is_found(
    start: Callable[..., Dev],
) -> None:
    dev = start("--nodes", "3")
    dev.ready()
    for _ in ("console", *listeners_here()):
        dev.console()
    victim = dev.nodes()[1]

    os.kill(victim["pid"], signal.SIGKILL)
    eventually(lambda: dev.nodes()[1]["pid"] is None)
    assert dev.errors.read_text() == (
        f"node-2 was killed by SIGKILL; start it again by its command in {dev.data}/cluster.json\n"
    )

    with subprocess.Popen(victim["command"]) as again:
        eventually(lambda: dev.nodes()[1]["pid"] == again.pid)
        assert dev.errors.read_text().endswith(f"node-2 runs again as process {again.pid}\n")

        assert dev.stop() == (0, "")
        assert again.wait(DEADLINE_S) == -signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
def test_nodes_die_with_a_dev_that_is_killed(start: Callable[..., Dev]) -> None:
    dev = start("--nodes", "2")
    dev.ready()
    pids = [node["pid"] for node in dev.nodes()]

    dev.stop(signal.SIGKILL)

    eventually(lambda: not any(alive(pid) for pid in pids))


def test_a_busy_port_is_named_with_the_option_that_changes_it(
    start: Callable[..., Dev], port: int
) -> None:
    with socket.create_server(("127.0.0.1", port + 1)):
        dev = start("--nodes", "3")
        assert dev.process.wait(DEADLINE_S) == 1

    assert dev.errors.read_text().splitlines() == [
        f"Error: port {port + 1} is in use on 127.0.0.1",
        "Hint: choose another with --port N, or make run PORT=N (3 in a row from it must be free)",
    ]
    assert not dev.data.exists()


def test_a_second_dev_on_a_directory_is_refused(start: Callable[..., Dev]) -> None:
    first = start("--nodes", "1")
    first.ready()

    second = start("--nodes", "1")

    assert second.process.wait(DEADLINE_S) == 1
    assert second.errors.read_text().startswith(
        f"Error: {first.data} is in use by another `goqueue-cli dev` (pid {first.process.pid})\n"
    )


def test_a_node_that_ends_at_the_start_is_shown_with_its_log(start: Callable[..., Dev]) -> None:
    first = start("--nodes", "1")
    (first.data / "node-1/data").mkdir(parents=True, exist_ok=True)
    first.ready()
    first.stop()
    (first.data / "node-1/data/broken").touch()

    dev = start()

    assert dev.process.wait(DEADLINE_S) == 4
    shown = dev.errors.read_text()
    assert "node-1: 2025-01-15T10:30:00Z [error    ] the data is damaged\n" in shown
    assert "Error: node-1 ended; the end of its log:\n" in shown
    assert shown.endswith(f"Hint: the whole log is {dev.data}/node-1/node.log\n")


def test_no_two_ports_of_a_cluster_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes that chose for themselves had one port twice in one of 150 clusters."""
    first, nodes = 20_000, 3
    each = 1 + len(listeners_here())
    monkeypatch.setattr(layout, "PEER_PORTS", range(first, first + nodes + nodes * each))
    monkeypatch.setattr(layout, "_is_free", lambda _port: True)

    with closing(layout.ClusterDirectory.open(tmp_path / "data", nodes, first)) as directory:
        chosen = [
            port
            for node in directory.nodes
            for port in (node.peer_port, *node.listener_ports.values())
        ]
    assert sorted(chosen) == list(range(first + nodes, first + nodes + nodes * each))
