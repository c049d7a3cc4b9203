from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest
import zstandard

from goqueue.archive.layout import Kind, Series
from goqueue.archive.manifest import (
    VERSIONS_KEPT,
    Covering,
    File,
    Gap,
    Manifest,
    OutOfStep,
    commit,
    decode,
    encode,
    file_at,
    newest,
    runs,
    topic_ids,
    versions,
)
from goqueue.archive.schema import SCHEMA_VERSION, UnreadableArchive
from goqueue.archive.store import MemoryStore

ID = "00000000deadbeef-1f"
ORDERS = Series(Kind.MESSAGES, "orders", ID)


def file(first: int, last: int, partition: int = 0, count: int | None = None) -> File:
    rows = last - first + 1 if count is None else count
    path = f"p{partition}/{first}-{last}"
    return File(
        path, partition, first, last, rows, 100 * rows, "00" * 32, 1000 + first, 1000 + last
    )


def adding(*items: Covering) -> Callable[[Manifest], Manifest]:
    return lambda manifest: manifest.extended(items)


def committed(store: MemoryStore, *items: Covering, writer: str = "w") -> Manifest:
    return commit(store, ORDERS, adding(*items), writer=writer, now_ms=1)


def test_a_series_begins_with_nothing() -> None:
    found = newest(MemoryStore(), ORDERS)

    assert (found.version, found.files, found.position(0)) == (0, (), 0)
    assert Manifest.empty(Series(Kind.EVENTS, "orders", ID)).position(5) == 1


def test_what_was_committed_is_the_newest() -> None:
    store = MemoryStore()

    committed(store, file(0, 99), file(0, 9, partition=1))
    committed(store, file(100, 149))

    found = newest(store, ORDERS)
    assert (found.version, found.positions()) == (2, {0: 150, 1: 10})
    assert [f.first for f in found.covering(0, 99, 101) if isinstance(f, File)] == [0, 100]


def test_a_commit_made_twice_is_made_once() -> None:
    store = MemoryStore()
    once = committed(store, file(0, 99), Gap(1, 0, 49, "deleted"))

    again = committed(store, file(0, 99), Gap(1, 0, 49, "deleted"))

    assert again == once
    assert versions(store, ORDERS) == [1]


@pytest.mark.parametrize("odd", [file(50, 149), file(101, 149), Gap(0, 200, 210, "deleted")])
def test_what_does_not_follow_is_refused(odd: Covering) -> None:
    store = MemoryStore()
    committed(store, file(0, 99))

    with pytest.raises(OutOfStep):
        committed(store, odd)

    assert newest(store, ORDERS).position(0) == 100


def test_gaps_are_told_with_their_reason() -> None:
    manifest = Manifest.empty(ORDERS).extended(
        [file(50, 99), Gap(0, 0, 49, "deleted"), Gap(0, 100, 120, "compacted")]
    )

    assert manifest.missing(0) == [Gap(0, 0, 49, "deleted")]
    assert manifest.position(0) == 121
    assert [item.first for item in manifest.partitions()[0]] == [0, 50, 100]


class Racing(MemoryStore):
    """Another writer commits just before each of the first attempts to create a manifest."""

    def __init__(self, rivals: list[tuple[Covering, ...]]) -> None:
        super().__init__()
        self.rivals = rivals

    def create(self, path: str, data: bytes) -> bool:
        if self.rivals:
            items = self.rivals.pop(0)
            committed(self, *items, writer="rival")
        return super().create(path, data)


def test_who_loses_the_race_commits_on_top_of_the_winner() -> None:
    store = Racing([(file(0, 9, partition=1),), (file(0, 99),)])

    found = committed(store, file(0, 99), file(0, 9, partition=2))

    assert found.positions() == {0: 100, 1: 10, 2: 10}
    assert found.version == 3


def test_who_loses_the_race_to_another_cut_plans_anew() -> None:
    store = Racing([(file(0, 49),)])

    with pytest.raises(OutOfStep):
        committed(store, file(0, 99))

    assert newest(store, ORDERS).position(0) == 50


class Sleepy(MemoryStore):
    """Sleeps between looking at the newest manifest and creating the next, while others commit
    until that number has been swept."""

    position = 0
    slept = False

    def create(self, path: str, data: bytes) -> bool:
        if not self.slept:
            self.slept = True
            for at in range(self.position, self.position + VERSIONS_KEPT + 5):
                committed(self, file(at, at), writer="rival")
            assert path not in self.files
        return super().create(path, data)


@pytest.mark.parametrize("begun", [True, False])
def test_a_writer_that_slept_until_its_number_was_free_again_loses_nothing(begun: bool) -> None:
    store = Sleepy()
    if begun:
        store.slept = True
        committed(store, file(0, 9))
        store.slept, store.position = False, 10

    found = committed(store, file(store.position, store.position), file(0, 4, partition=9))

    assert found.positions() == {0: store.position + VERSIONS_KEPT + 5, 9: 5}
    assert found == newest(store, ORDERS)


def test_old_versions_are_swept() -> None:
    store = MemoryStore()
    for number in range(VERSIONS_KEPT + 10):
        committed(store, file(number, number))

    there = versions(store, ORDERS)

    assert there == list(range(11, VERSIONS_KEPT + 11))


