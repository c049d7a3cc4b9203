"""Clusters as users start them, and what their processes cost: CPU seconds and memory."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
READY_DEADLINE_S = 60.0
TICKS = os.sysconf("SC_CLK_TCK")


class DevCluster:
    """`goqueue-cli dev` on a fresh directory. Use as `with`; gone at the end."""

    def __init__(
        self, nodes: int, folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.nodes = nodes
        self.folder = folder
        self._environment = dict(environment or {})
        self.urls: list[str] = []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> DevCluster:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "cli", "dev", "--nodes", str(self.nodes)]
        command += ["--port", str(free_ports(self.nodes)), "--data", str(self.folder)]
        with self.errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment() | self._environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready "):
            said = self.errors.read_text()
            self.__exit__()
            raise RuntimeError(f"the cluster of {self.nodes} didn't start: {said}")
        self.urls = line.split()[1:]
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.errors.unlink(missing_ok=True)

    @property
    def errors(self) -> Path:
        """What `dev` says beside its ready line."""
        return self.folder.with_suffix(".errors")

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [address(url) for url in self.urls]

    def pids(self) -> list[int]:
        return [node["pid"] for node in self._listed()]

    def listeners(self, name: str) -> list[tuple[str, int]]:
        """Where each node speaks this protocol beside HTTP; none where it is not installed."""
        found = [node["listeners"].get(name) for node in self._listed()]
        return [address(one) for one in found if one is not None]

    def restart(self, number: int, how: signal.Signals) -> float:
        """End node `number`, start its command again; seconds from exec to ready."""
        self.end(number, how)
        return self.again(number)

    def end(self, number: int, how: signal.Signals) -> None:
        """Signal node `number`, and wait until it is gone."""
        pid = self._listed()[number]["pid"]
        os.kill(pid, how)
        while alive(pid):
            time.sleep(0.01)

    def data(self, number: int) -> Path:
        """The data directory of node `number`."""
        return self.folder / f"node-{number + 1}" / "data"

    def again(self, number: int) -> float:
        """Start the command of node `number`, which has ended; seconds from exec to ready."""
        node = self._listed()[number]
        with (self.folder / "restart.log").open("ab") as log:
            began_s = time.monotonic()
            process = subprocess.Popen(
                node["command"],
                env=environment() | self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_ready(node["url"], process)
        seconds = time.monotonic() - began_s
        while self._listed()[number]["pid"] != process.pid:
            time.sleep(0.05)
        return seconds

    def _listed(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.folder / "cluster.json").read_text())[
            "nodes"
        ]
        return found


def environment() -> dict[str, str]:
    """Ours, but servers may keep the bytecode of their modules, as an installed one does."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)


def wait_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_DEADLINE_S
    said = "nothing"
    while time.monotonic() < deadline and process.poll() is None:
        connection = http.client.HTTPConnection(*address(url), timeout=1)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            if answer.status == 200:
                return
            said = answer.read().decode(errors="replace")
        connection.close()
        time.sleep(0.005)
    raise RuntimeError(f"{url} isn't ready after {READY_DEADLINE_S:.0f} s, or ended: {said}")


def free_ports(count: int) -> int:
    """The first of `count` neighbouring ports that are free now, below the ephemeral range."""
    for first in range(18_000 + os.getpid() % 1000, 32_000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise RuntimeError("no free ports")


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time of the processes and all their threads, so far."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def memory_bytes(pid: int, name: str) -> int:
    """A line of /proc/PID/status, such as VmRSS or RssAnon."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(") ")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        found.append(queue.pop())
        queue += children.get(found[-1], [])
    return found
