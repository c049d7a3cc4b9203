"""Many small files into few: the same rows in the same order, swapped in by one commit.

Files of one partition and day that follow on each other without a gap become one, up to a size. The
old ones stay for readers that have begun with them, and are swept after the grace. Killed at any
point, it has compacted either all of a wave or nothing of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import pyspark.sql.functions as sf

from goqueue.archive.layout import Series, day_of
from goqueue.archive.manifest import File, Manifest, OutOfStep, commit, newest, runs
from goqueue.archive.schema import COLUMNS, POSITION_COLUMN, UnreadableArchive, spark_ddl
from pipeline.archive.inspection import inspect
from pipeline.archive.run import Run
from pipeline.archive.staging import write
from pipeline.failures import spark_failing

FILES_MIN = 2
"""So many small files have to be together to be worth it."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What became of how many files."""

    before: int = 0
    after: int = 0


def groups(manifest: Manifest, bytes_max: int, rows_max: int) -> list[list[File]]:
    """Files that are to become one each: neighbours, of a day, that stay within both bounds."""
    found: list[list[File]] = []
    in_order = sorted(manifest.files, key=attrgetter("partition", "first"))
    for _, of_partition in groupby(in_order, attrgetter("partition")):
        for run in runs(of_partition):
            for _, of_day in groupby(run, lambda file: day_of(file.time_min_ms)):
                found += _filled(of_day, bytes_max, rows_max)
    return [group for group in found if len(group) >= FILES_MIN]


def _filled(files: Iterable[File], bytes_max: int, rows_max: int) -> list[list[File]]:
    found: list[list[File]] = []
    for file in files:
        group = found[-1] if found else []
        fits = (
            group
            and sum(one.bytes for one in group) + file.bytes <= bytes_max
            and sum(one.count for one in group) + file.count <= rows_max
        )
        if fits:
            group.append(file)
        else:
            found.append([file])
    return found


def compact(run: Run, series: Series) -> Compacted:
    """Compact a series, wave by wave. Raises GoQueueError; what was committed by then stays."""
    done = Compacted()
    # Rows and bytes of the log make up smaller files: bounds of files, here.
    planned = groups(newest(run.store, series), run.bounds.bytes, run.bounds.rows)
    for at in range(0, len(planned), run.files_per_wave):
        wave = planned[at : at + run.files_per_wave]
        try:
            _compact_wave(run, series, wave)
        except OutOfStep:
            run.say(f"{series.topic}: another run has compacted it meanwhile")
            return done
        done = Compacted(done.before + sum(map(len, wave)), done.after + len(wave))
        run.say(f"{series.topic}: {done.before} files of {series.kind} are {done.after} now")
    return done


def _compact_wave(run: Run, series: Series, wave: Sequence[Sequence[File]]) -> None:
    store, began_s = run.store, time.monotonic()
    folder = f"{series.staging_folder}/{run.id}-compact"
    store.remove(folder)
    _check_inputs(run, series, wave)
    for number, group in enumerate(wave):
        _join(run, series, group, store.uri(f"{folder}/{number}"))
    run.reached("staged")
    staged = {number: _only(run, f"{folder}/{number}") for number in range(len(wave))}
    _check_rows(run, series, wave, [store.uri(path) for path in staged.values()])
    looked = {
        found.path.rpartition("/")[2]: found
        for found in inspect(run.spark, series.kind, [store.uri(p) for p in staged.values()])
    }
    swaps: list[tuple[Sequence[File], File]] = []
    for number, group in enumerate(wave):
        found = looked[staged[number].rpartition("/")[2]]
        if found.problem or found.count != sum(file.count for file in group):
            raise UnreadableArchive(f"{staged[number]}: {found.problem or 'rows are missing'}")
        first, last = group[0], group[-1]
        path = series.data_path(day_of(found.time_min_ms), first.partition, first.first, last.last)
        new = File(
            path, first.partition, first.first, last.last, found.count, found.bytes, found.sha256,
            found.time_min_ms, found.time_max_ms,
        )  # fmt: skip
        target = f"{series.folder}/{path}"
        if not store.move(staged[number], target):
            (there,) = inspect(run.spark, series.kind, [store.uri(target)])
            if (there.sha256, there.bytes) != (new.sha256, new.bytes):
                raise UnreadableArchive(
                    f"{target} is there already, with other bytes: wait for the run that made it,"
                    f" or, if it was killed, for the grace"
                )
        swaps.append((group, new))
    run.reached("placed")
    if time.monotonic() - began_s > run.grace_s / 2:
        raise OutOfStep(f"a wave took longer than {run.grace_s / 2:.0f} s, half the grace")
    now_ms = time.time_ns() // 1_000_000

    def swap(manifest: Manifest) -> Manifest:
        for old, new in swaps:
            manifest = manifest.replaced(old, new, now_ms)
        return manifest

    run.committed(commit(store, series, swap, writer=run.id, now_ms=now_ms))
    run.reached("committed")
    store.remove(folder)


