"""What of a series is archived: numbered manifests, each whole, the highest number counts.

A manifest covers each partition from offset 0 (or index 1) on without a break: by files, and by
gaps, which say what there was nothing to archive of. A commit creates the next number, which only
one writer can; whoever loses looks at the newest and tries again. What no manifest names does not
exist for readers: files of jobs that were killed, and staging.

Of events, `first` and `last` are indexes of Raft entries; the rest holds alike.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final, Literal

import msgspec
import zstandard

from goqueue.archive.layout import (
    Kind,
    Series,
    is_below,
    parse_id_folder,
    parse_manifest_name,
    topic_folder,
)
from goqueue.archive.schema import SCHEMA_VERSION, UnreadableArchive, check_schema_version
from goqueue.archive.store import ReadableStore, WritableStore
from goqueue.wire.errors import Conflict

FORMAT: Final = 1
"""Of the manifest itself. A reader refuses a newer one, by number."""
COMMIT_TRIES_MAX: Final = 100
VERSIONS_KEPT: Final = 32
PLAIN_BYTES_MAX: Final = 1 << 30
"""What a manifest may unpack to: about three million files."""

Why = Literal["deleted", "compacted", "empty"]


class File(msgspec.Struct, frozen=True, omit_defaults=True):
    """One committed file: everything the log had from `first` to `last`, both within.

    Rows are sorted by offset. Where `count` is less than the range is long, the others were not in
    the log (a compacted topic's, or, for events, entries without any).
    """

    path: str
    """Below the series' folder."""
    partition: int
    first: int
    last: int
    count: int
    bytes: int
    sha256: str
    """Of the file, in hex."""
    time_min_ms: int
    time_max_ms: int
    """The log times of its rows."""
    schema: int = SCHEMA_VERSION


class Gap(msgspec.Struct, frozen=True):
    """A range without a file, both ends within.

    `deleted`: retention had it before the archive did, so it is missing. `compacted`: the topic is
    compacted, and kept nothing there. `empty`: entries of the log without any event.
    """

    partition: int
    first: int
    last: int
    why: Why


class Retired(msgspec.Struct, frozen=True):
    """A file that compaction has replaced: it may be removed once its readers have had time."""

    path: str
    at_ms: int


Covering = File | Gap


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One version. Made by `empty` and by the methods below, which leave the old one as it was."""

    format: int = FORMAT
    kind: str
    topic: str
    topic_id: str
    version: int = 0
    """0: nothing has been committed yet."""
    written_ms: int = 0
    writer: str = ""
    """The run that committed it."""
    files: tuple[File, ...] = ()
    gaps: tuple[Gap, ...] = ()
    retired: tuple[Retired, ...] = ()

    @classmethod
    def empty(cls, series: Series) -> Manifest:
        """That of a series of which nothing is archived."""
        return cls(kind=series.kind, topic=series.topic, topic_id=series.topic_id)

    @property
    def series(self) -> Series:
        return Series(Kind(self.kind), self.topic, self.topic_id)

    @property
    def start(self) -> int:
        """The first offset (0) or index (1) there can be."""
        return 0 if self.kind == Kind.MESSAGES else 1

    def items(self) -> Iterator[Covering]:
        """All that covers something, in no order."""
        yield from self.files
        yield from self.gaps

    def partitions(self) -> dict[int, list[Covering]]:
        """What covers each partition, in order."""
        found: dict[int, list[Covering]] = {}
        for item in self.items():
            found.setdefault(item.partition, []).append(item)
        for items in found.values():
            items.sort(key=_first)
        return found

    def positions(self) -> dict[int, int]:
        """Of each partition that is begun: everything below is archived, or told as a gap."""
        found: dict[int, int] = {}
        for item in self.items():
            found[item.partition] = max(found.get(item.partition, self.start), item.last + 1)
        return found

    def position(self, partition: int) -> int:
        """Where archiving a partition goes on."""
        return self.positions().get(partition, self.start)

    def missing(self, partition: int) -> list[Gap]:
        """What retention had deleted before it was archived, in order."""
        gaps = (gap for gap in self.gaps if gap.partition == partition and gap.why == "deleted")
        return sorted(gaps, key=_first)

    def covering(self, partition: int, first: int, end: int) -> list[Covering]:
        """The files and gaps that have any of `first` to below `end`, in order."""
        items = self.partitions().get(partition, [])
        return [item for item in items if item.first < end and item.last >= first]

    def extended(self, items: Iterable[Covering]) -> Manifest:
        """This one and what follows on it; what it covers already is left out.

        Raises OutOfStep where something neither follows nor is covered: then another writer has
        cut the ranges otherwise, and the rest is to be planned anew.
        """
        positions = self.positions()
        added: list[Covering] = []
        for item in sorted(items, key=_place):
            position = positions.get(item.partition, self.start)
            if item.last < position:
                continue
            if item.first != position or item.last < item.first:
                raise OutOfStep(
                    f"partition {item.partition} is archived up to {position},"
                    f" and {item.first}-{item.last} does not follow on it"
                )
            positions[item.partition] = item.last + 1
            added.append(item)
        files = (*self.files, *(item for item in added if isinstance(item, File)))
        gaps = _joined([*self.gaps, *(item for item in added if isinstance(item, Gap))])
        return msgspec.structs.replace(self, files=files, gaps=gaps)

    def replaced(self, old: Sequence[File], new: File, now_ms: int) -> Manifest:
        """This one with `new` in place of the files `old`, which are retired; itself, where that
        has been done.

        Raises OutOfStep where one of them is not there any more, or `new` is not all of them.
        """
        if new in self.files:
            return self
        gone = set(old)
        if not gone <= set(self.files):
            raise OutOfStep("another writer has replaced some of the files")
        in_order = sorted(old, key=_first)
        joined = all(a.last + 1 == b.first for a, b in pairwise(in_order))
        counted = sum(file.count for file in old)
        if not joined or (in_order[0].first, in_order[-1].last, counted) != (
            new.first, new.last, new.count,
        ):  # fmt: skip
            raise OutOfStep("the new file does not hold what the old ones do")
        files = [file for file in self.files if file not in gone]
        insort(files, new, key=_place)
        retired = (*self.retired, *(Retired(file.path, now_ms) for file in in_order))
        return msgspec.structs.replace(self, files=tuple(files), retired=retired)

    def swept(self, before_ms: int) -> Manifest:
        """This one without the retired files of before that time."""
        kept = tuple(item for item in self.retired if item.at_ms >= before_ms)
        return msgspec.structs.replace(self, retired=kept)

    def named(self) -> frozenset[str]:
        """The paths of all files that are not to be removed: committed, or retired and not yet
        swept."""
        paths = [file.path for file in self.files]
        return frozenset((*paths, *(item.path for item in self.retired)))

    def check(self) -> None:
        """Raises UnreadableArchive where a partition is not covered once and without a break, a
        file's schema is newer than this code, or a path leads out of the series' folder: it may
        be read, and a retired one is removed."""
        for path in self.named():
            if not is_below(path):
                raise UnreadableArchive(
                    f"the manifest of {self.topic} (version {self.version}) names {path[:200]!r},"
                    " which is no file of this archive"
                )
        for file in self.files:
            check_schema_version(file.schema, file.path)
        for partition, items in self.partitions().items():
            position = self.start
            for item in items:
                if item.first != position or item.last < item.first:
                    raise UnreadableArchive(
                        f"the manifest of {self.topic} (version {self.version}) covers partition"
                        f" {partition} up to {position}, and then {item.first}-{item.last}"
                    )
                position = item.last + 1


class OutOfStep(Conflict):
    """Another writer has committed what this one's files do not fit to: plan anew."""

    code = "out_of_step"
    retriable = True
    text = "the archive has changed meanwhile"


def encode(manifest: Manifest) -> bytes:
    """As it is stored: JSON, compressed by zstd."""
    return zstandard.ZstdCompressor(level=3).compress(msgspec.json.encode(manifest))


def decode(data: bytes, where: str) -> Manifest:
    """What `encode` wrote. Raises UnreadableArchive on anything else, or a newer format."""
    try:
        if zstandard.frame_content_size(data) > PLAIN_BYTES_MAX:
            raise UnreadableArchive(f"{where} is larger than any manifest")
        plain = zstandard.ZstdDecompressor().decompress(data, max_output_size=PLAIN_BYTES_MAX)
        told = msgspec.json.decode(plain, type=_Format).format
        if told != FORMAT:
            raise UnreadableArchive(
                f"{where} has format {told}: this version of goqueue reads {FORMAT};"
                " use a newer one"
            )
        manifest = msgspec.json.decode(plain, type=Manifest)
        _ = manifest.series
    except (zstandard.ZstdError, zlib.error, msgspec.MsgspecError, ValueError) as error:
        raise UnreadableArchive(f"{where} is no manifest: {error}") from None
    manifest.check()
    return manifest


def versions(store: ReadableStore, series: Series) -> list[int]:
    """The numbers of the manifests that are there, in order."""
    found = map(parse_manifest_name, store.names(series.manifest_folder))
    return sorted(version for version in found if version is not None)


def newest(store: ReadableStore, series: Series) -> Manifest:
    """The manifest that counts; an empty one, of version 0, where there is none yet."""
    for _ in range(COMMIT_TRIES_MAX):
        there = versions(store, series)
        if not there:
            return Manifest.empty(series)
        path = series.manifest_path(there[-1])
        try:
            manifest = decode(store.read(path), path)
        except FileNotFoundError:
            continue  # swept in between: there are newer ones
        if manifest.series != series or manifest.version != there[-1]:
            raise UnreadableArchive(f"{path} is the manifest of something else")
        return manifest
    raise Conflict(f"{series.manifest_folder} changes too fast to be read", retriable=True)


def commit(
    store: WritableStore,
    series: Series,
    change: Callable[[Manifest], Manifest],
    *,
    writer: str,
    now_ms: int,
) -> Manifest:
    """Make `change` to the newest manifest, and that the newest; nothing where it changes nothing.

    Where another writer comes first, `change` is made to theirs; it may raise OutOfStep, and must
    change nothing where it has been made before. A writer that dies in here has committed either
    all of it or nothing.
    """
    for _ in range(COMMIT_TRIES_MAX):
        base = newest(store, series)
        changed = change(base)
        if changed == base:
            return base
        following = msgspec.structs.replace(
            changed, version=base.version + 1, writer=writer, written_ms=now_ms
        )
        following.check()
        path = series.manifest_path(following.version)
        if not store.create(path, encode(following)):
            continue
        there = versions(store, series)
        if there[-1] != following.version:
            # Others have gone on from it; or without it, where this writer slept until its number
            # was free again, as old ones are swept. The newest tells which.
            continue
        _sweep_versions(store, series, there)
        return following
    raise Conflict(f"{COMMIT_TRIES_MAX} commits to {series.folder} lost to others", retriable=True)


def topic_ids(store: ReadableStore, kind: Kind, topic: str) -> list[str]:
    """The ids under which a topic's name is archived, oldest first: one for each time that it was
    created."""
    found = map(parse_id_folder, store.names(topic_folder(kind, topic)))
    return sorted((id_ for id_ in found if id_ is not None), key=_created)


def file_at(files: Sequence[File], position: int) -> File | None:
    """The file, of one partition's in order, that has a position, or None in a gap."""
    row = bisect_left(files, position, key=_last)
    return files[row] if row < len(files) and files[row].first <= position else None


def runs(files: Iterable[File]) -> Iterator[list[File]]:
    """Files in order, cut into runs that follow on each other without a gap."""
    run: list[File] = []
    for file in files:
        if run and run[-1].last + 1 != file.first:
            yield run
            run = []
        run.append(file)
    if run:
        yield run


class _Format(msgspec.Struct):
    format: int


_first = attrgetter("first")
_last = attrgetter("last")
_place = attrgetter("partition", "first")


def _joined(gaps: list[Gap]) -> tuple[Gap, ...]:
    """The same ranges, those that follow on each other for the same reason as one."""
    found: list[Gap] = []
    for gap in sorted(gaps, key=_place):
        last = found[-1] if found else None
        if last is not None and (last.partition, last.last + 1, last.why) == (
            gap.partition, gap.first, gap.why,
        ):  # fmt: skip
            found[-1] = msgspec.structs.replace(last, last=gap.last)
        else:
            found.append(gap)
    return tuple(found)


def _created(topic_id: str) -> tuple[int, str]:
    cluster, _, index = topic_id.partition("-")
    return int(index, 16), cluster


def _sweep_versions(store: WritableStore, series: Series, there: Sequence[int]) -> None:
    for version in there[:-VERSIONS_KEPT]:
        store.remove(series.manifest_path(version))
