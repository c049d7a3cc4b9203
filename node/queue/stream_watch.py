"""What ends streams that nobody is left to end: a leader's watch over the runs of other nodes.

A stream is ended by the node that serves it. Where that node is gone, or can't be reached, each
leader with leases of its streams proposes that its run is lost. It is told of runs by statuses of
the peer link, and counts for itself how long one is silent; only the entry is replicated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from node.partition.host import PartitionHost
from node.peers.runs import Runs
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic

LOOK_S = 1.0

_log = get_logger("streams")


class StreamWatch:
    """A service of a node. Loop thread only."""

    def __init__(self, runs: Runs, led: Callable[[], Iterable[PartitionHost]]) -> None:
        """`led` are the partitions that this node leads."""
        self._runs = runs
        self._led = led
        self._periodic = Periodic("streams", self._look, LOOK_S, _log, "stream_watch_failed")

    async def start(self) -> None:
        await self._periodic.start()

    async def stop(self) -> None:
        await self._periodic.stop()

    async def _look(self) -> None:
        found = [
            (host, runs)
            for host in self._led()
            if host.state.queue.groups and (runs := _runs_in(host))
        ]
        lost = self._runs.look(set[int]().union(*(runs for _host, runs in found)))
        for host, runs in found:
            if lost & runs:
                host.queue.end_runs(lost & runs)


def _runs_in(host: PartitionHost) -> set[int]:
    """Runs whose streams have messages in flight there."""
    groups = host.state.queue.groups.values()
    return set[int]().union(*(group.leases.runs for group in groups if group.leases))
