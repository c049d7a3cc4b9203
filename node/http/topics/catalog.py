"""Topics: create, list, describe, alter, delete, flush, and where their partitions live.

Bodies take GoQueue's names (`num_partitions`, `retention_hours`) and the configuration's own; the
broker judges the values. Answers hold GoQueue's fields and every field of the configuration.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from goqueue.wire.errors import BadRequest, Unavailable
from goqueue.wire.ids import validate_topic_name
from node.api.times import Duration, duration_ms
from node.api.topics import PartitionView, TopicView
from node.http.request.call import Call, answer
from node.http.text.known_fields import Body, UnknownField
from node.http.topics.archived import ArchivedPartition, archived_row

HOUR_MS = 3_600_000
_Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Bound = Annotated[int, Meta(ge=-1, le=2**62)]
_Ratio = Annotated[float, Meta(ge=0, le=1)]
_Hours = Annotated[float, Meta(ge=-1, le=1_000_000)]
_FOREIGN = {
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "max.message.bytes": "max_message_bytes",
    "flush.ms": "flush_interval_ms",
    "priority.lanes": "lanes",
    "cleanup.policy": "cleanup",
    "delete.retention.ms": "delete_retention_ms",
    "min.compaction.lag.ms": "min_compaction_lag_ms",
    "min.cleanable.dirty.ratio": "min_cleanable_ratio",
    "retention.require_archive": "require_archive",
    "compression.type": "compression",
}
_TEXTS = frozenset({"durability", "cleanup", "compression"})
_SPANS = {
    "ttl": "ttl_ms",
    "delay_max": "delay_ms_max",
    "dedup_window": "dedup_window_ms",
    "dead_retention": "dead_retention_ms",
    "delete_retention": "delete_retention_ms",
    "min_compaction_lag": "min_compaction_lag_ms",
}
_QUEUE_SETTINGS = (
    "ttl_ms",
    "delay_ms_max",
    "delayed_max",
    "dedup_window_ms",
    "dedup_max",
    "dedup_producers_bytes",
    "dedup_requests_bytes",
    "dead_retention_ms",
    "cleanup",
    "delete_retention_ms",
    "min_compaction_lag_ms",
    "min_cleanable_ratio",
    "require_archive",
    "compression",
)


class TopicSettings(Body):
    """What can be said about a topic; null and missing leave the default, or the present value."""

    num_partitions: _Count | None = None
    partitions: _Count | None = None
    replication_factor: _Count | None = None
    replicationFactor: _Count | None = None
    retention_hours: _Hours | None = None
    retention_ms: _Bound | None = None
    retention_bytes: _Bound | None = None
    durability: str | None = None
    flush_interval_ms: _Bound | None = None
    lanes: _Count | None = None
    max_message_bytes: _Count | None = None
    ttl_ms: _Bound | None = None
    delay_ms_max: _Bound | None = None
    delayed_max: _Bound | None = None
    dedup_window_ms: _Bound | None = None
    dedup_max: _Bound | None = None
    dedup_producers_bytes: _Bound | None = None
    dedup_requests_bytes: _Bound | None = None
    dead_retention_ms: _Bound | None = None
    ttl: Duration | None = None
    delay_max: Duration | None = None
    dedup_window: Duration | None = None
    dead_retention: Duration | None = None
    cleanup: str | None = None
    delete_retention_ms: _Bound | None = None
    delete_retention: Duration | None = None
    min_compaction_lag_ms: _Bound | None = None
    min_compaction_lag: Duration | None = None
    min_cleanable_ratio: _Ratio | None = None
    require_archive: bool | None = None
    compression: str | None = None
    labels: dict[str, str] | None = None
    config: dict[str, str | int | float | bool] | None = None


class CreateTopic(TopicSettings, kw_only=True):
    """A new topic."""

    name: str


class TopicCreated(Struct):
    """The answer to a creation."""

    name: str
    id: str
    partitions: int
    created: bool
    config: dict[str, Any]
    warnings: list[str]


class TopicNames(Struct):
    topics: list[str]


class OffsetRange(Struct):
    """`latest` is the offset of the last message, -1 while there is none."""

    earliest: int
    latest: int


class PartitionAnswer(Struct):
    """One partition; `next` is the offset the next message will get.

    `replicas` should hold it, `voters` and `learners` do by now; `isr` are the voters that are
    caught up. They differ while it moves. `archive` is null where nothing waits for one, and none
    was told of. `stale`: its leader did not confirm these figures in time; there may be more.
    """

    partition: int
    leader: str | None
    replicas: list[str]
    isr: list[str]
    earliest: int
    next: int
    messages: int
    size_bytes: int
    voters: list[str]
    learners: list[str]
    archive: ArchivedPartition | None
    stale: bool


class TopicAnswer(Struct):
    """A topic with totals and, under `config`, all of its settings.

    `stale`: nobody could say whether that is all; a change made lately may be missing, or messages
    of the partitions that are stale themselves. `archive` is where the topic is archived, as it was
    told last; null while it never was.
    """

    name: str
    id: str
    partitions: int
    num_partitions: int
    replication_factor: int
    retention_hours: int | float
    total_messages: int
    total_size_bytes: int
    partition_offsets: dict[str, OffsetRange]
    partition_details: list[PartitionAnswer]
    config: dict[str, Any]
    stale: bool
    archive: str | None


class PartitionsAnswer(Struct):
    """`stale`: some of them are, or a change made lately may be missing."""

    topic: str
    partitions: list[PartitionAnswer]
    stale: bool


class TopicDeleted(Struct):
    deleted: bool
    name: str


class TopicFlushed(Struct):
    flushed: bool
    name: str


class PartitionTrimmed(Struct):
    """`messages` went, and `bytes` of files at the leader. `earliest` is the first offset that is
    kept: a message that the group `kept_for` has not settled, null where all have settled all."""

    partition: int
    messages: int
    bytes: int
    earliest: int
    kept_for: str | None


class TopicTrimmed(Struct):
    """What went of all partitions, and of each."""

    topic: str
    messages: int
    bytes: int
    partitions: list[PartitionTrimmed]


_CREATE = msgspec.json.Decoder(CreateTopic)
_SETTINGS = msgspec.json.Decoder(TopicSettings)


async def create(call: Call) -> web.Response:
    wanted = await call.document(_CREATE)
    view = await call.broker.topics.create_topic(
        validate_topic_name(wanted.name), _overrides(wanted)
    )
    created = TopicCreated(
        view.name, view.id, len(view.partitions), True, dict(view.config), list(view.warnings)
    )
    return answer(created, 201)


async def list_names(call: Call) -> web.Response:
    return answer(TopicNames(call.broker.topics.list_topics()))


async def describe(call: Call) -> web.Response:
    return answer(_topic_answer(await call.broker.topics.topic(call.topic())))


async def alter(call: Call) -> web.Response:
    name = call.topic()
    changes = _overrides(await call.document(_SETTINGS))
    if not changes:
        raise BadRequest("nothing to change")
    return answer(_topic_answer(await call.broker.topics.alter_topic(name, changes)))


async def delete(call: Call) -> web.Response:
    name = call.topic()
    await call.broker.topics.delete_topic(name)
    return answer(TopicDeleted(True, name))


async def flush(call: Call) -> web.Response:
    name = call.topic()
    await call.broker.records.flush(name)
    return answer(TopicFlushed(True, name))


async def trim(call: Call) -> web.Response:
    name = call.topic()
    rows = [
        PartitionTrimmed(number, went.messages, went.bytes, went.earliest, went.kept_for or None)
        for number, went in (await call.broker.trims.trim_settled(name)).items()
    ]
    messages, size = sum(row.messages for row in rows), sum(row.bytes for row in rows)
    return answer(TopicTrimmed(name, messages, size, rows))


async def partitions(call: Call) -> web.Response:
    view = await call.broker.topics.topic(call.topic())
    if call.query_flag("current"):
        view = await _current(call, view)
    rows = list(map(_partition_answer, view.partitions))
    return answer(PartitionsAnswer(view.name, rows, view.stale))


async def _current(call: Call, view: TopicView) -> TopicView:
    """With the ends that the leaders tell now. Raises Unavailable where one can't."""
    ends = await call.broker.records.end_offsets(view.name)
    unknown = [one.partition for one in view.partitions if one.partition not in ends]
    if unknown:
        raise Unavailable(f"the end of {view.name}:{unknown[0]} is not known now")
    places = ((one, *ends[one.partition]) for one in view.partitions)
    told = tuple(
        dataclasses.replace(one, earliest=at, next=end, stale=False) for one, at, end in places
    )
    return dataclasses.replace(view, partitions=told)


