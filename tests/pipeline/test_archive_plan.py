"""What a run plans, and what it makes of what its tasks have written: without Spark."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import pytest

from goqueue.archive.layout import Kind, Series
from goqueue.archive.manifest import File, Gap, Manifest, OutOfStep, Why
from goqueue.archive.schema import UnreadableArchive
from goqueue.errors import OffsetOutOfRange
from goqueue.transport.pages import FramePage
from goqueue.wire.batch import encode_columns
from goqueue.wire.stream import BatchFrame, encode_frame
from goqueue.wire.types import Offset
from pipeline.archive.feed import Messages, TopicChanged
from pipeline.archive.inspection import Inspected
from pipeline.archive.plan import DAY_MS, Bounds, Chunk
from pipeline.archive.writing import covering
from pipeline.broker import Span, TopicFacts
from pipeline.broker_access import Access
from pipeline.source.reading import Pace

DAY = 20_000 * DAY_MS
ID = "00000000deadbeef-1f"


class Log:
    """A topic of one partition: of each offset that is kept, its log time."""

    access = Access(("http://nowhere",), request_timeout_s=0.2)

    def __init__(self, times: dict[int, int], start: int, end: int, *, compacted: bool) -> None:
        self.times, self.span = times, Span(start, end)
        self.facts = TopicFacts("t", ID, (None,), compacted)

    def topic(self, name: str) -> TopicFacts:
        return self.facts

    def spans(self, topic: str, partitions: Iterable[int]) -> dict[int, Span]:
        return dict.fromkeys(partitions, self.span)

    def offsets_at(
        self, topic: str, partitions: Iterable[int], time_ms: int
    ) -> dict[int, int | None]:
        first = next((at for at, told in sorted(self.times.items()) if told >= time_ms), None)
        return dict.fromkeys(partitions, first)

    def read(self, topic: str, partition: int, offset: int, **_: object) -> FramePage:
        kept = sorted(self.times)
        rest = kept[bisect_left(kept, offset) :]
        body = b"".join(
            encode_frame(BatchFrame(Offset(at), self.times[at], encode_columns([b"x" * 100])))
            for at in rest[:3]
        )
        end = self.span.end
        behind = end if self.facts.is_compacted else offset
        following = rest[3] if len(rest) > 3 else end if rest else behind
        return FramePage(body, following, self.span.start, end, topic_id=ID)


def planned(log: Log, manifest: Manifest, rows: int) -> tuple[list[Chunk], list[Gap]]:
    feed = Messages(log, "t", Pace())  # type: ignore[arg-type]
    plan = feed.plan(manifest, Bounds(rows))
    return plan.chunks, plan.gaps


def test_files_end_with_their_day_also_over_days_without_messages() -> None:
    days = [0, 0, 0, 1, 1, 4, 4, 4, 4]
    log = Log({at: DAY + day * DAY_MS + at for at, day in enumerate(days)}, 0, 9, compacted=False)
    empty = Manifest.empty(Series(Kind.MESSAGES, "t", ID))

    assert planned(log, empty, 3) == (
        [Chunk(0, 0, 3), Chunk(0, 3, 5), Chunk(0, 5, 8), Chunk(0, 8, 9)],
        [],
    )


def test_what_is_deleted_or_compacted_away_is_a_gap_and_the_rest_goes_on_from_there() -> None:
    empty = Manifest.empty(Series(Kind.MESSAGES, "t", ID))
    begun = empty.extended([Gap(0, 0, 4, "compacted")])
    trimmed = Log(dict.fromkeys(range(6, 9), DAY), 6, 9, compacted=False)
    sparse = Log({7: DAY, 12: DAY + 1}, 3, 13, compacted=True)
    gone = Log({}, 9, 9, compacted=False)

    assert planned(trimmed, empty, 100) == ([Chunk(0, 6, 9)], [Gap(0, 0, 5, "deleted")])
    assert planned(sparse, begun, 100) == ([Chunk(0, 7, 13)], [Gap(0, 5, 6, "compacted")])
    assert planned(gone, empty, 100) == ([], [Gap(0, 0, 8, "deleted")])
    assert planned(gone, empty.extended([Gap(0, 0, 8, "deleted")]), 100) == ([], [])


def test_a_replica_that_answers_nothing_makes_no_gap() -> None:
    empty = Manifest.empty(Series(Kind.MESSAGES, "t", ID))
    behind = Log({}, 0, 9, compacted=False)

    with pytest.raises(OffsetOutOfRange):
        planned(behind, empty, 100)


def test_a_topic_that_was_recreated_meanwhile_is_told() -> None:
    log = Log(dict.fromkeys(range(9), DAY), 0, 9, compacted=False)
    feed = Messages(log, "t", Pace())  # type: ignore[arg-type]
    log.facts = TopicFacts("t", "00000000deadbeef-20", (None,))

    with pytest.raises(TopicChanged):
        feed.plan(Manifest.empty(feed.series), Bounds())


class Told:
    """A feed as far as `covering` asks one."""

    def __init__(self, hole: Why, kind: Kind = Kind.MESSAGES) -> None:
        self.hole, self.series = hole, Series(kind, "t", ID)


def rows(first: int, last: int, distinct: int, partition: int = 0) -> Inspected:
    times = (DAY, DAY + 5)
    return Inspected("x", 10, "00", distinct, partition, first, last, distinct, *times, None)


def covered(hole: Why, found: Inspected | None, start: int = 0) -> list[tuple[int, int, str]]:
    """Of the chunk 10 to below 20: (first, last, `file` or why not)."""
    items = covering(Told(hole), Chunk(0, 10, 20), found, {0: start})  # type: ignore[arg-type]
    return [
        (item.first, item.last, "file" if isinstance(item, File) else item.why) for item in items
    ]


def test_a_file_covers_its_chunk_with_what_the_log_lost_told() -> None:
    assert covered("deleted", rows(10, 19, 10)) == [(10, 19, "file")]
    assert covered("deleted", rows(13, 19, 7), start=13) == [(10, 12, "deleted"), (13, 19, "file")]
    assert covered("deleted", None, start=20) == [(10, 19, "deleted")]
    assert covered("compacted", rows(12, 15, 2)) == [(10, 11, "compacted"), (12, 19, "file")]
    assert covered("compacted", None) == [(10, 19, "compacted")]
    assert covered("empty", rows(12, 15, 2)) == [(10, 11, "empty"), (12, 19, "file")]


@pytest.mark.parametrize(
    "found",
    [
        None,
        rows(10, 18, 9),
        rows(11, 19, 9),
        rows(10, 19, 9),
        rows(10, 20, 11),
        rows(10, 19, 10, 1),
    ],
)
def test_what_lacks_a_message_that_the_log_has_is_not_committed(found: Inspected | None) -> None:
    with pytest.raises(UnreadableArchive):
        covered("deleted", found)


def test_a_hole_that_retention_made_meanwhile_is_planned_anew() -> None:
    with pytest.raises(OutOfStep):
        covered("deleted", rows(10, 19, 8), start=15)
