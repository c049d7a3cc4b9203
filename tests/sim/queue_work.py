"""The queue in a simulated cluster: its groups, who uses it, and what is known of it for certain.

Work goes to one partition; in some of the runs there are streams, too. Every entry is told to a
`QueueLog` when the first replica applies it; what clients see goes into a `QueueHistory`, which is
judged at the end.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

from delivery.config import GroupConfig, QueueConfig
from delivery.state.partition import PartitionState
from goqueue.wire.types import Index, NodeId, PartitionId, Term
from log.entry import Entry, EntryKind
from tests.check.queuecheck import check
from tests.check.queuehistory import QueueHistory
from tests.check.queuerules import Limits
from tests.check.queuestate import compare
from tests.sim.consumers import Committer, Consumer
from tests.sim.loop import EPOCH_MS
from tests.sim.queue_ledger import QueueLedger
from tests.sim.queue_publishers import QueueAdmin, QueuePublisher
from tests.sim.streams import PUSHED, SHARE
from tests.sim.work import GroupSpec

if TYPE_CHECKING:
    from tests.sim.world import World

LIMITS = Limits(clock_s=2.5, late_s=60.0)
"""Clocks of a minority are wrong, and a step of a second is believed; lateness is judged here."""
STEP_S = 1.0
LATE_MS_MAX = 1000
CALM_MS = 3000
"""So long after the last fault, a delayed message is delivered in time."""
SOON_MS = 10_000
"""What is due within this time is waited for in the end; other delays outlive the run."""
LEARNED_S = 5.0
"""Nodes learn within this time that a group's settings have changed."""


SPECS = (
    GroupSpec(1, "plain", GroupConfig(visibility_ms=1500, lane_max_wait_ms=1200, lane_share=3)),
    GroupSpec(2, "keyed", GroupConfig(visibility_ms=800, max_attempts=4, ordering="key")),
    GroupSpec(3, "short", GroupConfig(visibility_ms=250, max_attempts=2, backoff_ms=100)),
    GroupSpec(4, "stream", GroupConfig()),
)
STREAM = 4


