"""A real node in a thread, and a way to run commands against it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import Request, urlopen

import msgspec
import pytest
import structlog
import typer.testing
from typer.testing import CliRunner, Result

from cli.main import app
from node.assembly import NodeAssembly
from tests.one_node import DEADLINE_S, Clock, TimedLoop, one_node

T0_MS = 1_736_937_000_000  # 2025-01-15T10:30:00Z

Found = TypeVar("Found")


class Shell:
    """Runs `goqueue-cli` in this process, in a pipe, or as on a terminal (`-o table`)."""

    def __init__(self, node: NodeAssembly, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self.url = f"http://127.0.0.1:{node.front.port}"
        self.node = node
        self.broker = node.broker
        self.clock = clock
        self.loop = loop

    def wait(self, work: Coroutine[Any, Any, Found]) -> Found:
        """What comes of it, in the node's thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=30)

    def passes(self, passed_ms: int) -> None:
        """Time goes by for the node, and for members that are silent meanwhile."""
        self.wait(self.clock.pass_ms(passed_ms))

    def until(self, ask: Callable[[], Found], holds: Callable[[Found], object]) -> Found:
        """Asks again and again; the first answer for which it holds. Fails after the deadline."""
        ends_s = time.monotonic() + DEADLINE_S
        while not holds(found := ask()):
            assert time.monotonic() < ends_s, found
            time.sleep(0.005)
        return found

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
    logging = structlog.get_config()["logger_factory"]
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("GOQUEUE_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("GOQUEUE_SERVER", "GOQUEUE_CONTEXT", "GOQUEUE_TIMEOUT", "GOQUEUE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # not to commands' output
    loop = TimedLoop()
    clock = Clock(T0_MS, loop)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def wait(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(timeout=30)

    stack = AsyncExitStack()
    try:
        started = one_node(clock, None, **{"broker.autoCreateTopics": True})
        node = wait(stack.enter_async_context(started))
        yield Shell(node, clock, loop)
    finally:
        wait(stack.aclose())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        structlog.configure(logger_factory=logging)


@pytest.fixture
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input and output look like a terminal."""
    stream = typer.testing._NamedTextIOWrapper
    monkeypatch.setattr(stream, "isatty", lambda _self: True, raising=False)
