"""`goqueue-pipeline restore` over a real cluster: marked, and once each, whatever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from goqueue import Client, Message
from pipeline.restore.marks import PREFIX, marked
from pipeline.restore.verbs import register
from tests.cluster.processes import ROOT, Cluster, eventually
from tests.pipeline.archive_writer import archive_topic
from tests.pipeline.messages import by_partition, publish, trim

TOPIC = "restored"
COUNT = 2000


@dataclass
class Archive:
    """A topic, of which the log has lost the head, and all of it in an archive."""

    servers: str
    folder: Path
    messages: list[Message]

    def words(self, *words: str) -> list[str]:
        given = ["--archive", str(self.folder), "--topic", TOPIC, "--servers", self.servers]
        return ["restore", *given, *words]

    def run(self, *words: str) -> Result:
        app = typer.Typer()
        app.callback()(lambda: None)
        register(app)
        result = CliRunner().invoke(app, self.words(*words))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "pipeline.main", *self.words(*words)]
        return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": "client:."})


@pytest.fixture(scope="module")
def archive(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    folder = tmp_path_factory.mktemp("archive")
    with Client(servers) as client:
        client.create_topic(TOPIC, partitions=2)
        publish(client, TOPIC, 0, COUNT)
        messages = list(client.messages(TOPIC))
        archive_topic(client, TOPIC, folder, rows=150)
        trim(client, TOPIC, 1)
    return Archive(servers, folder, messages)


def origins(messages: list[Message]) -> list[str]:
    return [dict(one.headers)[f"{PREFIX}origin"].decode() for one in messages]


def test_a_run_killed_again_and_again_restores_each_message_once_in_order_while_a_broker_dies(
    cluster: Cluster, archive: Archive
) -> None:
    with Client(archive.servers) as client:
        client.create_topic("again", partitions=2, replication_factor=3)
        words = ("--to", "again", "--rate", "1200", "--replay-id", "r1")
        killed = cluster.leader("again", 0)

        def restored(at_least: int) -> bool:
            return sum(one.next for one in client.partitions("again")) >= at_least

        for kill_at in (300, 900):
            process = archive.start(*words)
            eventually("some is restored", partial(restored, kill_at), deadline_s=40)
            process.send_signal(signal.SIGKILL)
            process.wait(10)
            if kill_at == 300:
                killed.kill()
        try:
            done = archive.run(*words[:2], "--replay-id", "r1")
        finally:
            killed.start()
            cluster.wait_until_ready()

        assert done.exit_code == 0, done.output
        assert f"restored {COUNT:,} messages to again" in done.stdout
        found, before = by_partition(list(client.messages("again"))), by_partition(archive.messages)
        for number in (0, 1):
            assert origins(found[number]) == [one.id for one in before[number]]
            for again, first in zip(found[number], before[number], strict=True):
                assert (again.value, again.key, again.lane) == (first.value, first.key, first.lane)
                assert again.headers == marked(first, "r1")
                assert again.published_ms == first.published_ms

        assert archive.run(*words).exit_code == 0
        assert sum(one.next for one in client.partitions("again")) == COUNT


def test_a_dry_run_counts_exactly_and_publishes_nothing(archive: Archive) -> None:
    messages = by_partition(archive.messages)
    begin, end = messages[0][170].timestamp_ms, messages[0][820].timestamp_ms
    window = [m for m in messages[0] if begin <= m.timestamp_ms < end]

    words = ("--from-time", str(begin), "--to-time", str(end), "--partition", "0")
    result = archive.run(*words, "--to", "nowhere", "--dry-run")
    assert result.exit_code == 0, result.output
    assert f"{TOPIC}:0: {len(window):,} messages of offsets" in result.stdout

    result = archive.run("--offsets", "100-349", "--to", "nowhere", "--dry-run")
    assert f"{TOPIC}:1: 250 messages of offsets 100 to 349" in result.stdout
    assert "500 messages to nowhere, as run " in result.stdout


def test_another_number_of_partitions_spreads_messages_by_key(archive: Archive) -> None:
    with Client(archive.servers) as client:
        client.create_topic("spread", partitions=3)
        words = ("--to", "spread", "--offsets", "0-299")
        assert archive.run(*words).exit_code == 0
        assert archive.run(*words).exit_code == 0

        found = list(client.messages("spread"))
        assert sorted(origins(found)) == sorted(m.id for m in archive.messages if m.offset < 300)
        homes: dict[bytes | None, set[int]] = {}
        for one in found:
            homes.setdefault(one.key, set()).add(one.partition)
        assert all(len(where) == 1 for key, where in homes.items() if key is not None)


def test_a_run_that_the_log_has_forgotten_is_counted_in_the_target(archive: Archive) -> None:
    with Client(archive.servers) as client:
        client.create_topic("rested", partitions=2)
        words = ("--to", "rested", "--partition", "0", "--replay-id", "r2")
        assert archive.run(*words, "--offsets", "0-399").exit_code == 0
        state = archive.folder / "archive/v1/_restores/r2.json"
        old = state.read_bytes().replace(b'"is_complete":true', b'"is_complete":false')
        saved = old.partition(b'"saved_ms":')[2].partition(b",")[0]
        state.write_bytes(old.replace(b'"saved_ms":' + saved, b'"saved_ms":1'))

        again = archive.run(*words, "--offsets", "0-399")
        assert again.exit_code == 0, again.output
        assert len(origins(list(client.messages("rested")))) == 400


def test_the_rate_is_kept(archive: Archive) -> None:
    with Client(archive.servers) as client:
        client.create_topic("slow", partitions=2)
        began_s = time.monotonic()
        words = ("--to", "slow", "--offsets", "0-149", "--rate", "200")
        assert archive.run(*words).exit_code == 0
        assert time.monotonic() - began_s >= 0.9  # 300 messages, of which a burst of 100 is free
        assert sum(one.next for one in client.partitions("slow")) == 300


def test_what_can_not_be_restored_is_said_in_a_sentence(archive: Archive) -> None:
    assert "offsets: want FIRST-LAST" in archive.run("--offsets", "x").stderr
    assert "the archive at" in archive.run("--topic", "unheard-of").stderr
    missing = archive.run("--to", "unheard-of", "--offsets", "0-9")
    assert missing.exit_code == 1
    assert "unheard-of" in missing.stderr
