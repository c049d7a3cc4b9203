"""What brings replicas to where they should be, where the cluster group is led.

It decides without I/O or clock, and remembers nothing that must survive: desire is the cluster
group's state, the truth stands in each partition's own log. A new leader asks partitions how they
are and goes on; a step that comes late or twice is refused by the partition's leader.

Partitions are taken up a few at once, and few for one broker; a partition that is stuck makes room
for others. What is drained, or has too few replicas, is planned here in parts as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from coordinator.brokers.registry import DRAINING
from coordinator.commands.placement import (
    ROWS_MAX,
    PlacementCommand,
    Reassign,
    ReplicasChanged,
    Reported,
    Row,
)
from coordinator.errors import TooFewBrokers
from coordinator.groups.holdings import short
from coordinator.placement.layout import Layout
from coordinator.placement.planner import (
    LEADERS_OUT_OF_BALANCE,
    plan_drain,
    plan_factor,
    plan_leaders,
)
from coordinator.placement.reassignments import DRAIN, FACTOR, LEADERS
from coordinator.placement.steps import Seen, Step, Waiting, next_step
from goqueue.wire.types import CLUSTER_GROUP, NodeId, PartitionId

AGAIN_MS, AGAIN_MS_MAX = 250, 10_000
"""How soon what failed is tried again; each failure doubles it."""
POLL_MS = 200
"""How soon a partition that waits, for its learner say, is asked again."""
SEEN_MS = 2_000
"""For how long what a leader told is worth a step."""
STALLED_MS = 60_000
"""A partition that has not come on for so long makes room for another, and is asked seldom."""
STALLED_MAX = 200
"""Of such partitions; beyond it no others are taken up."""
PLAN_MS = 10_000
"""How soon a plan that can't be made is tried again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much moves at once."""

    moves_max: int = 8
    """Partitions that move, in the whole cluster."""
    broker_moves_max: int = 2
    """Of them, those that come to one broker."""
    leaders_at_once: int = 8
    """Preferred leaders that are changed together, where leaders are out of balance; 0: never."""
    leaders_pause_ms: int = 30_000
    """Between two such changes, and before the first."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A partition's leader is asked how its replicas are (`Seen`)."""

    partition_id: PartitionId


@dataclass(frozen=True, slots=True)
class Planning:
    """A plan that is to be made: `make` takes long where there are many partitions, and may run on
    any thread. Raises TooFewBrokers."""

    cause: str
    brokers: list[NodeId]
    throttle_bytes_s: int
    make: Callable[[], list[Row]]


@dataclass(slots=True)
class MoveWork:
    """What is to be done now. Each part is told how it ended: `seen`, `stepped`, `answered`,
    `planned`."""

    asks: list[Ask] = field(default_factory=list[Ask])
    steps: list[Step] = field(default_factory=list[Step])
    commands: list[PlacementCommand] = field(default_factory=list["PlacementCommand"])
    plans: list[Planning] = field(default_factory=list[Planning])


@dataclass(slots=True)
class _Active:
    """A partition that is being moved."""

    progress: object = None
    progress_ms: int = 0
    seen: Seen | None = None
    seen_ms: int = 0
    failures: int = 0
    waiting: str = ""


