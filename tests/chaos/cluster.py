"""A development cluster of real processes: started by the command line, killed and restarted here.

Everything is learned from `DIR/cluster.json` and over HTTP. Only processes named there or started
here are signalled, by their pid.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.ports import neighbouring_ports

ROOT = Path(__file__).resolve().parents[2]
GUARD = Path(__file__).resolve().parent / "guard"
READY_S = 60.0
STOP_S = 20.0
GONE_S = 20.0


def environment() -> dict[str, str]:
    """Of a node: no setting of ours, and the guard that ends a process which uses pickle."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("GOQUEUE_")}
    return own | {"PYTHONPATH": os.pathsep.join([str(GUARD), *_python_path()])}


def _python_path() -> list[str]:
    return [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]


class ClusterError(Exception):
    """The cluster can't be started, or does not do what it must to go on."""


class Process(Protocol):
    """What is done with a node's process; exit codes are those of `subprocess`."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> Any: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


@dataclass
class Node:
    """One node's process, as cluster.json tells it, or as it was restarted here."""

    id: str
    url: str
    command: list[str]
    pid: int
    process: Process | None = None
    is_running: bool = True

    def kill(self) -> None:
        """kill -9. Raises ProcessLookupError when it has died by itself."""
        self.is_running = False
        os.kill(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM. Raises ProcessLookupError when it has died by itself."""
        self.is_running = False
        os.kill(self.pid, signal.SIGTERM)

    async def gone(self) -> None:
        """Return once the system has taken the process away."""
        async with asyncio.timeout(GONE_S):
            while self._exists():  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.005)

    def _exists(self) -> bool:
        if self.process is not None:
            return self.process.poll() is None
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] != "Z"


class Cluster:
    """`goqueue-cli dev` and its nodes."""

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        self.folder = folder
        self.size = nodes
        self.nodes: list[Node] = []
        self._dev: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Return when the ready line is there. Raises ClusterError with what was said instead."""
        self.folder.mkdir(parents=True, exist_ok=True)
        said = self.folder / "dev.log"
        with said.open("ab") as errors:
            self._dev = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "cli", "dev"),
                *("--nodes", str(self.size), "--port", str(neighbouring_ports(self.size))),
                *("--data", str(self.folder / "data")),
                cwd=ROOT,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert self._dev.stdout is not None
        try:
            line = await asyncio.wait_for(self._dev.stdout.readline(), READY_S)
        except TimeoutError:
            line = b""
        if not line.startswith(b"ready "):
            raise ClusterError(f"no ready line; it said:\n{said.read_text()[-4000:]}")
        self._read_nodes()

    async def stop(self) -> None:
        """Stop everything, by force after a while."""
        dev = self._dev
        if dev is not None and dev.returncode is None:
            dev.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(dev.wait(), STOP_S)
            except TimeoutError:
                dev.kill()
                await dev.wait()
        for node in self.nodes:
            if node.process is not None:
                if node.process.poll() is None:
                    node.process.kill()
                node.process.wait()

    def restart(self, node: Node) -> None:
        """Start the node again, with the command that cluster.json names."""
        with (self.folder / f"{node.id}.restarted.log").open("ab") as output:
            node.process = subprocess.Popen(
                node.command,
                cwd=ROOT,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        node.pid = node.process.pid
        node.is_running = True

    def node(self, id: str) -> Node:
        return next(node for node in self.nodes if node.id == id)

    def running(self) -> list[Node]:
        return [node for node in self.nodes if node.is_running]

    def _read_nodes(self) -> None:
        told = json.loads((self.folder / "data" / "cluster.json").read_text())["nodes"]
        self.nodes = [Node(n["id"], n["url"], list(n["command"]), int(n["pid"])) for n in told]
        if len(self.nodes) != self.size:
            raise ClusterError(f"cluster.json names {len(self.nodes)} nodes, not {self.size}")
