"""Messages found in a log without the loop waiting for the disk."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from goqueue.wire.types import Offset
from log.entry import Entry
from log.errors import Damaged
from log.partition.log import PartitionLog

if TYPE_CHECKING:  # it has stories told, for which this is asked
    from node.partition.host import PartitionHost


async def offset_at_hand(log: PartitionLog, offset: Offset) -> None:
    """A search for the offset, on the loop, reads no index from the disk after this: a thread has,
    where that was needed. An index of a segment takes some milliseconds."""
    searches, first, last = log.disk_segments.searches, log.first_index, log.spilled_index
    if log.is_cold_offset(offset) and not searches.is_at_hand(offset, first, last):
        await asyncio.to_thread(searches.fetch_for_offset, offset, first, last)


async def time_at_hand(log: PartitionLog, time_ms: int) -> None:
    """Likewise for a search for the time."""
    searches, first, last = log.disk_segments.searches, log.first_index, log.spilled_index
    if not searches.is_time_at_hand(time_ms):
        await asyncio.to_thread(searches.fetch_for_time, time_ms, first, last)


async def entry_holding(host: PartitionHost, offset: Offset) -> Entry | None:
    """The applied entry that stores the message: found by a thread where that asks the disk. None
    where it is not in the log (any more). Raises LogError, OSError."""
    log = host.log
    if log.is_cold_offset(offset):
        end = min(host.applied_index, log.spilled_index)
        find = partial(log.disk_segments.searches.holding, offset, end)
        try:
            found = await asyncio.get_running_loop().run_in_executor(host.workers, find)
        except (Damaged, OSError):
            found = None  # told, or set apart, by a search that may
        if found is not None and found.index >= log.first_index:
            return found
    return host.reader.entry_at(offset)
