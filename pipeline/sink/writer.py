"""What Spark calls to write: on the driver when a write is planned, in tasks on the executors.

A row is stored, on a majority, when its task ends; committing a job or a micro-batch adds nothing,
and aborting one takes nothing back. But only when all tasks have ended is it known how many there
were, so a commit looks for rows of tasks that an earlier attempt had besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pipeline.broker import Broker
from pipeline.sink.columns import Columns
from pipeline.sink.errors import SinkError
from pipeline.sink.identity import Identity, of_stream, of_write
from pipeline.sink.options import SinkOptions
from pipeline.sink.parts import check_parts, check_told
from pipeline.sink.task import TaskWrite, topic_facts


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task has done: rows written, and rows found that another attempt had written."""

    written: int
    found: int
    identity: Identity
    topics: tuple[str, ...]


class GoQueueWriter(DataSourceArrowWriter):
    """A batch write: identified by `writeId`, or by a random name made for this run."""

    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._identity = of_write(options.write_id, options.write_epoch)

    def write(self, iterator: Iterator[Any]) -> Written:
        task = _task()
        identity = self._identity(task.partitionId(), task.attemptNumber() == 0)
        return _write(iterator, identity, self._columns, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Raises SinkError where an earlier attempt had more Spark partitions."""
        _check_parts(messages, self._options)


class GoQueueStreamWriter(DataSourceStreamArrowWriter):
    """A streaming query's writes: identified by its id, the micro-batch and the partition."""

    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> Written:
        task = _task()
        identity = of_stream(task.getLocalProperty, task.partitionId())
        return _write(iterator, identity, self._columns, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Raises SinkError where an earlier attempt had more Spark partitions."""
        _check_parts(messages, self._options)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> GoQueueWriter:
    """Raises OptionError, SinkError, also for a topic that is not there."""
    if overwrite:
        raise SinkError("mode overwrite: a topic only takes more rows; use mode append")
    told, columns = _planned(options, schema, streaming=False)
    if told.topic is not None:
        with Broker(told.access) as broker:
            topic_facts(broker, told.topic)
    return GoQueueWriter(told, columns)


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> GoQueueStreamWriter:
    """Asked for twice by each micro-batch, so the topic is left to the tasks. Raises OptionError,
    SinkError."""
    if overwrite:
        raise SinkError("output mode complete: a topic only takes more rows; use append or update")
    return GoQueueStreamWriter(*_planned(options, schema, streaming=True))


def _planned(
    options: Mapping[str, str], schema: StructType, *, streaming: bool
) -> tuple[SinkOptions, Columns]:
    found = SinkOptions.of(options, streaming=streaming)
    columns = Columns.of(schema)
    if found.topic is None and "topic" not in columns:
        raise SinkError("topic: name it by the option topic, or by a column")
    return found, columns


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise SinkError("a write outside of a Spark task")
    return task


def _write(
    batches: Iterator[Any], identity: Identity, columns: Columns, options: SinkOptions
) -> Written:
    with TaskWrite(identity, columns, options) as task:
        for batch in batches:
            task.write(batch)
        tally = task.finish()
    return Written(tally.written, tally.found, identity, task.topics)


def _check_parts(messages: Sequence[WriterCommitMessage | None], options: SinkOptions) -> None:
    """Only where a row was found, or may have been stored before: whoever repeats nothing asks
    nothing."""
    check_told(len(messages), options.parts)
    done = [one for one in messages if isinstance(one, Written)]
    if done and (options.write_id is not None or any(one.found for one in done)):
        names = sorted({name for one in done for name in one.topics})
        with Broker(options.access) as broker:
            topics = [topic_facts(broker, name) for name in names]
            check_parts(broker, topics, done[0].identity, len(messages), too_late=True)
