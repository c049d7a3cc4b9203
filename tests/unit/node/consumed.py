"""A log on disk whose messages groups have taken, acked and failed: what look-ups are tested on."""

from __future__ import annotations

from pathlib import Path

from benchmarks.timeline_log import LoggedPartition
from delivery.config import GroupConfig
from delivery.entries.ops import ACK, NACK, Committed, Delivered, OpenGroup, Own, Settled, Sought
from log.config import StorageConfig
from log.disk.files import OsDisk

SMALL = StorageConfig(watermark_percent=0, watermark_bytes=0, segment_bytes=6000)
COUNT = 300


def consumed(folder: Path) -> LoggedPartition:
    """Two groups that take what comes, one that commits; a seek, an owner, and failures."""
    partition = LoggedPartition(OsDisk(), str(folder / "data"), SMALL)
    for group in (1, 2, 3):
        partition.do(OpenGroup(group, f"g{group}", 1, GroupConfig(max_attempts=3), 0))
    for first in range(0, COUNT, 50):
        partition.publish(50)
        partition.now_ms += 10
        for offset in range(first, first + 50, 5):
            some = list(range(offset, offset + 5))
            one = partition.do(Delivered(1, "a", 1000, some))
            two = partition.do(Delivered(2, "b", 1000, some[:3]))
            partition.do(Settled(1, ACK, [(one, some[1:])]), Settled(1, NACK, [(one, some[:1])]))
            partition.do(Settled(2, ACK, [(two, some[:2])]))
            partition.now_ms += 1
        partition.do(Committed(3, first + 40))
    partition.do(Own(2, "c", 1, True))
    partition.do(Sought(1, 100))
    partition.do(Delivered(1, "a", 1000, [120, 121, 7]))
    partition.flush()
    return partition
