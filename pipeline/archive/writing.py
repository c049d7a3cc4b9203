"""One wave: written by Spark into staging, looked at, and given its final names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from goqueue.archive.layout import Series, day_of
from goqueue.archive.manifest import Covering, File, Gap, OutOfStep, Why
from goqueue.archive.schema import UnreadableArchive
from pipeline.archive.feed import Feed
from pipeline.archive.inspection import Inspected, inspect
from pipeline.archive.plan import Chunk
from pipeline.archive.run import Run
from pipeline.archive.staging import stage, task_number


def write(run: Run, feed: Feed, wave: Sequence[Chunk], name: str) -> list[Covering]:
    """The wave's files under their final names, and the gaps between them; not committed."""
    series, store = feed.series, run.store
    folder = f"{series.staging_folder}/{name}"
    store.remove(folder)
    stage(run.spark, series.kind, feed.reader(wave), len(wave), store.uri(folder))
    run.reached("staged")
    starts = feed.starts()
    names = {
        number: name for name in store.names(folder) if (number := task_number(name)) is not None
    }
    looked = {
        found.path.rpartition("/")[2]: found
        for found in inspect(
            run.spark, series.kind, [store.uri(f"{folder}/{name}") for name in names.values()]
        )
    }
    items: list[Covering] = []
    taken: list[tuple[str, File]] = []
    for number, chunk in enumerate(wave):
        name = names.get(number, "")
        for item in covering(feed, chunk, looked.get(name), starts):
            if isinstance(item, File):
                taken.append((name, item))
            else:
                items.append(item)
    run.reached("inspected")
    files = [_place(run, feed, f"{folder}/{name}", file) for name, file in taken]
    run.reached("placed")
    store.remove(folder)
    return [*items, *files]


def covering(
    feed: Feed, chunk: Chunk, found: Inspected | None, starts: Mapping[int, int]
) -> list[Covering]:
    """What covers a chunk, given what its task has written: a file, and gaps where nothing is.

    Raises OutOfStep where it is to be planned anew, and UnreadableArchive where the file is not
    what was to be written: nothing that is still in the log may be left out.
    """
    where = f"{feed.series.topic}, partition {chunk.partition}, {chunk.first}-{chunk.end - 1}"
    is_dense = feed.hole == "deleted"
    rows = found if found is not None and found.count else None
    first = chunk.end if rows is None else rows.first
    if is_dense and first > max(chunk.first, starts.get(chunk.partition, 0)):
        raise UnreadableArchive(f"{where}: the brokers answered nothing up to {first}")
    is_trimmed = starts.get(chunk.partition, 0) > chunk.first
    why: Why = "deleted" if is_trimmed and feed.hole == "empty" else feed.hole
    gap = [Gap(chunk.partition, chunk.first, first - 1, why)] if first > chunk.first else []
    if rows is None:
        return [*gap]
    problem = rows.problem
    if rows.partition != chunk.partition or rows.first < chunk.first or rows.last >= chunk.end:
        problem = f"it holds {rows.first}-{rows.last} of partition {rows.partition}"
    elif is_dense and rows.distinct != chunk.end - rows.first:
        if is_trimmed:
            raise OutOfStep(f"retention took messages of {where} while they were read")
        problem = f"it has {rows.distinct} of {chunk.end - rows.first} messages"
    if problem:
        raise UnreadableArchive(f"{where}: a file that was just written is wrong: {problem}")
    return [*gap, _file(feed.series, rows, first, chunk.end - 1)]


def _file(series: Series, rows: Inspected, first: int, last: int) -> File:
    return File(
        series.data_path(day_of(rows.time_min_ms), rows.partition, first, last),
        rows.partition,
        first,
        last,
        rows.count,
        rows.bytes,
        rows.sha256,
        rows.time_min_ms,
        rows.time_max_ms,
    )


def _place(run: Run, feed: Feed, staged: str, file: File) -> File:
    """Give a staged file its name. Where one is there already, by another run or one that was
    killed, that one counts: it was read from the same log, and is looked at as this one was."""
    path = f"{feed.series.folder}/{file.path}"
    if run.store.move(staged, path):
        return file
    (found,) = inspect(run.spark, feed.series.kind, [run.store.uri(path)])
    chunk = Chunk(file.partition, file.first, file.last + 1)
    try:
        (there,) = covering(feed, chunk, found, {})
    except (UnreadableArchive, ValueError):
        raise UnreadableArchive(
            f"{path} is there, named by no manifest, and damaged ({found.problem}): remove it"
        ) from None
    if not isinstance(there, File):
        raise UnreadableArchive(f"{path} is there, named by no manifest, and empty: remove it")
    return there
