"""What a node does at a time, as whoever moves its time has to know it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from delivery.group.state import GroupState
from node.partition.host import PartitionHost
from node.queue.group_admin import group_ref
from node.queue.lag import standing
from node.queue_assembly import TimedParts


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Messages of a topic that a group has to do."""

    topic: str
    group: str
    in_flight: int
    ready: int
    has_consumers: bool
    """Whether the group has members, or somebody waits for its messages."""


class Agenda:
    """Asks the parts of one node. Loop thread only."""

    def __init__(self, parts: TimedParts) -> None:
        self._parts = parts

    def next_ms(self) -> int | None:
        """The log time at which something is to happen next, if nothing does before; None where
        nothing is."""
        for host in self._parts.replicas.led():
            host.queue.note_at_once()
        asked: list[Callable[[], int | None]] = [
            self._parts.schedules.next_ms,
            self._parts.sessions.next_ms,
            *(host.queue.next_ms for host in self._parts.replicas.led()),
        ]
        return min((at for ask in asked if (at := ask()) is not None), default=None)

    def wake(self) -> None:
        """Have all of them look: the time is another one."""
        self._parts.schedules.wake()
        self._parts.sessions.wake()
        for host in self._parts.replicas.led():
            host.queue.wake()

    def leaps(self, now_ms: int, *, heard: bool) -> None:
        """Time is about to be this one: silent members were silent, unless they are `heard`."""
        self._parts.sessions.leaps(now_ms, heard=heard)

    def unfinished(self) -> list[Unfinished]:
        """What is in flight or ready, of the partitions led here."""
        found: list[Unfinished] = []
        for host in self._parts.replicas.led():
            for group in self._groups(host):
                in_flight, ready = len(group.leases), group.ready_count()
                if in_flight or ready:
                    id = group.id
                    consumers = self._parts.sessions.has_members(id) or host.queue.is_watched(id)
                    found.append(Unfinished(host.topic, group.name, in_flight, ready, consumers))
        return found

    def _groups(self, host: PartitionHost) -> Iterator[GroupState]:
        """Those that have begun there, and those that will, as a member is about to ask."""
        begun = host.state.queue.groups
        yield from begun.values()
        for group in self._parts.sessions.subscribed(host.topic):
            if group.id not in begun:
                yield standing(host, group_ref(group), group.created_ms)
