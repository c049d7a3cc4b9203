"""`goqueue-cli` and the library over HTTPS: whom they trust, and what they show. Real TLS."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.local.dev import serves
from cli.local.layout import DevNode
from cli.main import app
from goqueue import Client
from goqueue.errors import BadRequest, ConnectionFailed, GoQueueError
from node.http.auth.csrf_guard import CsrfGuard
from node.http.server.app import Entrance, HttpFront
from node.security.certificates import server_context
from tests.certificates import LOOPBACK, Authority
from tests.one_node import one_node


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


class Door:
    """A front with HTTPS on a loop of its own; one that asks for certificates, or not."""

    def __init__(self, authority: Authority, *, mutual: bool) -> None:
        certificate, key = authority.issue("localhost", *LOOPBACK)
        files = (str(certificate), str(key), str(authority.path) if mutual else "")
        self.loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        node = self.loop.run_until_complete(self._stack.enter_async_context(one_node()))
        self.front = HttpFront(
            node.broker,
            port=0,
            entrance=Entrance(
                ssl_context=server_context(*files), csrf_guard=CsrfGuard(needs_certificate=mutual)
            ),
        )
        self.loop.run_until_complete(self.front.start())
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.url = f"https://localhost:{self.front.port}"

    def close(self) -> None:
        for stopping in (self.front.stop(), self._stack.aclose()):
            asyncio.run_coroutine_threadsafe(stopping, self.loop).result(timeout=30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture(params=[False])
def door(
    authority: Authority, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Door]:
    monkeypatch.setenv("GOQUEUE_CONFIG", str(authority.folder / "config.yaml"))
    for name in ("SERVER", "CONTEXT", "TIMEOUT", "API_KEY", "CA_FILE", "CERT_FILE", "KEY_FILE"):
        monkeypatch.delenv(f"GOQUEUE_{name}", raising=False)
    opened = Door(authority, mutual=request.param)
    yield opened
    opened.close()


mutual = pytest.mark.parametrize("door", [True], indirect=True)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, [*words])


def test_option_environment_and_context_each_name_the_authorities(
    door: Door, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, ca = ("--server", door.url), str(authority.path)
    assert run(*server, "--ca-file", ca, "topic", "list").exit_code == 0
    assert run("topic", "list", *server, "--ca-file", ca).exit_code == 0

    monkeypatch.chdir(authority.folder)
    set_context = run("config", "set-context", "safe", *server, "--ca-file", "ca.pem")
    monkeypatch.chdir("/")
    assert set_context.exit_code == 0
    assert run("-c", "safe", "topic", "list").exit_code == 0

    monkeypatch.setenv("GOQUEUE_CA_FILE", ca)
    assert run(*server, "topic", "list").exit_code == 0


def test_node_that_nobody_vouches_for_is_not_asked(door: Door) -> None:
    result = run("--server", door.url, "topic", "list")

    assert result.exit_code == 4
    assert "certificate" in result.output and "--ca-file" in result.output


@mutual
def test_client_certificate_is_shown(door: Door, authority: Authority) -> None:
    certificate, key = map(str, authority.issue("reader"))
    trusted = ("--server", door.url, "--ca-file", str(authority.path))

    without = run(*trusted, "topic", "list")
    shown = run(*trusted, "--cert-file", certificate, "--key-file", key, "topic", "list")

    assert without.exit_code == 1 and "certificate_required" in without.output
    assert shown.exit_code == 0, shown.output


@mutual
def test_library_takes_files_or_the_environment(
    door: Door, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = authority.issue("reader")
    with Client(door.url, ca_file=authority.path, cert_file=certificate, key_file=key) as given:
        assert given.list_topics() == []

    for name, path in (("CA", authority.path), ("CERT", certificate), ("KEY", key)):
        monkeypatch.setenv(f"GOQUEUE_{name}_FILE", str(path))
    with Client(door.url) as found:
        assert found.list_topics() == []


def test_library_trusts_the_system_s_authorities_else(door: Door) -> None:
    with Client(door.url, timeout_s=2) as client, pytest.raises(ConnectionFailed) as failed:
        client.list_topics()

    assert not failed.value.retriable, "asking again changes no certificate"


@pytest.mark.parametrize(
    "files", [{"ca_file": "nowhere"}, {"key_file": "nowhere"}, {"cert_file": __file__}]
)
def test_files_that_are_not_usable_are_named_at_once(files: dict[str, str]) -> None:
    with pytest.raises(BadRequest, match=r"nowhere|certificate"):
        Client("https://localhost:1", **files)  # type: ignore[arg-type]


def test_files_do_not_matter_to_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOQUEUE_CA_FILE", "nowhere")
    with Client("http://127.0.0.1:1", timeout_s=0.1) as client, pytest.raises(GoQueueError):
        client.list_topics()


@mutual
def test_dev_asks_nodes_with_tls_whether_they_serve(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOQUEUE_TLS_ENABLED", "true")
    node = DevNode("node-1", door.front.port, 1, Path(), [])

    assert node.url == f"https://127.0.0.1:{door.front.port}"
    assert serves(node)


def test_a_server_with_tls_that_is_asked_without_is_told(door: Door) -> None:
    result = run("--server", door.url.replace("https:", "http:"), "topic", "list")

    assert result.exit_code == 4
    assert f"the server speaks TLS; its address is {door.url}" in result.output
    assert "it may or may not have happened" not in result.output