def _overrides(wanted: TopicSettings) -> dict[str, object]:
    """The fields that were given, under the configuration's names. Raises BadRequest."""
    found: dict[str, object] = {
        "partitions": _one(wanted.num_partitions, wanted.partitions, "partitions"),
        "replication_factor": _one(
            wanted.replication_factor, wanted.replicationFactor, "replication_factor"
        ),
        "retention_ms": wanted.retention_ms,
        "retention_bytes": wanted.retention_bytes,
        "durability": wanted.durability,
        "flush_interval_ms": wanted.flush_interval_ms,
        "lanes": wanted.lanes,
        "max_message_bytes": wanted.max_message_bytes,
        **{name: getattr(wanted, name) for name in _QUEUE_SETTINGS},
        **{stored: _span(wanted, name, stored) for name, stored in _SPANS.items()},
        "labels": wanted.labels,
    }
    if wanted.retention_hours:  # 0 has always meant the default
        hours = wanted.retention_hours
        found["retention_ms"] = -1 if hours < 0 else round(hours * HOUR_MS)
    for name, value in (wanted.config or {}).items():
        field = _FOREIGN.get(name, name)
        if field not in found or field == "labels":
            raise UnknownField(name, [*found.keys() - {"labels"}, *_FOREIGN], "config")
        found[field] = _setting(field, name, value)
    return {name: value for name, value in found.items() if value is not None}