class QueueWork:
    """All that is done with the queue in one run."""

    def __init__(self, world: World, partition_id: PartitionId) -> None:
        self.world = world
        self.partition_id = partition_id
        self.config = QueueConfig()
        self.history = QueueHistory(clock=self._clock)
        self.ledger = QueueLedger(self._broken, self._fell)
        self.log, self.values = self.ledger.log, self.ledger.values
        self.log.unordered.add(STREAM)
        self.rng = world.rng("queue")
        self._late_told = 0
        self._behind_s = 0.0
        self._quiet_ms = 0
        self._changes_at = self.rng.uniform(0.5, 4.0)
        self._learned = {
            node: self._changes_at + self.rng.uniform(0.0, LEARNED_S) for node in world.nodes
        }
        self.consumers = [
            Consumer(self, number, SPECS[number % 3], world.rng(f"consumer {number}"))
            for number in range(5)
        ]
        self.consumers.append(Consumer(self, 5, SPECS[3], world.rng("consumer 5")))
        self.committer = Committer(self, STREAM, world.rng("committer"))
        self.publishers = [
            QueuePublisher(self, number, world.rng(f"queue publisher {number}"))
            for number in range(2)
        ]
        self.admin = QueueAdmin(self, world.rng("queue admin"))
        self.has_streams = world.rng("streams").random() < SHARE
        self.runs = 0
        """Processes that have begun, where there are streams."""

    def start(self) -> None:
        """Everybody begins."""
        for spec in SPECS[:3]:
            config = spec.config
            self.history.group(
                spec.name,
                max_attempts=config.max_attempts,
                ordering=config.ordering,
                visibility_ms=config.visibility_ms,
                lane_max_wait_ms=config.lane_max_wait_ms,
            )
        for consumer in self.consumers:
            consumer.start()
        for publisher in self.publishers:
            publisher.start()
        self.committer.start()
        self.admin.start()
        for node, at_s in self._learned.items():
            self.world.loop.call_later(at_s, self._tell_groups, node)

    def heal(self) -> None:
        """No more faults."""
        self._quiet_ms = max(self.log.time_ms, EPOCH_MS + int(1000 * self._clock()))

    def known_groups(self, node: NodeId) -> list[GroupSpec]:
        """The groups as this node knows them now; after a failover it may know old settings."""
        specs = [*SPECS, PUSHED] if self.has_streams else list(SPECS)
        if self.world.loop.time < self._learned[node]:
            return specs
        return [replace(spec, version=2, config=_changed(spec.config)) for spec in specs]

    def _tell_groups(self, node: NodeId) -> None:
        process = self.world.machines.process(node)
        if process is not None and self.partition_id in process.replicas:
            process.time.call_soon(process.replicas[self.partition_id].groups_changed)

    # what applies

    def has(self, partition_id: PartitionId) -> bool:
        """Whether the partition's queue is used."""
        return partition_id == self.partition_id

    def proposed(self, partition_id: PartitionId, term: Term, index: Index, seen: Index) -> None:
        """A leader has made a queue entry, having applied everything up to `seen`."""
        self.ledger.proposed(term, index, seen)

    def applied(
        self, partition_id: PartitionId, entry: Entry, state: PartitionState, result: object
    ) -> None:
        """A replica has applied an entry; the first time tells what it did."""
        if self.ledger.applied(entry, state, result) and entry.kind == EntryKind.QUEUE:
            self._is_in_time()

    def held(self, partition_id: PartitionId, who: str) -> None:
        """A receive was given nothing, though something is ready and nothing is under way."""
        self._broken("Q4", f"{who} was given nothing at {partition_id}, and something is ready")

    def _fell(self, group: str, offset: int) -> None:
        self.history.add("fallen", group=group, partition=0, offset=offset)

    def _is_in_time(self) -> None:
        """In quiet times a delayed message comes when it is due."""
        late, self._late_told = self.log.late_ms[self._late_told :], len(self.log.late_ms)
        if not self._quiet_ms:
            return
        for group, due_ms, late_ms in late:
            calm = due_ms > self._quiet_ms + CALM_MS
            if calm and group == "plain" and late_ms > LATE_MS_MAX:
                self._broken("Q3", f"a message of {group} came {late_ms} ms late")

    # what clients are told

    def is_recorded(self, spec: GroupSpec) -> bool:
        """Whether the history tells of the group: commits skip what nobody was given."""
        return spec.id != STREAM

    def knows(self, offset: int) -> bool:
        """Whether the message was published by somebody who keeps the history."""
        return self.values.get(offset, b"").startswith(b"q")

    def told_granted(self, group: int, delivery: int, offset: int) -> None:
        """A client was given a message: its delivery has applied."""
        if (group, delivery, offset) not in self.log.granted:
            self._broken("Q1", f"{offset} was given to {group}, and not delivered at {delivery}")

    def told_settled(self, group: int, delivery: int, offset: int, action: int) -> None:
        """A client was told that its settle is done: it has applied."""
        if (group, delivery, offset, action) not in self.log.settled:
            self._broken("Q1", f"settle {action} of {offset} by {group} was answered, and not done")

    # the end

    def unsettled(self) -> str:
        """What is still to be done, in words."""
        for publisher in self.publishers:
            if not publisher.idle:
                return f"{publisher} is not answered"
        if not self.admin.idle:
            return "the queue's admin is not answered"
        for spec in [*SPECS[:3], *([PUSHED] if self.has_streams else [])]:
            group = self.log.groups.get(spec.id)
            if group is None:
                return f"group {spec.name} is not open"
            pending = self.log.pending(group, self.log.time_ms + SOON_MS)
            if pending:
                return f"group {spec.name} has not settled {pending[:5]}"
        for process in self.world.machines.running():
            if process.front.streams is not None and process.front.streams.is_busy:
                return f"streams of {process.node} have something in flight"
        busy = [consumer for consumer in self.consumers if not consumer.idle]
        return f"{busy[0]} is not answered" if busy else ""

    def judge(self, states: dict[NodeId, PartitionState]) -> None:
        """Everything is settled: compare all replicas with the model, and judge the history."""
        for node, state in states.items():
            for rule, text in compare(self.log, node, state.queue.groups):
                self._broken(rule, text)
        state = next(iter(states.values()))
        for spec in SPECS[:3]:
            for offset, letter in state.queue.groups[spec.id].dead.items():
                if self.knows(offset):
                    self.history.dead(
                        spec.name,
                        0,
                        offset,
                        reason=letter.reason,
                        attempts=letter.attempts,
                        redrives=letter.redrives,
                    )
        self.history.drained([spec.name for spec in SPECS[:3]])
        verdict = check(self.history.events, self.limits)
        for violation in verdict.violations:
            self._broken(violation.rule, violation.text)

    def log_time_is(self, time_ms: int) -> None:
        """Of the partition, as a leader begins. While one clock is wrong and another node is dead,
        no majority knows the time, and log time stands where the last leader left it."""
        self._behind_s = max(self._behind_s, self._clock() - (time_ms - EPOCH_MS) / 1000)

    @property
    def limits(self) -> Limits:
        """What the run may be held to. The exact times are judged in the log (`ledger`)."""
        return replace(LIMITS, clock_s=max(LIMITS.clock_s, self._behind_s + STEP_S))

    @property
    def deliveries(self) -> int:
        return len(self.log.granted)

    @property
    def settles(self) -> int:
        return len(self.log.settled)

    @property
    def digest(self) -> int:
        """Of all that clients saw."""
        return zlib.crc32(repr(self.history.events).encode())

    def _broken(self, rule: str, text: str) -> None:
        self.world.checks.violated(f"{rule}: {text}")

    def _clock(self) -> float:
        return self.world.loop.time


def _changed(config: GroupConfig) -> GroupConfig:
    return GroupConfig(
        visibility_ms=config.visibility_ms,
        max_attempts=config.max_attempts,
        ordering=config.ordering,
        lane_max_wait_ms=config.lane_max_wait_ms,
        lane_share=config.lane_share,
        backoff_ms=config.backoff_ms + 50,
    )
