"""The directory of a development cluster: who its nodes are, where they listen, what starts them.

    DIR/cluster.json       {"nodes": [{"id", "pid", "url", "command", "peer", "listeners"}]}, always
                           whole; "listeners": addresses of protocols beside HTTP, by their names
    DIR/secret             the cluster secret, readable by its owner only
    DIR/lock               held by the `dev` that runs the cluster
    DIR/node-1/node.log    what the node says; node.pid: the process that serves it
    DIR/node-1/data/       the node's data directory

Ports of the peer link are chosen once and kept: below the range that systems hand to outgoing
connections, so that nobody takes one while its node is down.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import secrets
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from cli.local import processes
from cli.output.errors import EXIT_USAGE, CliError

HOST = "127.0.0.1"
SERVE = (sys.executable, "-P", "-m", __name__.replace("local.layout", "serve"))
PEER_PORTS = range(20_000, 32_000)
PEER_PORT_ATTEMPTS_MAX = 1_000
LOG_BYTES_MAX = 16 << 20


@dataclass(slots=True)
class DevNode:
    """One node of the cluster; `pid` is None while it doesn't run."""

    id: str
    http_port: int
    peer_port: int
    folder: Path
    command: list[str]
    listener_ports: dict[str, int] = field(default_factory=dict[str, int])
    """Of the protocols beside HTTP that this installation has, by name."""
    pid: int | None = None

    @property
    def url(self) -> str:
        return f"{'https' if speaks_tls() else 'http'}://{HOST}:{self.http_port}"

    @property
    def listeners(self) -> dict[str, str]:
        """Where other protocols are spoken, by name."""
        return {name: f"{HOST}:{port}" for name, port in self.listener_ports.items()}

    @property
    def log(self) -> Path:
        return self.folder / "node.log"

    @property
    def pid_file(self) -> Path:
        return self.folder / "node.pid"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def find_pid(self) -> int | None:
        """The process that serves this node's data directory now, whoever started it."""
        pid = processes.read_pid(self.pid_file)
        return pid if pid is not None and processes.runs(pid, str(self.data)) else None


def speaks_tls() -> bool:
    """Whether the nodes take HTTPS: they inherit `GOQUEUE_TLS_*`, as all of the environment."""
    return os.environ.get("GOQUEUE_TLS_ENABLED", "").lower() in ("true", "yes", "on", "1")


class ClusterDirectory:
    """Holds a cluster's directory while a `dev` runs; `open` refuses one that is in use."""

    def __init__(self, root: Path, nodes: list[DevNode], lock: IO[str]) -> None:
        self.root = root
        self.nodes = nodes
        self._lock = lock
        self._written = ""

    @property
    def secret_file(self) -> Path:
        return self.root / "secret"

    @classmethod
    def open(cls, root: Path, count: int | None, port: int) -> ClusterDirectory:
        """Take the directory, creating what is missing; nothing has been started yet.

        Raises `CliError` when another `dev` or a left-over node uses it, when it holds a cluster
        of another size, or when a port is busy.
        """
        if not root.exists():  # nothing is left behind where a port is busy
            _check_ports(port, _checked_count(root, count, 0))
        root.mkdir(parents=True, exist_ok=True)
        lock = _take_lock(root)
        try:
            known = _known_nodes(root / "cluster.json")
            count = _checked_count(root, count, len(known))
            _check_ports(port, count)
            taken = {*range(port, port + count), *_known_ports(known)}
            nodes = [_node(root, number, port, known, taken) for number in range(1, count + 1)]
            for node in nodes:
                if (pid := node.find_pid()) is not None:
                    raise CliError(
                        f"{node.id} of {root} still runs as process {pid}",
                        hint=f"stop it first: kill {pid}",
                    )
                node.folder.mkdir(exist_ok=True)
                _roll(node.log)
            directory = cls(root, nodes, lock)
            directory._make_secret()
            for node in nodes:
                node.command = directory._command(node)
        except BaseException:
            lock.close()
            raise
        return directory

    def is_new(self) -> bool:
        """Whether no node has any data yet."""
        return not any(node.data.exists() and any(node.data.iterdir()) for node in self.nodes)

    def write(self) -> None:
        """Rewrite cluster.json, atomically, when it changed."""
        listed = [
            {
                "id": node.id,
                "pid": node.pid,
                "url": node.url,
                "command": node.command,
                "peer": f"{HOST}:{node.peer_port}",
                "listeners": node.listeners,
            }
            for node in self.nodes
        ]
        text = json.dumps({"nodes": listed}, indent=2) + "\n"
        if text == self._written:
            return
        temporary = self.root / ".cluster.json.new"
        temporary.write_text(text)
        temporary.replace(self.root / "cluster.json")
        self._written = text

    def close(self) -> None:
        self._lock.close()

    def _make_secret(self) -> None:
        try:
            handle = os.open(self.secret_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(32) + "\n")

    def _command(self, node: DevNode) -> list[str]:
        command = [*SERVE]
        command += ["--node-id", node.id, "--data", str(node.data)]
        command += ["--http", f"{HOST}:{node.http_port}"]
        command += ["--peer-listen", f"{HOST}:{node.peer_port}"]
        for other in self.nodes:
            if len(self.nodes) > 1:
                command += ["--peer", f"{other.id}={HOST}:{other.peer_port}"]
        command += ["--secret-file", str(self.secret_file), "--pid-file", str(node.pid_file)]
        command += ["--auto-create-topics", "--set", "cluster.autoFinish=true"]
        for name, listens in node.listener_ports.items():
            command += ["--set", f"listeners.{name}.enabled=true"]
            command += ["--set", f"listeners.{name}.port={listens}"]
        return [*command, "--set", "logging.format=human"]