def test_compaction_swaps_files_for_one_with_the_same_range() -> None:
    old = [file(0, 9), file(10, 19)]
    manifest = Manifest.empty(ORDERS).extended([*old, file(20, 29)])
    one = msgspec.structs.replace(file(0, 19), path="one")

    swapped = manifest.replaced(old, one, now_ms=7)

    assert [f.path for f in swapped.files] == ["one", "p0/20-29"]
    assert [(r.path, r.at_ms) for r in swapped.retired] == [("p0/0-9", 7), ("p0/10-19", 7)]
    assert swapped.replaced(old, one, now_ms=8) == swapped
    assert swapped.named() == {"one", "p0/20-29", "p0/0-9", "p0/10-19"}
    assert swapped.swept(before_ms=8).named() == {"one", "p0/20-29"}
    swapped.check()


def test_compaction_refuses_a_file_that_holds_less() -> None:
    old = [file(0, 9), file(10, 19)]
    manifest = Manifest.empty(ORDERS).extended(old)

    for wrong in (file(0, 19, count=19), file(0, 18), file(1, 19)):
        with pytest.raises(OutOfStep):
            manifest.replaced(old, wrong, now_ms=7)
    with pytest.raises(OutOfStep):
        manifest.replaced([*old, file(20, 29)], file(0, 29), now_ms=7)


@pytest.mark.parametrize(
    "items",
    [
        (file(0, 9), file(9, 19)),
        (file(0, 9), file(11, 19)),
        (file(1, 9),),
        (file(0, 9), Gap(0, 5, 9, "deleted")),
    ],
)
def test_a_manifest_with_a_hole_or_an_overlap_is_unreadable(items: tuple[Covering, ...]) -> None:
    files = tuple(item for item in items if isinstance(item, File))
    gaps = tuple(item for item in items if isinstance(item, Gap))
    manifest = msgspec.structs.replace(Manifest.empty(ORDERS), version=1, files=files, gaps=gaps)

    with pytest.raises(UnreadableArchive):
        decode(encode(manifest), "x")


def test_newer_formats_are_refused_by_their_number() -> None:
    manifest = Manifest.empty(ORDERS).extended([file(0, 9)])
    newer = msgspec.structs.replace(manifest, format=2)
    columns = msgspec.structs.replace(
        manifest, files=(msgspec.structs.replace(file(0, 9), schema=SCHEMA_VERSION + 1),)
    )

    with pytest.raises(UnreadableArchive, match="format 2"):
        decode(encode(newer), "x")
    with pytest.raises(UnreadableArchive, match=f"schema version {SCHEMA_VERSION + 1}"):
        decode(encode(columns), "x")


@pytest.mark.parametrize("cut", [0, 1, 20, -1])
def test_damage_is_named(cut: int) -> None:
    data = encode(Manifest.empty(ORDERS).extended([file(0, 9)]))

    with pytest.raises(UnreadableArchive, match="where it was"):
        decode(data[:cut], "where it was")
    with pytest.raises(UnreadableArchive, match="where it was"):
        decode(zstandard.compress(b"{}"), "where it was")


def test_many_writers_leave_neither_a_double_nor_a_hole() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        store = Racing([])
        ends = {partition: rng.randrange(50, 200) for partition in range(3)}
        for _ in range(40):
            plan = newest(store, ORDERS)
            rivals = [tuple(_ranges(rng, plan, ends)) for _ in range(rng.randrange(3))]
            store.rivals = [rival for rival in rivals if rival]
            try:
                committed(store, *_ranges(rng, plan, ends))
            except OutOfStep:
                continue
        for _ in range(3):
            committed(store, *_ranges(rng, newest(store, ORDERS), ends, whole=True))

        found = newest(store, ORDERS)
        found.check()
        assert found.positions() == ends


def _ranges(
    rng: random.Random, plan: Manifest, ends: dict[int, int], *, whole: bool = False
) -> list[Covering]:
    found: list[Covering] = []
    for partition, end in ends.items():
        position = plan.position(partition)
        while position < end and (whole or rng.random() < 0.5):
            last = min(end - 1, position + rng.choice((4, 9, 30)))
            gone = rng.random() < 0.2
            found.append(
                Gap(partition, position, last, "deleted")
                if gone
                else file(position, last, partition)
            )
            position = last + 1
    return found


def test_ids_of_a_topic_are_listed_in_the_order_of_their_creation() -> None:
    store = MemoryStore()
    for id_ in ("00000000deadbeef-1f", "00000000deadbeef-a", "00000000deadbeef-100"):
        series = Series(Kind.MESSAGES, "orders", id_)
        commit(store, series, adding(file(0, 9)), writer="w", now_ms=1)

    assert [id_.partition("-")[2] for id_ in topic_ids(store, Kind.MESSAGES, "orders")] == [
        "a", "1f", "100",
    ]  # fmt: skip
    assert topic_ids(store, Kind.EVENTS, "orders") == []


def test_a_position_is_found_in_its_file() -> None:
    files = [file(0, 9), file(20, 29), file(30, 39)]

    assert [file_at(files, at) for at in (0, 9, 25, 30)] == [files[0], files[0], files[1], files[2]]
    assert [file_at(files, at) for at in (15, 40)] == [None, None]
    assert list(runs(files)) == [[files[0]], [files[1], files[2]]]
