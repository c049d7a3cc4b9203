"""Compaction of the fake broker: it tells what would go, and keeps everything."""

from __future__ import annotations

from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import Conflict
from node.api.compaction import CompactionRun, PartitionCompaction
from node.http.fake.partition import FakePartition


class FakeCompaction:
    """The part of `FakeBroker`."""

    def is_compacted(self, topic: str) -> bool:
        raise NotImplementedError

    def partition_count(self, topic: str) -> int:
        raise NotImplementedError

    def _partition(self, name: str, partition: int) -> FakePartition:
        raise NotImplementedError

    async def compaction(self, topic: str) -> dict[int, PartitionCompaction | None]:
        return {
            number: PartitionCompaction(dirty_bytes=self._partition(topic, number).size_bytes)
            for number in range(self.partition_count(topic))
        }

    async def compact(self, topic: str, *, dry_run: bool) -> dict[int, PartitionCompaction | None]:
        if not self.is_compacted(topic):
            raise Conflict("the topic is not compacted")
        return {
            number: PartitionCompaction(run=_run(self._partition(topic, number)))
            for number in range(self.partition_count(topic))
        }


def _run(partition: FakePartition) -> CompactionRun:
    keys: dict[bytes | None, bool] = {}
    count = 0
    for stored in partition.batches:
        batch = RecordBatch.parse(stored.batch)
        values = (value is None for value in batch.values_or_nulls())
        keys.update(zip(batch.keys(), values, strict=True))
        count += batch.count
    outcome = "done" if count else "nothing"
    return CompactionRun(outcome, count - len(keys), len(keys), sum(keys.values()))
