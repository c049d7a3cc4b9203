"""A node under a flood: how much memory it took, and whether an honest client was served.

The flood's connections come from addresses of their own on loopback, and its keys are its own, as
budgets go by key and by address. Nothing here judges time.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from tests.cluster.processes import HOST, Answer, Cluster, eventually, tail

MIB = 1 << 20
GROWN_MAX = 256 * MIB
"""What a flood may cost a node, whatever it is."""
ANSWERED_S = 120.0
HONEST, HONEST_ADDRESS = "honest.orders", "127.0.0.9"
FLOODED = "flood.orders"
RECEIVED_BYTES = 4096
"""What the system takes of an answer that a client does not read."""


class Door:
    """Where clients of a node come in."""

    def __init__(self, port: int, trust: ssl.SSLContext | None = None) -> None:
        self.port = port
        self.trust = trust

    def connect(self, source: str = HOST, *, receives: int = 0) -> socket.socket:
        """Raises OSError where nobody lets it in."""
        raw = socket.socket()
        try:
            raw.settimeout(ANSWERED_S)
            if receives:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
            raw.bind((source, 0))
            raw.connect((HOST, self.port))
            if self.trust is None:
                return raw
            return self.trust.wrap_socket(raw, server_hostname="localhost")
        except OSError:
            raw.close()
            raise

    def link(self, source: str = HOST) -> http.client.HTTPConnection:
        link = http.client.HTTPConnection(HOST, self.port, timeout=ANSWERED_S)
        link.sock = self.connect(source)
        return link

    def ask(
        self, method: str, path: str, body: object = None, *, key: str = "", source: str = HOST
    ) -> Answer:
        with contextlib.closing(self.link(source)) as link:
            return ask(link, method, path, body, key)


def ask(link: http.client.HTTPConnection, method: str, path: str, body: object, key: str) -> Answer:
    headers = {"Content-Type": "application/json"} | ({"X-API-Key": key} if key else {})
    payload = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    link.request(method, path, body=payload, headers=headers)
    answer = link.getresponse()
    told = {name.lower(): value for name, value in answer.getheaders()}
    return Answer(answer.status, told, answer.read())


class Honest:
    """Somebody else's client: publishes one message after the other, on a connection that it keeps
    and on new ones by turns. A context, at whose end every one must have been acknowledged."""

    def __init__(self, door: Door, key: str) -> None:
        self._door, self._key = door, key
        self._thread = threading.Thread(target=self._run, name="honest")
        self._is_over = threading.Event()
        self.acked = 0
        self.failed: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self.goes_on(2)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(2 * ANSWERED_S)
        assert self.failed == []

    def goes_on(self, count: int = 20) -> None:
        """So many more are acknowledged, all begun after this."""
        target = self.acked + 1 + count
        eventually(
            lambda: f"{target} acknowledged, not only {self.acked}",
            lambda: self.acked >= target or self.failed,
            deadline_s=4 * ANSWERED_S,
        )

    def _run(self) -> None:
        kept = None
        while not self._is_over.is_set() and not self.failed:
            try:
                kept = kept or self._door.link(HONEST_ADDRESS)
                self._publish(kept)
                with contextlib.closing(self._door.link(HONEST_ADDRESS)) as new:
                    self._publish(new)
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(repr(error))
        if kept is not None:
            kept.close()

    def _publish(self, link: http.client.HTTPConnection) -> None:
        body = {"messages": [{"value": f"honest {self.acked}"}]}
        answer = ask(link, "POST", f"/topics/{HONEST}/messages", body, self._key)
        if answer.status == 200 and "error" not in answer.body["results"][0]:
            self.acked += 1
        else:
            self.failed.append(f"{answer.status} {answer.content[:300]!r}")


class Flooded:
    """One node with keys. A context: leaves no process and no connection behind."""

    def __init__(self, cluster: Cluster, door: Door, admin: str) -> None:
        self.cluster, self.door = cluster, door
        self._admin = admin
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.cluster[0].start()
        eventually(lambda: f"it serves; its log ends:\n{tail(self.cluster[0].log)}", self._serves)
        for topic in (HONEST, FLOODED):
            made = self.door.ask(
                "POST", "/topics", {"name": topic, "partitions": 1}, key=self._admin
            )
            assert made.status == 201, made.content
        self.honest = Honest(self.door, self.key("producer", "honest."))
        with self.honest:
            self.honest.goes_on(5)
        self.honest = Honest(self.door, self.key("producer", "honest."))
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        self._before = self._memory("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()
        self.cluster.__exit__()

    @property
    def pid(self) -> int:
        process = self.cluster[0].process
        assert process is not None
        return process.pid

    def key(self, role: str, *prefixes: str) -> str:
        """A new one, with its secret."""
        body = {"role": role, "prefixes": list(prefixes)}
        made = self.door.ask("POST", "/admin/keys", body, key=self._admin)
        assert made.status == 201, made.content
        return str(made.body["key"])

    def hold(self, source: str, *, receives: int = 0) -> socket.socket:
        """A connection that is open until the test is over."""
        return self._held.enter_context(self.door.connect(source, receives=receives))

    def send(self, source: str, content: bytes, *, receives: int = 0) -> socket.socket | None:
        """A connection as `hold` makes it, with that sent; None where it was refused before."""
        try:
            made = self.hold(source, receives=receives)
            made.sendall(content)
        except OSError:
            return None
        return made

    @contextlib.contextmanager
    def judged(self) -> Iterator[Honest]:
        """What happens in the block kills no node, takes no memory and keeps nobody else away."""
        with self.honest as honest:
            yield honest
            honest.goes_on()
        grown = self._memory("VmHWM") - self._before
        assert self.cluster[0].is_running(), tail(self.cluster[0].log)
        assert grown <= GROWN_MAX, f"{grown >> 20} MiB more than before"

    def metric(self, name: str) -> Counter[tuple[str, ...]]:
        """Its series by their labels' values."""
        text = self.door.ask("GET", "/metrics", key=self._admin).content.decode()
        found: Counter[tuple[str, ...]] = Counter()
        for line in text.splitlines():
            told, _, labels = line.partition(" ")[0].partition("{")
            if told == name:
                values = tuple(one.split('"')[1] for one in labels.split(",") if '"' in one)
                found[values] += float(line.rsplit(" ", 1)[1])
        return found

    def _serves(self) -> bool:
        node = self.cluster[0]
        assert node.is_running(), tail(node.log)
        try:
            return self.door.ask("GET", "/readyz").status == 200
        except (OSError, http.client.HTTPException):
            return False

    def _memory(self, name: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1]) * 1024


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What each returned, or the OSError that it raised: one thread each."""
    found: list[Any] = [None] * count

    def run(number: int) -> None:
        try:
            found[number] = work(number)
        except (OSError, http.client.HTTPException) as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def head(method: str, path: str, key: str = "", *fields: str) -> bytes:
    """Of a request, with its last line."""
    own = (f"X-API-Key: {key}",) if key else ()
    return "\r\n".join(
        [f"{method} {path} HTTP/1.1", "Host: localhost", *own, *fields, "", ""]
    ).encode()


def addresses(count: int, net: int) -> Sequence[str]:
    return [f"127.0.{net}.{number + 1}" for number in range(count)]
