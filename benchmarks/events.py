"""What the feed of a partition's events costs: `python -m benchmarks.events [MESSAGES] [BATCH]`.

One replica's log on disk, messages delivered and acked in batches; all of it is read in pages, once
from the beginning, once from a place in the middle that no reader has come by.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from typing import cast

from benchmarks.timeline_log import LoggedPartition
from delivery.config import GroupConfig
from delivery.entries.ops import ACK, Delivered, OpenGroup, Settled
from log.config import StorageConfig
from log.disk.files import OsDisk
from node.api.traces import EventsView, EventsWanted
from node.lookup.event_reader import EventReader, EventsBehind
from node.partition.host import PartitionHost

PAGE = 20_000


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    batch = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    with tempfile.TemporaryDirectory() as root:
        config = StorageConfig(watermark_percent=0, watermark_bytes=0)
        partition = LoggedPartition(OsDisk(), root, config)
        fill(partition, messages, batch)
        asyncio.run(measure(partition))
        partition.close()


def fill(partition: LoggedPartition, messages: int, batch: int) -> None:
    partition.do(OpenGroup(1, "g", 1, GroupConfig(), 0))
    for _ in range(0, messages, batch):
        offsets = partition.publish(batch, 100)
        lease = partition.do(Delivered(1, "worker-1", 30_000, offsets))
        partition.now_ms += 1
        partition.do(Settled(1, ACK, [(lease, offsets)]))
    partition.flush()


async def measure(partition: LoggedPartition) -> None:
    end = int(partition.applied_index)
    began_s, cpu_s, count, after, offset = time.perf_counter(), time.process_time(), 0, 0, None
    reader = EventReader()
    while after < end:
        view = await _page(reader, partition, EventsWanted(after, offset, end, PAGE))
        count, after, offset = count + view.count, view.next, view.next_offset
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    print(f"{count} events of {end} entries: {count / took_s:.0f}/s, {count / cpu_s:.0f}/s of CPU")
    began_s = time.perf_counter()
    await _page(EventReader(), partition, EventsWanted(end // 2, None, end, 1))
    took_s = time.perf_counter() - began_s
    print(f"first page after entry {end // 2}, by a reader of its own: {took_s:.2f} s")


async def _page(
    reader: EventReader, partition: LoggedPartition, wanted: EventsWanted
) -> EventsView:
    while True:
        try:
            return await reader.read(cast("PartitionHost", partition), wanted)
        except EventsBehind:
            continue


if __name__ == "__main__":
    main()
