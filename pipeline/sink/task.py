"""What one Spark task writes: rows by partition, gathered into batches, sent side by side.

Where a row goes must not depend on when it comes by, or another attempt would look for it in the
wrong place. A partition that is asked for counts, then the key, then the message id; all other rows
of a task go into one partition, another one with each micro-batch. Where the topic has got more
partitions meanwhile, what is stored already decides (`pipeline.sink.standing`). That takes a
question to each partition, in a process's first micro-batch of a run and in batch writes that may
have been tried before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from goqueue.errors import GoQueueError, UnknownTopic
from goqueue.wire.partitioner import partition_for
from pipeline.broker import Broker, TopicFacts
from pipeline.sink.columns import Columns, Taken
from pipeline.sink.errors import SinkError
from pipeline.sink.identity import Identity
from pipeline.sink.options import SinkOptions
from pipeline.sink.parts import check_parts
from pipeline.sink.rows import Rows, join
from pipeline.sink.sequence import PartitionSequence, Tally
from pipeline.sink.standing import partitions_then, standings

SENDERS = 8
"""Partitions that one task writes to at once."""
GATHERED_BYTES_MAX = 32 << 20
"""Of all partitions that a task gathers rows for."""
TARGETS_MAX = 10_000
"""Partitions of all topics together that one task may write to."""

SEEN_MAX = 1000

Target = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Seen:
    """How many partitions a topic had when a run of a query wrote a micro-batch."""

    run: str
    epoch: int
    partitions: int


_seen: dict[tuple[str, str], _Seen] = {}
"""By query and topic, for as long as this process lives."""


class TaskWrite:
    """Use as `with`: `write` each Arrow batch, then `finish`."""

    def __init__(self, identity: Identity, columns: Columns, options: SinkOptions) -> None:
        if options.parts is not None and identity.partition >= options.parts:
            raise SinkError(
                f"sparkPartitions: it tells {options.parts}, and there is a {identity.task}"
            )
        self._identity = identity
        self._columns = columns
        self._options = options
        self._broker = Broker(options.access)
        self._pool = ThreadPoolExecutor(SENDERS, "goqueue-sink")
        self._rows = 0
        self._facts: dict[str, TopicFacts] = {}
        self._counts: dict[str, int] = {}
        self._standing: set[Target] = set()
        self._outlets: dict[Target, _Outlet] = {}

    def __enter__(self) -> TaskWrite:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._broker.close()

    def write(self, batch: Any) -> None:
        """Take the next pyarrow RecordBatch of the task. Raises SinkError, GoQueueError."""
        if not batch.num_rows:
            return
        taken = self._columns.take(batch, self._rows)
        self._rows += batch.num_rows
        for target, rows in self._route(taken):
            self._outlet(target).gather(rows)
        gathered = sum(outlet.size_bytes for outlet in self._outlets.values())
        if gathered > GATHERED_BYTES_MAX:
            for outlet in self._outlets.values():
                outlet.flush()

    def finish(self) -> Tally:
        """Return when every row is stored."""
        for outlet in self._outlets.values():
            outlet.flush()
        for outlet in self._outlets.values():
            outlet.finish()
        strange = sorted(self._standing - self._outlets.keys())
        if strange and self._options.fails_on_changed_rows:
            topic, partition = strange[0]
            raise SinkError(
                f"partition {partition} of topic {topic}: an earlier attempt at "
                f"{self._identity.task} stored rows there, and this one has none for it, so these "
                "are not the same rows; with failOnChangedRows false, both attempts' rows stay"
            )
        tallies = [outlet.sequence.tally for outlet in self._outlets.values()]
        return Tally(sum(one.written for one in tallies), sum(one.found for one in tallies))

    @property
    def topics(self) -> tuple[str, ...]:
        """Those that rows went to."""
        return tuple(sorted({topic for topic, _partition in self._outlets}))

    # where rows go

    def _route(self, taken: Taken) -> Iterable[tuple[Target, Rows]]:
        rows, topics = taken.rows, taken.topics
        topic = self._options.topic
        if topic is None and topics is not None and len(set(topics)) == 1:
            topic = topics[0]
        keyless = rows.keys is None and rows.message_ids is None
        if topic is not None and keyless and taken.partitions is None:
            yield (topic, self._turn(topic)), rows
            return
        picked: dict[Target, list[int]] = {}
        for row, target in enumerate(self._targets(taken, topic)):
            picked.setdefault(target, []).append(row)
        for target, chosen in picked.items():
            yield target, rows if len(chosen) == len(rows) else rows.take(chosen)

    def _targets(self, taken: Taken, topic: str | None) -> Iterable[Target]:
        keys, rows = taken.rows.keys, range(len(taken.rows))
        if topic is not None and keys is not None and None not in keys and not taken.partitions:
            count = self._count(topic)
            targets = [(topic, partition) for partition in range(count)]
            return [targets[partition_for(key or b"", count)] for key in keys]
        return [self._target(taken, row, topic) for row in rows]

    def _target(self, taken: Taken, row: int, topic: str | None) -> Target:
        rows = taken.rows
        if topic is None:
            topic = taken.topics[row] if taken.topics else None
            if topic is None:
                raise SinkError(
                    f"row {rows.numbers[row]} of {self._identity.task}: it has no topic, neither "
                    "by option topic nor by its column"
                )
        asked = taken.partitions[row] if taken.partitions else None
        if asked is not None:
            count = self._topic(topic).partitions
            if not 0 <= asked < count:
                raise SinkError(
                    f"row {rows.numbers[row]} of {self._identity.task}: column partition: topic "
                    f"{topic} has no partition {asked}, but {count} partitions"
                )
            return topic, asked
        key = rows.keys[row] if rows.keys else None
        if key is None and rows.message_ids is not None:
            message_id = rows.message_ids[row]
            key = None if message_id is None else message_id.encode()
        if key is None:
            return topic, self._turn(topic)
        return topic, partition_for(key, self._count(topic))

    def _turn(self, topic: str) -> int:
        return (self._identity.partition + self._identity.epoch) % self._count(topic)

    def _count(self, topic: str) -> int:
        """How many partitions rows are spread over: by the topic as it is, or as it was when an
        earlier attempt at this task wrote. Asked for before anything is written."""
        if topic not in self._counts:
            self._counts[topic] = self._count_then(self._topic(topic))
        return self._counts[topic]

    def _count_then(self, facts: TopicFacts) -> int:
        me = self._identity
        if me.is_first or _was_so_before(me, facts):
            return facts.partitions
        if self._options.parts is not None:
            check_parts(self._broker, [facts], me, self._options.parts, too_late=False)
        found = standings(self._broker, facts, me)
        self._standing |= {(facts.name, one.partition) for one in found}
        if "partition" in self._columns:  # rows may lie anywhere
            return facts.partitions
        return partitions_then(self._broker, facts, me, found)

    def _topic(self, name: str) -> TopicFacts:
        facts = self._facts.get(name)
        if facts is None:
            facts = self._facts[name] = topic_facts(self._broker, name)
        return facts

    def _outlet(self, target: Target) -> _Outlet:
        outlet = self._outlets.get(target)
        if outlet is None:
            if len(self._outlets) == TARGETS_MAX:
                raise SinkError(f"a task writes to at most {TARGETS_MAX} partitions of topics")
            topic, partition = target
            self._count(topic)  # nothing is written before it is known what stands there
            leader = self._topic(topic).leader(partition)
            identity, options = self._identity, self._options
            sequence = PartitionSequence(self._broker, topic, partition, leader, identity, options)
            outlet = self._outlets[target] = _Outlet(sequence, self._pool, options)
        return outlet


def _was_so_before(me: Identity, facts: TopicFacts) -> bool:
    """Whether this run wrote an earlier micro-batch when the topic had as many partitions: so it
    has had as many for all of this one, as their number only grows."""
    place = (me.name, facts.name)
    seen = _seen.get(place)
    if me.run and seen is not None and (seen.run, seen.partitions) == (me.run, facts.partitions):
        return seen.epoch < me.epoch
    if len(_seen) >= SEEN_MAX:
        _seen.clear()
    _seen[place] = _Seen(me.run, me.epoch, facts.partitions)
    return False


def topic_facts(broker: Broker, name: str) -> TopicFacts:
    """Raises SinkError where there is no such topic, or none with this name can be."""
    try:
        return broker.topic(name)
    except UnknownTopic:
        raise SinkError(f"topic {name}: there is no such topic; create it first") from None
    except GoQueueError as error:
        if error.retriable:
            raise
        raise SinkError(f"topic {name}: {error.message}") from error


class _Outlet:
    """Rows gathered for one partition; one batch at a time is on its way."""

    def __init__(
        self, sequence: PartitionSequence, pool: ThreadPoolExecutor, options: SinkOptions
    ) -> None:
        self.sequence = sequence
        self.size_bytes = 0
        self._pool = pool
        self._rows_max, self._bytes_max = options.batch_rows, options.batch_bytes
        self._parts: list[Rows] = []
        self._sending: Future[None] | None = None

    def gather(self, rows: Rows) -> None:
        self._parts.append(rows)
        self.size_bytes += rows.size_bytes
        if self.size_bytes >= self._bytes_max or sum(map(len, self._parts)) >= self._rows_max:
            self.flush()

    def flush(self) -> None:
        """Send what is gathered, after what is on its way."""
        parts, self._parts, self.size_bytes = self._parts, [], 0
        self._wait()
        if parts:
            self._sending = self._pool.submit(self._send, parts)

    def finish(self) -> None:
        self._wait()
        self.sequence.finish()

    def _wait(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.result()

    def _send(self, parts: Sequence[Rows]) -> None:
        rows = join(parts)
        start = 0
        for end in self._ends(rows):
            self.sequence.append(rows.slice(start, end))
            start = end

    def _ends(self, rows: Rows) -> Iterable[int]:
        """Where batches end: within the bounds, unless a single row is beyond them."""
        start = 0
        while start < len(rows):
            end = min(len(rows), start + self._rows_max)
            while end > start + 1 and rows.slice(start, end).size_bytes > self._bytes_max:
                end = start + (end - start) // 2
            yield end
            start = end
