"""What the queries read: a topic's messages and events, from a cluster or from its archive.

Beside `messages` (the columns of the source, with headers) and `events` (those of `goqueue.events`)
there are three small views, made on the driver:
- `rebalances`: a row for each partition that moved: group, rebalance, cause, started_at,
  duration_ms, topic, partition, pause_ms, in_flight, fenced.
- `groups`: group, ordering, lane_max_wait_ms, lane_share, created_ms.
- `bounds`: topic, partition, first_offset and end_offset of what should be there, is_compacted.

A window of time chooses messages by their log time; their events come along, whenever they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession, functions

from goqueue.archive.layout import Kind, Series
from goqueue.archive.manifest import Manifest, newest, topic_ids
from goqueue.archive.schema import spark_ddl
from goqueue.errors import GoQueueError, NotFound, UnknownTopic
from goqueue.models.times import duration_ms
from goqueue.transport.http import join
from pipeline.analytics.analysis import Inputs
from pipeline.archive.hadoop_store import HadoopStore
from pipeline.broker import Broker
from pipeline.options import Options

REBALANCES = (
    "`group` string, rebalance bigint, cause string, started_at timestamp, duration_ms bigint,"
    " topic string, partition int, pause_ms bigint, in_flight bigint, fenced boolean"
)
GROUPS = (
    "`group` string, ordering string, lane_max_wait_ms bigint, lane_share int, created_ms bigint"
)
BOUNDS = "topic string, partition int, first_offset bigint, end_offset bigint, is_compacted boolean"
LANE_MAX_WAIT_MS, LANE_SHARE = 30_000, 5
"""The defaults of groups: what counts where an archive does not tell a group's settings."""
WITHOUT_GROUPS = (
    "An archive holds no settings of groups and no rebalances: bounds on lane waits are those of"
    " the default settings, and the order of keys counts as not promised."
)
GROUPS_MAX = 1000
"""Whose settings and rebalances are asked for."""


class NothingToReport(GoQueueError):
    """There is no such topic, or nothing of it in the window."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Of what a report is: a topic, one group or all, a window of log time in Unix ms."""

    topic: str
    group: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The inputs, and what a reader should know of them."""

    inputs: Inputs
    source: str
    notes: list[str] = field(default_factory=list[str])


def live(spark: SparkSession, options: Mapping[str, str], wanted: Wanted) -> Found:
    """From a cluster. `options` are those of the source that say how it is reached. Raises
    NothingToReport, GoQueueError, OptionError."""
    with Broker(Options(options).access()) as broker:
        try:
            facts = broker.topic(wanted.topic)
        except UnknownTopic:
            raise NothingToReport(f"there is no topic {wanted.topic}") from None
        partitions = range(facts.partitions)
        spans = broker.spans(wanted.topic, partitions)
        firsts = {number: span.start for number, span in spans.items()}
        ends = {number: span.end for number, span in spans.items()}
        if wanted.from_ms is not None:
            firsts = _at(ends, broker.offsets_at(wanted.topic, partitions, wanted.from_ms))
        if wanted.to_ms is not None:
            ends = _at(ends, broker.offsets_at(wanted.topic, partitions, wanted.to_ms))
        bounds = [(wanted.topic, n, firsts[n], ends[n], facts.is_compacted) for n in partitions]
        groups, rebalances, notes = _groups(broker, wanted)
    if all(first >= end for _, _, first, end, _ in bounds):
        raise NothingToReport(f"topic {wanted.topic} has no messages in this window")
    messages = (
        spark.read.format("goqueue")
        .options(**options)
        .option("subscribe", wanted.topic)
        .option("includeHeaders", "true")
        .option("startingOffsets", _offsets(wanted.topic, firsts))
        .option("endingOffsets", _offsets(wanted.topic, ends))
        .load()
    )
    events = spark.read.format("goqueue.events").options(**options)
    events = events.option("subscribe", wanted.topic).load()
    source = f"from the cluster at {', '.join(Options(options).access().servers)}"
    return Found(
        _inputs(spark, wanted, messages, events, bounds, groups, rebalances), source, notes
    )


def archived(spark: SparkSession, archive: str, wanted: Wanted) -> Found:
    """From an archive: its newest topic of that name. Raises NothingToReport, UnreadableArchive."""
    store = HadoopStore(spark, archive)
    ids = topic_ids(store, Kind.MESSAGES, wanted.topic)
    if not ids:
        raise NothingToReport(f"there is no topic {wanted.topic} in {store.root}")
    series = Series(Kind.MESSAGES, wanted.topic, ids[-1])
    manifest = newest(store, series)
    told = newest(store, Series(Kind.EVENTS, wanted.topic, ids[-1]))
    notes = [WITHOUT_GROUPS]
    messages = _within(_files(spark, store, manifest, wanted), wanted)
    missing = [gap for gap in manifest.gaps if gap.why == "deleted"]
    if missing:
        count = sum(gap.last + 1 - gap.first for gap in missing)
        notes.append(f"{count:,} messages were deleted before they could be archived.")
    if not told.files:
        notes.append("The archive holds no events of this topic: only messages are told of.")
    spans = messages.groupBy("partition").agg(
        functions.min("offset").alias("first"), (functions.max("offset") + 1).alias("end")
    )
    compacted = any(gap.why == "compacted" for gap in manifest.gaps)
    bounds = [
        (wanted.topic, row["partition"], row["first"], row["end"], compacted)
        for row in spans.collect()
    ]
    if not bounds:
        raise NothingToReport(f"topic {wanted.topic} has no messages in this window")
    events = _files(spark, store, told, Wanted(wanted.topic))
    if wanted.group is not None and events.where(events["group"] == wanted.group).isEmpty():
        raise NothingToReport(f"there are no events of a group {wanted.group} in {store.root}")
    source = f"from the archive {store.root}, topic id {series.topic_id}"
    inputs = _inputs(spark, wanted, messages, events, bounds, None, [])
    return Found(inputs, source, notes)


def frame(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: str) -> DataFrame:
    """Rows of the driver's as a view may be made of."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    columns = to_arrow_schema(StructType.fromDDL(schema), timezone="UTC")
    named = [dict(zip(columns.names, row, strict=True)) for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(named, columns), schema)


