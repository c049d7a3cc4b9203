"""`goqueue-cli local` on a directory that is sound, in use, torn and damaged."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.directory.command import LOST_HEADER
from cli.main import app
from goqueue import Queue
from node.embedded import repair

FIRST_SEGMENT = "0000000000000001.segment"


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    """The command silences them for its process, which is that of the tests here."""
    loggers = [logging.getLogger(name) for name in ("log", "raft", "goqueue")]
    before = [(list(logger.handlers), logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, propagate) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.propagate = handlers, propagate


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Eight items, one of them done; all of them in a segment."""
    directory = tmp_path / "jobs"
    with Queue(directory) as queue:
        for number in range(8):
            queue.put(f"job {number}")
        queue.get().ack()
    Queue(directory).close()
    return directory


def run(*words: object) -> Result:
    result = CliRunner().invoke(app, ["local", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def rows(result: Result) -> list[Any]:
    lines = result.stdout.splitlines()  # among them the engine's words, as tests have them shown
    return [json.loads(line) for line in lines if line.startswith("{")]


def content(directory: Path) -> dict[str, bytes]:
    names = (path for path in directory.rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in names}


def segment_with(directory: Path, value: str) -> Path:
    """The segment of this message. Its folder has the number of its topic, which is another one
    where the only node was elected twice: it is the place of an entry in the cluster's log."""
    for path in directory.glob("groups/*/*.segment"):
        if value.encode() in path.read_bytes():
            return path
    raise AssertionError(f"no segment holds {value}")


def spoil(directory: Path, value: str) -> tuple[Path, int]:
    """Flips a bit of this message; the file, and the byte."""
    path = segment_with(directory, value)
    data = bytearray(path.read_bytes())
    at = data.find(value.encode())
    data[at] ^= 1
    path.write_bytes(data)
    return path, at


@pytest.mark.parametrize("is_open", [False, True])
def test_a_directory_is_looked_at_also_while_it_is_open(jobs: Path, is_open: bool) -> None:
    if is_open:
        with Queue(jobs) as writer:
            writer.put("job 8")
            look(jobs, 9)
        return
    before = content(jobs)
    look(jobs, 8)
    assert content(jobs) == before


def look(jobs: Path, count: int) -> None:
    (stats,) = rows(run("stats", jobs))
    peeked = rows(run("peek", jobs, "-n", 2))
    dumped = rows(run("dump", jobs))
    files = {row["file"]: row for row in rows(run("inspect", jobs))}
    verified = run("verify", jobs)

    assert (stats["messages"], stats["size"], stats["acked"]) == (count, count - 1, 1)
    assert [row["value"] for row in peeked] == ["job 1", "job 2"]
    assert [row["value"] for row in dumped] == [f"job {number}" for number in range(count)]
    stored = f"{segment_with(jobs, 'job 0').parent.name}/{FIRST_SEGMENT}"
    (segment,) = (row for name, row in files.items() if name.endswith(stored))
    assert segment["holds"] == "entries"
    assert segment["last"] >= count
    assert (verified.exit_code, rows(verified)) == (0, [])


@pytest.mark.parametrize("is_open", [False, True])
def test_what_is_done_is_given_back_by_who_has_it_open_or_by_the_command(
    jobs: Path, is_open: bool
) -> None:
    with Queue(jobs) as queue:
        queue.put_many(["done" * 250] * 50)
        queue.ack(*queue.get_many(57))
        queue.put("left")
        if is_open:
            compacted = run("compact", jobs)
    if not is_open:
        compacted = run("compact", jobs)

    (row,) = rows(compacted)
    assert (row["topic"], row["messages"], row["kept_for"]) == ("queue", 58, "queue")
    assert rows(run("compact", jobs, "queue")) == [
        {"topic": "queue", "messages": 0, "bytes": 0, "kept_for": "queue"}
    ]
    with Queue(jobs) as queue:
        assert queue.get(timeout=0).value == "left"
        queue.task_done()
    assert rows(run("compact", jobs))[0]["bytes"] > 50_000
    assert run("compact", jobs, "nope").exit_code == 3


def test_a_dump_begins_where_it_is_told_to(jobs: Path) -> None:
    assert [row["offset"] for row in rows(run("dump", jobs, "--from", 6, "-p", 0))] == [6, 7]
    assert run("dump", jobs, "-p", 1).exit_code == 3


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    for words in (["stats"], ["verify"], ["inspect"], ["dump"], ["peek"], ["repair"], ["compact"]):
        found = run(*words, tmp_path)
        assert (found.exit_code, "there is no queue in" in found.stderr) == (3, True)
    assert list(tmp_path.iterdir()) == []


def test_damage_is_named_by_file_and_byte_and_the_rest_is_dumped(jobs: Path) -> None:
    path, at = spoil(jobs, "job 5")
    before = content(jobs)

    verified, dumped, stats = run("verify", jobs), run("dump", jobs), run("stats", jobs)

    (damage,) = rows(verified)
    assert (verified.exit_code, damage["file"], damage["kind"]) == (1, str(path), "damaged")
    assert 0 < damage["byte"] <= at
    assert damage["lost"]
    assert [row["offset"] for row in rows(dumped)] == [0, 1, 2, 3, 4, 6, 7]
    assert dumped.exit_code == 1
    assert f"{path} is damaged at byte {damage['byte']}" in dumped.stderr.replace("\n", "")
    assert (stats.exit_code, rows(stats)) == (1, [])
    assert content(jobs) == before


def test_repair_says_what_it_would_lose_and_does_it_only_when_told_to(jobs: Path) -> None:
    path, _ = spoil(jobs, "job 5")
    damaged, before = path.read_bytes(), content(jobs)

    refused = run("repair", jobs)
    same = content(jobs)
    done = run("repair", jobs, "--lose")

    assert (refused.exit_code, "nothing was changed" in refused.stderr) == (1, True)
    assert rows(refused) == rows(done)
    assert {name for name in before if before[name] != same.get(name)} == set()
    assert done.exit_code == 0
    (kept,) = jobs.glob(f"damaged/1/*/{path.name}")
    assert kept.read_bytes() == damaged
    assert run("verify", jobs).exit_code == 0
    with Queue(jobs) as queue:
        got = [queue.get(timeout=0).value for _ in range(6)]
        assert queue.size() == 6
        assert queue.put("more").offset == 8
    assert got == ["job 1", "job 2", "job 3", "job 4", "job 6", "job 7"]


def test_a_torn_tail_is_no_damage_and_repair_cuts_it(jobs: Path) -> None:
    killed = jobs.parent / "killed"
    with Queue(jobs) as queue:
        queue.put("whole")
        shutil.copytree(jobs, killed, ignore=shutil.ignore_patterns("SOCKET"))
        queue.put("half of it")  # no word of the path, which the log has in the node's address
        # What is not whole in the log is in no segment: only the log is copied.
        shutil.copytree(jobs / "wal", killed / "wal", dirs_exist_ok=True)
    wal = max(killed.glob("wal/*.wal"))
    data = wal.read_bytes()
    at = data.rindex(b"half of it")
    wal.write_bytes(data[:at] + bytes(len(data) - at))

    verified = run("verify", killed)
    dumped = [row["value"] for row in rows(run("dump", killed))]
    repaired = run("repair", killed)

    (tear,) = rows(verified)
    assert (verified.exit_code, tear["kind"], tear["file"]) == (0, "torn", str(wal))
    assert dumped[-1] == "whole"
    assert (repaired.exit_code, rows(repaired)) == (0, [tear])
    assert rows(run("verify", killed)) == []
    with Queue(killed, mode="r") as queue:
        assert queue.size() == 8


def test_a_damaged_write_ahead_log_is_named_and_given_up_only_when_told_to(jobs: Path) -> None:
    (wal,) = jobs.glob("wal/*.wal")
    data = bytearray(wal.read_bytes())
    data[20] ^= 1
    wal.write_bytes(data)

    verified, refused = run("verify", jobs), run("repair", jobs)
    done = run("repair", jobs, "--lose")

    assert [row["file"] for row in rows(verified) if row["kind"] == "damaged"][:1] == [str(wal)]
    assert (verified.exit_code, refused.exit_code, done.exit_code) == (1, 1, 0)
    assert (jobs / "wal.damaged" / wal.name).read_bytes() == bytes(data)
    with Queue(jobs) as queue:
        assert queue.get(timeout=0).value == "job 1"


def test_an_index_that_disagrees_is_made_again_and_nothing_is_lost(jobs: Path) -> None:
    segment = next(p for p in jobs.glob("groups/*/*.segment") if "/0000000000000000-" not in str(p))
    terms = segment.with_suffix(".terms")
    data = bytearray(terms.read_bytes())
    data[70] ^= 1
    terms.write_bytes(data)

    verified = run("verify", jobs)
    (found,) = rows(verified)
    assert (verified.exit_code, found["kind"], found["file"]) == (1, "index", str(terms))
    assert found["lost"] is None
    assert run("repair", jobs).exit_code == 0
    assert rows(run("verify", jobs)) == []
    with Queue(jobs) as queue:
        assert queue.size() == 7


def test_what_tells_of_topics_is_not_made_up(jobs: Path) -> None:
    segment = max(jobs.glob("groups/0000000000000000-0-0/*.segment"))
    for snapshot in segment.parent.glob("*.snapshot"):
        snapshot.unlink()
    data = bytearray(segment.read_bytes())
    data[100] ^= 1
    segment.write_bytes(data)
    before = content(jobs)

    done = run("repair", jobs, "--lose")

    assert (done.exit_code, "restore it from a copy" in done.stderr.replace("\n", " ")) == (1, True)
    assert {name for name, found in content(jobs).items() if before[name] != found} <= {
        str(jobs / "LOCK")
    }


def test_a_directory_that_is_open_is_not_repaired(jobs: Path) -> None:
    with Queue(jobs):
        refused = run("repair", jobs)

    assert refused.exit_code == 1
    assert "is in use by pid" in refused.stderr.replace("\n", " ")


def test_the_header_of_what_is_lost_has_one_name() -> None:
    assert LOST_HEADER == repair.HEADER