def _take_lock(root: Path) -> IO[str]:
    lock = (root / "lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        holder = lock.read().strip()
        lock.close()
        raise CliError(
            f"{root} is in use by another `goqueue-cli dev`" + (f" (pid {holder})" * bool(holder)),
            hint="choose another directory with --data, and other ports with --port",
        ) from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _known_nodes(path: Path) -> list[dict[str, Any]]:
    try:
        return list(json.loads(path.read_text())["nodes"])
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise CliError(f"{path} can't be read: {error}") from error


def _checked_count(root: Path, asked: int | None, known: int) -> int:
    if known and asked not in (None, known):
        raise CliError(
            f"{root} holds a cluster of {known} node{'s' * (known != 1)}, not {asked}",
            hint=f"start it with --nodes {known}, or choose another directory with --data",
            exit_code=EXIT_USAGE,
        )
    return known or asked or 3


def _known_ports(known: list[dict[str, Any]]) -> Iterator[int]:
    """Those that the directory's nodes have, but for HTTP's."""
    for entry in known:
        yield int(str(entry["peer"]).rpartition(":")[2])
        yield from _listener_ports(known, entry["id"]).values()


def _node(
    root: Path, number: int, port: int, known: list[dict[str, Any]], taken: set[int]
) -> DevNode:
    """With ports that are free now; those that it chooses are added to `taken`."""
    name = f"node-{number}"
    kept = [int(str(entry["peer"]).rpartition(":")[2]) for entry in known if entry["id"] == name]
    peer_port = kept[0] if kept and _is_free(kept[0]) else _free_port(taken)
    known_ports, ports = _listener_ports(known, name), dict[str, int]()
    for one in listeners_here():
        before = known_ports.get(one, 0)
        ports[one] = before if before and _is_free(before) else _free_port(taken)
    return DevNode(name, port + number - 1, peer_port, root / name, [], ports)


def _listener_ports(known: list[dict[str, Any]], node: str) -> dict[str, int]:
    """As the directory has them: clients know them."""
    return {
        name: int(str(at).rpartition(":")[2])
        for entry in known
        if entry["id"] == node
        for name, at in dict(entry.get("listeners", {})).items()
    }


def listeners_here() -> list[str]:
    """Protocols beside HTTP whose extras are installed."""
    # only here may the command line know the service, and only when asked to
    from node.config.listeners import EXTRAS, is_installed

    return [name for name in EXTRAS if is_installed(name)]


def listeners_missing() -> list[str]:
    """Protocols beside HTTP that `dev` starts without."""
    from node.config.listeners import EXTRAS, is_installed

    return [name for name in EXTRAS if not is_installed(name)]


def _check_ports(port: int, count: int) -> None:
    busy = [str(number) for number in range(port, port + count) if not _is_free(number)]
    if busy:
        needed = f"{count} in a row from it" if count > 1 else "one port"
        which = f"port {busy[0]} is" if len(busy) == 1 else f"ports {', '.join(busy)} are"
        raise CliError(
            f"{which} in use on {HOST}",
            hint=f"choose another with --port N, or make run PORT=N ({needed} must be free)",
        )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _free_port(taken: set[int]) -> int:
    for port in _candidates():
        if port not in taken and _is_free(port):
            taken.add(port)
            return port
    raise CliError(f"no free port between {PEER_PORTS[0]} and {PEER_PORTS[-1]}")


def _candidates() -> Iterator[int]:
    chance = random.SystemRandom()
    for _ in range(PEER_PORT_ATTEMPTS_MAX):
        yield chance.choice(PEER_PORTS)


def _roll(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))
