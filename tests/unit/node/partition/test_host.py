"""What a partition's replica serves by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from goqueue.wire.batch import Record, RecordBatch
from goqueue.wire.types import Index, Offset, PartitionId, TopicId
from log.errors import EntryMissing
from node.metrics import Metrics
from node.partition.host import PartitionHost, PartitionSettings
from tests.unit.node.partition.compaction_scene import ListLog, Scene


class CutLog(ListLog):
    """A log whose first entries are gone."""

    first_index = Index(1)

    def locate_offset(self, offset: int) -> Index | None:
        found = super().locate_offset(offset)
        return found if found is None or found >= self.first_index else None

    def locate_time(self, time_ms: int) -> Index | None:
        found = super().locate_time(time_ms)
        return None if found is None else max(found, self.first_index)


def replica(scene: Scene, log: CutLog) -> PartitionHost:
    shared: Any = log
    parts: Any = SimpleNamespace(workers=None, metrics=Metrics(), batches=None)
    return PartitionHost(
        id=PartitionId(TopicId(1, 1), 0),
        topic="t",
        config=scene.config,
        log=shared,
        settings=PartitionSettings(1 << 20, 1 << 20, 10),
        parts=parts,
    )


def keys(host: PartitionHost) -> set[bytes | None]:
    """Those that a reader from the start meets."""
    found: set[bytes | None] = set()
    at = Offset(0)
    while at < host.end_offset:
        page = host.read(at, max_records=100, max_bytes=1 << 20, to_time_ms=None)
        for stored in page.batches:
            found.update(RecordBatch.parse(stored.batch).keys())
        at = page.next_offset
    return found


async def test_a_replica_that_does_not_know_yet_what_compaction_kept_leaves_reads_to_others() -> (
    None
):
    """It was started from a snapshot that is older than the run, and its log begins after it."""
    scene = Scene()
    scene.publish(Record(b"only", b"rare"))
    for number in range(20):
        scene.publish(Record(b"%d" % number, b"often"))
    snapshot, applied = scene.state.snapshot(), scene.state.applied_index
    assert (await scene.compact()).outcome == "done"
    log = CutLog()
    log.all, log.first_index = scene.log.all, scene.state.log_start_index
    host = replica(scene, log)
    host.state.restore(snapshot)

    with pytest.raises(EntryMissing):
        host.read(Offset(0), max_records=100, max_bytes=1 << 20, to_time_ms=None)
    with pytest.raises(EntryMissing):
        host.offset_at(0)

    for entry in scene.log.all[applied:]:
        host.state.apply(entry)
        host._applied = entry.index
    assert keys(host) == {b"rare", b"often"}
    assert host.offset_at(0) == 0
