"""A decision to compact is obeyed only where nothing is lost by it."""

from __future__ import annotations

import msgspec
import pytest

from delivery.entries.reappended import ReappendedBatch, encode_reappended
from delivery.group.lag import lag_count, would_seek
from delivery.history.compacted_set import Compaction, decode_compaction, encode_compaction
from delivery.offsets.bitmaps import BitMap64
from delivery.offsets.keys import CHUNK, KeyHashes, key_hash
from goqueue.wire.batch import encode_columns
from goqueue.wire.types import Index, Offset
from log.entry import EntryKind
from tests.unit.delivery.desk import Desk


def keep(desk: Desk, offsets: list[int]) -> int:
    """The index of the entry that carries these messages."""
    batch = encode_columns([b"v"] * len(offsets), [b"k"] * len(offsets))
    body = encode_reappended([ReappendedBatch(desk.now_ms, offsets, batch)])
    desk.apply(EntryKind.KEPT, body)
    return desk.state.applied_index


def compact(desk: Desk, offset: int, kept: list[int], since: int, **changes: object) -> bool:
    """Whether the log begins there now."""
    fields = {
        "from_index": desk.state.log_start_index,
        "index": since or desk.state.log_start_index,
        "tombstones": BitMap64(),
        **changes,
    }
    decision = Compaction(
        offset=Offset(offset),
        since=Index(since),
        kept=BitMap64(kept),
        **fields,  # type: ignore[arg-type]
    )
    assert decode_compaction(encode_compaction(decision)) == decision
    desk.apply(EntryKind.COMPACT, encode_compaction(decision))
    return desk.state.log_start_offset == offset and list(desk.queue.compacted) == kept


def test_what_is_carried_and_named_stays_and_all_else_goes() -> None:
    desk = Desk()
    desk.publish(10)

    assert compact(desk, 8, [2, 5], keep(desk, [2, 3, 5]))

    assert [desk.queue.held_in(offset) for offset in (2, 3, 5, 8)] == [2, None, 2, None]
    assert (desk.state.first_offset, desk.queue.compacted_set.dropped) == (2, 6)
    desk.restart()
    assert list(desk.queue.compacted) == [2, 5]


@pytest.mark.parametrize(
    "changes", [{"from_index": Index(7)}, {"tombstones": BitMap64([6])}, {"index": Index(99)}]
)
def test_a_decision_that_does_not_fit_is_ignored(changes: dict[str, object]) -> None:
    desk = Desk()
    desk.publish(10)

    assert not compact(desk, 8, [2], keep(desk, [2]), **changes)

    assert (desk.state.log_start_offset, list(desk.queue.compacted)) == (0, [])


def test_nothing_is_dropped_that_was_to_stay_and_is_not_carried() -> None:
    desk = Desk()
    desk.publish(10)
    leftover = keep(desk, [2, 5])

    assert not compact(desk, 8, [2, 5], keep(desk, [5]))
    assert not compact(desk, 4, [2, 5], leftover)
    assert not compact(desk, 8, [2, 5], leftover, index=Index(leftover + 1))


def test_dead_letters_and_delayed_messages_hold_a_decision_up_until_they_are_carried() -> None:
    desk = Desk()
    desk.open()
    desk.publish(2, deliver_at_ms=[None, 60_000])
    desk.reject(desk.receive())
    since = keep(desk, [1])

    assert not compact(desk, 2, [1], since)
    desk.carry([0, 1])
    assert compact(desk, 2, [1], since)

    assert list(desk.group().dead) == [0]


def test_what_is_kept_can_go_without_a_run_and_an_age_trim_takes_all_of_it() -> None:
    desk = Desk()
    desk.publish(10)
    assert compact(desk, 8, [2, 5], keep(desk, [2, 5]))

    assert compact(desk, 8, [5], 0)
    assert desk.trim(9)

    assert list(desk.queue.compacted) == []
    assert desk.queue.compacted_set.carriers == []


def test_a_null_value_is_dated_by_the_run_that_met_it_first() -> None:
    desk = Desk()
    desk.publish(10)
    met_ms = desk.now_ms
    assert compact(desk, 4, [1, 2], keep(desk, [1, 2]), tombstones=BitMap64([2]))
    desk.wait(5000)
    assert compact(desk, 8, [2, 6], keep(desk, [2, 6]), tombstones=BitMap64([2, 6]))

    met = desk.queue.compacted_set.tombstones_met_before

    assert list(met(met_ms)) == [2]
    assert list(met(desk.now_ms)) == [2, 6]


def test_groups_keep_and_get_what_stays() -> None:
    desk = Desk()
    desk.open()
    desk.publish(6)
    assert compact(desk, 5, [1, 3], keep(desk, [1, 3]))

    assert (lag_count(desk.group()), desk.group().counters.fallen) == (3, 3)
    desk.ack(desk.receive())
    assert lag_count(desk.group()) == 0
    assert desk.offsets() == []

    desk.open(2)
    assert desk.offsets(group=2) == [1, 3, 5]
    assert would_seek(desk.group(2), 2).skipped == 1
    desk.seek(2, group=2)
    assert desk.offsets(group=2) == [3, 5]


def test_snapshots_of_partitions_that_were_never_compacted_stay_as_they_were() -> None:
    desk = Desk()
    desk.publish(3)
    plain = msgspec.msgpack.decode(desk.state.snapshot())[0]
    compact(desk, 1, [], keep(desk, [0]))

    assert (plain, msgspec.msgpack.decode(desk.state.snapshot())[0]) == (2, 3)


def test_keys_of_what_is_kept_are_known_alone() -> None:
    keys = KeyHashes()
    keys.stored(0, [b"%d" % n for n in range(3 * CHUNK)])

    keys.forget_below(2 * CHUNK, BitMap64([5, CHUNK + 7]))
    keys.forget_below(3 * CHUNK, BitMap64([CHUNK + 7, 2 * CHUNK]))

    known = {n: keys.of(n) for n in (5, 6, CHUNK + 7, 2 * CHUNK)}
    assert known == {
        5: 0,
        6: 0,
        CHUNK + 7: key_hash(b"%d" % (CHUNK + 7)),
        2 * CHUNK: key_hash(b"%d" % (2 * CHUNK)),
    }
    again = KeyHashes()
    again.load(keys.dump())
    assert again.dump() == keys.dump()
