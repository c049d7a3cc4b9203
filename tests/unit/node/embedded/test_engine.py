"""An embedded node: what it does for its program, and what it leaves alone."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from goqueue.wire.errors import GoQueueError, Unavailable
from log.disk.files import OsDisk, SyncFailed
from node import factories
from node.embedded import engine as embedded
from node.embedded.check import DirectoryDamaged
from node.embedded.engine import DirectoryFailed, Engine, open_engine
from node.embedded.settings import embedded_config
from node.replicas.reconciler import Reconciler
from raft.apply import Apply

ROOT = Path(__file__).resolve().parents[4]
JSON = {"Content-Type": "application/json"}


class FailingDisk(OsDisk):
    """The machine's, until its syncs are to fail."""

    fails = False

    def fdatasync(self, handle: int) -> None:
        if self.fails:
            raise SyncFailed(errno.EIO, "the medium is gone")
        super().fdatasync(handle)


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "jobs")


@pytest.fixture
def engine(directory: str) -> Iterator[Engine]:
    engine = open_engine(directory)
    yield engine
    engine.close()


def publish(engine: Engine, value: str) -> int:
    body = json.dumps({"messages": [{"value": value, "partition": 0}]}).encode()
    return engine.ask("POST", "/v1/topics/orders/messages", JSON, body).result().status


def values(engine: Engine) -> list[str]:
    page = engine.ask("GET", "/v1/topics/orders/partitions/0/messages", {}).result()
    return [one["value"] for one in json.loads(page.body)["messages"]]


def test_what_was_acknowledged_is_there_when_it_is_opened_again(directory: str) -> None:
    first = open_engine(directory)
    assert publish(first, "a") == 200
    first.close()
    second = open_engine(directory)
    assert publish(second, "b") == 200

    assert values(second) == ["a", "b"]
    second.close()


def test_it_is_one_node_that_listens_nowhere(directory: str) -> None:
    before = _own_sockets()  # of what other tests have open in this process
    engine = open_engine(directory)
    publish(engine, "x")
    nodes = json.loads(engine.ask("GET", "/v1/cluster/nodes", {}).result().body)["nodes"]

    assert [(node["id"], node["http_url"]) for node in nodes] == [("node-1", f"file://{directory}")]
    assert embedded_config(directory).embedded
    listening = {line.split()[9] for line in _tcp_lines() if line.split()[3] == "0A"}
    assert not (_own_sockets() - before) & listening
    engine.close()


def test_a_second_one_is_refused_and_names_who_has_the_directory(
    engine: Engine, directory: str
) -> None:
    with pytest.raises(GoQueueError) as refused:
        open_engine(directory)

    assert refused.value.code == "directory_locked"
    assert str(os.getpid()) in refused.value.message
    assert publish(engine, "still here") == 200


def test_nothing_is_left_of_one_that_could_not_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    before = threading.active_count()

    with pytest.raises(OSError):
        open_engine(str(tmp_path / "file"))

    assert threading.active_count() == before


