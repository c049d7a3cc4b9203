"""An id is stored once within the window: in flight, over failovers, whatever collides."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from delivery.dedup import message_ids
from delivery.dedup.repeats import Verify
from delivery.entries.records import AppendBatch, encode_records
from delivery.leader.appender import NOT_PROPOSED, Admitted, Appender, Duplicate
from delivery.state.partition import PartitionState
from goqueue.wire.batch import RecordBatch, encode_columns
from goqueue.wire.errors import OutOfOrder, Unavailable
from goqueue.wire.types import Index, Offset
from log.entry import Entry, EntryKind, make_entry
from tests.unit.delivery.batches import START_MS, batch

A, B, C = "order-a", "order-b", "order-c"


def identified(*ids: str | None, producer: int = 0, sequence: int = 0) -> RecordBatch:
    """A batch whose values are its ids."""
    values = [(name or "none").encode() for name in ids]
    return RecordBatch.parse(
        encode_columns(
            values, message_ids=ids, producer_id=producer, base_sequence=sequence, codec="zstd"
        )
    )


class Scene:
    """A leader whose entries apply when the test says so; what it stores can be looked at."""

    def __init__(self, state: PartitionState | None = None, verify: Verify | None = None) -> None:
        self.state = state or PartitionState()
        self.appender = Appender(self.state, verify=verify)
        self.time_ms = START_MS
        self.stored: dict[int, bytes] = {}
        self._boarding: list[tuple[AppendBatch, Offset]] = []
        self._flying: list[Entry] = []
        self._index = self.state.applied_index

    def admit(self, one: RecordBatch, request: int = 0) -> Admitted | Duplicate:
        verdict = self.appender.admit(one, request, self.time_ms)
        if isinstance(verdict, Admitted):
            part = verdict.to_append(one, request)
            assert part.count == verdict.count
            self._boarding.append((part, verdict.base_offset))
            if part.count:
                for row, value in enumerate(RecordBatch.parse(part.batch).values()):
                    self.stored[verdict.base_offset + row] = value
        return verdict

    def rows(self, one: RecordBatch, request: int = 0) -> list[tuple[int, bool]]:
        """Admit, and what each row would be answered."""
        verdict = self.admit(one, request)
        if verdict.rows is not None:
            return [(offset, duplicate) for offset, duplicate in verdict.rows]
        is_duplicate = isinstance(verdict, Duplicate)
        return [(verdict.base_offset + row, is_duplicate) for row in range(one.count)]

    def propose(self) -> Index:
        self._index = Index(self._index + 1)
        parts = [part for part, _offset in self._boarding]
        self._flying.append(
            make_entry(
                index=self._index,
                term=1,
                time_ms=self.time_ms,
                kind=EntryKind.RECORDS,
                base_offset=self._boarding[0][1],
                record_count=sum(part.count for part in parts),
                body=encode_records(parts),
            )
        )
        self._boarding = []
        self.appender.proposed(self._index)
        return self._index

    def apply(self) -> None:
        for entry in self._flying:
            self.state.apply(entry)
        self._flying = []

    def store(self, one: RecordBatch, request: int = 0) -> list[tuple[int, bool]]:
        rows = self.rows(one, request)
        if self._boarding:
            self.propose()
        self.apply()
        return rows

    def fail_over(self) -> Scene:
        """The next leader, over the applied state alone."""
        successor = Scene(self.state)
        successor.time_ms, successor.stored = self.time_ms, self.stored
        return successor


def test_a_known_id_is_answered_with_the_offset_of_its_original() -> None:
    scene = Scene()
    scene.store(identified(A, B))

    assert scene.rows(identified(B)) == [(1, True)]
    assert scene.rows(identified(B, A)) == [(1, True), (0, True)]
    assert scene.state.next_offset == 2


def test_an_original_at_offset_zero_is_an_original() -> None:
    scene = Scene()
    scene.store(identified(A))

    assert scene.rows(identified(A, C)) == [(0, True), (1, False)]


def test_only_the_new_rows_of_a_batch_are_stored() -> None:
    scene = Scene()
    scene.store(identified(A, B))

    assert scene.store(identified(None, B, C, None, A)) == [
        (2, False),
        (1, True),
        (3, False),
        (4, False),
        (0, True),
    ]
    assert list(scene.stored.values()) == [b"order-a", b"order-b", b"none", b"order-c", b"none"]
    assert scene.state.next_offset == 5


def test_what_is_left_of_a_batch_keeps_its_columns() -> None:
    scene = Scene()
    scene.store(identified(A))
    columns = encode_columns(
        [b"1", b"2"],
        [b"k1", b"k2"],
        lanes=[0, 4],
        deliver_at_ms=[None, 5000],
        headers=[(), (("h", b"x"),)],
        message_ids=[A, B],
    )

    verdict = scene.admit(RecordBatch.parse(columns))

    assert isinstance(verdict, Admitted)
    assert verdict.kept is not None
    [record] = verdict.kept.records()
    assert (record.value, record.key, record.lane, record.message_id) == (b"2", b"k2", 4, B)
    assert (record.deliver_at_ms, record.headers) == (5000, (("h", b"x"),))


def test_an_id_twice_in_one_batch_is_stored_once() -> None:
    scene = Scene()

    assert scene.rows(identified(A, A, B, A)) == [(0, False), (0, True), (1, False), (0, True)]
    assert scene.appender.next_offset == 2


def test_an_id_twice_in_one_batch_that_is_stored_already_is_not_stored() -> None:
    scene = Scene()
    scene.store(identified(B, A))

    assert scene.rows(identified(A, A)) == [(1, True), (1, True)]
    assert scene.appender.next_offset == 2


def test_a_duplicate_waits_for_its_original_that_is_in_flight() -> None:
    scene = Scene()
    scene.admit(identified(A))

    assert scene.admit(identified(A)) == Duplicate(0, 1, NOT_PROPOSED, ((0, True),))  # type: ignore[arg-type]
    index = scene.propose()
    assert scene.admit(identified(A)) == Duplicate(0, 1, index, ((0, True),))  # type: ignore[arg-type]
    scene.apply()
    assert scene.admit(identified(A)) == Duplicate(0, 1, None, ((0, True),))  # type: ignore[arg-type]


def test_a_duplicate_waits_for_the_last_of_its_originals() -> None:
    scene = Scene()
    scene.store(identified(A))
    scene.admit(identified(B))
    scene.propose()
    scene.admit(identified(C))
    last = scene.propose()

    assert scene.admit(identified(C, A, B)).pending_index == last  # type: ignore[union-attr]
    scene.admit(identified("new"))
    verdict = scene.admit(identified("new", C))
    assert verdict.pending_index == NOT_PROPOSED  # type: ignore[union-attr]


def test_ids_of_a_withdrawn_batch_are_free_again() -> None:
    scene = Scene()
    scene.admit(identified(A))
    scene.propose()
    scene.appender.admit(identified(B, A))

    scene.appender.withdraw()

    assert isinstance(scene.appender.admit(identified(B)), Admitted)
    assert isinstance(scene.appender.admit(identified(A)), Duplicate)


# failover


def test_a_duplicate_is_known_to_the_next_leader() -> None:
    scene = Scene()
    scene.store(identified(A, B))

    assert scene.fail_over().rows(identified(B, C)) == [(1, True), (2, False)]


def test_a_duplicate_is_known_to_a_leader_that_restored_a_snapshot() -> None:
    scene = Scene()
    scene.store(identified(A, B))
    restored = PartitionState()
    restored.restore(scene.state.snapshot())

    assert Scene(restored).rows(identified(B)) == [(1, True)]


def test_what_was_in_flight_at_a_failover_is_no_original() -> None:
    scene = Scene()
    scene.admit(identified(A))
    scene.propose()

    assert scene.fail_over().rows(identified(A)) == [(0, False)]


# the window


def test_an_id_may_be_used_again_after_the_window() -> None:
    scene = Scene()
    scene.state.message_ids.configure(1000, 1000)
    scene.store(identified(A))

    scene.time_ms += 1000
    scene.store(identified(B))
    assert scene.store(identified(A)) == [(0, True)]

    scene.time_ms += 1
    scene.store(identified(C))
    assert scene.store(identified(A)) == [(3, False)]


def test_the_oldest_ids_go_early_beyond_the_bound() -> None:
    scene = Scene()
    scene.state.message_ids.configure(1000, 2)

    scene.store(identified(A, B, C))

    assert scene.rows(identified(A, B, C)) == [(3, False), (1, True), (2, True)]


def test_without_a_window_every_message_is_stored() -> None:
    scene = Scene()
    scene.state.message_ids.configure(0, 1000)
    scene.store(identified(A))

    assert scene.rows(identified(A, A)) == [(1, False), (2, False)]


# collisions


def test_a_collision_drops_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_ids, "_hash", lambda _id: 7)
    scene = Scene()

    def verify(offset: Offset, message_id: str) -> bool:
        return scene.stored[offset] == message_id.encode()

    scene.appender = Appender(scene.state, verify=verify)

    assert scene.store(identified(A)) == [(0, False)]
    assert scene.store(identified(B)) == [(1, False)]
    assert scene.store(identified(B)) == [(1, True)]


def test_hits_are_verified_in_the_order_of_their_offsets() -> None:
    asked: list[int] = []

    def verify(offset: Offset, _id: str) -> bool:
        asked.append(offset)
        return True

    scene = Scene(verify=verify)
    scene.store(identified(A, B, C))

    scene.rows(identified(C, "new", A, B, A))

    assert asked == [0, 1, 2]


def test_an_original_that_cannot_be_read_refuses_the_batch_and_changes_nothing() -> None:
    def verify(_offset: Offset, _id: str) -> bool:
        raise Unavailable("damaged here")

    scene = Scene(verify=verify)
    scene.store(identified(A))

    with pytest.raises(Unavailable):
        scene.admit(identified(B, A))

    assert scene.appender.next_offset == 1
    assert scene.rows(identified(B)) == [(1, False)]


# with a sequence, or a request


def test_a_producers_rows_of_a_known_id_are_left_out_and_its_sequence_goes_on() -> None:
    scene = Scene()
    scene.store(identified(A))

    assert scene.store(identified(None, A, B, producer=5)) == [(1, False), (0, True), (2, False)]
    assert scene.store(identified(C, producer=5, sequence=3)) == [(3, False)]
    with pytest.raises(OutOfOrder) as refused:
        scene.admit(identified(None, producer=5, sequence=5))
    assert refused.value.data["expected"] == 4


def test_a_producers_batch_of_known_ids_alone_takes_its_place_in_the_sequence() -> None:
    scene = Scene()
    scene.store(identified(A, B))

    first = scene.admit(identified(B, A, producer=5))
    assert first == Admitted(2, 0, None, ((1, True), (0, True)))  # type: ignore[arg-type]
    assert scene.rows(identified(C, producer=5, sequence=2)) == [(2, False)]
    scene.propose()
    scene.apply()

    assert scene.state.next_offset == 3
    successor = scene.fail_over()
    assert successor.rows(identified(B, A, producer=5)) == [(1, True), (0, True)]
    assert successor.rows(identified(None, producer=5, sequence=3)) == [(3, False)]


def test_an_entry_may_hold_nothing_but_a_place_in_a_sequence() -> None:
    scene = Scene()
    scene.store(identified(A))

    scene.store(identified(A, producer=5))
    restored = PartitionState()
    restored.restore(scene.state.snapshot())

    assert restored.next_offset == 1
    assert Scene(restored).rows(identified(B, producer=5, sequence=1)) == [(1, False)]


@pytest.mark.parametrize("failover", [False, True])
def test_a_producers_repeat_is_answered_as_the_first_time(failover: bool) -> None:
    scene = Scene()
    scene.store(identified(A))
    sent = identified(B, A, None, B, C, producer=5)
    first = scene.store(sent)
    assert first == [(1, False), (0, True), (2, False), (1, True), (3, False)]

    if failover:
        scene = scene.fail_over()

    assert scene.rows(sent) == [(offset, True) for offset, _ in first]
    assert scene.appender.next_offset == 4


def test_the_same_id_from_two_producers_is_stored_once() -> None:
    scene = Scene()

    assert scene.store(identified(A, B, producer=5)) == [(0, False), (1, False)]
    assert scene.store(identified(B, C, producer=6)) == [(1, True), (2, False)]


def test_a_producers_batch_that_is_withdrawn_leaves_no_place_in_its_sequence() -> None:
    scene = Scene()
    scene.store(identified(A))
    scene.appender.admit(identified(A, producer=5))

    scene.appender.withdraw()

    assert scene.rows(identified(A, producer=5)) == [(0, True)]
    assert isinstance(scene.admit(identified(None, producer=5, sequence=1)), Admitted)


def test_ids_that_came_with_a_sequence_are_known_to_those_without() -> None:
    scene = Scene()
    scene.admit(identified(A, B, producer=5))
    assert scene.rows(identified(B)) == [(1, True)]
    scene.propose()
    scene.apply()

    assert scene.rows(identified(A, B)) == [(0, True), (1, True)]


@pytest.mark.parametrize("applied", [False, True])
def test_a_repeated_request_finds_the_rows_that_its_first_time_left_out(applied: bool) -> None:
    scene = Scene()
    scene.store(identified(A, B))
    again = identified(None, A, C, None, B, C)
    first = scene.rows(again, request=9)
    assert first == [(2, False), (0, True), (3, False), (4, False), (1, True), (3, True)]

    if applied:
        scene.propose()
        scene.apply()

    assert scene.rows(again, request=9) == [(offset, True) for offset, _ in first]
    assert scene.appender.next_offset == 5


def test_a_batch_without_ids_is_answered_without_rows() -> None:
    scene = Scene()

    verdict = scene.admit(batch(3), request=4)

    assert (verdict.rows, verdict.kept) == (None, None)  # type: ignore[union-attr]
    assert scene.admit(batch(3), request=4).rows is None


@pytest.mark.parametrize("seed", range(20))
def test_every_id_is_stored_once_over_any_mix_and_any_failovers(seed: int) -> None:
    rng = random.Random(seed)
    scene = Scene()
    original: dict[str, int] = {}
    sequences = {1: 0, 2: 0}
    for _turn in range(120):
        ids: Sequence[str | None] = [
            rng.choice([None, f"id-{rng.randrange(200)}"]) for _ in range(rng.randint(1, 6))
        ]
        producer = rng.randrange(3)
        one = identified(*ids, producer=producer, sequence=sequences.get(producer, 0))
        if producer:
            sequences[producer] += one.count
        for name, (offset, duplicate) in zip(ids, scene.rows(one), strict=True):
            assert scene.stored[offset] == (name or "none").encode()
            if name is None:
                assert not duplicate
            else:
                assert duplicate == (name in original)
                assert original.setdefault(name, offset) == offset
        step = rng.random()
        if step < 0.6 and scene._boarding:
            scene.propose()
        if step < 0.3:
            scene.apply()
        if step > 0.95:
            end = scene.state.next_offset
            for known in sequences:
                history = scene.state.producers.history(known)
                sequences[known] = 0 if history is None else history.next_sequence
            original = {name: offset for name, offset in original.items() if offset < end}
            scene = scene.fail_over()
