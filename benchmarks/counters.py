"""What nodes say of themselves in /metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.connection import Connection, get
from benchmarks.processes import DevCluster

KEPT_S = 1.0
"""A node keeps what it told for so long: who counts what happens in between waits for that."""
FRAMES = 'goqueue_link_frames_total{direction="out"}'
SYNCS = "goqueue_storage_fsync_total"
"""Of all nodes: a frame is counted where it is sent, a sync where it is done."""


async def figures(address: tuple[str, int], names: Iterable[str]) -> dict[str, float]:
    """The sum of each metric's series on one node; all of them, or those with the label that is
    given, as in FRAMES. Raises OSError, BadAnswer."""
    connection = await Connection.open(address)
    _, body = await connection.ask(get("/metrics", "text/plain"))
    connection.close()
    sums = dict.fromkeys(names, 0.0)
    for line in body.decode().splitlines():
        series, _, value = line.rpartition(" ")
        for name in sums:
            if _is_of(series, name):
                sums[name] += float(value)
    return sums


async def counted(cluster: DevCluster, metrics: Mapping[str, str]) -> dict[str, float]:
    """Metrics by names of one's own: their sums over all nodes."""
    sums = dict.fromkeys(metrics, 0.0)
    for address in cluster.addresses:
        found = await figures(address, metrics.values())
        for name, metric in metrics.items():
            sums[name] += found[metric]
    return sums


def _is_of(series: str, wanted: str) -> bool:
    family, _, label = wanted.partition("{")
    return series.partition("{")[0] == family and label.rstrip("}") in series