class Mover:
    """One leadership of the cluster group. `layout` is its applied state. With `leaves_plans` it
    makes no plan itself, and asks for them."""

    def __init__(
        self,
        layout: Callable[[], Layout],
        limits: Limits | None = None,
        *,
        leaves_plans: bool = False,
    ) -> None:
        self._layout = layout
        self._limits = limits or Limits()
        self._leaves_plans = leaves_plans
        self._planned: list[Reassign] = []
        self._active: dict[PartitionId, _Active] = {}
        self._news: dict[PartitionId, Seen] = {}
        """What leaders told, and the state does not know yet."""
        self._busy: set[Hashable] = set()
        self._again_ms: dict[Hashable, int] = {}
        self.problems: dict[str, str] = {}
        """Plans that can't be made, and why."""

    @property
    def waiting(self) -> dict[PartitionId, str]:
        """Partitions that are being moved, and what each waits for, if anything."""
        return {partition_id: active.waiting for partition_id, active in self._active.items()}

    def behind_bytes(self, partition_id: PartitionId) -> int:
        """What a partition's learners have yet to get, as told last."""
        active = self._active.get(partition_id)
        return 0 if active is None or active.seen is None else active.seen.behind_bytes

    def collect(self, now_ms: int) -> MoveWork:
        """What is to be done at this log time."""
        work, layout = MoveWork(), self._layout()
        self._forget(layout)
        self._add_plans(work, layout, now_ms)
        self._take_up(layout, now_ms)
        for partition_id, active in self._active.items():
            self._add_move(work, layout, partition_id, active, now_ms)
        self._add_news(work, layout, now_ms)
        work.commands += self._planned
        self._planned = []
        return work

    def seen(self, partition_id: PartitionId, seen: Seen | None, now_ms: int) -> None:
        """What a partition's leader answers; None where nobody does."""
        self._busy.discard(partition_id)
        self._note(partition_id, seen, now_ms)

    def told(self, partition_id: PartitionId, seen: Seen) -> None:
        """What a partition's leader tells unasked, where its configuration is not the one that the
        cluster knows: a step came late, or nobody heard how it ended."""
        self._keep_news(partition_id, seen)

    def stepped(self, step: Step, seen: Seen | None, now_ms: int) -> None:
        """How a partition is after a step, taken or refused; None where that is not known."""
        self.seen(step.partition_id, seen, now_ms)

    def planned(self, planning: Planning, made: list[Row] | TooFewBrokers, now_ms: int) -> None:
        """What came of a plan; it is proposed next."""
        cause, rows = planning.cause, made if isinstance(made, list) else []
        if isinstance(made, TooFewBrokers):
            self.problems[cause] = made.message
        else:
            self.problems.pop(cause, None)
        if rows:
            throttle = planning.throttle_bytes_s
            self._planned.append(Reassign(rows, cause, list(planning.brokers), throttle))
            return
        self._busy.discard(cause)
        if cause != LEADERS:
            self._again_ms[cause] = now_ms + PLAN_MS

    def answered(self, command: PlacementCommand, now_ms: int, *, applied: bool) -> None:
        """A command has ended: applied, refused, or nobody knows."""
        for one in _about(command):
            self._busy.discard(one)
            if not applied:
                self._again_ms[one] = now_ms + AGAIN_MS

    def next_wake_ms(self, now_ms: int) -> int | None:
        """When `collect` may have something to do, though nothing has happened. What is on its way
        wakes nobody: its end does."""
        layout = self._layout()
        wakes = [self._due_ms(g, now_ms) for g in self._active if g not in self._busy]
        wakes += [now_ms] * bool(self._planned)
        if layout.moving.keys() - self._active.keys() and not wakes and not self._busy:
            wakes.append(now_ms + AGAIN_MS)
        wakes += [self._due_ms(one, now_ms) for one in self._plans(layout) if one not in self._busy]
        if self._fresh(layout) and ReplicasChanged not in self._busy:
            wakes.append(self._due_ms(ReplicasChanged, now_ms))
        if self._limits.leaders_at_once and not layout.moving:
            wakes.append(self._due_ms(LEADERS, now_ms))
        return max(min(wakes), now_ms) if wakes else None

    # -- plans

    def _plans(self, layout: Layout) -> list[str]:
        """What has to be planned: drains by their causes, and other numbers of replicas."""
        leaving = any(
            broker.state == DRAINING and layout.replicas[node]
            for node, broker in layout.brokers.by_name.items()
        )
        return [DRAIN] * leaving + [FACTOR] * bool(layout.unequal)

    def _add_plans(self, work: MoveWork, layout: Layout, now_ms: int) -> None:
        for cause in self._plans(layout):
            if self._begin(cause, now_ms):
                self._add_plan(work, layout, cause, now_ms)
        if not self._limits.leaders_at_once or layout.moving or self._plans(layout):
            return
        if LEADERS not in self._again_ms:
            self._again_ms[LEADERS] = now_ms + self._limits.leaders_pause_ms
        elif self._begin(LEADERS, now_ms):
            self._again_ms[LEADERS] = now_ms + self._limits.leaders_pause_ms
            if not _leads_unevenly(layout):
                self._busy.discard(LEADERS)
                return
            picture, at_once = layout.picture(), self._limits.leaders_at_once
            self._plan(work, LEADERS, lambda: plan_leaders(picture, at_once), now_ms)

    def _add_plan(self, work: MoveWork, layout: Layout, cause: str, now_ms: int) -> None:
        leaving = [
            node
            for node, broker in sorted(layout.brokers.by_name.items())
            if cause == DRAIN and broker.state == DRAINING and layout.replicas[node]
        ]
        picture = layout.picture()
        throttles = [layout.brokers.by_name[node].drain_bytes_s for node in leaving]

        def make() -> list[Row]:
            return plan_drain(picture, leaving) if leaving else plan_factor(picture)

        self._plan(work, cause, make, now_ms, leaving, min(filter(None, throttles), default=0))

    def _plan(
        self,
        work: MoveWork,
        cause: str,
        make: Callable[[], list[Row]],
        now_ms: int,
        brokers: Sequence[NodeId] = (),
        throttle_bytes_s: int = 0,
    ) -> None:
        planning = Planning(cause, list(brokers), throttle_bytes_s, make)
        if self._leaves_plans:
            work.plans.append(planning)
        else:
            self.planned(planning, made(planning), now_ms)

    # -- moves

    def _take_up(self, layout: Layout, now_ms: int) -> None:
        """Those that were begun already first, then the oldest plan's."""
        fresh = [partition_id for partition_id in layout.moving if partition_id not in self._active]
        if not fresh:
            return
        stalled = {g for g, active in self._active.items() if _is_stalled(active, now_ms)}
        moving = len(self._active) - len(stalled)
        coming: Counter[NodeId] = Counter()
        for partition_id, active in self._active.items():
            if partition_id not in stalled or (active.seen and active.seen.configuration.learners):
                coming.update(_coming(layout, partition_id))
        for partition_id in sorted(fresh, key=lambda one: _rank(layout, one)):
            if moving >= self._limits.moves_max or len(stalled) >= STALLED_MAX:
                return
            to = _coming(layout, partition_id)
            if all(coming[node] < self._limits.broker_moves_max for node in to):
                self._active[partition_id] = _Active(progress_ms=now_ms)
                coming.update(to)
                moving += 1

    def _add_move(
        self,
        work: MoveWork,
        layout: Layout,
        partition_id: PartitionId,
        active: _Active,
        now_ms: int,
    ) -> None:
        placement = layout.placement(partition_id)
        assert placement is not None, "only living partitions are active"
        if partition_id in self._busy or self._again_ms.get(partition_id, now_ms) > now_ms:
            return
        if active.seen is None or now_ms - active.seen_ms > SEEN_MS:
            self._busy.add(partition_id)
            work.asks.append(Ask(partition_id))
            return
        reassignment = layout.reassignments.of(short(partition_id))
        throttle = 0 if reassignment is None else reassignment.throttle_bytes_s
        found = next_step(
            partition_id,
            placement.replicas,
            active.seen,
            throttle,
            epoch=layout.epoch,
            confirmed=layout.to_be_confirmed(partition_id),
        )
        if isinstance(found, Step):
            active.waiting = ""
            self._busy.add(partition_id)
            work.steps.append(found)
            return
        active.waiting = "" if found is None else found.reason
        active.seen_ms = now_ms - SEEN_MS - 1  # to be asked, next time
        stalled = isinstance(found, Waiting) and _is_stalled(active, now_ms)
        self._again_ms[partition_id] = now_ms + (AGAIN_MS_MAX if stalled else POLL_MS)

    def _note(self, partition_id: PartitionId, seen: Seen | None, now_ms: int) -> None:
        active = self._active.get(partition_id)
        if seen is not None:
            self._keep_news(partition_id, seen)
        if active is None:
            return
        if seen is None:
            active.seen = None
            active.waiting = "its leader does not answer"
            pause_ms = min(AGAIN_MS << min(active.failures, 10), AGAIN_MS_MAX)
            active.failures += 1
            self._again_ms[partition_id] = now_ms + pause_ms
            return
        progress = (seen.configuration, seen.behind_bytes, len(seen.in_sync), seen.leader)
        if progress != active.progress:
            active.progress, active.progress_ms = progress, now_ms
        active.seen, active.seen_ms, active.failures = seen, now_ms, 0
        self._again_ms.pop(partition_id, None)

    # -- tidings

    def _keep_news(self, partition_id: PartitionId, seen: Seen) -> None:
        known = self._news.get(partition_id)
        if known is None or known.configuration.index <= seen.configuration.index:
            self._news[partition_id] = seen

    def _fresh(self, layout: Layout) -> list[PartitionId]:
        """Partitions whose leader told what the state does not know."""
        fresh = []
        for partition_id, seen in self._news.items():
            known = layout.configuration(partition_id)
            if known is None and partition_id != CLUSTER_GROUP:
                continue
            if known is None or known.index < seen.configuration.index:
                fresh.append(partition_id)
        return sorted(fresh)

    def _add_news(self, work: MoveWork, layout: Layout, now_ms: int) -> None:
        fresh = self._fresh(layout)[:ROWS_MAX]
        if fresh and self._begin(ReplicasChanged, now_ms):
            rows = [_reported(partition_id, self._news[partition_id]) for partition_id in fresh]
            work.commands.append(ReplicasChanged(rows))
        elif not fresh:
            self._news.clear()

    # -- what is known of what

    def _begin(self, one: Hashable, now_ms: int) -> bool:
        if one in self._busy or self._again_ms.get(one, now_ms) > now_ms:
            return False
        self._again_ms.pop(one, None)
        self._busy.add(one)
        return True

    def _due_ms(self, one: Hashable, now_ms: int) -> int:
        return self._again_ms.get(one, now_ms)

    def _forget(self, layout: Layout) -> None:
        """Partitions that have arrived or are gone. What is still on its way of them ends as it
        ends."""
        for partition_id in [
            partition_id for partition_id in self._active if partition_id not in layout.moving
        ]:
            del self._active[partition_id]
            self._again_ms.pop(partition_id, None)


