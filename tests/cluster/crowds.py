"""Crowds at each listener: 10,000 idle connections, then 1,000 hostile ones beside them.

`python -m tests.cluster.crowds` starts a node for each of Redis' protocol, HTTP/2 and gRPC. Half of
the idle ones never say a word, half are greeted first. The hostile ones begin a command or a frame
and fall silent, send what is no protocol, send a byte now and then, announce sizes that nobody has,
or ask on and on and read no answer. All that time one client that behaves publishes, on
a connection that it keeps, and now and then on a new one. The node must live, its memory
must stay bounded, and that client must be served.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from h2.connection import H2Connection

from tests.cluster.processes import HOST, Cluster, eventually, tail
from tests.ports import free_ports
from tests.protocols.client import Client, Door, Line
from tests.protocols.duplex import DuplexClient
from tests.protocols.redis_py import RedisPy
from tests.protocols.stubs import Stubs

IDLE, HOSTILE = 10_000, 1_000
ADDRESSES = 10
"""Of a crowd: one address may have 4,096 connections."""
SERVED_MIN = 20
"""Publishes of the client that behaves, while a crowd is there."""
HOLD_S = 15.0
SERVED_S = 120.0
PAUSE_S = 0.05
NEW_EACH = 10
"""Of so many publishes one is by a client that has just come."""
MIB = 1 << 20
GROWN_MAX = 512 * MIB
TOPIC = "orders"
LISTENERS: dict[str, type[Client]] = {"redis": RedisPy, "h2": DuplexClient, "grpc": Stubs}

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
"""An empty frame of that kind."""
HUGE_FRAME = b"\xff\xff\xff\0\0\0\0\0\1" + b"x" * 100
OPEN_HEADERS = b"\0\0\1\1\0\0\0\0\1\x82"
"""HEADERS that CONTINUATION never follows."""


def _asked() -> bytes:
    """A client of HTTP/2 that takes no byte of an answer, and asks."""
    client = H2Connection()
    client.initiate_connection()
    for stream in range(1, 100, 2):
        head = [(":method", "POST"), (":scheme", "http"), (":authority", "n"), (":path", "/x")]
        client.send_headers(stream, head)
    return client.data_to_send()


def _frames(greeting: bytes) -> Sequence[bytes]:
    return (PREFACE[:10], greeting + HUGE_FRAME, greeting + OPEN_HEADERS, greeting + b"\0\0", b"")


HTTP2 = PREFACE + SETTINGS
GREETINGS = {"redis": b"*1\r\n$4\r\nPING\r\n", "h2": HTTP2, "grpc": HTTP2}
BEGUN: dict[str, Sequence[bytes]] = {
    "redis": (
        b"*3\r\n$4\r\nXADD\r\n$3\r\nabc\r\n$10\r\nhalf",
        b"*100000000\r\n$4\r\nXADD\r\n",
        b"*2\r\n$4\r\nXADD\r\n$536870911\r\nx",
        b"SUBSCRI",
        b"*2\r\n$9\r\nSUBSCRIBE\r\n$8\r\nhostile0\r\n",
        GREETINGS["redis"] * 2000,
    ),
    "h2": (*_frames(HTTP2), _asked()),
    "grpc": (*_frames(HTTP2), _asked()),
}
"""What is begun and never ended, or asked and never read."""


@dataclass
class Seen:
    """One crowd at one listener."""

    listener: str
    crowd: str
    offered: int
    open_after: int
    grown_bytes: int
    served: int
    slowest_s: float
    failed: list[str]

    def problems(self) -> Iterator[str]:
        if self.failed:
            yield f"the client that behaves was told {self.failed[:5]}"
        if self.served < SERVED_MIN:
            yield f"it was served {self.served} times only"
        if self.grown_bytes > GROWN_MAX:
            yield f"the node has grown by {self.grown_bytes // MIB} MiB"

    def line(self) -> str:
        return (
            f"{self.listener:6} {self.crowd:8} {self.offered} offered, {self.open_after} open after"
            f" {HOLD_S:.0f} s, {self.grown_bytes // MIB} MiB more, {self.served} publishes of"
            f" another client, the slowest in {self.slowest_s:.2f} s"
        )


class Behaved:
    """Publishes one line after the other, on a thread of its own: by a client that it keeps, and
    each tenth time by a new one. A context."""

    def __init__(self, make: Callable[[], Client], door: Door) -> None:
        self._make, self._door = make, door
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="behaved")
        self.took_s: list[float] = []
        self.failed: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self.goes_on()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def goes_on(self, count: int = SERVED_MIN) -> None:
        """Return once so many more are stored, or one is not."""
        wanted = len(self.took_s) + count
        eventually(
            lambda: f"{count} more publishes, {len(self.took_s)} of {wanted}",
            lambda: len(self.took_s) >= wanted or self.failed,
            deadline_s=SERVED_S,
        )

    def _run(self) -> None:
        number, kept = 0, self._make()
        while not self._is_over.wait(PAUSE_S) and not self.failed:
            began = time.monotonic()
            client = self._make() if number % NEW_EACH == NEW_EACH - 1 else kept
            told = client.publish(self._door, [Line(number, "from one that behaves")])
            if told.stored[number]:
                self.took_s.append(time.monotonic() - began)
            else:
                who = "the one it keeps" if client is kept else "a new one"
                self.failed.append(f"by {who}: {dict(told.refused)} {told.wrong}")
            number += 1


class Crowd:
    """Connections that are held until it ends. A context."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._held: list[socket.socket] = []
        self._slow: list[tuple[socket.socket, bytes]] = []
        self._is_over = threading.Event()
        self._dripping = threading.Thread(target=self._drip, name="drips")

    def __enter__(self) -> Self:
        self._dripping.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._dripping.join()
        for one in self._held:
            # reset, not closed: ten thousand ports in TIME_WAIT would be missed by who comes next
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()

    def connect(self, number: int, net: int, said: bytes = b"", slow: bytes = b"") -> None:
        """From one of the crowd's addresses. Who is refused is counted later."""
        made = socket.socket()
        try:
            made.settimeout(20.0)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.bind((f"127.0.{net}.{1 + number % ADDRESSES}", 0))
            made.connect((HOST, self._port))
            made.setblocking(False)
            if said:
                made.send(said)
        except OSError:
            made.close()
            return
        self._held.append(made)
        if slow:
            self._slow.append((made, slow))

    def count_open(self) -> int:
        return sum(_is_open(one) for one in self._held)

    def _drip(self) -> None:
        at = 0
        while not self._is_over.wait(0.25):
            for one, said in list(self._slow):
                with contextlib.suppress(OSError):
                    one.send(said[at % len(said) : at % len(said) + 1])
            at += 1