def _inputs(
    spark: SparkSession,
    wanted: Wanted,
    messages: DataFrame,
    events: DataFrame,
    bounds: Sequence[Sequence[Any]],
    groups: Sequence[Sequence[Any]] | None,
    rebalances: Sequence[Sequence[Any]],
) -> Inputs:
    if wanted.from_ms is not None or wanted.to_ms is not None:
        spans = frame(spark, bounds, BOUNDS).select(
            "topic", "partition", "first_offset", "end_offset"
        )
        within = "offset >= first_offset AND offset < end_offset"
        events = events.join(functions.broadcast(spans), ["topic", "partition"]).where(within)
        events = events.drop("first_offset", "end_offset")
    if wanted.group is not None:
        events = events.where(events["group"].isNull() | (events["group"] == wanted.group))
    if groups is None:
        # of every group that events name, the defaults
        known = events.where("`group` IS NOT NULL").select("group").distinct()
        settings = known.selectExpr(
            "`group`", "CAST(NULL AS STRING) AS ordering",
            f"CAST({LANE_MAX_WAIT_MS} AS BIGINT) AS lane_max_wait_ms",
            f"{LANE_SHARE} AS lane_share", "CAST(NULL AS BIGINT) AS created_ms",
        )  # fmt: skip
    else:
        settings = frame(spark, groups, GROUPS)
    return Inputs(
        messages=messages,
        events=events,
        rebalances=frame(spark, rebalances, REBALANCES),
        groups=settings,
        bounds=frame(spark, bounds, BOUNDS),
    )


def _files(
    spark: SparkSession, store: HadoopStore, manifest: Manifest, wanted: Wanted
) -> DataFrame:
    """The committed files that can hold what is wanted, read as one."""
    kind = Kind(manifest.kind)
    paths = [
        store.uri(f"{manifest.series.folder}/{file.path}")
        for file in manifest.files
        if (wanted.from_ms is None or file.time_max_ms >= wanted.from_ms)
        and (wanted.to_ms is None or file.time_min_ms < wanted.to_ms)
    ]
    schema = spark_ddl(kind)
    if not paths:
        return frame(spark, [], schema)
    return spark.read.schema(schema).parquet(*paths)


def _within(messages: DataFrame, wanted: Wanted) -> DataFrame:
    time_ms = functions.unix_millis("timestamp")
    if wanted.from_ms is not None:
        messages = messages.where(time_ms >= wanted.from_ms)
    if wanted.to_ms is not None:
        messages = messages.where(time_ms < wanted.to_ms)
    return messages


def _at(ends: Mapping[int, int], found: Mapping[int, int | None]) -> dict[int, int]:
    """Where a time is, or the end where nothing is as late."""
    return {n: ends[n] if at is None else min(at, ends[n]) for n, at in found.items()}


def _offsets(topic: str, positions: Mapping[int, int]) -> str:
    return msgspec.json.encode({topic: {str(n): at for n, at in positions.items()}}).decode()


# -- groups


class _Details(msgspec.Struct):
    name: str
    settings: dict[str, Any]
    created_at: datetime


class _Groups(msgspec.Struct):
    details: list[_Details]


class _Move(msgspec.Struct):
    topic: str
    partition: int
    pause_ms: int
    in_flight: int
    fenced: bool


class _Rebalance(msgspec.Struct):
    id: int
    cause: str
    started_at: datetime
    duration_ms: int | None
    moves: list[_Move]


class _Rebalances(msgspec.Struct):
    rebalances: list[_Rebalance]


def _groups(broker: Broker, wanted: Wanted) -> tuple[list[Any], list[Any], list[str]]:
    """Settings, rebalances that moved partitions of the topic, and what was left out."""
    answer = broker.request("GET", join("groups"), repeatable=True)
    known = msgspec.json.decode(answer.body, type=_Groups).details
    known = [one for one in known if wanted.group in (None, one.name)]
    if wanted.group is not None and not known:
        raise NothingToReport(f"there is no group {wanted.group}")
    notes: list[str] = []
    if len(known) > GROUPS_MAX:
        notes.append(
            f"Rebalances and settings are those of {GROUPS_MAX:,} of {len(known):,} groups."
        )
        known = known[:GROUPS_MAX]
    rebalances: list[Any] = []
    for one in known:
        rebalances += _rebalances(broker, one.name, wanted.topic)
    return [_settings(one) for one in known], rebalances, notes


def _settings(group: _Details) -> tuple[Any, ...]:
    wait = duration_ms(str(group.settings["lane_max_wait"]), "lane_max_wait")
    created_ms = int(group.created_at.timestamp() * 1000)
    share = int(group.settings["lane_share"])
    return group.name, group.settings["ordering"], wait, share, created_ms


def _rebalances(broker: Broker, group: str, topic: str) -> list[tuple[Any, ...]]:
    try:
        answer = broker.request("GET", join("groups", group, "rebalances"), repeatable=True)
    except NotFound:
        return []
    told = msgspec.json.decode(answer.body, type=_Rebalances).rebalances
    return [
        (group, one.id, one.cause, one.started_at, one.duration_ms,
         topic, move.partition, move.pause_ms, move.in_flight, move.fenced)
        for one in told for move in one.moves if move.topic == topic
    ]  # fmt: skip
