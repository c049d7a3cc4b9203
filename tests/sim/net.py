"""Links between processes, as TCP makes them: in order, whole, and closed with their tail lost.

A stalled direction holds its frames until it flows again, as retransmission would; when it stalls
for too long, both ends close the link, each when it notices. After a link is made anew, frames of
the old one may come once more: Raft must bear that.
"""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from goqueue.wire.types import NodeId, PartitionId
from tests.sim.loop import Loop, Timer

GIVE_UP_S = 2.0
"""A link that lets nothing through for this long is closed by its ends."""
RESEND_S = 0.2
"""What is lost is sent again after this, then after twice as long, and so on."""
KEPT_FRAMES = 8
"""Frames of a closed link that may come again: the newest, and as many of any age."""


class Endpoint(Protocol):
    """A process, as the network sees it."""

    def receive(self, node: NodeId, partition_id: PartitionId, frame: bytes) -> None: ...

    def peer_connected(self, node: NodeId) -> None: ...

    def peer_disconnected(self, node: NodeId) -> None: ...


Frame = tuple[PartitionId, bytes]


@dataclass(slots=True)
class _Link:
    """What both directions have in common."""

    epoch: int = 0
    """Of the connection: what was sent on an earlier one does not arrive."""


@dataclass(slots=True)
class _Way:
    """One direction of a link."""

    source: NodeId
    target: NodeId
    link: _Link
    open: bool = False
    """Whether the source believes that the link is up."""
    stalled: int = 0
    held: deque[Frame] = field(default_factory=deque)
    clear_at: float = 0.0
    """When the last frame sent arrives: none overtakes it."""
    recent: deque[Frame] = field(default_factory=lambda: deque[Frame](maxlen=KEPT_FRAMES))
    old: list[Frame] = field(default_factory=list[Frame])
    sent: int = 0


