"""`goqueue.open`: what it takes for what, and a directory as a client sees it."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import goqueue
from goqueue.api.options import ClientOptions
from goqueue.errors import (
    BadRequest,
    Closed,
    DirectoryInUse,
    DirectoryUnusable,
    EngineMissing,
    GoQueueError,
)
from goqueue.everyday import targets
from goqueue.local import directory as local
from goqueue.local import unix_socket
from log.config import StorageConfig
from log.disk.files import OsDisk
from log.store.directory import Store
from tests.one_node import serving

SERVER = "http://127.0.0.1:8080"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


def servers(target: targets.Target) -> list[str]:
    found, _ = targets.read_target(target)
    return list(found) if isinstance(found, list) else list(found.servers)


# what is opened


def test_urls_are_servers_and_other_text_is_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")

    assert servers(SERVER) == [SERVER]
    assert servers("http://a:1, https://b:2") == ["http://a:1", "https://b:2"]
    assert servers(["http://a:1", "http://b:2"]) == ["http://a:1", "http://b:2"]
    assert servers("./jobs") == servers(Path("jobs")) == [f"directory {tmp_path}/jobs"]
    assert servers("~/jobs") == ["directory /home/somebody/jobs"]


@pytest.mark.parametrize(
    "target",
    [
        "",
        " , ",
        "localhost:8080",
        "redis://h:1",
        "http://a:1,./jobs",
        ["./jobs"],
        ["http://a", "b:80"],
    ],
)
def test_what_is_neither_is_refused(target: targets.Target) -> None:
    with pytest.raises(BadRequest, match="http://"):
        goqueue.open(target)


def test_with_no_target_the_environment_is_asked_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "current-context: far\n"
        "contexts:\n  far:\n    server: https://far:1,https://away:2\n    api-key: a.b\n"
    )
    monkeypatch.setenv("GOQUEUE_CONFIG", str(config))
    monkeypatch.delenv("GOQUEUE_CONTEXT", raising=False)
    for name in ("GOQUEUE_API_KEY", "GOQUEUE_SERVER"):
        monkeypatch.delenv(name, raising=False)

    assert targets.read_target(None) == (["https://far:1", "https://away:2"], {"api_key": "a.b"})
    monkeypatch.setenv("GOQUEUE_SERVER", "http://near:1")
    assert targets.read_target(None) == (["http://near:1"], {})
    monkeypatch.setenv("GOQUEUE_SERVER", "near:1,far:2")  # as the command line takes it
    assert targets.read_target(None) == (["http://near:1", "http://far:2"], {})
    monkeypatch.setenv("GOQUEUE_SERVER", str(tmp_path / "jobs"))
    assert servers(None) == [f"directory {tmp_path}/jobs"]
    monkeypatch.delenv("GOQUEUE_SERVER")
    config.write_text("contexts: 7\n")
    with pytest.raises(BadRequest, match="contexts"):
        targets.read_target(None)


def test_without_the_command_line_the_default_server_is_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GOQUEUE_SERVER", raising=False)
    monkeypatch.setattr(targets, "entry_points", lambda **_: [])

    assert targets.read_target(None) == ([SERVER], {})


def test_without_the_engine_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, jobs: Path
) -> None:
    monkeypatch.setattr("goqueue.local.engine.entry_points", lambda **_: [])

    with pytest.raises(EngineMissing, match=r'pip install "goqueue\[local\]"') as missing:
        goqueue.open(jobs)
    assert missing.value.code == "engine_missing"
    assert not jobs.exists()


@pytest.mark.parametrize(
    "options", [{"api_key": "a.b"}, {"ca_file": "x.pem"}, {"cert_file": "y.pem"}]
)
def test_options_for_servers_are_refused_with_a_directory(
    jobs: Path, options: ClientOptions
) -> None:
    with pytest.raises(BadRequest, match=f"{next(iter(options))} is for servers"):
        goqueue.open(jobs, **options)


async def test_a_server_is_asked_by_the_same_client() -> None:
    async with serving() as url, goqueue.open_async(url) as client:
        await client.publish("orders", "hello")
        (message,) = await client.receive("workers", "orders", wait=20)

    assert message.text == "hello"


def test_importing_the_library_imports_nothing_of_the_engine() -> None:
    program = (
        "import sys, goqueue\n"
        "goqueue.open; goqueue.Client\n"
        "ours = ('node', 'log', 'raft', 'goqueue_server', 'structlog')\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ours])\n"
    )
    assert run(program) == "[]\n"


# a directory


def test_a_directory_keeps_what_was_published(jobs: Path) -> None:
    with goqueue.open(jobs) as client:
        client.publish("orders", "hello", key="k1")
    with goqueue.open(str(jobs)) as client:
        (message,) = client.receive("workers", "orders", wait=20)
        message.ack()

        assert (message.text, message.key) == ("hello", b"k1")
        assert client.receive("workers", "orders") == []


async def test_a_directory_is_opened_by_the_first_call_or_by_the_block(jobs: Path) -> None:
    client = goqueue.open_async(jobs)
    assert not is_there(jobs)
    await client.publish("orders", "hello")
    await client.close()
    async with goqueue.open_async(jobs) as client:
        assert is_there(jobs / "SOCKET")


async def test_what_a_directory_has_no_use_for_is_a_clear_error(jobs: Path) -> None:
    async with goqueue.open_async(jobs) as client:
        await client.publish("orders", "hello")
        for work in (
            client.create_topic("jobs", replication_factor=3),
            client.admin.drain_broker("node-1"),
        ):
            with pytest.raises(GoQueueError) as refused:
                await work
            assert refused.value.code == "too_few_brokers"


async def test_a_large_message_and_many_come_whole(jobs: Path) -> None:
    values = [os.urandom(900_000), *(b"%d" % number for number in range(5000))]
    async with goqueue.open_async(jobs) as client:
        await client.create_topic("orders", partitions=1)
        await client.publish_many("orders", values)

        assert [message.value async for message in client.messages("orders")] == values


def test_a_closed_handle_says_so(jobs: Path) -> None:
    client = goqueue.open(jobs)
    client.close()
    client.close()

    with pytest.raises(Closed):
        client.publish("orders", "late")


async def test_a_closed_asynchronous_handle_says_so(jobs: Path) -> None:
    client = goqueue.open_async(jobs)
    await client.close()
    await client.close()

    with pytest.raises(Closed):
        await client.publish("orders", "late")
    assert not is_there(jobs)


def test_a_failed_sync_raises_and_closes_the_handle(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with goqueue.open(jobs) as client:
        client.publish("orders", "safe", partition=0)

        def fail(_handle: int) -> None:
            raise OSError(5, "the medium is gone")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fail)
            with pytest.raises(GoQueueError, match="the medium is gone") as failed:
                client.publish("orders", "lost, or not", partition=0)
            assert (failed.value.code, failed.value.outcome) == ("store_failed", "unknown")
        with pytest.raises(Closed, match="the medium is gone"):
            client.publish("orders", "never", partition=0)
    with goqueue.open(jobs) as client:
        found = [message.text for message in client.read("orders")]
    assert found[0] == "safe"
    assert "never" not in found


async def test_an_opening_that_was_given_up_is_the_next_calls(jobs: Path) -> None:
    client = goqueue.open_async(jobs)
    opening = asyncio.create_task(client.connect())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening

    await client.publish("orders", "hello")
    await client.close()


async def test_an_opening_that_was_given_up_is_closed_with_the_client(jobs: Path) -> None:
    client = goqueue.open_async(jobs)
    opening = asyncio.create_task(client.connect())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await client.close()

    Store.open(OsDisk(), str(jobs), StorageConfig()).close()  # nobody has its lock


# several handles


def test_two_handles_share_a_directory_and_the_second_goes_on_alone(jobs: Path) -> None:
    first = goqueue.open(jobs)
    second = goqueue.open(jobs)
    second.publish("orders", "through the socket", partition=0)
    assert stat.S_IMODE((jobs / "SOCKET").stat().st_mode) == 0o600
    (message,) = first.receive("workers", "orders", wait=20)
    first.close()

    message_again = second.receive("workers", "orders")
    second.ack(message)
    second.publish("orders", "alone", partition=0)

    assert message_again == []
    assert [one.text for one in second.receive("workers", "orders", wait=20)] == ["alone"]
    second.close()
    assert not (jobs / "SOCKET").exists()


def test_what_the_system_does_not_open_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")

    with pytest.raises(DirectoryUnusable, match=r"file can't be opened: .*directory") as refused:
        goqueue.open(tmp_path / "file")
    assert refused.value.code == "directory_unusable"


def test_a_path_too_long_for_a_socket_is_shared_too(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 8)
    with goqueue.open(deep) as first, goqueue.open(deep) as second:
        first.publish("orders", "hello")

        assert second.topic("orders").total_messages == 1


def test_another_users_socket_is_not_asked(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with goqueue.open(jobs):
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(goqueue.errors.Forbidden, match="another user"):
            goqueue.open(jobs)


def test_each_connection_to_the_owner_is_looked_at(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with goqueue.open(jobs) as owner, goqueue.open(jobs) as other:
        owner.publish("orders", "hello")
        assert other.topic("orders").total_messages == 1
        monkeypatch.setattr(unix_socket, "is_own_user", lambda _socket: False)
        other._thread.run(close_connections(other))
        with pytest.raises(goqueue.errors.Forbidden, match="another user"):
            other.topic("orders", current=True)


async def close_connections(client: goqueue.Client) -> None:
    """The next request makes a new one."""
    channel = client._twin._transport._channel
    assert isinstance(channel, local.DirectoryChannel)
    place = channel._place
    assert isinstance(place, local._Others)
    session, place._channel._session = place._channel._session, None
    assert session is not None
    await session.close()


def test_a_directory_that_a_server_has_is_the_servers(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "OPEN_S", 0.05)
    server = Store.open(OsDisk(), str(jobs), StorageConfig(node="node-7"))

    with pytest.raises(DirectoryInUse, match=f"pid {os.getpid()}, node node-7") as refused:
        goqueue.open(jobs)
    assert "http://" in refused.value.message
    server.close()
    goqueue.open(jobs).close()


# forks


FORK = """
import os, sys, goqueue
client = goqueue.open(sys.argv[1])
client.publish("orders", "from the parent")
child = os.fork()
if not child:
    try:
        client.publish("orders", "never")
    except goqueue.errors.Closed as error:
        print("child:", error, flush=True)
    client.close()
    with goqueue.open(sys.argv[1]) as own:
        own.publish("orders", "from the child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(client.topic("orders").total_messages)
client.close()
"""


def test_a_forked_child_is_told_to_open_its_own(jobs: Path) -> None:
    assert run(FORK, str(jobs)) == (
        "child: the client is the parent's of this forked process: make another one\n2\n"
    )


FORK_ASYNC = """
import asyncio, os, sys, goqueue
client = goqueue.open_async(sys.argv[1])
asyncio.run(client.publish("orders", "from the parent"))
child = os.fork()
if not child:
    try:
        asyncio.run(client.publish("orders", "never"))
    except goqueue.errors.Closed as error:
        print("child:", error, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_of_a_program_with_a_loop_is_told_too(jobs: Path) -> None:
    said = "child: the directory is open in the process that this one forked from\n"
    assert run(FORK_ASYNC, str(jobs)) == said


def is_there(path: Path) -> bool:
    return path.exists()


def run(program: str, *arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout
