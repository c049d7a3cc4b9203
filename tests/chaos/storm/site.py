"""Nodes as processes on this machine's ground, each with a network and a disk of its own if it can.

Without root they share the loopback, and each node dials each other one through a slow line, which
stands in for the network's faults; their disks are plain directories.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.cluster import ROOT, Cluster, ClusterError, Node, environment
from tests.chaos.shim import Shim
from tests.chaos.storm import ground
from tests.chaos.storm.cradle import Cradle
from tests.chaos.storm.disks import Disk
from tests.chaos.storm.network import HTTP_PORT, LISTENERS_PORT, PEER_PORT, Network
from tests.chaos.storm.slow_line import SlowLine
from tests.ports import neighbouring_ports

SERVE = (sys.executable, "-m", "cli.serve")
_STOPS_S = 30.0


@dataclass(frozen=True, slots=True)
class Abilities:
    """What is missing for each kind of ground, and why; None where it is there."""

    networks: str | None
    disks: str | None
    shim: str | None

    @classmethod
    def here(cls) -> Abilities:
        return cls(
            ground.missing_for_networks(), ground.missing_for_disks(), ground.missing_for_shim()
        )

    @classmethod
    def loopback(cls) -> Abilities:
        """What there is without root."""
        return cls("not root", "not root", ground.missing_for_shim())


@dataclass
class StormNode(Node):
    """One node's process and what it stands on."""

    number: int = 0
    peer: tuple[str, int] = ("", 0)
    folder: Path = Path()
    listeners: dict[str, int] = field(default_factory=dict[str, int])
    """Ports of protocols beside HTTP."""
    disk: Disk | None = None
    shim: Shim | None = None
    cradle: Cradle | None = None

    @property
    def data(self) -> Path:
        return (self.disk.path if self.disk is not None else self.folder) / "data"

    @property
    def log(self) -> Path:
        return self.folder / "node.log"

    @property
    def is_there(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def end(self) -> None:
        """By force, where it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def is_paused(self) -> bool:
        stat = Path(f"/proc/{self.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    async def ended(self, within_s: float = _STOPS_S) -> int | None:
        """Its exit code once it has ended, or None when it has not by then."""
        assert self.process is not None
        deadline = time.monotonic() + within_s
        while (code := self.process.poll()) is None and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        if code is not None:
            self.is_running = False
        return code

    def tail(self, lines: int = 6) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


class Site(Cluster):
    """From `start()` to `stop()`, which leaves no process, namespace, mount or loop device."""

    def __init__(
        self,
        folder: Path,
        nodes: int,
        abilities: Abilities,
        rng: random.Random,
        protocols: Sequence[str] = (),
    ) -> None:
        """`protocols`: what the nodes listen for beside HTTP."""
        super().__init__(folder, nodes)
        self.members: list[StormNode] = []
        """The same as `nodes`."""
        self.abilities = abilities
        self.rng = rng
        self.network = Network() if abilities.networks is None else None
        self.lines: dict[tuple[int, int], SlowLine] = {}
        self._protocols = list(protocols)
        self._secret = folder / "secret"
        self._last = 0
        """The highest number that a node had: no name is given twice."""

    async def start(self) -> None:
        """Every node's process runs. Raises CommandFailed, ClusterError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._secret.write_text("the secret of a storm, which nobody guesses\n")
        if self.network is not None:
            self.network.open()
        for number in range(1, self.size + 1):
            self._make(number)
        for node in self.members:
            node.command = await self._command(node, self.members)
            self._open_cradle(node)
        for node in self.members:
            await self._bear(node)

    async def stop(self) -> None:
        for node in self.members:
            with contextlib.suppress(ClusterError):
                node.end()
        for line in self.lines.values():
            await line.stop()
        with contextlib.ExitStack() as all_of_it:
            if self.network is not None:
                all_of_it.callback(self.network.close)
            for node in self.members:
                all_of_it.callback(self._close, node)

    async def add(self) -> StormNode:
        """Another node, with an empty disk; it runs."""
        node = self._make(self._last + 1)
        node.command = await self._command(node, self.others(node))
        self._open_cradle(node)
        await self._bear(node)
        return node

    def wipe(self, node: StormNode) -> None:
        """All that a node that does not run has ever stored is gone."""
        shutil.rmtree(node.data, ignore_errors=True)

    async def remove(self, node: StormNode) -> None:
        """It is stopped, and is no part of this any more; its log stays."""
        if node.is_there:
            node.stop()
            await node.ended()
        if node.is_there:
            node.kill()
            await node.ended()
        self.nodes.remove(node)
        self.members.remove(node)
        self._close(node)
        if self.network is not None:
            self.network.remove(node.number)

    def restart(self, node: Node) -> None:
        assert isinstance(node, StormNode) and not node.is_there
        assert node.cradle is not None
        node.process = node.cradle.bear(node.command[len(SERVE) :])
        node.pid = node.process.pid
        node.is_running = True

    def others(self, node: StormNode) -> list[StormNode]:
        return [other for other in self.members if other is not node]

    def storm_node(self, id: str) -> StormNode:
        return next(node for node in self.members if node.id == id)

    def lines_of(self, node: StormNode) -> list[SlowLine]:
        """On the loopback: the lines from and to a node."""
        return [line for ends, line in self.lines.items() if node.number in ends]

    def _make(self, number: int) -> StormNode:
        self._last = number
        name = f"node-{number}"
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        if self.network is not None:
            address = self.network.add(number)
            http, peer, first = (address, HTTP_PORT), (address, PEER_PORT), LISTENERS_PORT
        else:
            first = neighbouring_ports(2 + len(self._protocols))
            http, peer = ("127.0.0.1", first), ("127.0.0.1", first + 1)
            first += 2
        node = StormNode(name, f"http://{http[0]}:{http[1]}", [], 0, None, False, number, peer)
        node.folder = folder
        node.listeners = {name: first + at for at, name in enumerate(self._protocols)}
        self.nodes.append(node)
        self.members.append(node)
        if self.abilities.disks is None:
            node.disk = Disk(name)
            node.disk.open()
        if self.abilities.shim is None:
            node.shim = Shim(folder / "faults")
        return node

    def _open_cradle(self, node: StormNode) -> None:
        env = environment()
        env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], str(ROOT), str(ROOT / "client")])
        if node.shim is not None:
            env |= node.shim.environment()
        prefix = self.network.command(node.number, []) if self.network is not None else []
        node.cradle = Cradle(prefix, env, node.log)
        node.cradle.open()

    async def _bear(self, node: StormNode) -> None:
        """Its first process."""
        assert node.cradle is not None
        await asyncio.to_thread(node.cradle.until_ready)
        self.restart(node)

    def _close(self, node: StormNode) -> None:
        if node.cradle is not None:
            node.cradle.close()
        if node.shim is not None:
            node.shim.close()
        if node.disk is not None:
            node.disk.close()

    async def _command(self, node: StormNode, peers: Sequence[StormNode]) -> list[str]:
        http = node.url.removeprefix("http://")
        command = [*SERVE, "--node-id", node.id]
        command += ["--data", str(node.data), "--http", http]
        command += ["--peer-listen", f"{node.peer[0]}:{node.peer[1]}"]
        command += ["--secret-file", str(self._secret), "--insecure-open"]
        if self._protocols:
            command += ["--set", "cluster.autoFinish=true"]
        for name, listens in node.listeners.items():
            command += ["--set", f"listeners.{name}.enabled=true"]
            command += ["--set", f"listeners.{name}.port={listens}"]
        for peer in peers:
            host, port = await self._way(node, peer)
            command += ["--peer", f"{peer.id}={host}:{port}"]
        return command

    async def _way(self, node: StormNode, peer: StormNode) -> tuple[str, int]:
        """By which address a node dials a peer: on the loopback, a line of these two's own."""
        if self.network is not None or node is peer:
            return peer.peer
        line = self.lines.get((node.number, peer.number))
        if line is None:
            line = SlowLine("127.0.0.1", peer.peer, self.rng)
            await line.start()
            self.lines[node.number, peer.number] = line
        return "127.0.0.1", line.port
