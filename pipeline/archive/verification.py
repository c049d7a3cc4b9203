"""Whether the archive has what its manifest says, and the same as the brokers.

Each file is read whole: its checksum, its rows, and, as far as the log still has them, the same
rows from the brokers, column by column. Nothing is changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from goqueue.archive.layout import MANIFESTS, STAGING, Kind, Series, parse_file_name
from goqueue.archive.manifest import File, Manifest, newest
from goqueue.archive.schema import POSITION_COLUMN, arrow_schema
from pipeline.archive.feed import Feed
from pipeline.archive.plan import Chunk
from pipeline.archive.run import Run
from pipeline.archive.staging import Reader
from pipeline.failures import spark_failing

PROBLEMS_MAX = 100
"""As many are told of a series; the others are counted."""
FILES_PER_WAVE = 64
UNSURE = -1
VERDICT = "path string, rows bigint, compared bigint, bytes bigint, problem string, note string"


@dataclass(slots=True)
class Verified:
    """What was found of one series. It is sound where there are no problems."""

    series: Series
    version: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    compared: int = 0
    """Rows that the brokers still have, and have alike."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def tell(self) -> Iterator[str]:
        """The report, line by line."""
        yield (
            f"{self.series.topic} ({self.series.topic_id}), {self.series.kind},"
            f" manifest {self.version}: {self.files} files, {self.rows:,} rows,"
            f" {self.bytes / 2**20:.1f} MiB; {self.compared:,} rows are the same on the brokers"
        )
        for note in self.notes:
            yield f"  note: {note}"
        for problem in self.problems[:PROBLEMS_MAX]:
            yield f"  PROBLEM: {problem}"
        if len(self.problems) > PROBLEMS_MAX:
            yield f"  and {len(self.problems) - PROBLEMS_MAX} more problems"


def verify(run: Run, series: Series, feed: Feed | None) -> Verified:
    """Look at everything that a series' newest manifest names. Without a feed, which a topic that
    was deleted has not, files are held against their manifest only.

    Raises GoQueueError where the manifest or the brokers can't be read at all.
    """
    manifest = newest(run.store, series)
    found = Verified(series, manifest.version)
    starts = feed.starts() if feed is not None else {}
    there = {
        file.path.removeprefix(f"{series.folder}/"): file.bytes
        for file in run.store.files(series.folder)
    }
    _tell_gaps(found, manifest)
    _tell_strangers(found, manifest, there)
    present = []
    for file in manifest.files:
        if file.path in there:
            present.append(file)
        else:
            found.problems.append(f"{file.path}: the file is lost")
    for at in range(0, len(present), FILES_PER_WAVE):
        _look(run, found, present[at : at + FILES_PER_WAVE], feed, starts)
        if at:
            run.say(f"{series.topic}: {found.files} of {len(present)} files looked at")
    return found


def _tell_gaps(found: Verified, manifest: Manifest) -> None:
    for gap in manifest.gaps:
        if gap.why == "deleted":
            found.notes.append(
                f"partition {gap.partition}: {gap.first}-{gap.last} had been deleted before they"
                " were archived"
            )


def _tell_strangers(found: Verified, manifest: Manifest, there: Mapping[str, int]) -> None:
    named = manifest.named()
    strangers = [
        path
        for path in there
        if path not in named
        and path.partition("/")[0] not in (MANIFESTS, STAGING)
        and parse_file_name(path.rpartition("/")[2]) is not None
    ]
    if strangers:
        found.notes.append(f"{len(strangers)} files that no manifest names; readers ignore them")
    if manifest.retired:
        found.notes.append(f"{len(manifest.retired)} files that compaction has replaced")


def _look(
    run: Run, found: Verified, files: Sequence[File], feed: Feed | None, starts: Mapping[int, int]
) -> None:
    series = found.series
    chunks = [Chunk(file.partition, file.first, file.last + 1) for file in files]
    checker = _Checker(
        series.kind,
        {file.path.rpartition("/")[2]: (number, file) for number, file in enumerate(files)},
        feed.reader(chunks) if feed is not None else None,
        dict(starts),
        feed is not None and feed.hole == "deleted",
    )
    uris = [run.store.uri(f"{series.folder}/{file.path}") for file in files]
    with spark_failing():
        contents = run.spark.read.format("binaryFile").load(uris).select("path", "content")
        verdicts = contents.repartition(len(uris)).mapInArrow(checker, VERDICT).collect()
    for path, rows, compared, size, problem, note in sorted(verdicts, key=lambda row: row.path):
        found.files += 1
        found.rows += rows
        found.compared += compared
        found.bytes += size
        if problem is not None:
            found.problems.append(f"{path}: {problem}")
        if note is not None:
            found.notes.append(f"{path}: {note}")


