"""Who writes: the same for every attempt at the same rows, whichever process makes it.

A producer's id follows from the query (or the option `writeId`) and the number of the Spark
partition, and its epoch is the micro-batch's number. So a later micro-batch shuts out what is left
of an earlier one, and a repeated one meets its own traces in the log.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Protocol

from goqueue.wire.layout import UINT32_MAX
from pipeline.sink.errors import SinkError

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
"""Spark's own properties of a streaming query's tasks; the query's id lives in its checkpoint, and
its jobs are a group of the run's id."""
DERIVED_FROM = 1 << 52
"""Ids from here to 2**53, which JSON still holds exactly, follow from names. Those that the cluster
gives out count from 1."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One Spark partition of one write. `task` is how people are told of it."""

    producer_id: int
    epoch: int
    partition: int
    task: str
    kind: str = ""
    name: str = ""
    """What the producer's id is made of, beside the partition."""
    run: str = ""
    """Of a streaming query: another one each time that it is started; empty where not known."""
    is_first: bool = False
    """Nobody can have written under this identity before."""

    def of_partition(self, partition: int) -> Identity:
        """Of another Spark partition of the same write."""
        told = producer_id(self.kind, self.name, partition)
        task = self.task.replace(f"partition {self.partition}", f"partition {partition}", 1)
        return replace(self, producer_id=told, partition=partition, task=task)


class WriteIdentity(Protocol):
    """Of a Spark partition of one write."""

    def __call__(self, partition: int, is_first: bool = False) -> Identity: ...


def of_write(write_id: str | None, epoch: int) -> WriteIdentity:
    """Of a batch write by Spark partition, and whether it is the first attempt at that; a random
    one, good for its own retries, without id."""
    name = secrets.token_hex(16) if write_id is None else write_id
    kind = "run" if write_id is None else "write"

    def identity(partition: int, is_first: bool = False) -> Identity:
        task = f"Spark partition {partition}"
        told = producer_id(kind, name, partition)
        is_first &= write_id is None
        return Identity(told, epoch, partition, task, kind, name, is_first=is_first)

    return identity


def of_stream(local_property: Callable[[str], str | None], partition: int) -> Identity:
    """Of a streaming query's task. Raises SinkError outside of one."""
    query, told = local_property(QUERY_ID), local_property(BATCH_ID)
    if query is None or told is None:
        raise SinkError("this task does not know its streaming query and micro-batch")
    if int(told) > UINT32_MAX:
        raise SinkError(f"micro-batch {told} is beyond the last one that can be told apart")
    task = f"Spark partition {partition} of micro-batch {told}"
    run = local_property(RUN_ID) or ""
    id = producer_id("query", query, partition)
    return Identity(id, int(told), partition, task, "query", query, run)


def producer_id(kind: str, name: str, partition: int) -> int:
    """A number from 2**52 to 2**53 that nobody else has."""
    digest = blake2b(f"{kind}\n{name}\n{partition}".encode(), digest_size=8).digest()
    return DERIVED_FROM | int.from_bytes(digest, "little") % DERIVED_FROM
