"""What LedgerQ and dque got wrong, tried with a queue in a directory.

Each test is named after the fault; docs/internals/small-queues.md has the table.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from goqueue import Queue
from goqueue.errors import Closed, Empty
from goqueue.everyday.at_hand import AtHand
from tests.power_cuts import small_files


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


def killed(jobs: Path) -> Path:
    """The directory as a kill -9 of its owner leaves it, while that one goes on."""
    left = jobs.parent / "killed"
    shutil.copytree(jobs, left, ignore=shutil.ignore_patterns("SOCKET"))
    return left


def values(queue: Queue[str]) -> list[str]:
    """All that can be taken out now."""
    found: list[str] = []
    while True:
        try:
            found += [item.value for item in queue.get_many(1000, timeout=0)]
        except Empty:
            return found


def test_a_torn_tail_does_not_fail_the_open(jobs: Path) -> None:
    with Queue[str](jobs) as queue:
        queue.put("whole")
        queue.put("half of it")  # no word of the path, which the log has in the node's address
        left = killed(jobs)
    wal = max(left.glob("wal/*.wal"))
    data = wal.read_bytes()
    wal.write_bytes(data[: data.rindex(b"half of it") + 2].ljust(len(data), b"\0"))

    with Queue[str](left) as queue:
        queue.put("after")
        assert values(queue) == ["whole", "after"]


def test_an_empty_last_segment_does_not_fail_the_open(jobs: Path) -> None:
    with Queue[str](jobs) as queue:
        queue.put("first")
    (folder,) = (path for path in jobs.glob("groups/*") if not path.name.startswith("0000"))
    segment = folder / "0000000000000001.segment"
    assert segment.exists()
    segment.with_name("0000000000000009.segment").touch()

    with Queue[str](jobs) as queue:
        assert values(queue) == ["first"]


def test_the_low_ones_before_a_high_one_come_after_a_restart(jobs: Path) -> None:
    with Queue[str](jobs) as queue:
        for number in range(5):
            queue.put(f"low {number}", priority="low")
        queue.put("high", priority="high")
        assert queue.get().value == "high"
        left = killed(jobs)

    with Queue[str](left) as queue:
        assert values(queue) == [f"low {number}" for number in range(5)]


def test_no_roll_and_no_restart_takes_what_nobody_has_read(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_files(monkeypatch)
    wanted = [f"{number} {'x' * 400}" for number in range(100)]
    with Queue[str](jobs) as queue:
        for at in range(0, 100, 10):
            queue.put_many(wanted[at : at + 10])
        for item in queue.get_many(10):
            item.ack()
    with Queue[str](jobs) as queue:
        assert len(list(jobs.glob("groups/*/*.segment"))) > 6
        assert values(queue) == wanted[10:]


def test_a_crash_does_not_forget_which_ids_were_put(jobs: Path) -> None:
    with Queue[str](jobs) as queue:
        queue.put("once", id="order-7")
        left = killed(jobs)

    with Queue[str](left) as queue:
        assert queue.put("once", id="order-7").duplicate
        assert values(queue) == ["once"]


def test_a_crash_does_not_forget_attempts(jobs: Path) -> None:
    with Queue[str](jobs) as queue:
        queue.put("hard")
        queue.get().nack(delay=0, reason="no disk")
        left = killed(jobs)

    with Queue[str](left) as queue:
        message = queue.get(timeout=20).message
        assert (message.attempt, message.last_reason) == (2, "no disk")


def test_a_stream_waits_for_items_and_does_not_poll(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    take = AtHand.take

    def counted(at_hand: AtHand, limit: int, wait_s: float) -> object:
        asked.append(1)
        return take(at_hand, limit, wait_s)

    monkeypatch.setattr(AtHand, "take", counted)
    with Queue[int](jobs, type=int) as queue:
        queue.put(0)

        def handle(number: int) -> None:
            if number < 19:
                queue.put(number + 1)  # the next one comes while the stream is at work
            else:
                queue.close()

        queue.stream(handle)
    assert len(asked) == 20, "an item that comes is an answer: nobody asks in vain"


def test_a_waiting_get_is_woken_by_a_put(jobs: Path) -> None:
    got: list[str] = []
    with Queue[str](jobs) as queue:
        thread = threading.Thread(target=lambda: got.append(queue.get().value))
        thread.start()
        queue.put("here")
        thread.join(60)
    assert got == ["here"]


@pytest.mark.parametrize(
    "call",
    [
        lambda queue: queue.put("a"),
        lambda queue: queue.put_many(["a"]),
        lambda queue: queue.get(timeout=0),
        lambda queue: queue.peek(),
        lambda queue: queue.size(),
        lambda queue: queue.stats(),
        lambda queue: queue.seek(0),
        lambda queue: queue.sync(),
        lambda queue: queue.requeue(),
        lambda queue: queue.task_done(),
    ],
)
def test_a_handle_that_is_used_after_close_says_so(
    call: Callable[[Queue[str]], object], closed: Queue[str]
) -> None:
    with pytest.raises(Closed):
        call(closed)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Queue[str]:
    queue = Queue[str](tmp_path_factory.mktemp("closed") / "jobs")
    queue.close()
    return queue


def test_what_is_taken_out_is_locked_and_nack_unlocks_it(jobs: Path) -> None:
    """dque's users asked for Lock and Unlock, to peek and then dequeue what they saw."""
    with Queue[str](jobs) as one, Queue[str](jobs) as another:
        one.put("first")
        one.put("second")
        seen = one.get()
        assert another.peek() == "second"
        assert another.get().value == "second"
        seen.nack(delay=0)

        assert another.get(timeout=20).value == "first"


def test_what_its_owner_changes_after_the_put_is_not_changed_in_the_queue(jobs: Path) -> None:
    with Queue[list[int]](jobs, type=list) as queue:
        item = [1, 2]
        queue.put(item)
        item.append(3)
        assert queue.get().value == [1, 2]


def test_dead_letters_need_no_directory_of_their_own(jobs: Path) -> None:
    with Queue[str](jobs) as queue:
        queue.put("bad")
        for _ in range(3):
            queue.get(timeout=20).nack(delay=0, reason="broken")
        (letter,) = queue.client.dead_letters("queue", "queue")
        assert (letter.reason, queue.stats().dead) == ("broken", 1)
        assert queue.requeue() == 1
        assert queue.get(timeout=20).message.attempt == 1


def test_a_missing_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    with Queue[str](tmp_path / "a" / "b" / "jobs") as queue:
        queue.put("first")
    assert (tmp_path / "a" / "b" / "jobs" / "wal").is_dir()
