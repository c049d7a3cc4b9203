"""What waits for its archive: no trim and no compaction passes what was reported, anywhere."""

from __future__ import annotations

import msgspec
import pytest

from delivery.entries.ops import Archived, ArchivedResult, RequireArchive, decode_ops, encode_ops
from delivery.errors import SnapshotUnreadable, UnknownKind
from delivery.state.partition import (
    ARCHIVED_VERSION,
    SNAPSHOT_VERSION,
    STREAMED_VERSION,
    PartitionState,
)
from log.entry import EntryKind
from tests.unit.delivery.desk import Desk
from tests.unit.delivery.history.test_compacted_set import compact, keep

HERE, THERE = "s3://bucket/archive", "s3://other/archive"


def report(
    desk: Desk, position: int, location: str = HERE, *, anew: bool = False
) -> tuple[str, int, bool]:
    """The archive that counts then, up to where, and whether it is this one."""
    (result,) = desk.do(Archived(location, position, anew))
    assert isinstance(result, ArchivedResult)
    return result.location, result.position, result.is_same


@pytest.fixture
def desk() -> Desk:
    """Ten messages that wait for their archive."""
    desk = Desk()
    desk.do(RequireArchive(True))
    for _ in range(10):
        desk.publish()
    return desk


def test_a_topic_that_never_saw_an_archive_keeps_all_of_it(desk: Desk) -> None:
    assert not desk.trim(1)
    assert desk.state.log_start_offset == 0


def test_the_log_goes_up_to_what_is_archived_and_no_further(desk: Desk) -> None:
    assert report(desk, 4) == (HERE, 4, True)

    assert not desk.trim(5)
    assert desk.trim(4)
    assert not desk.trim(10)


def test_a_smaller_position_is_no_error_and_changes_nothing(desk: Desk) -> None:
    report(desk, 7)

    assert report(desk, 3) == (HERE, 7, True)
    assert desk.trim(7)


def test_a_position_beyond_the_end_counts_as_the_end(desk: Desk) -> None:
    assert report(desk, 99) == (HERE, 10, True)
    desk.publish()
    assert not desk.trim(11)


def test_another_archive_does_not_count_until_it_takes_the_place_of_the_first(desk: Desk) -> None:
    report(desk, 5)

    assert report(desk, 9, THERE) == (HERE, 5, False)
    assert not desk.trim(6)
    assert report(desk, 2, THERE, anew=True) == (THERE, 2, True)
    assert not desk.trim(5)
    assert desk.trim(2)


def test_nothing_waits_once_the_archive_is_not_required_any_more(desk: Desk) -> None:
    report(desk, 2)
    desk.do(RequireArchive(False))

    assert desk.trim(10)


def test_compaction_drops_nothing_that_is_not_archived(desk: Desk) -> None:
    report(desk, 4)

    assert not compact(desk, 6, [1, 4], keep(desk, [1, 4]))
    assert not compact(desk, 6, [5], keep(desk, [5]))
    assert compact(desk, 6, [1, 4, 5], keep(desk, [1, 4, 5]))


def test_what_compaction_kept_stays_until_it_is_archived(desk: Desk) -> None:
    desk.do(RequireArchive(False))
    assert compact(desk, 6, [1, 5], keep(desk, [1, 5]))
    desk.do(RequireArchive(True))
    report(desk, 5)

    desk.trim(6)
    assert list(desk.queue.compacted) == [1, 5]
    report(desk, 6)
    desk.trim(6)
    assert not desk.queue.compacted


def test_entries_without_messages_go_without_an_archive(desk: Desk) -> None:
    report(desk, 4)
    desk.trim(4)
    index = desk.state.log_start_index + 1

    desk.trim(4, index=index)
    assert desk.state.log_start_index == index


def test_it_survives_a_snapshot_which_older_releases_do_not_take_for_theirs(desk: Desk) -> None:
    report(desk, 4)
    desk.restart()

    archive = desk.state.queue.archive
    assert (archive.required, archive.location, archive.position) == (True, HERE, 4)
    assert archive.time_ms == desk.now_ms
    assert version(desk.state.snapshot()) == ARCHIVED_VERSION
    assert version(Desk().state.snapshot()) == SNAPSHOT_VERSION
    assert not desk.trim(5)


def version(snapshot: bytes) -> int:
    found = msgspec.msgpack.decode(snapshot)[0]
    assert isinstance(found, int)
    return found


def test_a_snapshot_of_a_later_release_is_refused(desk: Desk) -> None:
    parts = msgspec.msgpack.decode(desk.state.snapshot())
    later = msgspec.msgpack.encode([STREAMED_VERSION + 1, *parts[1:]])

    with pytest.raises(SnapshotUnreadable):
        PartitionState().restore(later)


VECTORS = [
    (RequireArchive(True), "919212c3"),
    (RequireArchive(False), "919212c2"),
    (
        Archived("s3://bucket/archive", 1234),
        "919413b373333a2f2f6275636b65742f61726368697665cd04d2c2",
    ),
    (Archived("/a", 2**40, anew=True), "919413a22f61cf0000010000000000c3"),
]


@pytest.mark.parametrize(("op", "written"), VECTORS)
def test_operations_are_written_as_the_storage_format_says(op: object, written: str) -> None:
    assert encode_ops([op]).hex() == written  # type: ignore[list-item]
    assert decode_ops(bytes.fromhex(written)) == [op]


def test_a_replica_that_does_not_know_an_operation_stops_and_has_changed_nothing(
    desk: Desk,
) -> None:
    before = desk.state.snapshot()

    with pytest.raises(UnknownKind):
        desk.apply(EntryKind.QUEUE, bytes.fromhex("919214c3"))
    assert desk.state.snapshot() == before
