"""A partition is read through archive and log: each message once, and what is nowhere is told."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from goqueue.archive.manifest import Gap
from goqueue.archive.seam import MessagesMissing, Missing, PartitionReplay, Place, Window, refuse
from goqueue.errors import Unavailable
from tests.unit.goqueue.archive.partition import Partition, file, message, offsets


def replay(
    partition: Partition,
    window: Window | None = None,
    *,
    is_compacted: bool = False,
    is_live: bool = True,
    is_archived: bool = True,
    on_missing: Callable[[Missing], None] = refuse,
) -> PartitionReplay:
    return PartitionReplay(
        "orders",
        0,
        window or Window(),
        archived=partition if is_archived else None,
        live=(partition, Place(partition.log_start, is_compacted)) if is_live else None,
        on_missing=on_missing,
    )


async def read(one: PartitionReplay, end: int) -> list[int]:
    return offsets([run async for run in one.runs(end)])


async def test_what_the_log_has_is_read_from_the_log_and_what_it_dropped_from_the_archive() -> None:
    partition = Partition(end=30, log_start=13)
    partition.archive(file(0, 9), file(10, 19))

    assert await read(replay(partition), 30) == list(range(30))
    assert len(partition.files_read) == 2
    assert partition.pages_read == 3  # 20 to 29: the file that has the seam is read to its end


async def test_a_log_that_has_everything_is_read_without_looking_into_the_archive() -> None:
    partition = Partition(end=30)
    partition.archive(file(0, 19))

    assert await read(replay(partition), 30) == list(range(30))
    assert partition.files_read == []
    assert partition.known.version == 0


async def test_retention_that_overtakes_the_reader_sends_it_back_to_the_archive() -> None:
    partition = Partition(end=40)

    def trim() -> None:
        if partition.pages_read == 2 and not partition.manifest.version:
            partition.archive(file(0, 24), file(25, 34))
            partition.log_start = 33

    partition.between = trim
    assert await read(replay(partition), 40) == list(range(40))
    assert len(partition.files_read) == 2


async def test_files_that_were_compacted_while_they_were_read_go_on_in_what_replaced_them() -> None:
    partition = Partition(end=40, log_start=30)
    partition.archive(file(0, 9), file(10, 19), file(20, 29))

    def compact() -> None:
        if len(partition.files_read) == 1 and not partition.gone:
            partition.compact(0, 29)

    partition.between = compact
    assert await read(replay(partition), 40) == list(range(40))
    assert partition.files_read[-1] == partition.manifest.files[0].path


async def test_whatever_retention_archive_and_compaction_do_meanwhile_each_message_comes_once() -> (
    None
):
    for seed in range(200):
        chance, partition = random.Random(seed), Partition(end=60)

        def meanwhile(chance: random.Random = chance, log: Partition = partition) -> None:
            archived = log.manifest.position(0)
            if chance.random() < 0.3 and archived < log.end:
                log.archive(file(archived, min(log.end, archived + chance.randint(1, 12)) - 1))
            if chance.random() < 0.3:
                log.log_start = max(log.log_start, chance.randint(0, log.manifest.position(0)))
            if chance.random() < 0.1 and len(log.manifest.files) > 2:
                log.compact(0, log.manifest.files[1].last)
            log.end = min(200, log.end + chance.randint(0, 3))

        partition.between = meanwhile
        one = replay(partition, is_compacted=seed % 2 == 1)
        first = await read(one, 60)
        rest = await read(one, partition.end)
        assert first + rest == list(range(60 + len(rest))), f"seed {seed}"
        assert len(first) == 60


async def test_what_neither_has_is_refused_unless_somebody_takes_note() -> None:
    partition = Partition(end=30, log_start=20)
    partition.archive(Gap(0, 0, 4, "deleted"), file(5, 14))

    with pytest.raises(MessagesMissing, match="orders:0: 5 messages before offset 5"):
        await read(replay(partition), 30)

    told: list[Missing] = []
    assert await read(replay(partition, on_missing=told.append), 30) == [
        *range(5, 15),
        *range(20, 30),
    ]
    assert [(one.first, one.last, one.why) for one in told] == [
        (0, 4, "deleted"),
        (15, 19, "not_archived"),
    ]


async def test_without_an_archive_what_retention_took_is_told() -> None:
    partition, told = Partition(end=30, log_start=20), list[Missing]()

    one = replay(partition, Window(7), is_archived=False, on_missing=told.append)
    assert await read(one, 30) == list(range(20, 30))
    assert [(one.first, one.last) for one in told] == [(7, 19)]


async def test_a_damaged_file_is_refused_or_told_and_what_the_log_has_of_it_is_read() -> None:
    partition = Partition(end=30, log_start=16)
    partition.archive(file(0, 9), file(10, 19))
    partition.damaged = {partition.manifest.files[1].path}

    with pytest.raises(MessagesMissing, match="damaged"):
        await read(replay(partition), 30)

    told: list[Missing] = []
    one = replay(partition, on_missing=told.append)
    assert await read(one, 30) == [*range(10), *range(16, 30)]
    assert [(one.first, one.last, one.why) for one in told] == [(10, 15, "damaged")]


async def test_a_file_that_is_gone_and_was_not_replaced_is_damage() -> None:
    partition = Partition(end=30, log_start=20)
    partition.archive(file(0, 9), file(10, 19))
    partition.gone = {partition.manifest.files[0].path}

    with pytest.raises(MessagesMissing, match=r"0.*damaged"):
        await read(replay(partition), 30)


async def test_of_a_compacted_topic_the_archive_gives_what_compaction_dropped() -> None:
    partition = Partition(end=30, dropped=set(range(1, 18)))
    partition.archive(file(0, 19))

    assert await read(replay(partition, is_compacted=True), 30) == list(range(30))
    assert await read(replay(partition, is_compacted=True, is_archived=False), 30) == [
        0,
        *range(18, 30),
    ]


async def test_compaction_may_drop_what_is_not_archived_yet() -> None:
    partition = Partition(end=30, log_start=25)
    partition.archive(file(0, 9))

    assert await read(replay(partition, is_compacted=True), 30) == [*range(10), *range(25, 30)]


@pytest.mark.parametrize("log_start", [0, 8, 13, 25])
async def test_a_window_of_time_chooses_where_it_is_read(log_start: int) -> None:
    partition = Partition(end=30, log_start=log_start)
    partition.archive(file(0, 9), file(10, 19), file(20, 26))

    window = Window(0, message(12).timestamp_ms - 1, message(28).timestamp_ms)
    one = replay(partition, window)
    assert await read(one, 30) == list(range(12, 28))
    assert one.is_over
    assert bool(partition.files_read) == (log_start > 8)


async def test_a_window_that_begins_after_the_archive_misses_nothing() -> None:
    partition = Partition(end=30, log_start=20)
    partition.archive(file(0, 9))

    assert await read(replay(partition, Window(0, message(22).timestamp_ms)), 30) == list(
        range(22, 30)
    )
    with pytest.raises(MessagesMissing, match="10 messages before offset 20"):
        await read(replay(partition, Window(0, message(20).timestamp_ms)), 30)


async def test_a_topic_that_is_gone_is_read_from_the_archive_alone() -> None:
    partition = Partition(end=0)
    partition.archive(file(0, 9), file(10, 19))

    assert await read(replay(partition, is_live=False), 20) == list(range(20))
    assert partition.pages_read == 0


async def test_a_replica_that_has_yet_to_apply_what_is_there_is_asked_again() -> None:
    partition = Partition(end=10)

    def catch_up() -> None:
        partition.end = 30 if partition.pages_read == 5 else partition.end

    partition.between = catch_up
    assert await read(replay(partition), 30) == list(range(30))

    with pytest.raises(Unavailable, match="nothing at 30 for now"):
        await read(replay(partition, Window(30)), 31)


async def test_following_goes_on_where_it_was_and_says_when_nothing_is_new() -> None:
    partition = Partition(end=10, log_start=5)
    partition.archive(file(0, 6))
    one = replay(partition)
    assert await read(one, 10) == list(range(10))

    following = one.runs(None)
    assert await anext(following) == []
    partition.end = 12
    assert offsets([await anext(following)]) == [10, 11]
    await following.aclose()