def made(planning: Planning) -> list[Row] | TooFewBrokers:
    """What comes of a plan."""
    try:
        return planning.make()
    except TooFewBrokers as error:
        return error


def _leads_unevenly(layout: Layout) -> bool:
    """Whether a plan of other preferred leaders might be worth making."""
    takers = [node for node, broker in layout.brokers.by_name.items() if broker.takes]
    led = [layout.leaders[node] for node in takers]
    return bool(led) and max(led) - min(led) >= LEADERS_OUT_OF_BALANCE


def _about(command: PlacementCommand) -> list[Hashable]:
    """What a command is to bring about, as `_busy` knows it."""
    match command:
        case ReplicasChanged():
            return [ReplicasChanged]
        case Reassign():
            return [command.cause]
        case _:
            return []


def _is_stalled(active: _Active, now_ms: int) -> bool:
    return now_ms - active.progress_ms >= STALLED_MS


def _coming(layout: Layout, partition_id: PartitionId) -> set[NodeId]:
    """Brokers that are to get a replica which they have no vote with yet."""
    placement, configuration = layout.placement(partition_id), layout.configuration(partition_id)
    if placement is None or configuration is None:
        return set()
    return {voter.node for voter in placement.replicas if voter not in configuration.voters}


def _rank(layout: Layout, partition_id: PartitionId) -> tuple[bool, int, PartitionId]:
    """What was begun already goes first, then what needs no new replica, then by plan."""
    configuration, placement = layout.configuration(partition_id), layout.placement(partition_id)
    assert configuration is not None
    assert placement is not None
    reassignment = layout.reassignments.of(short(partition_id))
    begun = bool(configuration.learners) or len(configuration.voters) > len(placement.replicas)
    return not begun, 0 if reassignment is None else reassignment.id, partition_id


def _reported(partition_id: PartitionId, seen: Seen) -> Reported:
    topic, number = (0, 0) if partition_id == CLUSTER_GROUP else short(partition_id)
    now = seen.configuration
    return Reported(topic, number, now.index, now.voters, now.learners, now.epoch)