@pytest.mark.parametrize("late", ["the state", "the replicas"])
def test_it_is_open_once_all_is_applied_and_damage_is_told(
    directory: str, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """A busy machine gives the loop time for one entry a turn, or little for starting replicas."""
    engine = open_engine(directory)
    for number in range(3):
        assert publish(engine, f"value {number}") == 200
    engine.close()
    monkeypatch.setattr(embedded, "LOOK_S", 0.0)
    apply_some, meet = Apply._apply_some, Reconciler._round

    async def meet_late(self: Reconciler) -> float | None:
        if self._cluster.state.layout._looks:
            await asyncio.sleep(0.1)
        return await meet(self)

    monkeypatch.setattr(Apply, "_apply_some", lambda self, _until: apply_some(self, float("-inf")))
    if late == "the replicas":
        monkeypatch.setattr(Reconciler, "_round", meet_late)
    engine = open_engine(directory)
    assert values(engine) == ["value 0", "value 1", "value 2"]
    engine.close()

    segments = Path(directory).glob("groups/*/*.segment")
    (path,) = [one for one in segments if b"value 1" in one.read_bytes()]
    path.write_bytes(path.read_bytes().replace(b"value 1", b"value 7"))
    with pytest.raises(DirectoryDamaged):
        open_engine(directory)


def test_a_closed_one_says_so(directory: str) -> None:
    engine = open_engine(directory)
    engine.close()
    engine.close()

    with pytest.raises(Unavailable, match="closed"):
        engine.ask("GET", "/v1/topics", {})


def test_who_gives_up_a_wait_takes_nothing(engine: Engine) -> None:
    publish(engine, "a")
    body = json.dumps({"topic": "orders", "limit": 1}).encode()
    engine.ask("POST", "/v1/groups/workers/receive", JSON, body).result()
    waiting = json.dumps({"topic": "orders", "limit": 1, "wait": "30s"}).encode()
    given_up = engine.ask("POST", "/v1/groups/workers/receive", JSON, waiting)
    assert given_up.cancel()
    publish(engine, "b")

    received = engine.ask("POST", "/v1/groups/workers/receive", JSON, waiting).result()
    (message,) = json.loads(received.body)["messages"]
    assert (message["value"], message["attempt"]) == ("b", 1)


def test_a_failed_sync_fails_what_is_under_way_and_frees_the_directory(directory: str) -> None:
    disk = FailingDisk()
    engine = Engine(directory, disk)
    engine.open()
    assert publish(engine, "safe") == 200
    disk.fails = True

    with pytest.raises(DirectoryFailed, match="the medium is gone") as failed:
        publish(engine, "lost, or not")
    assert failed.value.outcome == "unknown"
    assert not failed.value.retriable
    with pytest.raises(DirectoryFailed):
        publish(engine, "never")
    engine.close()

    after = open_engine(directory)
    assert values(after)[0] == "safe"
    assert "never" not in values(after)
    after.close()


def test_another_process_is_served_over_a_socket_if_it_may_come(
    engine: Engine, tmp_path: Path
) -> None:
    publish(engine, "a")
    allowed = [True]
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "s"))
    listening.listen()
    engine.serve(listening, lambda _: allowed[0])

    def ask() -> bytes:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            client.connect(str(tmp_path / "s"))
            try:
                client.sendall(b"GET /v1/topics/orders HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return client.recv(12)
            except ConnectionError:
                return b""

    assert ask() == b"HTTP/1.1 200"
    allowed[0] = False
    assert ask() == b""


GUEST = """
import asyncio, faulthandler, gc, logging, os, resource, signal, sys, threading
def settings():
    root = logging.getLogger()
    return [
        [signal.getsignal(n) for n in sorted(signal.valid_signals())],
        gc.get_threshold(), gc.get_freeze_count(), gc.isenabled(),
        resource.getrlimit(resource.RLIMIT_NOFILE), sys.getswitchinterval(),
        root.handlers[:], root.level, asyncio.get_event_loop_policy(), sys.excepthook,
        threading.excepthook, os.umask(os.umask(0o77) or 0o77),
    ]
import node.embedded.engine as embedded
before = settings()
engine = embedded.open_engine(sys.argv[1])
body = ('{"messages":[' + ','.join(['{"value":"%s"}' % ("x" * 1000)] * 2000) + ']}').encode()
told = engine.ask("POST", "/v1/topics/t/messages", {"Content-Type": "application/json"}, body)
while not told.done():
    assert sys.getswitchinterval() == before[5]
assert told.result().status == 200
assert settings() == before
import structlog
assert not structlog.is_configured()
logging.getLogger("raft").warning("the loop was stalled")
engine.close()
assert settings() == before
"""


def test_it_changes_no_setting_of_its_host_and_says_nothing(directory: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", GUEST, directory],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_forked_child_holds_neither_lock_nor_socket(directory: str, tmp_path: Path) -> None:
    engine = open_engine(directory)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "s"))
    listening.listen()
    engine.serve(listening, lambda _: True)
    ended, end = os.pipe()
    child = os.fork()
    if not child:
        os.close(end)
        os.read(ended, 1)  # until the parent is done
        os._exit(0)
    try:
        engine.close()
        again = open_engine(directory)  # while the child lives
        again.close()
        with pytest.raises(OSError), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "s"))
    finally:
        os.close(end)
        os.waitpid(child, 0)
        os.close(ended)