def _one(first: int | None, second: int | None, name: str) -> int | None:
    if first is not None and second is not None and first != second:
        raise BadRequest(f"{name} is given twice, with different values")
    return second if first is None else first


def _span(wanted: TopicSettings, name: str, stored: str) -> int | None:
    """A duration, or milliseconds under the configuration's own name."""
    return _one(duration_ms(getattr(wanted, name), name), getattr(wanted, stored), name)


def _setting(field: str, name: str, value: str | float | bool) -> object:
    if field == "require_archive":
        return _flag(name, value)
    if field in _TEXTS:
        return str(value).replace(", ", ",")
    if field == "min_cleanable_ratio":
        try:
            return float(value)
        except ValueError:
            raise BadRequest(f"{name}: {str(value)[:40]!r} is not a number") from None
    return _number(name, value)


def _flag(name: str, value: str | float | bool) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise BadRequest(f"{name}: {text[:40]!r} is neither true nor false")
    return text == "true"


def _number(name: str, value: str | int | float) -> int:
    try:
        number = int(str(value)[:20])
    except ValueError:
        raise BadRequest(f"{name}: {str(value)[:40]!r} is not a whole number") from None
    if not -1 <= number <= 2**62:
        raise BadRequest(f"{name}: out of range")
    return number


def _partition_answer(view: PartitionView) -> PartitionAnswer:
    return PartitionAnswer(
        view.partition,
        view.leader,
        list(view.replicas),
        list(view.isr),
        view.earliest,
        view.next,
        view.messages,
        view.size_bytes,
        list(view.voters),
        list(view.learners),
        None if view.archive is None else archived_row(view.partition, view.archive),
        view.stale,
    )


def _topic_answer(view: TopicView) -> TopicAnswer:
    retention_ms = view.config.get("retention_ms")
    factor = view.config.get("replication_factor")
    hours: int | float = -1
    if isinstance(retention_ms, int) and retention_ms >= 0:
        whole, rest = divmod(retention_ms, HOUR_MS)
        hours = retention_ms / HOUR_MS if rest else whole
    return TopicAnswer(
        name=view.name,
        id=view.id,
        partitions=len(view.partitions),
        num_partitions=len(view.partitions),
        replication_factor=factor if isinstance(factor, int) else 0,
        retention_hours=hours,
        total_messages=sum(partition.messages for partition in view.partitions),
        total_size_bytes=sum(partition.size_bytes for partition in view.partitions),
        partition_offsets={
            str(p.partition): OffsetRange(p.earliest, p.next - 1 if p.messages else -1)
            for p in view.partitions
        },
        partition_details=list(map(_partition_answer, view.partitions)),
        config=dict(view.config),
        stale=view.stale,
        archive=_archive(view),
    )


def _archive(view: TopicView) -> str | None:
    told = [p.archive for p in view.partitions if p.archive is not None and p.archive.location]
    return max(told, key=lambda archive: archive.reported_ms).location if told else None
