"""Every Prometheus metric of a node: declared once, set by the parts that know.

No label is per record, key, message or member; those that users make, of topics, partitions and
groups, are bounded a family. Each metric here is set by code; tests hold us to it.

Begin with `family` (counters, gauges and histograms) and `declare`, with `meaning` for what is to
be known of each metric. One module declares the metrics of one area: `broker`, `queue`, `consumer`,
`cluster`, `storage`, `archive`, `kubernetes`, `doors`, `tails`, `streams`, `listeners`,
`process`. `exposition`
writes them in Prometheus's formats; `absent` lists those of GoQueue that have no meaning here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

from node.metrics.archive import ArchiveMetrics
from node.metrics.broker import BrokerMetrics
from node.metrics.cluster import ClusterMetrics
from node.metrics.consumer import ConsumerMetrics
from node.metrics.declare import Declarations
from node.metrics.doors import DoorMetrics
from node.metrics.exposition import END, SLICE_S, TEXT, Format, accepted, head
from node.metrics.family import SERIES_MAX, Bounds, Family
from node.metrics.kubernetes import KubernetesMetrics
from node.metrics.listeners import ListenerMetrics
from node.metrics.process import HttpMetrics, ProcessMetrics
from node.metrics.queue import QueueMetrics
from node.metrics.storage import StorageMetrics
from node.metrics.streams import StreamMetrics
from node.metrics.tails import TailMetrics

__all__ = ["Metrics"]

KEPT_S = 1.0
"""For how long what was written is answered again: several who look at once cost as much as one."""

JOINED_HERE_BYTES_MAX = 1 << 20
"""More than this is put together on a thread, which lets go of the interpreter meanwhile."""

Refresh = Callable[[], Iterator[None] | None]


class Metrics:
    """The metrics of one node; parts get this object and set what they know. Loop thread only."""

    def __init__(self, series_max: int = SERIES_MAX) -> None:
        self.bounds = Bounds(series_max)
        declarations = Declarations(self.bounds)
        self.broker = BrokerMetrics(declarations)
        self.queue = QueueMetrics(declarations)
        self.consumer = ConsumerMetrics(declarations)
        self.cluster = ClusterMetrics(declarations)
        self.storage = StorageMetrics(declarations)
        self.archive = ArchiveMetrics(declarations)
        self.kubernetes = KubernetesMetrics(declarations)
        self.http = HttpMetrics(declarations)
        self.process = ProcessMetrics(declarations)
        self.doors = DoorMetrics(declarations)
        self.tail = TailMetrics(declarations)
        self.stream = StreamMetrics(declarations)
        self.listeners = ListenerMetrics(declarations)
        self.families: dict[str, Family[Any]] = declarations.families
        self._refreshes: list[Refresh] = []
        self._looking = asyncio.Lock()
        self._kept: dict[str, tuple[float, bytes]] = {}

    def observe(
        self, method: str, route: str, status: int, seconds: float, trace_id: str = ""
    ) -> None:
        """See `HttpMetrics.observe`."""
        self.http.observe(method, route, status, seconds, trace_id)

    def tails_open(self, count: int) -> None:
        self.tail.open.set(count)

    def tail_sent(self, topic: str, messages: int) -> None:
        self.tail.messages.labels(topic).inc(messages)

    def tail_read(self, reader: str) -> None:
        self.tail.reads.labels(reader).inc()

    def streams_open(self, count: int) -> None:
        self.stream.open.set(count)

    def stream_sent(self, topic: str, messages: int) -> None:
        self.stream.messages.labels(topic).inc(messages)

    def stream_ended(self, how: str) -> None:
        self.stream.ended.labels(how).inc()

    def before_render(self, refresh: Refresh) -> None:
        """`refresh` tells what nobody needs between two looks; where that takes long, it yields
        from time to time, and the loop is given back."""
        self._refreshes.append(refresh)

    def forget(self, label: str, living: Callable[[str], bool]) -> None:
        """Drop the series of topics, or groups, that are no more."""
        seen = self.bounds.seen.get(label)
        gone = {name for name in seen if not living(name)} if seen else set[str]()
        if gone and seen:
            for family in self.families.values():
                family.remove(label, gone)
            seen -= gone

    def render(self, form: Format = TEXT) -> tuple[bytes, str]:
        """All metrics as text, and the content type, in one go."""
        return b"".join(self._pieces(form)), form.content_type

    async def look(self, accept: str = "") -> tuple[bytes, str]:
        """As `render`, for whom sends this header, never keeping the loop for longer than a
        slice."""
        form = accepted(accept)
        async with self._looking:
            told_s, body = self._kept.get(form.content_type, (-KEPT_S, b""))
            if time.monotonic() - told_s < KEPT_S and body:
                return body, form.content_type
            began, worst_s = time.perf_counter(), 0.0
            slice_began, parts = began, list[bytes]()
            for piece in self._pieces(form):
                parts.append(piece)
                now = time.perf_counter()
                if now - slice_began > SLICE_S:
                    worst_s = max(worst_s, now - slice_began)
                    await asyncio.sleep(0)
                    slice_began = time.perf_counter()
            ended = time.perf_counter()
            self.process.look_seconds.observe(ended - began)
            self.process.slice_worst.set(max(worst_s, ended - slice_began))
            if sum(map(len, parts)) > JOINED_HERE_BYTES_MAX:
                body = await asyncio.to_thread(b"".join, parts)
            else:
                body = b"".join(parts)
            self._kept = {form.content_type: (time.monotonic(), body)}
            return body, form.content_type

    # private

    def _pieces(self, form: Format) -> Iterator[bytes]:
        """The text in pieces, with empty ones where only something was gathered."""
        self.bounds.look += 1
        for refresh in self._refreshes:
            for _ in refresh() or ():
                yield b""
            yield b""
        for name, count in self.bounds.folded.items():
            self.process.folded.put(count, name)
        series = 0
        for family in self.families.values():
            yield head(family, form).encode()
            for text in family.text_pieces(openmetrics=form.is_openmetrics):
                yield text.encode()
            series += family.size
        self.process.series.set(series)
        if form.is_openmetrics:
            yield END