@dataclass(frozen=True, slots=True)
class _Checker:
    """What tasks do; picklable. `reader` reads a chunk by its number from the brokers."""

    kind: Kind
    files: Mapping[str, tuple[int, File]]
    reader: Reader | None
    starts: Mapping[int, int]
    is_dense: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, content in zip(batch.column(0), batch.column(1), strict=True):
                number, file = self.files[path.as_py().rpartition("/")[2]]
                rows, compared, problem = self._judge(number, file, content.as_buffer())
                note = None
                if problem is not None and compared == UNSURE:
                    # What happened to a message that is gone may be told otherwise than before.
                    problem, note, compared = None, f"told otherwise by now: {problem}", 0
                size = content.as_buffer().size
                told = [[file.path], [rows], [compared], [size], [problem], [note]]
                yield pa.RecordBatch.from_arrays(list(map(pa.array, told, _TYPES)), _NAMES)

    def _judge(self, number: int, file: File, content: pa.Buffer) -> tuple[int, int, str | None]:
        """Rows in the file, rows that are the same on the brokers, and what is wrong."""
        if content.size != file.bytes:
            return 0, 0, f"it has {content.size} bytes, not {file.bytes}"
        if hashlib.sha256(content).hexdigest() != file.sha256:
            return 0, 0, "its checksum is not that of its manifest: bytes have changed"
        schema = arrow_schema(self.kind)
        try:
            table = pq.ParquetFile(pa.BufferReader(content)).read(columns=schema.names)
            table = table.select(schema.names).cast(schema)
        except (pa.ArrowException, OSError) as error:
            return 0, 0, f"it can't be read: {error}"
        if table.num_rows != file.count:
            return table.num_rows, 0, f"it has {table.num_rows} rows, not {file.count}"
        if self.reader is None or self.starts.get(file.partition, 0) > file.last:
            return table.num_rows, 0, None
        position = POSITION_COLUMN[self.kind]
        log = pa.Table.from_batches(list(self.reader(iter([_numbers(number)]))), schema)
        if self.is_dense and not log.num_rows:
            return table.num_rows, 0, None  # retention has come past it meanwhile
        # The log may have begun later meanwhile: what it has says from where on.
        begin = self.starts.get(file.partition, 0)
        if log.num_rows:
            begin = max(begin, log.column(position)[0].as_py() if self.is_dense else begin)
        kept = table.filter(pc.greater_equal(table.column(position), begin))
        log = log.filter(pc.greater_equal(log.column(position), begin))
        if not self.is_dense and self.kind is Kind.MESSAGES:  # the log may have lost more since
            kept = kept.filter(pc.is_in(kept.column(position), log.column(position)))
        problem = difference(kept, log, position)
        if problem is None:
            return table.num_rows, log.num_rows, None
        is_whole = self.kind is Kind.MESSAGES or self.starts.get(file.partition, 0) <= 1
        return table.num_rows, 0 if is_whole else UNSURE, problem


def difference(archived: pa.Table, log: pa.Table, position: str) -> str | None:
    """Where the archive and the log first differ, None where they are the same."""
    ours, theirs = (table.column(position).to_pylist() for table in (archived, log))
    for mine, other in zip(ours, theirs, strict=False):
        if mine != other:
            if mine < other:
                return f"{position} {mine} is not in the log"
            return f"{position} {other} is lost: the log has it, the file has not"
    if len(ours) != len(theirs):
        longer, what = (theirs, "is lost: the log has it, the file has not")
        if len(ours) > len(theirs):
            longer, what = (ours, "is not in the log")
        return f"{position} {longer[min(len(ours), len(theirs))]} {what}"
    for name in archived.column_names:
        a, b = (table.column(name).combine_chunks() for table in (archived, log))
        if a.equals(b):
            continue
        pairs: Iterator[tuple[Any, Any]] = zip(a.to_pylist(), b.to_pylist(), strict=True)
        for row, (mine, other) in enumerate(pairs):
            if mine != other:
                return f"{name} at {position} {ours[row]} is not what the log has"
    return None


def _numbers(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([number], pa.int64())], ["id"])


_NAMES = ["path", "rows", "compared", "bytes", "problem", "note"]
_TYPES = [pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.string(), pa.string()]
