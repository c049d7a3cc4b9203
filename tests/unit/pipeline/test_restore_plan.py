"""What a run restores is counted exactly, marked, cut into batches, and kept to a rate."""

from __future__ import annotations

import random

import msgspec
import pytest

from goqueue.archive.manifest import Gap
from goqueue.models.messages import Message
from goqueue.wire.batch import RecordBatch
from goqueue.wire.layout import UINT32_MAX
from pipeline.restore import state as states
from pipeline.restore.marks import BATCH_BYTES_MAX, BATCH_ROWS_MAX, batches, encoded, marked
from pipeline.restore.plan import Wanted, find, skip_whole
from pipeline.restore.rate import BURST_S, Rate
from pipeline.restore.state import Plan, Range, State
from tests.unit.goqueue.archive.partition import Partition, file, message


def archive() -> Partition:
    """0 to 9, 15 to 19 and 20 to 29 are archived; 10 to 14 were deleted before."""
    partition = Partition(end=30)
    partition.archive(file(0, 9), Gap(0, 10, 14, "deleted"), file(15, 19), file(20, 29))
    return partition


async def test_all_that_is_archived_is_counted_without_reading_a_file() -> None:
    partition = archive()
    (found,) = await find(partition, Wanted())

    assert found.range == Range(0, 0, 30, 25)
    assert [(one.first, one.last) for one in found.missing] == [(10, 14)]
    assert (found.first_ms, found.last_ms) == (message(0).timestamp_ms, message(29).timestamp_ms)
    assert partition.files_read == []


@pytest.mark.parametrize("seed", range(30))
async def test_any_range_of_offsets_and_times_is_counted_as_it_is(seed: int) -> None:
    chance = random.Random(seed)
    offsets = sorted(chance.choices(range(30), k=2))
    times = sorted(chance.choices(range(31), k=2))
    begin, end = (message(at).timestamp_ms for at in times)
    wanted = Wanted(None, offsets[0], offsets[1], begin, end)

    found = await find(archive(), wanted)

    expected = [
        offset
        for offset in (*range(10), *range(15, 30))
        if offsets[0] <= offset <= offsets[1] and times[0] <= offset < times[1]
    ]
    assert sum(one.range.count for one in found) == len(expected)


@pytest.mark.parametrize("done", range(26))
def test_whole_files_that_are_done_are_passed_over(done: int) -> None:
    partition = archive()
    items = partition.manifest.partitions()[0]
    stored = [*range(10), *range(15, 30)]

    position, ahead = skip_whole(items, Range(0, 0, 30, 25), None, None, done)

    rest = [offset for offset in stored if offset >= position]
    assert rest[ahead:] == stored[done:]
    assert ahead < 10


def test_a_message_keeps_what_it_has_and_says_where_it_is_from() -> None:
    one = msgspec.structs.replace(
        message(7),
        headers=(("a", b"\xff"), ("goqueue-replay-id", b"before")),
        message_id="mine",
        key=b"",
        lane=4,
        published_ms=77,
        is_null=True,
        deliver_at_ms=2000,
        expires_at_ms=900,
    )
    assert marked(one, "r") == (
        ("a", b"\xff"),
        ("goqueue-replay-id", b"r"),
        ("goqueue-replay-origin", b"orders:0:7"),
        ("goqueue-replay-time", b"2023-11-14T22:13:27.000Z"),
        ("goqueue-replay-message-id", b"mine"),
    )
    batch = RecordBatch.parse(encoded([one], "r", (9, 2), 40, now_ms=1000))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 2, 40)
    assert batch.values_or_nulls() == [None]
    assert batch.keys() == [b""]
    assert batch.lanes()[0] == 4
    assert batch.timestamps_ms()[0] == 77
    assert batch.message_ids() == [None]
    assert (batch.deliver_at()[0], batch.expires_at()[0] or None) == (2000, None)


def test_batches_are_bounded_in_rows_bytes_and_time() -> None:
    def sized(count: int, value: bytes = b"", stamp: int = 0) -> list[Message]:
        return [Message("t", 0, n, 0, value, published_ms=stamp) for n in range(count)]

    assert [len(batch) for batch in batches(sized(BATCH_ROWS_MAX + 1))] == [BATCH_ROWS_MAX, 1]
    large = b"x" * (BATCH_BYTES_MAX // 2)
    assert [len(batch) for batch in batches(sized(3, large))] == [1, 1, 1]
    far = [*sized(2, stamp=1), *sized(2, stamp=UINT32_MAX + 2), *sized(1, stamp=UINT32_MAX + 1)]
    assert [len(batch) for batch in batches(far)] == [2, 3]
    assert list(batches([])) == []


def test_a_rate_is_kept_over_records_and_bytes() -> None:
    now = [0.0]
    rate = Rate(100, 1000, lambda: now[0])
    stored = 0
    while now[0] < 10:
        wait_s = rate.take(10, 50)
        now[0] += wait_s if wait_s > 0 else 0.001
        stored += 10
    assert 900 <= stored <= 100 * (10 + BURST_S) + 20
    assert rate.rows_max == 50
    assert Rate(0.1, None).rows_max == 1
    assert Rate(None, None).take(1_000_000, 1 << 30) == 0


class _Files:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def replace(self, path: str, data: bytes) -> None:
        self.files[path] = data


def test_a_run_finds_its_state_again_by_the_options_it_was_given() -> None:
    files = _Files()
    name = states.run_name("s3://lake", "orders", "ab-1", "again", Wanted(first=3))
    assert name == states.run_name("s3://lake", "orders", "ab-1", "again", Wanted(first=3))
    assert name != states.run_name("s3://lake", "orders", "ab-1", "again", Wanted(first=4))
    assert states.load(files, name) is None

    plan = Plan(name, "orders", "ab-1", "again", "ab-2", 2, (Range(0, 3, 9, 6),), {0: 7}, False)
    states.save(files, State(plan, 5, 0, {0: 4}), now_ms=99)
    found = states.load(files, name)
    assert found is not None
    assert (found.plan, found.done, found.saved_ms) == (plan, {0: 4}, 99)
