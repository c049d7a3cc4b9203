"""`mode="r"`: a directory is looked at, and nothing of it is written, also while it is in use."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import goqueue
from goqueue import Queue
from goqueue.errors import (
    BadRequest,
    Closed,
    GoQueueError,
    NotFound,
    ReadOnlyDirectory,
)
from goqueue.local import reading as reading_channel
from log.disk.files import Bytes, OsDisk
from node.embedded import reading
from node.embedded.check import DirectoryDamaged, damage_of
from node.embedded.reading import Reader, changes
from node.http.server.routes import ROUTES


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A queue in which one item is done, one is taken out, and four wait."""
    with Queue(tmp_path / "jobs") as queue:
        queue.put_many([f"job {number} {'x' * 50}" for number in range(5)])
        queue.put("later", delay="1h")
        queue.get().ack()
        queue.get()
    return tmp_path / "jobs"


def files(directory: Path) -> dict[str, tuple[bytes, int]]:
    """All files and folders, what is in them and when they were changed."""
    return {
        str(path): (b"" if path.is_dir() else path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.name != "SOCKET"
    }


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def segment_of(jobs: Path) -> Path:
    """Of the queue's partition."""
    (found,) = (p for p in jobs.glob("groups/*/*.segment") if not p.parent.name.startswith("0000"))
    return found


def test_all_that_can_be_seen_is_seen_and_nothing_is_written(jobs: Path) -> None:
    before = files(jobs)

    with Queue(jobs, mode="r") as queue:
        stats = queue.stats()
        peeked = queue.peek()
        read = [message.text.split()[0] for message in queue.client.read("queue", 0).messages]
        happened = [event.type for event in queue.client.timeline("queue:0:0")]
        why = queue.client.why("queue:0:1", group="queue")

    assert (stats.size, stats.ready, stats.in_flight, stats.delayed, stats.acked) == (5, 3, 1, 1, 1)
    assert str(peeked).startswith("job 2")
    assert read == ["job"] * 5 + ["later"]
    assert {"PUBLISHED", "DELIVERED", "ACKNOWLEDGED"} <= set(happened)
    assert why
    assert files(jobs) == before


def test_every_changing_call_is_a_clear_error(jobs: Path) -> None:
    with Queue(jobs, mode="r") as queue:
        client = queue.client
        for change in (
            lambda: queue.put("more"),
            lambda: queue.put_many(["more"]),
            queue.get,
            queue.requeue,
            queue.sync,
            lambda: queue.seek("earliest"),
            lambda: client.create_topic("other"),
            lambda: client.delete_topic("queue"),
            lambda: client.put_group("other"),
        ):
            with pytest.raises(ReadOnlyDirectory, match="is open for reading only") as no:
                change()
            assert (no.value.code, no.value.http_status) == ("read_only_directory", 403)


def test_each_route_is_known_to_change_something_or_not() -> None:
    harmless = {route.operation for route in ROUTES if not changes(route)}

    assert {route.operation for route in ROUTES if route.method != "GET"} & harmless == {"peek"}
    assert {route.operation for route in ROUTES if route.method == "GET"} - harmless == {
        "consume",
        "poll",
    }


def test_a_reader_beside_a_writer_sees_what_it_has_written(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_channel, "FRESH_S", 0.0)
    with Queue(jobs) as writer, Queue(jobs, mode="r") as reader:
        before = reader.size()
        writer.put("new")
        writer.get().ack()
        writer.put("newer")

        assert (before, reader.size()) == (5, 6)
        assert "newer" in [message.text for message in reader.client.read("queue", 0).messages]


def test_a_reader_locks_nobody_out_and_is_locked_out_by_nobody(jobs: Path) -> None:
    with Queue(jobs, mode="r") as first, Queue(jobs, mode="r") as second:
        with Queue(jobs) as writer:
            writer.put("new")
        assert first.stats().acked == second.stats().acked == 1


class ReadOnlyFiles(OsDisk):
    """A file system that was mounted to be read only."""

    def _refuse(self) -> OSError:
        return OSError(errno.EROFS, "read-only file system")

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if write or create:
            raise self._refuse()
        return super().open(path)

    def pwritev(self, handle: int, parts: Sequence[Bytes], offset: int) -> int:
        raise self._refuse()

    def truncate(self, handle: int, length: int) -> None:
        raise self._refuse()

    def make_directories(self, path: str) -> None:
        raise self._refuse()

    def rename(self, source: str, target: str) -> None:
        raise self._refuse()

    def unlink(self, path: str) -> None:
        raise self._refuse()

    def lock(self, path: str, holder: str) -> int:
        raise self._refuse()


def test_a_read_only_file_system_is_read_and_so_is_a_copy(jobs: Path, tmp_path: Path) -> None:
    shutil.copytree(jobs, tmp_path / "copy", ignore=shutil.ignore_patterns("LOCK", "SOCKET"))
    reader = Reader(str(tmp_path / "copy"), ReadOnlyFiles())
    reader.open()
    try:
        answer = reader.ask("GET", "/topics/queue", {}).result()
        assert answer.status == 200
        assert b'"total_messages":6' in answer.body.replace(b" ", b"")
    finally:
        reader.close()


def test_a_torn_tail_is_read_up_to_the_tear(jobs: Path) -> None:
    with Queue(jobs) as queue:  # writes a file of its own, and is killed as it writes
        queue.put("whole")
        queue.put("half of it")  # no word of the path, which the log has in the node's address
        shutil.copytree(jobs, jobs.parent / "killed", ignore=shutil.ignore_patterns("SOCKET"))
    killed = jobs.parent / "killed"
    wal = max(killed.glob("wal/*.wal"))
    data = wal.read_bytes()
    at = data.rindex(b"half of it")
    wal.write_bytes(data[:at] + bytes(len(data) - at))
    segment = segment_of(killed)  # nothing of it is synced yet, nor need it be written
    held = segment.read_bytes()
    segment.write_bytes(held.partition(b"half of it")[0])
    before = files(killed)

    with Queue(killed, mode="r") as queue:
        read = [message.text for message in queue.client.read("queue", 0).messages]
    (tear,) = damage_of(str(killed))

    assert read[-1] == "whole"
    assert tear.is_tear
    assert tear.path == str(wal)
    assert data.index(b"GQwB", tear.position) == tear.position < at
    assert files(killed) == before


def test_damage_in_the_middle_is_told_by_file_and_offset_and_never_skipped(jobs: Path) -> None:
    Queue(jobs).close()  # what was in the write-ahead log alone is in the segment now
    segment = segment_of(jobs)
    at = segment.read_bytes().index(b"job 3")
    flip(segment, at)

    for mode in ("r", "rw"):
        with pytest.raises(GoQueueError, match="damaged at byte") as told:
            goqueue.open(jobs, mode=mode)  # type: ignore[arg-type]
        assert told.value.code == "directory_damaged"
        assert str(segment) in told.value.message
        assert "`local repair` goes on without" in told.value.message
    (damage,) = damage_of(str(jobs))
    assert (damage.path, damage.is_tear) == (str(segment), False)
    assert damage.position <= at


def test_a_damaged_write_ahead_log_is_told_by_file_and_offset(jobs: Path) -> None:
    (wal,) = jobs.glob("wal/*.wal")
    flip(wal, 20)

    with pytest.raises(GoQueueError, match="damaged at byte") as told:
        goqueue.open(jobs, mode="r")
    assert told.value.code == "wal_damaged"
    assert str(wal) in told.value.message


def test_a_writer_that_takes_files_away_meanwhile_is_no_damage(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    opened = Reader._open

    def disturbed(self: Reader) -> None:
        tried.append(1)
        if len(tried) < 4:
            os.utime(next(jobs.glob("wal/*.wal")), (0, len(tried)))  # not just now, but changed
            raise DirectoryDamaged("a file is missing")
        opened(self)

    monkeypatch.setattr(reading, "TRY_AGAIN_S", 0.0)
    monkeypatch.setattr(Reader, "_open", disturbed)
    with Queue(jobs, mode="r") as queue:
        assert queue.size() == 5
    assert len(tried) == 4


def test_what_is_not_there_is_not_made(tmp_path: Path, jobs: Path) -> None:
    with pytest.raises(NotFound, match="there is no queue in") as missing:
        Queue(tmp_path / "nothing", mode="r")
    assert missing.value.code == "no_directory"
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(goqueue.errors.UnknownTopic):
        Queue(jobs, "other", mode="r")
    with pytest.raises(ReadOnlyDirectory):
        Queue.create(jobs, "other", mode="r")


def test_the_mode_is_of_directories_and_known() -> None:
    with pytest.raises(BadRequest, match="is for directories"):
        goqueue.open("http://127.0.0.1:1", mode="r")
    with pytest.raises(BadRequest, match="mode 'w' is not known"):
        goqueue.open("./jobs", mode="w")  # type: ignore[arg-type]


def test_a_closed_reader_says_so(jobs: Path) -> None:
    queue = Queue(jobs, mode="r")
    queue.close()
    queue.close()

    with pytest.raises(Closed):
        queue.stats()


async def test_programs_with_a_loop_read_too(jobs: Path) -> None:
    async with goqueue.open_async(jobs, mode="r") as client:
        assert (await client.topic("queue")).total_messages == 6
        with pytest.raises(ReadOnlyDirectory):
            await client.publish("queue", "more")