class Net:
    """All links of one cluster. `endpoint(node)` is the running process of a node, or None."""

    def __init__(
        self,
        loop: Loop,
        rng: random.Random,
        nodes: Iterable[NodeId],
        endpoint: Callable[[NodeId], Endpoint | None],
        *,
        delay_s: tuple[float, float],
        repeats: float,
    ) -> None:
        self._loop = loop
        self._rng = rng
        self._endpoint = endpoint
        self._delay_s = delay_s
        self._repeats = repeats
        self._nodes = sorted(nodes)
        links = {(a, b): _Link() for a in self._nodes for b in self._nodes if a < b}
        self._ways = {
            (a, b): _Way(a, b, links[self._pair(a, b)])
            for a in self._nodes
            for b in self._nodes
            if a != b
        }
        self._slow: dict[tuple[NodeId, NodeId], float] = {}
        self._blocked: dict[tuple[NodeId, NodeId], int] = {}
        self._repeating: set[NodeId] = set()
        self._losing: dict[NodeId, float] = {}
        self.frames = 0

    @staticmethod
    def _pair(a: NodeId, b: NodeId) -> tuple[NodeId, NodeId]:
        return (a, b) if a < b else (b, a)

    # what processes do

    def send(
        self, source: NodeId, target: NodeId, partition_id: PartitionId, parts: list[bytes]
    ) -> bool:
        way = self._ways[source, target]
        if not way.open:
            return False
        self.frames += 1
        frame = (partition_id, b"".join(parts))
        self._remember(way, frame)
        if way.stalled:
            way.held.append(frame)
        else:
            self._fly(way, frame)
        return True

    def _remember(self, way: _Way, frame: Frame) -> None:
        way.recent.append(frame)
        way.sent += 1
        if len(way.old) < KEPT_FRAMES:
            way.old.append(frame)
        elif self._rng.random() * way.sent < KEPT_FRAMES:
            way.old[self._rng.randrange(KEPT_FRAMES)] = frame

    def _fly(self, way: _Way, frame: Frame) -> None:
        low, high = self._delay_s
        delay = low + (high - low) * self._rng.random()
        if self._slow:
            delay += self._slow.get((way.source, way.target), 0.0)
        if self._losing:
            delay += self._lost_s(way)
        now = self._loop.time
        at = now + delay
        if at < way.clear_at:
            at = way.clear_at
        way.clear_at = at
        self._loop.put(at - now, Timer(self._arrive, (way, frame, way.link.epoch)))

    def _lost_s(self, way: _Way) -> float:
        """How long it takes until a frame is sent that is not lost."""
        chance = max(self._losing.get(way.source, 0.0), self._losing.get(way.target, 0.0))
        seconds, timeout_s = 0.0, RESEND_S
        while chance and self._rng.random() < chance and seconds < GIVE_UP_S:
            seconds += timeout_s
            timeout_s *= 2
        return seconds

    def _arrive(self, way: _Way, frame: Frame, epoch: int) -> None:
        if way.link.epoch != epoch:
            return
        if way.stalled:
            way.held.append(frame)
            return
        process = self._endpoint(way.target)
        if process is not None:
            partition_id, data = frame
            told = f"frame {way.source} {way.target} {data[0]} {zlib.crc32(data)}"
            self._loop.note_line(told)
            process.receive(way.source, partition_id, data)

    # links made and closed

    def is_up(self, a: NodeId, b: NodeId) -> bool:
        return self._ways[a, b].open and self._ways[b, a].open

    def reaches(self, source: NodeId, target: NodeId) -> bool:
        """Whether something that is sent now arrives soon."""
        return source == target or (
            self.is_up(source, target) and not self._ways[source, target].stalled
        )

    def connect(self, a: NodeId, b: NodeId) -> None:
        """Make the link, if both processes run, nothing blocks it, and both ends have noticed
        that the last one is gone."""
        ends = self._endpoint(a), self._endpoint(b)
        if None in ends or self._blocked.get(self._pair(a, b)):
            return
        if self._ways[a, b].open or self._ways[b, a].open:
            return
        self._ways[a, b].link.epoch += 1
        self._loop.note("connect", a, b)
        for way, process in zip((self._ways[a, b], self._ways[b, a]), ends, strict=True):
            assert process is not None
            way.open = True
            way.held.clear()
            way.clear_at = self._loop.time
            process.peer_connected(way.target)
        chance = 0.8 if a in self._repeating or b in self._repeating else self._repeats
        for way in (self._ways[a, b], self._ways[b, a]):
            for frame in (*way.recent, *way.old) if chance else ():
                if self._rng.random() < chance:
                    self._fly(way, frame)
            way.recent.clear()

    def close(self, a: NodeId, b: NodeId, *, silent: NodeId | None = None) -> None:
        """Close the link: frames on it are lost; each end notices soon, on its own. The end
        opposite of `silent`, whose machine lost power, notices only when it gives up."""
        if not (self._ways[a, b].open or self._ways[b, a].open):
            return
        epoch = self._ways[a, b].link.epoch = self._ways[a, b].link.epoch + 1
        self._loop.note("close", a, b)
        for way in (self._ways[a, b], self._ways[b, a]):
            delay = self._rng.choice((0.0, 0.001, 0.01, 0.15))
            if way.target == silent:
                delay = self._rng.uniform(0.3, GIVE_UP_S)
            way.held.clear()
            self._loop.call_later(delay, self._notice, way, epoch)

    def _notice(self, way: _Way, epoch: int) -> None:
        if not way.open or way.link.epoch != epoch:
            return
        way.open = False
        process = self._endpoint(way.source)
        if process is not None:
            process.peer_disconnected(way.target)
        self._loop.call_later(self._rng.uniform(0.005, 0.1), self.connect, way.source, way.target)

    def process_died(self, node: NodeId, *, silent: bool) -> None:
        """A process ended: its ends of links are gone at once."""
        for other in self._nodes:
            if other != node:
                self.close(node, other, silent=node if silent else None)
                self._ways[node, other].open = False

    def process_started(self, node: NodeId) -> None:
        for other in self._nodes:
            if other == node:
                continue
            # A new connection shows the other end that the old one is dead.
            self._loop.call_later(self._rng.uniform(0.002, 0.06), self._meet, node, other)

    def _meet(self, node: NodeId, other: NodeId) -> None:
        way = self._ways[other, node]
        if (
            not self._ways[node, other].open
            and way.open
            and not self._blocked.get(self._pair(node, other))
        ):
            self._notice(way, way.link.epoch)
        self.connect(node, other)

    # faults

    def stall(self, source: NodeId, target: NodeId, seconds: float) -> None:
        """Nothing passes in this direction for a time; for too long, and the link is closed."""
        way = self._ways[source, target]
        way.stalled += 1
        self._loop.call_later(seconds, self._flow, way)
        if seconds > GIVE_UP_S:
            self._loop.call_later(GIVE_UP_S, self.close, source, target)

    def _flow(self, way: _Way) -> None:
        if not way.stalled:
            return  # healed before its time
        way.stalled -= 1
        if way.stalled:
            return
        held, way.held = way.held, deque()
        for frame in held:
            self._fly(way, frame)

    def block(self, a: NodeId, b: NodeId, seconds: float) -> None:
        """Close the link, and let none be made for a time."""
        pair = self._pair(a, b)
        self._blocked[pair] = self._blocked.get(pair, 0) + 1
        self.close(a, b)
        self._loop.call_later(seconds, self._unblock, pair)

    def _unblock(self, pair: tuple[NodeId, NodeId]) -> None:
        left = self._blocked.pop(pair, 0) - 1
        if left > 0:
            self._blocked[pair] = left
        self.connect(*pair)

    def slow(self, a: NodeId, b: NodeId, delay_s: float, seconds: float) -> None:
        """Everything between the two takes this much longer."""
        for key in ((a, b), (b, a)):
            self._slow[key] = delay_s
            self._loop.call_later(seconds, self._slow.pop, key, None)

    def lose(self, node: NodeId, chance: float, seconds: float) -> None:
        """Frames of this node, and to it, are lost; so they and those behind them come later."""
        self._losing[node] = chance
        self._loop.call_later(seconds, self._losing.pop, node, None)

    def repeat(self, node: NodeId) -> None:
        """From now on, frames come again whenever this node's links are made anew."""
        self._repeating.add(node)

    def heal(self) -> None:
        """No fault remains; links that are down come up."""
        self._slow.clear()
        self._losing.clear()
        self._repeats = 0.0
        self._repeating.clear()
        for way in self._ways.values():
            if way.stalled:
                way.stalled = 1
                self._flow(way)
        self._blocked.clear()
        for a, b in self._ways:
            if a < b:
                self.connect(a, b)


class NodeNetwork:
    """One process's way out: a `raft.interfaces.Network`."""

    def __init__(self, net: Net, node: NodeId) -> None:
        self._net = net
        self._node = node
        self.alive = True

    def send(self, node: NodeId, partition_id: PartitionId, parts: list[bytes]) -> bool:
        return self.alive and self._net.send(self._node, node, partition_id, parts)

    def backlog_bytes(self, node: NodeId) -> int:
        return 0