def _is_open(one: socket.socket) -> bool:
    """Whether the node has not closed it; what it has said is thrown away."""
    try:
        while one.recv(1 << 16):
            pass
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def hostile(listener: str, number: int, rng: random.Random) -> dict[str, Any]:
    """What one of them says, at once or slowly."""
    kinds = len(BEGUN[listener]) + 2
    kind = number % kinds
    if kind == kinds - 1:
        return {"slow": GREETINGS[listener]}
    if kind == kinds - 2:
        return {"said": rng.randbytes(200)}
    return {"said": BEGUN[listener][kind]}


def run(listener: str, idle: int, hostiles: int, seed: int, folder: Path) -> list[Seen]:
    """Both crowds, at a node of its own. Raises AssertionError where the node does not live."""
    rng, port = random.Random(seed), free_ports(1)[0]
    settings = [f"listeners.{listener}.enabled=true", f"listeners.{listener}.port={port}"]
    with Cluster(folder, 1, [*settings, "cluster.autoFinish=true"]) as cluster:
        node = cluster.start()[0]
        topic = {"name": TOPIC, "num_partitions": 1}
        assert node.ask("POST", "/topics", topic).status == 201
        door = Door(HOST, node.http_port, port, port, port)
        greeting = GREETINGS[listener]
        seen = []
        assert node.process is not None
        pid = node.process.pid
        with (
            Behaved(lambda: LISTENERS[listener](TOPIC, "readers", 0), door) as client,
            Crowd(port) as held,
        ):

            def watched(crowd: str, offered: int, come: Callable[[int], None]) -> None:
                Path(f"/proc/{pid}/clear_refs").write_text("5")
                before, first = _memory(pid, "VmRSS"), len(client.took_s)
                for number in range(offered):
                    come(number)
                time.sleep(HOLD_S)
                client.goes_on()
                assert node.is_running(), tail(node.log)
                took_s = client.took_s[first:]
                grown = _memory(pid, "VmHWM") - before
                seen.append(
                    Seen(
                        *(listener, crowd, offered, held.count_open(), grown),
                        *(len(took_s), max(took_s, default=0.0), list(client.failed)),
                    )
                )

            watched("idle", idle, lambda n: held.connect(n, 3, greeting if n % 2 else b""))
            watched("hostile", hostiles, lambda n: held.connect(n, 4, **hostile(listener, n, rng)))
    return seen


def _memory(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listener", choices=[*LISTENERS, "all"], default="all")
    parser.add_argument("--idle", type=int, default=IDLE)
    parser.add_argument("--hostile", type=int, default=HOSTILE)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    failed = False
    for listener in LISTENERS if given.listener == "all" else [given.listener]:
        with tempfile.TemporaryDirectory() as folder:
            for seen in run(listener, given.idle, given.hostile, given.seed, Path(folder)):
                problems = list(seen.problems())
                print("\n  ".join([seen.line(), *problems]), flush=True)
                failed = failed or bool(problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
