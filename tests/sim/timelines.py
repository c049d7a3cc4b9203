"""Timelines in the simulation: what clients were told is in them, on every replica the same."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from delivery.entries import ops
from delivery.history.outcome_notes import OutcomeNotes
from delivery.timeline.message import Timeline
from goqueue.wire.types import NodeId, PartitionId
from log.errors import LogError
from tests.check.timelinecheck import Delivery, Past, violations
from tests.sim.indexed import Indexed, entries_between

if TYPE_CHECKING:
    from tests.check.queuelog import QueueLog
    from tests.sim.replica import Replica
    from tests.sim.world import World

LOOKS = 3
"""Times in a run that some timelines are looked at while faults strike."""
LOOKED_AT, AT_THE_END = 2, 6
"""Messages that are looked at each time, and in the end."""


class Timelines:
    """What clients know of deliveries, and looks at what timelines make of them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng("timelines")
        self._told: dict[tuple[PartitionId, int, int, int], tuple[str, int]] = {}
        self.looked_at = 0

    def start(self) -> None:
        for _ in range(LOOKS):
            at_s = self._rng.uniform(1.0, self._world.faulty_s)
            self._world.loop.call_later(at_s, self._look)

    def told_granted(
        self, partition: PartitionId, group: int, member: str, granted: ops.Granted
    ) -> None:
        """A client was given messages."""
        for grant in granted.grants:
            key = partition, group, granted.delivery, grant.offset
            self._told[key] = member, grant.attempt

    def _look(self) -> None:
        """At some messages, on a replica that has applied all that anybody has."""
        world = self._world
        for partition, model in world.queue_logs().items():
            held = [
                process.replicas[partition]
                for process in world.machines.running()
                if partition in process.replicas and not process.time.is_paused
            ]
            newest = [r for r in held if r.state.applied_index >= model.index]
            if newest:
                offsets = self._chosen(partition, model, newest[0], LOOKED_AT)
                self._judge(partition, model, {"a replica": newest[0]}, offsets)

    def judge(
        self, partition: PartitionId, model: QueueLog, replicas: dict[NodeId, Replica]
    ) -> None:
        """All is settled: timelines are complete, and the same everywhere."""
        some = next(iter(replicas.values()), None)
        if some is not None:
            offsets = self._chosen(partition, model, some, AT_THE_END)
            self._judge(partition, model, dict(replicas), offsets)

    def _chosen(
        self, partition: PartitionId, model: QueueLog, replica: Replica, count: int
    ) -> list[int]:
        """Messages that are still stored: acked ones with the longest past, and any, and those that
        a delivery named in vain."""
        queue, start = replica.state.queue, replica.state.log_start_offset
        acked = [
            offset
            for offset in self._world.checks.acked_offsets(partition)
            if offset >= start or offset in queue.reappended
        ]
        if not acked:
            return []
        lives = defaultdict[int, int](int)
        for _group, _delivery, offset in sorted(model.granted):
            lives[offset] += 1
        eventful = sorted(acked, key=lambda offset: (-lives[offset], offset))[: 2 * count]
        chosen = self._rng.sample(eventful, min(count // 2, len(eventful)))
        chosen += self._rng.sample(acked, min(count - len(chosen), len(acked)))
        vain = [offset for offset in model.in_vain if offset >= start or offset in queue.reappended]
        chosen += self._rng.sample(vain, min(count // 2, len(vain)))
        carried = [offset for offset in acked if offset < start]
        return sorted({*chosen, *self._rng.sample(carried, min(1, len(carried)))})

    def _judge(
        self,
        partition: PartitionId,
        model: QueueLog,
        replicas: dict[str, Replica] | dict[NodeId, Replica],
        offsets: list[int],
    ) -> None:
        first: dict[int, Timeline] = {}
        judged: list[tuple[list[bytes], OutcomeNotes]] = []
        for node, replica in replicas.items():
            state = replica.state
            try:
                entries = entries_between(replica.log, state.log_start_index, state.applied_index)
            except LogError:
                continue
            told_of = [entry.frame for entry in entries], state.queue.outcome_notes
            if told_of in judged:
                continue  # of the same entries and notes, the same timelines
            judged.append(told_of)
            index = Indexed(entries, state.queue.outcome_notes)
            for offset in offsets:
                self.looked_at += 1
                found = self._world.mutant.project(offset, entries, state.queue.outcome_notes)
                told = f"timeline of {partition}/{offset} on {node}"
                if found is None:
                    self._broken(f"{told}: there is none")
                    continue
                known = first.setdefault(offset, found)
                if known is found:
                    past = self._past(partition, model, offset)
                    for wrong in violations(found.events, past):
                        self._broken(f"{told}: {wrong}: {found.events}")
                    if not found.exact:
                        self._broken(f"{told}: is not exact: {found.events}")
                    sought = index.projection(offset)
                    if sought is None or sought.timeline().events != found.events:
                        self._broken(f"{told}: by the index {sought}: {found.events}")
                elif (known.events, known.states) != (found.events, found.states):
                    self._broken(f"{told}: {found.events}, elsewhere {known.events}")

    def _past(self, partition: PartitionId, model: QueueLog, offset: int) -> Past:
        past = Past()
        made: dict[tuple[int, int], Delivery] = {}
        for group, delivery, granted in sorted(model.granted):
            known = model.groups.get(group)
            if granted == offset and known is not None:
                told = self._told.get((partition, group, delivery, offset), (None, None))
                event = Delivery(model.times[delivery], known.name, *told)
                made[group, delivery] = event
                past.deliveries.append(event)
        for group, delivery, settled, action in sorted(model.settled):
            if settled == offset and (group, delivery) in made:
                past.settles.append((made[group, delivery], action))
        return past

    def _broken(self, text: str) -> None:
        self._world.checks.violated(f"Q6: {text}")
