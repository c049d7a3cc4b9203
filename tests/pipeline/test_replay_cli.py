"""`goqueue-cli consume` past retention, over a real cluster and a topic whose head is gone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.consume.messages import stored_row
from cli.main import app
from goqueue import Client, Message
from goqueue.archive.manifest import Manifest
from tests.pipeline.archive_writer import archive_topic
from tests.pipeline.messages import by_partition, publish, trim

TOPIC = "audited"


@dataclass
class Past:
    """What was published, of which the log has only the end, and where all of it is archived."""

    servers: str
    folder: Path
    messages: list[Message]
    manifest: Manifest
    log_start: list[int]

    def run(self, *words: str) -> Result:
        result = CliRunner().invoke(app, ["-s", self.servers, "-o", "json", "consume", *words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def rows(self, *words: str) -> list[dict[str, Any]]:
        result = self.run(TOPIC, *words)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="module")
def past(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    folder = tmp_path_factory.mktemp("archive")
    with Client(servers) as client:
        client.create_topic(TOPIC, partitions=2)
        publish(client, TOPIC, 0, 2000)
        messages = list(client.messages(TOPIC))
        manifest = archive_topic(client, TOPIC, folder, upto=960)
        trim(client, TOPIC, 300_000)
        starts = [one.earliest for one in client.partitions(TOPIC)]
        assert min(starts) > 0 and max(starts) < 960
        yield Past(servers, folder, messages, manifest, starts)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOQUEUE_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("GOQUEUE_ARCHIVE", raising=False)


def offsets(rows: list[dict[str, Any]]) -> dict[int, list[int]]:
    return {n: [row["offset"] for row in rows if row["partition"] == n] for n in (0, 1)}


def test_a_group_audits_what_is_deleted_and_goes_on_where_it_was(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOQUEUE_ARCHIVE", str(past.folder))
    words = ("--group", "audit", "--include-deleted")

    first = past.rows(*words, "--from-snapshot", "2025-01-01", "-n", "700")
    rest = past.rows(*words)
    assert len(first) == 700
    assert offsets(first + rest) == {0: list(range(1000)), 1: list(range(1000))}
    assert all(a["timestamp"] <= b["timestamp"] for a, b in pairwise(first + rest))
    assert past.rows(*words) == []

    with Client(past.servers) as client:  # the group's own place is not touched: it has none
        assert "audit" not in [group.name for group in client.list_groups()]


def test_the_rows_of_archive_and_log_are_those_that_the_servers_print(past: Past) -> None:
    rows = past.rows("--include-deleted", "--archive", f"file://{past.folder}")
    told = by_partition(past.messages)
    assert [row for row in rows if row["partition"] == 1] == [stored_row(m) for m in told[1]]

    live = past.rows("--offset", str(past.log_start[1]), "-p", "1")
    assert live == [stored_row(m) for m in told[1][past.log_start[1] :]]


def test_times_and_offsets_choose_by_themselves_where_to_read(past: Past) -> None:
    times = [one.timestamp_ms for one in past.messages]
    begin, end = times[300], times[-100]
    window = [m for m in past.messages if begin <= m.timestamp_ms < end]
    words = ("--from-time", str(begin), "--to-time", str(end))

    assert len(past.rows(*words, "--archive", str(past.folder))) == len(window)

    result = past.run(TOPIC, *words)  # none is known: what is left, and what is missing is told
    left = offsets([json.loads(line) for line in result.stdout.splitlines()])
    for number, found in left.items():
        start = found[0]
        wanted = [m.offset for m in window if m.partition == number]
        assert found == [offset for offset in wanted if offset >= start] != wanted
        assert f"{TOPIC}:{number}: {start} messages before offset {start}" in result.stderr
    assert "deleted, and not archived; --archive URL" in result.stderr

    at = past.log_start[0] - 10
    rows = past.rows("--offset", str(at), "-p", "0", "--archive", str(past.folder))
    assert offsets(rows)[0] == list(range(at, 1000))


def test_what_is_damaged_is_refused_or_left_out_and_named(past: Past, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(past.folder, folder)
    broken = next(file for file in past.manifest.files if file.partition == 0)
    path = folder / past.manifest.series.folder / broken.path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    words = ("--include-deleted", "--archive", str(folder))

    refused = past.run(TOPIC, *words)
    assert refused.exit_code == 1
    assert f"{TOPIC}:0: {broken.count} messages before offset {broken.last + 1}" in refused.stderr
    assert "--skip-damaged" in refused.stderr

    rows = past.rows(*words, "--skip-damaged")
    assert offsets(rows) == {0: list(range(broken.last + 1, 1000)), 1: list(range(1000))}


def test_a_topic_that_was_deleted_is_read_from_the_archive(past: Past, tmp_path: Path) -> None:
    with Client(past.servers) as client:
        client.create_topic("gone", partitions=1)
        client.publish_many("gone", ["first", "second"])
        archive_topic(client, "gone", tmp_path)
        client.delete_topic("gone")
        words = ("gone", "--include-deleted", "--archive", str(tmp_path))
        assert [json.loads(x)["value"] for x in past.run(*words).stdout.splitlines()] == [
            "first",
            "second",
        ]

        old = client.create_topic("gone", partitions=1)
        client.publish_many("gone", ["third"])
        result = past.run(*words)
        assert [json.loads(x)["value"] for x in result.stdout.splitlines()] == ["third"]
        assert "other topics that were called gone" in result.stderr
        assert old.id not in result.stderr


def test_without_an_archive_what_is_deleted_is_asked_for_in_vain(past: Past) -> None:
    result = past.run(TOPIC, "--include-deleted")
    assert result.exit_code == 1
    assert f"no archive of {TOPIC} is known" in result.stderr
    assert "GOQUEUE_ARCHIVE" in result.stderr

    nowhere = past.run(TOPIC, "--include-deleted", "--archive", "/nowhere/at/all")
    assert nowhere.exit_code == 3
    assert "there is no archive at /nowhere/at/all" in nowhere.stderr


def test_the_brokers_know_where_the_archive_is(past: Past) -> None:
    with Client(past.servers) as client:
        client.admin.report_archived(TOPIC, str(past.folder), past.manifest.positions())

    assert len(past.rows("--include-deleted")) == 2000
