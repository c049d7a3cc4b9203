"""A streaming read: positions by topic id and partition, which Spark keeps in its checkpoint.

A position is `{"orders": {"id": "0fca1deac97785c4-7", "offsets": {"0": 12, "1": 7}}}`: the next
offset to read of each partition. A batch lies between two of them, so that a query that starts
again reads the same messages for the same batch. A partition that a position does not name is
new: it begins with its first message.

Where a batch ends it is also told how it is split into tasks (`"split": [minPartitions,
maxRecordsPerPartition]`, 0 for none): so that a batch which a failure interrupted comes again in
the same Spark partitions, whatever the options say by then. Sinks that know their tasks by number,
as this project's does, depend on it. Positions of 0.1.0 don't tell, and 0.1.0 does not look.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from goqueue.errors import UnknownTopic
from pipeline.broker import Broker, TopicFacts
from pipeline.options import OptionError
from pipeline.source import data_loss
from pipeline.source.batch import read_partition
from pipeline.source.options import SourceOptions
from pipeline.source.ranges import Key, Range, split, take
from pipeline.source.topics import Known, look, no_topic, resolve

Json = dict[str, Any]
Split = tuple[int, int]
"""The options `minPartitions` and `maxRecordsPerPartition`, 0 where there is none."""


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset of each partition, and the ids of their topics."""

    ids: Mapping[str, str] = field(default_factory=dict[str, str])
    offsets: Mapping[Key, int] = field(default_factory=dict[Key, int])
    split: Split | None = None
    """How the batch that ends here is split; None where that is not told."""

    @classmethod
    def read(cls, told: Json) -> Position:
        """Of what `write` gave to Spark. Raises OptionError for what another source gave it."""
        try:
            offsets = {
                (topic, int(number)): int(offset)
                for topic, place in told.items()
                for number, offset in place["offsets"].items()
            }
            ids = {topic: str(place["id"]) for topic, place in told.items()}
            return cls(ids, offsets, _split_told(told))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise OptionError(
                f"checkpointLocation: it is of a query with another source: {str(told)[:80]!r} is "
                "no position of this one; begin with a new one, at startingOffsets"
            ) from None

    def write(self) -> Json:
        told: Json = {topic: {"id": id, "offsets": {}} for topic, id in sorted(self.ids.items())}
        for (topic, number), offset in sorted(self.offsets.items()):
            told[topic]["offsets"][str(number)] = offset
        for place in told.values() if self.split is not None else ():
            place["split"] = list(self.split or ())
        return told

    def is_at(self, other: Position) -> bool:
        """Whether nothing lies between the two."""
        return (self.ids, self.offsets) == (other.ids, other.offsets)

    def start(self, key: Key, topic_id: str, first: int) -> int:
        """Where a partition goes on: at the first, if it is new or its topic is."""
        return self.offsets.get(key, first) if self.ids.get(key[0]) == topic_id else first


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches; Spark keeps one such reader for as long as the query runs."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._broker = Broker(options.access)
        self._target: dict[str, Known] | None = None
        self._reported: Position | None = None
        self._triggered_s = time.monotonic()

    def look(self, *, missing_ok: bool) -> dict[str, Known]:
        """What there is to read now."""
        return look(self._broker, self._options.chosen, missing_ok=missing_ok)

    gone = staticmethod(data_loss.offsets_gone)
    first = 0
    """Where a partition begins that has lost nothing."""

    # where it begins and how far it may go

    def initialOffset(self) -> Json:
        options = self._options
        known = self.look(missing_ok=False)
        found = resolve(
            self._broker, options.start, known, latest_where_none=options.latest_where_none
        )
        found = {key: max(self.first, start) for key, start in found.items()}
        position = Position(_ids(known), found)
        self._check(position, known, found)
        return position.write()

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.offsets_max is not None:
            return ReadMaxRows(options.offsets_max)
        if options.offsets_min is not None:
            return ReadMinRows(options.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.look(missing_ok=True)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """As far as the limit allows, and not beyond what was there when an AvailableNow query
        began. The start itself where there is nothing, or too little to begin a batch with."""
        begun = Position.read(start)
        known = self.look(missing_ok=True) if self._target is None else self._target
        self._check_names(begun, known)
        ends = _ends(known)
        self._reported = ends
        kept = self._unread(begun, ends)
        starts = {key: begun.start(key, ends.ids[key[0]], self.first) for key in ends.offsets}
        self._check(begun, known, starts)
        starts = {key: min(start, ends.offsets[key]) for key, start in starts.items()}
        backlog = {key: end - starts[key] for key, end in ends.offsets.items()}
        if self._waits(sum(backlog.values()), limit):
            return start
        if isinstance(limit, ReadMaxRows):
            backlog = take(backlog, limit.max_rows)
        offsets = {key: starts[key] + rows for key, rows in backlog.items()}
        ids, split_now = {**kept.ids, **ends.ids}, self._split_now()
        found = Position(ids, {**kept.offsets, **offsets}, split_now)
        if found.is_at(begun):
            return start
        self._triggered_s = time.monotonic()
        return found.write()

    def reportLatestOffset(self) -> Json | None:
        return None if self._reported is None else self._reported.write()

    # a batch

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        begun, ended = Position.read(start), Position.read(end)
        facts = {topic: self._facts(topic) for topic in ended.ids}
        found = []
        for (topic, number), last in ended.offsets.items():
            topic_id, known = ended.ids[topic], facts[topic]
            first = begun.start((topic, number), topic_id, self.first)
            leader = None if known is None else known.leader(number)
            is_compacted = known is not None and known.is_compacted
            found.append(Range(topic, topic_id, number, first, last, leader, is_compacted))
        least, most = self._split_now() if ended.split is None else ended.split
        return split(found, at_least=least or None, records_max=most or None)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(self._options, self._schema, partition)

    def stop(self) -> None:
        self._broker.close()

    # private

    def _split_now(self) -> Split:
        return self._options.min_partitions or 0, self._options.records_max or 0

    def _unread(self, begun: Position, ends: Position) -> Position:
        """The places that what is read now need not have: of topics and partitions that are no
        longer chosen, or not listed by a node that lags. They keep them."""
        ids: dict[str, str] = {}
        for topic, topic_id in begun.ids.items():
            if topic in ends.ids:
                continue
            try:
                found = self._broker.topic(topic).id
            except UnknownTopic:
                self._lost(data_loss.deleted(topic))
                continue
            if found == topic_id:
                ids[topic] = topic_id
            else:
                self._lost(data_loss.recreated(topic, topic_id, found))
        same = {*ids, *(topic for topic in ends.ids if ends.ids[topic] == begun.ids.get(topic))}
        offsets = {key: offset for key, offset in begun.offsets.items() if key[0] in same}
        return Position(ids, offsets)

    def _facts(self, topic: str) -> TopicFacts | None:
        """None for a topic that was deleted since; the task that reads it will say so."""
        try:
            return self._broker.topic(topic)
        except UnknownTopic:
            return None

    def _waits(self, rows: int, limit: ReadLimit) -> bool:
        """Whether the batch is put off for more to come: never where all is asked for, nor when it
        has been put off for as long as it may be."""
        least = self._options.offsets_min
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        waited_s = time.monotonic() - self._triggered_s
        return rows < least and waited_s < self._options.trigger_delay_s

    def _check_names(self, begun: Position, known: Mapping[str, Known]) -> None:
        """That a topic that is named is there, or was: one that is gone is a loss."""
        options = self._options
        for name in options.chosen.names:
            if options.fail_on_data_loss and name not in known and name not in begun.ids:
                raise no_topic(options.chosen, name)

    def _check(
        self, begun: Position, known: Mapping[str, Known], starts: Mapping[Key, int]
    ) -> None:
        """That the topics are those that reading has come to, and hold what comes next."""
        for name, topic in known.items():
            before = begun.ids.get(name, topic.facts.id)
            if before != topic.facts.id:
                self._lost(data_loss.recreated(name, before, topic.facts.id))
        for (name, number), start in starts.items():
            span, is_compacted = known[name].spans[number], known[name].facts.is_compacted
            if span.end < start:
                self._lost(data_loss.end_gone(name, number, start, span.end))
            elif start < span.start and not is_compacted:
                self._lost(self.gone(name, number, start, span.start))

    def _lost(self, what: str) -> None:
        data_loss.lost(what, fail=self._options.fail_on_data_loss)


def _split_told(told: Json) -> Split | None:
    """Equal for all topics of a position, as it is written."""
    for place in told.values():
        if "split" in place:
            least, most = place["split"]
            return int(least), int(most)
    return None


def _ids(known: Mapping[str, Known]) -> dict[str, str]:
    return {name: topic.facts.id for name, topic in known.items()}


def _ends(known: Mapping[str, Known]) -> Position:
    offsets = {
        (name, number): span.end
        for name, topic in known.items()
        for number, span in topic.spans.items()
    }
    return Position(_ids(known), offsets)