def test_a_forked_child_keeps_no_connection_of_its_parents_engine_open(
    directory: str, tmp_path: Path
) -> None:
    engine = open_engine(directory)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "s"))
    listening.listen()
    engine.serve(listening, lambda _: True)
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(30)
    client.connect(str(tmp_path / "s"))
    client.sendall(b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert client.recv(12) == b"HTTP/1.1 200"
    own = f"socket:[{os.fstat(client.fileno()).st_ino}]"
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        found = [_target(link) for link in Path("/proc/self/fd").iterdir()]
        os.write(tell, json.dumps([name for name in found if name.startswith("socket:")]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    inherited = json.loads(os.read(told, 1 << 16))
    accepted = {
        f"socket:[{os.fstat(one.fileno()).st_ino}]" for one in engine._accepted if one.fileno() >= 0
    }
    engine.close()
    for end in (told, tell):
        os.close(end)
    client.close()

    assert len(accepted) == 1
    assert own in inherited
    assert not accepted & set(inherited)


def test_a_fork_while_a_directory_is_being_opened_waits_and_holds_no_lock(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, go_on = threading.Event(), threading.Event()
    opened = embedded.open_store

    def slow(*given: Any, **options: Any) -> Any:
        store = opened(*given, **options)
        opening.set()
        go_on.wait(30)
        return store

    monkeypatch.setattr(embedded, "open_store", slow)
    engines: list[Engine] = []
    thread = threading.Thread(target=lambda: engines.append(open_engine(directory)))
    thread.start()
    assert opening.wait(30)
    threading.Timer(0.01, go_on.set).start()  # the fork is waiting by then, or comes later: both do
    ended, end = os.pipe()
    child = os.fork()
    if not child:
        os.close(end)
        os.read(ended, 1)
        os._exit(0)
    try:
        thread.join()
        engines[0].close()
        monkeypatch.undo()
        open_engine(directory).close()  # while the child lives
    finally:
        os.close(end)
        os.waitpid(child, 0)
        os.close(ended)


def test_idle_connections_of_one_process_make_room_for_another(
    directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factories, "LOCAL_CONNECTIONS_MAX", 2)
    engine = open_engine(directory)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "s"))
    listening.listen()
    engine.serve(listening, lambda _: True)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(4)]
    try:
        for client in clients:
            client.settimeout(30)
            client.connect(str(tmp_path / "s"))
            client.sendall(b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
    finally:
        for client in clients:
            client.close()
        engine.close()


class StandingDisk(OsDisk):
    """The machine's, until its syncs do not come back."""

    def __init__(self) -> None:
        super().__init__()
        self.stands = False
        self.waiting = threading.Event()
        self.go_on = threading.Event()

    def fdatasync(self, handle: int) -> None:
        if self.stands:
            self.waiting.set()
            self.go_on.wait(60)
        super().fdatasync(handle)


def test_while_a_sync_stands_still_nobody_else_gets_the_directory(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "CLOSE_S", 0.05)
    disk = StandingDisk()
    engine = Engine(directory, disk)
    engine.open()
    publish(engine, "before")
    disk.stands = True
    body = b'{"messages": [{"value": "during", "partition": 0}]}'
    engine.ask("POST", "/v1/topics/orders/messages", JSON, body)
    assert disk.waiting.wait(30)

    engine.close()  # ends, though the sync does not
    with pytest.raises(GoQueueError) as locked:
        open_engine(directory)
    assert locked.value.code == "directory_locked"

    disk.go_on.set()  # the sync comes back: then the directory is given back, too
    for _ in range(1000):
        with suppress(GoQueueError):
            again = open_engine(directory)
            break
        threading.Event().wait(0.01)
    assert values(again)[0] == "before"
    again.close()


def test_the_hosts_loop_may_stand_still(engine: Engine) -> None:
    async def host() -> int:
        return publish(engine, "from a loop that waits for it")  # blocks this loop

    assert asyncio.run(host()) == 200


def _own_sockets() -> set[str]:
    return {
        link.removeprefix("socket:[").removesuffix("]")
        for link in map(_target, Path("/proc/self/fd").iterdir())
        if link.startswith("socket:[")
    }


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def _tcp_lines() -> list[str]:
    return [
        line
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
