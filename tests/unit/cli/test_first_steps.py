"""What a new user types: times, versions, config files, servers that are not there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from cli.output.moments import moment_text
from cli.run import known_servers
from goqueue.errors import BadRequest
from tests.unit.cli.conftest import Shell

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nobody listens on, held so that nobody else gets it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def run(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(app, list(words), env=environment)


# -- times


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("-1h", "2026-11-24T11:00:00.000Z"),
        ("-1h30m", "2026-11-24T10:30:00.000Z"),
        ("90s ago", "2026-11-24T11:58:30.000Z"),
        ("now", "2026-11-24T12:00:00.000Z"),
        ("2026-11-23T10:30:00Z", "2026-11-23T10:30:00.000Z"),
        ("2026-11-23t10:30:00+02:00", "2026-11-23T08:30:00.000Z"),
        ("1763000000000", "1763000000000"),
    ],
)
def test_times_are_understood(text: str, meant: str) -> None:
    assert moment_text(text, NOW) == meant


@pytest.mark.parametrize(
    ("text", "back"), [("today", 0), ("yesterday", 1), ("Yesterday", 1), ("2026-11-20", None)]
)
def test_days_begin_at_midnight_here(text: str, back: int | None) -> None:
    now = NOW.astimezone()
    day = (now - timedelta(days=back)).date() if back is not None else datetime(2026, 11, 20)

    midnight = datetime(day.year, day.month, day.day).astimezone(UTC)

    assert moment_text(text, now) == midnight.isoformat(timespec="milliseconds")[:23] + "Z"


@pytest.mark.parametrize("text", ["tomorow", "-1x", "2026-13-01", "", "-"])
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises((ValueError, BadRequest)):
        moment_text(text, NOW)


@pytest.mark.parametrize(
    "words",
    [
        ("consume", "t", "--from-time"),
        ("consume", "t", "--to-time"),
        ("consume", "t", "-g", "g", "--from-time"),
        ("group", "reset-offsets", "g", "-t", "t", "--to-timestamp"),
        ("trace", "search", "--topic", "t", "--start"),
        ("dlq", "list", "t", "-g", "g", "--from"),
        ("audit", "--since"),
    ],
)
def test_a_time_that_is_none_is_a_mistake_of_the_command_line(
    shell: Shell, words: tuple[str, ...]
) -> None:
    result = shell.run(*words, "last week")

    assert result.exit_code == 2
    told = " ".join(result.stderr.replace("│", " ").split())
    assert words[-1] in told
    assert "-1h, yesterday, 2026-11-23" in told


def test_relative_times_reach_the_server(shell: Shell) -> None:
    shell.ok("topic", "create", "t", "--partitions", "1")
    shell.ok("produce", "t", "-m", "x")

    later = shell.ok("consume", "t", "--from-time", "yesterday", "--value-only")
    earlier = shell.ok("consume", "t", "--to-time", "yesterday", "--value-only")

    assert (later, earlier) == ("", "x\n")


# -- what is said to people


@pytest.mark.parametrize("form", ["json", "table"])
def test_an_offset_beyond_the_end_says_where_the_topic_ends(shell: Shell, form: str) -> None:
    shell.ok("topic", "create", "orders", "--partitions", "2")
    shell.ok("produce", "orders", "-m", "a", "-m", "b", "-p", "1")

    beyond = shell.run("consume", "orders", "--offset", "99999", "-o", form)
    one = shell.run("consume", "orders", "--offset", "99999", "-p", "1", "-o", form)
    there = shell.run("consume", "orders", "--offset", "2", "-o", form)

    assert beyond.exit_code == one.exit_code == 0
    assert beyond.stderr == "orders ends at offset 2: there is nothing from 99999 on yet\n"
    assert one.stderr == "orders:1 ends at offset 2: there is nothing from 99999 on yet\n"
    assert there.stderr == ""


@pytest.mark.parametrize("words", [("-m", "x"), ("--file", "-")])
def test_a_topic_that_a_publish_creates_is_named(shell: Shell, words: tuple[str, ...]) -> None:
    first = shell.run("produce", "ordres", *words, stdin=b"x\ny\n")
    again = shell.run("produce", "ordres", *words, stdin=b"x\ny\n")

    assert first.exit_code == again.exit_code == 0, first.output
    assert (first.stderr, again.stderr) == ("created topic ordres\n", "")


def test_a_message_goes_behind_its_lane(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    settle = shell.broker.receipts.settle

    async def spied(requests: Any, *others: Any, **more: Any) -> Any:
        asked.extend(request.to_back for request in requests)
        return await settle(requests, *others, **more)

    monkeypatch.setattr(shell.broker.receipts, "settle", spied)
    shell.ok("topic", "create", "t", "--partitions", "1")
    shell.ok("produce", "t", "-m", "x")
    for words in ((), ("--position", "front"), ("--position", "back")):
        held = json.loads(shell.ok("consume", "t", "-g", "g", "--no-ack", "-n", "1"))
        shell.ok("nack", held["receipt"], "--delay", "0s", *words)

    assert asked == [False, False, True]
    assert shell.run("nack", held["receipt"], "--position", "middle").exit_code == 2


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4", "gzip"])
@pytest.mark.parametrize("words", [("-m", "x" * 5000), ("--file", "-")])
def test_batches_are_compressed_as_asked(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, codec: str, words: tuple[str, ...]
) -> None:
    used: list[str] = []
    encode: Any = sys.modules["goqueue.wire.encoding"].encode_columns

    def spied(*columns: Any, **options: Any) -> bytes:
        used.append(options["codec"])
        return bytes(encode(*columns, **options))

    for module in ("goqueue.publish.outgoing", "goqueue.publish.batches"):
        monkeypatch.setattr(f"{module}.encode_columns", spied)
    shell.ok("topic", "create", "t", "--partitions", "1")

    shell.ok("produce", "t", *words, "--compression", codec, stdin=b"x" * 5000 + b"\n")

    assert used == [codec]
    assert shell.ok("consume", "t", "--value-only") == "x" * 5000 + "\n"


# -- the config file


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("contexts: [1,2]\n", "line 1: contexts: names with their values are expected, not a list"),
        ("current-context: a\ncontexts:\n  a: 7\n", "line 3: contexts: a: names with"),
        (
            "contexts:\n  a:\n    server: x\n    api_key: y\n",
            "line 4: contexts: a: api_key: unknown: did you mean 'api-key'?",
        ),
        ("contexts:\n  a:\n    timeout: soon\n", "line 3: contexts: a: timeout: a number of"),
        ("- 1\n", "line 1: names with their values are expected, not a list"),
    ],
)
def test_a_config_file_that_is_wrong_is_told_with_its_line(
    tmp_path: Path, text: str, told: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)

    result = run("topic", "list", GOQUEUE_CONFIG=str(path))

    assert result.exit_code == 2
    assert f"{path}" in result.stderr.replace("\n", "")
    assert told in result.stderr


# -- versions and helps


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (["-m", "cli", "--version"], "goqueue-cli "),
        (["-m", "cli", "-h"], "Usage: goqueue-cli"),
        (["-m", "cli.serve", "--version"], "goqueue "),
        (["-m", "cli.serve", "-h"], "Usage: goqueue "),
        (["-m", "goqueue", "--version"], "goqueue-cli "),
        (["-m", "goqueue", "topic", "-h"], "Usage: goqueue-cli topic"),
    ],
)
def test_versions_and_helps_are_there(words: list[str], begins: str) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "client")])
    ended = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.lstrip().startswith(begins)


# -- servers


def servers(shell: Shell, text: str) -> Result:
    return run("topic", "list", GOQUEUE_SERVER=text, GOQUEUE_CONFIG="/nowhere/config.yaml")


@pytest.mark.parametrize("between", [",", " ", ", ", "\n"])
def test_several_servers_may_stand_with_spaces_or_commas(
    shell: Shell, closed_port: int, between: str
) -> None:
    dead = f"http://127.0.0.1:{closed_port}"

    assert servers(shell, between.join([dead, shell.url])).exit_code == 0
    assert run("-s", dead, "-s", shell.url, "topic", "list").exit_code == 0
    assert run("topic", "list", "-s", dead, "-s", shell.url).exit_code == 0


def test_the_cause_is_kept_where_no_server_answers(closed_port: int) -> None:
    result = run("-s", f"http://127.0.0.1:{closed_port}", "topic", "list")

    assert result.exit_code == 4
    assert f"can't connect to http://127.0.0.1:{closed_port}: Connection refused" in result.stderr
    assert "is the cluster running?" in result.stderr


def test_a_server_without_tls_is_told(shell: Shell) -> None:
    address = shell.url.removeprefix("http://")

    result = run("-s", f"https://{address}", "topic", "list")

    assert result.exit_code == 4
    assert "the server does not speak TLS" in result.stderr
    assert "is the cluster running?" not in result.stderr


@pytest.fixture
def cluster(
    shell: Shell, closed_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A context whose server is dead, of a cluster that was known with another one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    dead = f"http://127.0.0.1:{closed_port}"
    config = tmp_path / "config.yaml"
    config.write_text(f"current-context: a\ncontexts:\n  a:\n    server: {dead}\n")
    path = known_servers.path()
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({dead: {"servers": [dead, shell.url], "learned_s": 0}}))
    yield path


@pytest.mark.usefixtures("cluster")
def test_servers_that_were_known_are_asked_when_the_named_one_is_dead(
    shell: Shell, closed_port: int, tmp_path: Path
) -> None:
    shell.ok("topic", "create", "orders")

    result = run("topic", "list")

    assert (result.exit_code, json.loads(result.stdout)["name"]) == (0, "orders")
    dead = f"http://127.0.0.1:{closed_port}"
    assert result.stderr == f"{dead} did not answer: {shell.url} did\n"


@pytest.mark.usefixtures("cluster")
def test_who_names_a_server_means_that_one(closed_port: int) -> None:
    result = run("-s", f"http://127.0.0.1:{closed_port}", "topic", "list")

    assert result.exit_code == 4


def test_servers_are_learned_without_secrets_and_bounded(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = tmp_path / "config.yaml"
    config.write_text(
        f"current-context: a\ncontexts:\n  a:\n    server: {shell.url}\n    api-key: k.secret\n"
    )
    path = known_servers.path()
    path.parent.mkdir(parents=True)
    old = {
        f"http://old-{n}": {"servers": [], "learned_s": 0}
        for n in range(known_servers.CLUSTERS_MAX + 5)
    }
    path.write_text(json.dumps(old))

    assert run("topic", "list").exit_code == 0

    kept = json.loads(path.read_text())
    assert len(kept) == known_servers.CLUSTERS_MAX
    assert list(kept)[-1] == shell.url
    assert "secret" not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0


def test_a_damaged_file_of_servers_is_no_matter(shell: Shell, cluster: Path) -> None:
    cluster.write_text("{]")

    assert run("topic", "list").exit_code == 4
