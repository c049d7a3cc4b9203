"""Searches in old segments, of which a restarted node has read nothing yet: the loop waits for no
disk.
"""

from __future__ import annotations

import threading

import pytest

from goqueue.wire.types import Offset
from log.disk.memory import MemoryDisk
from log.segments.index import OffsetIndex
from log.segments.segment import Segment
from tests.unit.node.test_node import append, config, eventually, running


async def test_the_loop_reads_no_index_where_old_messages_are_read_or_searched_for_by_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("log.store.directory.Store._ram_share", lambda _store: 0)
    disk, settings = MemoryDisk(), config(**{"defaults.topic.partitions": 1})
    async with running(disk, settings, segment_bytes=4096) as node:
        await node.broker.topics.create_topic("t", {})
        for number in range(60):
            await append(node, f"{number} " * 100)
    async with running(disk, settings, segment_bytes=4096) as node:
        await eventually(lambda: len(node.broker.topics._replicas.led()) == 1)
        [host] = node.broker.topics._replicas.led()
        segments = host.log.disk_segments
        assert len(segments.chain) > 5
        times = [segment.first_time_ms for segment in segments.chain]
        for segment in segments.chain[:-1]:
            segment.drop_index()
        readers: list[int] = []
        load = Segment._load_index

        def noted(segment: Segment) -> OffsetIndex:
            readers.append(threading.get_ident())
            return load(segment)

        monkeypatch.setattr(Segment, "_load_index", noted)

        found = await node.broker.records.read(
            "t", 0, Offset(20), max_records=5, max_bytes=1 << 20, wait_s=0
        )
        by_offset = len(readers)
        await node.broker.records.offset_at("t", 0, times[2])

        assert found.batches[0].base_offset == 20
        assert 0 < by_offset < len(readers), "nothing was read from the disk"
        assert threading.get_ident() not in readers
