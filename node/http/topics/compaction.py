"""Key compaction: how it stands in each partition, to have it done now, and what that would do."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct, json

from goqueue.wire.ids import PARTITIONS_MAX
from node.api.compaction import PartitionCompaction
from node.api.times import format_time
from node.http.request.call import Call, answer
from node.http.text.known_fields import Body


class CompactBody(Body):
    """`dry_run`: change nothing, tell what would go."""

    dry_run: bool | None = None


class GoQueueCompactBody(CompactBody):
    """`partitions` are those that the answer tells of; all of the topic's are compacted."""

    partitions: Annotated[list[int], Meta(max_length=PARTITIONS_MAX)] | None = None


class GoQueueCompacted(Struct):
    """A partition's run in GoQueue's words. `error` says why it ended early, if it did."""

    partition: int
    records_before: int
    records_after: int
    records_removed: int
    dirty_ratio: float
    error: str = ""


class GoQueueCompaction(Struct):
    success: bool
    topic: str
    dry_run: bool
    results: list[GoQueueCompacted]


class CompactedPartition(Struct):
    """One partition. `state`: idle, running, or unknown where its leader does not answer.

    Of a run that was asked for, `outcome` is done, nothing (to do), busy, running (it goes on by
    itself), or why it ended early; `run_dropped` messages went, or would; `bytes_after` of
    `bytes_before` stay.
    """

    partition: int
    state: str
    dirty_bytes: int
    clean_bytes: int
    dirty_ratio: float
    kept: int
    runs: int
    dropped: int
    last_run: str | None
    outcome: str | None = None
    run_dropped: int = 0
    run_kept: int = 0
    run_tombstones: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


class CompactionAnswer(Struct):
    topic: str
    dry_run: bool
    partitions: list[CompactedPartition]


_BODY = json.Decoder(CompactBody)
_GOQUEUE_BODY = json.Decoder(GoQueueCompactBody)


async def status(call: Call) -> web.Response:
    topic = call.topic()
    return answer(_answer(topic, await call.broker.compactions.compaction(topic)))


async def run(call: Call) -> web.Response:
    topic = call.topic()
    wanted = await call.document(_BODY, empty=b"{}")
    dry_run = bool(wanted.dry_run)
    found = await call.broker.compactions.compact(topic, dry_run=dry_run)
    return answer(_answer(topic, found, dry_run=dry_run))


async def run_for_goqueue(call: Call) -> web.Response:
    """POST /admin/topics/{topic}/compact"""
    topic = call.topic()
    wanted = await call.document(_GOQUEUE_BODY, empty=b"{}")
    found = await call.broker.compactions.compact(topic, dry_run=bool(wanted.dry_run))
    rows = [
        _goqueue_row(number, found[number])
        for number in sorted(found)
        if wanted.partitions is None or number in wanted.partitions
    ]
    success = not any(row.error for row in rows)
    return answer(GoQueueCompaction(success, topic, bool(wanted.dry_run), rows))


def _goqueue_row(partition: int, view: PartitionCompaction | None) -> GoQueueCompacted:
    if view is None or view.run is None:
        return GoQueueCompacted(partition, 0, 0, 0, 0.0, "its leader does not answer")
    run = view.run
    error = "" if run.outcome in ("done", "nothing") else run.outcome
    before = run.kept + run.dropped
    return GoQueueCompacted(partition, before, run.kept, run.dropped, view.ratio, error)


def _answer(
    topic: str, found: dict[int, PartitionCompaction | None], *, dry_run: bool = False
) -> CompactionAnswer:
    return CompactionAnswer(
        topic, dry_run, [_row(number, found[number]) for number in sorted(found)]
    )


def _row(number: int, view: PartitionCompaction | None) -> CompactedPartition:
    known = view or PartitionCompaction()
    row = CompactedPartition(
        partition=number,
        state="unknown" if view is None else "running" if view.running else "idle",
        dirty_bytes=known.dirty_bytes,
        clean_bytes=known.clean_bytes,
        dirty_ratio=round(known.ratio, 4),
        kept=known.kept,
        runs=known.runs,
        dropped=known.dropped,
        last_run=format_time(known.last_ms) if known.last_ms else None,
    )
    if known.run is not None:
        run = known.run
        row.outcome, row.run_dropped, row.run_kept = run.outcome, run.dropped, run.kept
        row.run_tombstones = run.tombstones
        row.bytes_before, row.bytes_after = run.bytes_before, run.bytes_after
    return row