def _check_inputs(run: Run, series: Series, wave: Sequence[Sequence[File]]) -> None:
    """That no damage is taken along under a new checksum. Raises UnreadableArchive."""
    uris = [uri for group in wave for uri in _uris(run, series, group)]
    looked = inspect(run.spark, series.kind, uris)
    digests = {one.path.rpartition("/")[2]: one.sha256 for one in looked}
    for file in (file for group in wave for file in group):
        if digests.get(file.path.rpartition("/")[2]) != file.sha256:
            raise UnreadableArchive(f"{series.folder}/{file.path}: its checksum is another one")


def _join(run: Run, series: Series, group: Sequence[File], folder: str) -> None:
    """The group's rows in order, as the one file in a folder."""
    with spark_failing():
        rows = run.spark.read.schema(spark_ddl(series.kind)).parquet(*_uris(run, series, group))
    keys = [POSITION_COLUMN[series.kind]] + (["seq"] if "seq" in COLUMNS[series.kind] else [])
    write(rows.coalesce(1).sortWithinPartitions(*keys), folder)


def _only(run: Run, folder: str) -> str:
    (name,) = (name for name in run.store.names(folder) if name.endswith(".parquet"))
    return f"{folder}/{name}"


def _check_rows(
    run: Run, series: Series, wave: Sequence[Sequence[File]], staged: Sequence[str]
) -> None:
    """That each new file has the rows of its old ones, value by value: by count and two sums of
    hashes, which tell any loss, double or change. Raises UnreadableArchive."""
    whole: dict[str, int] = {}
    for number, group in enumerate(wave):
        whole |= dict.fromkeys(
            (uri.rpartition("/")[2] for uri in _uris(run, series, group)), number
        )
    number_of_new = {uri.rpartition("/")[2]: number for number, uri in enumerate(staged)}
    uris = [uri for group in wave for uri in _uris(run, series, group)]
    with spark_failing():
        before, after = (
            _sums(run, series, some, numbers)
            for some, numbers in ((uris, whole), (list(staged), number_of_new))
        )
    for number, group in enumerate(wave):
        if before[number] != after[number]:
            raise UnreadableArchive(
                f"{series.topic}, partition {group[0].partition}, {group[0].first}-"
                f"{group[-1].last}: the compacted file has other rows than those it is made of"
            )


def _sums(
    run: Run, series: Series, uris: Sequence[str], numbers: dict[str, int]
) -> dict[int, tuple[object, ...]]:
    rows = run.spark.read.schema(spark_ddl(series.kind)).parquet(*uris)
    columns = [
        sf.to_json(sf.col(f"`{name}`")) if type_.startswith("map") else sf.col(f"`{name}`")
        for name, type_ in COLUMNS[series.kind].items()
    ]
    told = [sf.isnull(sf.col(f"`{name}`")) for name in COLUMNS[series.kind]]
    hashed = rows.select(
        sf.element_at(sf.split(sf.input_file_name(), "/"), -1).alias("file"),
        sf.xxhash64(*columns, *told).alias("one"),
        sf.xxhash64(sf.lit(1), *told, *columns).alias("two"),
    )
    found: dict[int, list[tuple[int, int, int]]] = {}
    grouped = hashed.groupBy("file").agg(
        sf.count("*"), sf.bit_xor("one"), sf.sum(sf.col("two").cast("decimal(38,0)"))
    )
    for name, count, one, two in grouped.collect():
        found.setdefault(numbers[name], []).append((count, one, int(two)))
    return {number: _added(parts) for number, parts in found.items()}


def _added(parts: Sequence[tuple[int, int, int]]) -> tuple[object, ...]:
    xor = 0
    for _, one, _ in parts:
        xor ^= one
    return sum(part[0] for part in parts), xor, sum(part[2] for part in parts)


def _uris(run: Run, series: Series, group: Sequence[File]) -> list[str]:
    return [run.store.uri(f"{series.folder}/{file.path}") for file in group]
