"""A broker in memory behind the real HTTP front, and a way to run commands against it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import msgspec
import pytest
import typer.testing
from typer.testing import CliRunner, Result

from cli.main import app
from node.http.fake.broker import FakeBroker
from node.http.fake.keys import FakeKeys
from node.http.server.app import Entrance, HttpFront

T0_MS = 1_736_937_000_000  # 2025-01-15T10:30:00Z


class Clock:
    """Wall time that moves when told to."""

    def __init__(self) -> None:
        self.ms = T0_MS

    def __call__(self) -> int:
        return self.ms


class Shell:
    """Runs `goqueue-cli` in this process, in a pipe, or as on a terminal (`-o table`)."""

    def __init__(self, url: str, broker: FakeBroker, clock: Clock) -> None:
        self.url = url
        self.broker = broker
        self.clock = clock

    def run(self, *words: str, stdin: bytes = b"", server: str | None = None) -> Result:
        arguments = ["--server", server or self.url, *words]
        result = CliRunner().invoke(app, arguments, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def ok(self, *words: str, stdin: bytes = b"") -> str:
        """Standard output of a command that must succeed."""
        result = self.run(*words, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def post(self, path: str, **body: object) -> dict[str, Any]:
        """The answer of the server itself."""
        request = Request(self.url + path, msgspec.json.encode(body), method="POST")
        request.add_header("Content-Type", "application/json")
        with urlopen(request, timeout=30) as answer:
            found: dict[str, Any] = msgspec.json.decode(answer.read())
        return found

    def join(self, group: str, topic: str, client_id: str = "worker", **body: object) -> str:
        """A member of the group, which is never heard of again by itself."""
        path = f"/v1/groups/{group}/join"
        found = self.post(
            path, client_id=client_id, topics=[topic], wait="0s", lets_go=True, **body
        )
        return str(found["member_id"])

    def beat(self, group: str, member: str) -> None:
        """The member's sign of life; it lets go of what it is asked to."""
        path = f"/v1/groups/{group}/heartbeat"
        revoking = self.post(path, member_id=member)["revoking"]
        self.post(path, member_id=member, let_go=revoking)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Shell]:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("GOQUEUE_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("GOQUEUE_SERVER", "GOQUEUE_CONTEXT", "GOQUEUE_TIMEOUT", "GOQUEUE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    clock = Clock()
    broker = FakeBroker(clock_ms=clock)
    loop = asyncio.new_event_loop()
    workers = ThreadPoolExecutor(1)
    front = HttpFront(broker, port=0, entrance=Entrance(keys=FakeKeys(clock, workers)))
    loop.run_until_complete(front.start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield Shell(f"http://127.0.0.1:{front.port}", broker, clock)
    finally:
        asyncio.run_coroutine_threadsafe(front.stop(), loop).result(timeout=30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        workers.shutdown()


@pytest.fixture
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input and output look like a terminal."""
    stream = typer.testing._NamedTextIOWrapper
    monkeypatch.setattr(stream, "isatty", lambda _self: True, raising=False)
