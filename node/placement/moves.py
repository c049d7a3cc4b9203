"""Brings replicas to where they should be, on whichever node leads the cluster group.

What it does may be interrupted anywhere: desire is the cluster group's state, the truth stands in
each partition's log, and whoever leads next asks partitions how they are and goes on. Every node
tells of the partitions it leads where the cluster group knows of other replicas than there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import Command, Result
from coordinator.commands.placement import PlacementCommand, Row
from coordinator.errors import TooFewBrokers
from coordinator.placement.mover import Ask, Limits, Mover, Planning, made
from coordinator.placement.steps import Seen, Step
from goqueue.background import TaskSet
from goqueue.wire.errors import GoQueueError, NotLeader, Timeout, Unavailable
from goqueue.wire.types import CLUSTER_GROUP, NodeId, PartitionId
from node.metrics import Metrics
from node.partition.host import PartitionHost
from node.peers.forwarding import Forwarder
from node.peers.link import PeerLink
from node.placement.views import TURN
from node.rpc import moves as move_rpc
from node.rpc import partitions as rpc
from node.rpc.moves import PARTITIONS_TOLD_MAX, ProgressAnswer, ProgressRow, SeenRow, ToldRequest
from node.runtime.logger import get_logger
from node.runtime.looks import Looks
from node.runtime.periodic import Periodic

LOOK_S = 0.25
"""The time between two looks at most, while something moves or is told."""
LOOK_MIN_S = 0.01
TELL_S = 1.0
"""How soon a leader tells of its replicas once more, where the cluster group does not know."""
COMMAND_DEADLINE_S = 5.0
ASK_DEADLINE_S = 3.0
AT_ONCE_MAX = 32
"""Questions and steps on their way."""
RATE_SHARE = 0.3
"""Of the newest measurement in a rate that is shown."""

_log = get_logger("moves")


class MovesCluster(Protocol):
    """What is asked of the cluster group; `node.cluster.host.ClusterHost` is one."""

    leaderships: int

    @property
    def state(self) -> ClusterState: ...

    def led_time_ms(self) -> int | None: ...

    async def command_here(self, command: Command, deadline_s: float) -> Result: ...


class Partitions(Protocol):
    """What is asked of partitions; `node.placement.steps.MovingPartitions` is one."""

    async def ask(self, partition_id: PartitionId) -> Seen: ...

    async def step(self, step: Step) -> Seen: ...

    def seen(self, host: PartitionHost) -> Seen: ...


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """A partition that is being moved: what it waits for, if anything, and what its learners have
    yet to get, at which rate they get it."""

    waiting: str
    bytes_left: int
    rate_bytes_s: int


@dataclass(slots=True)
class _Rate:
    left: int
    at_ms: int
    bytes_s: float = 0.0


class ReplicaMoves:
    """A service. `replicas` are those of this node. Loop thread only."""

    def __init__(
        self,
        cluster: MovesCluster,
        partitions: Partitions,
        replicas: Looks[PartitionHost],
        forwarder: Forwarder,
        link: PeerLink,
        metrics: Metrics,
        limits: Limits | None = None,
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._replicas = replicas
        self._forwarder = forwarder
        self._metrics = metrics
        self._limits = limits or Limits()
        self._mover: Mover | None = None
        self._leadership = 0
        self._rates: dict[PartitionId, _Rate] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)
        self._task_set = TaskSet("moves")
        self._looks = Periodic(
            "replica_moves", self._round, LOOK_S, _log, "replicas_not_moved", first_s=0.0
        )
        self._tells = Periodic("replica_tidings", self._tell, TELL_S, _log, "replicas_not_told")
        metrics.before_render(self._count)
        link.handle(move_rpc.TOLD, self._serve_told)
        link.handle(rpc.MOVE_PROGRESS, self._serve_progress)

    async def start(self) -> None:
        await self._looks.start()
        await self._tells.start()

    async def stop(self) -> None:
        await self._looks.stop()
        await self._tells.stop()
        await self._task_set.stop()

    def changed(self) -> None:
        """The cluster's state is another one: there may be something to do."""
        self._looks.wake()

    def configured(self) -> None:
        """A partition's replicas may be others."""
        self._tells.wake()

    # how far moves are

    def progress(self) -> dict[PartitionId, MoveProgress]:
        """Of the partitions that are on their way. Raises NotLeader where the cluster group is not
        led here."""
        mover = self._led(self._now_ms())
        moving = dict.fromkeys(self._cluster.state.layout.moving, TURN)
        return {
            partition_id: MoveProgress(
                waiting,
                mover.behind_bytes(partition_id),
                round(self._rates[partition_id].bytes_s) if partition_id in self._rates else 0,
            )
            for partition_id, waiting in {**moving, **mover.waiting}.items()
        }

    def problems(self) -> dict[str, str]:
        """Plans that can't be made, by cause, and why. Raises NotLeader."""
        return dict(self._led(self._now_ms()).problems)

    async def ask_progress(self) -> dict[PartitionId, MoveProgress]:
        """As `progress`, from any node. Raises GoQueueError."""
        answer = await self._ask_leader()
        return {
            PartitionId.unpack(row.partition): MoveProgress(
                row.waiting, row.bytes_left, row.rate_bytes_s
            )
            for row in answer.rows
        }

    # what is to be done

    def look(self) -> float:
        """Begin what is to be done, without waiting for it; in how many seconds to look again."""
        now_ms = self._cluster.led_time_ms()
        if now_ms is None:
            self._end()
            return LOOK_S
        mover = self._led(now_ms)
        work = mover.collect(now_ms)
        for command in work.commands:
            self._task_set.begin(self._propose(mover, command))
        for planning in work.plans:
            self._task_set.begin(self._plan(mover, planning))
        for ask in work.asks:
            self._task_set.begin(self._ask(mover, ask))
        for step in work.steps:
            self._task_set.begin(self._step(mover, step))
        moving = self._cluster.state.layout.moving
        for partition_id in [
            partition_id for partition_id in self._rates if partition_id not in moving
        ]:
            del self._rates[partition_id]
        wake_ms = mover.next_wake_ms(now_ms)
        if wake_ms is None:
            return LOOK_S
        return min(LOOK_S, max(LOOK_MIN_S, (wake_ms - now_ms) / 1000))

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        await self._task_set.settled()

    def untold(self) -> list[tuple[PartitionId, Seen]]:
        """Of the partitions led here, those whose replicas the cluster group does not know."""
        layout = self._cluster.state.layout
        found = []
        for host in self._replicas.take():
            if not host.is_leader:
                continue
            known = layout.configuration(host.id)
            if known is None:
                continue
            if known.index < host.raft_group.membership.before.index:
                self._replicas.again(host)
                found.append((host.id, self._partitions.seen(host)))
        return found

    # private

    async def _round(self) -> float:
        return self.look()

    async def _tell(self) -> None:
        try:
            if untold := self.untold()[:PARTITIONS_TOLD_MAX]:
                await self._tell_leader(untold)
        except GoQueueError as error:
            _log.debug("replicas_not_told", problem=error.message)
        await asyncio.sleep(LOOK_MIN_S)

    async def _tell_leader(self, untold: Sequence[tuple[PartitionId, Seen]]) -> None:
        request = ToldRequest(
            [move_rpc.seen_row(partition_id, seen) for partition_id, seen in untold]
        )

        async def here(_left_s: float) -> None:
            self._told(request.rows)

        await self._forwarder.call(
            CLUSTER_GROUP,
            local=here,
            method=move_rpc.TOLD,
            payload=lambda _left_s: rpc.encode(request),
            decode=lambda _answer: None,
            deadline_s=ASK_DEADLINE_S,
        )

    def _told(self, rows: Iterable[SeenRow]) -> None:
        mover = self._led(self._now_ms())
        for row in rows:
            mover.told(PartitionId.unpack(row.partition), move_rpc.seen_of(row))
        self._looks.wake()

    async def _ask_leader(self) -> ProgressAnswer:
        async def here(_left_s: float) -> ProgressAnswer:
            return self._answer()

        return await self._forwarder.call(
            CLUSTER_GROUP,
            local=here,
            method=rpc.MOVE_PROGRESS,
            payload=lambda _left_s: b"",
            decode=move_rpc.decode_progress,
            deadline_s=ASK_DEADLINE_S,
        )

    def _answer(self) -> ProgressAnswer:
        rows = [
            ProgressRow(partition_id.pack(), one.waiting, one.bytes_left, one.rate_bytes_s)
            for partition_id, one in self.progress().items()
        ]
        return ProgressAnswer(rows, self.problems())

    def _now_ms(self) -> int:
        now_ms = self._cluster.led_time_ms()
        if now_ms is None:
            raise NotLeader(None)
        return now_ms

    def _led(self, _now_ms: int) -> Mover:
        """The mover of this leadership, which begins with its first use."""
        if self._mover is None or self._leadership != self._cluster.leaderships:
            self._end()
            self._leadership = self._cluster.leaderships
            self._mover = Mover(lambda: self._cluster.state.layout, self._limits, leaves_plans=True)
        return self._mover

    def _end(self) -> None:
        """What is under way is of a leadership that is over: the next one does it again."""
        self._mover = None
        self._rates.clear()
        self._task_set.cancel()

    async def _propose(self, mover: Mover, command: PlacementCommand) -> None:
        applied = False
        try:
            await self._cluster.command_here(command, COMMAND_DEADLINE_S)
            applied = True
        except (Unavailable, Timeout) as error:
            _log.debug("placement_command_delayed", problem=error.message)
        except GoQueueError as error:
            _log.debug("placement_command_refused", problem=error.message)
        finally:
            mover.answered(command, self._ended_ms(), applied=applied)

    async def _plan(self, mover: Mover, planning: Planning) -> None:
        """On a thread: publishes go on meanwhile."""
        rows: list[Row] | TooFewBrokers = []
        try:
            rows = await asyncio.to_thread(made, planning)
        finally:
            mover.planned(planning, rows, self._ended_ms())

    async def _ask(self, mover: Mover, ask: Ask) -> None:
        seen = None
        try:
            async with self._at_once:
                seen = await self._partitions.ask(ask.partition_id)
        except GoQueueError as error:
            _log.debug("replicas_not_known", group=str(ask.partition_id), problem=error.message)
        finally:
            self._note(ask.partition_id, seen)
            mover.seen(ask.partition_id, seen, self._ended_ms())

    async def _step(self, mover: Mover, step: Step) -> None:
        seen = None
        try:
            async with self._at_once:
                seen = await self._partitions.step(step)
        except GoQueueError as error:
            _log.debug(
                "step_not_known",
                group=str(step.partition_id),
                step=step.kind,
                problem=error.message,
            )
        finally:
            self._note(step.partition_id, seen)
            mover.stepped(step, seen, self._ended_ms())

    def _ended_ms(self) -> int:
        """When something ended; there may be more to do after it."""
        self._looks.wake()
        return self._cluster.led_time_ms() or 0

    def _note(self, partition_id: PartitionId, seen: Seen | None) -> None:
        """How fast a partition's learners get what they lack."""
        now_ms = self._cluster.led_time_ms()
        if seen is None or now_ms is None:
            return
        known = self._rates.get(partition_id)
        if known is None or not seen.behind_bytes:
            self._rates[partition_id] = _Rate(seen.behind_bytes, now_ms)
        elif now_ms > known.at_ms:
            now = max(0, known.left - seen.behind_bytes) * 1000 / (now_ms - known.at_ms)
            known.bytes_s += RATE_SHARE * (now - known.bytes_s)
            known.left, known.at_ms = seen.behind_bytes, now_ms

    def _count(self) -> None:
        metrics = self._metrics
        found: dict[PartitionId, MoveProgress] = {}
        with suppress(NotLeader):
            found = self.progress()
        metrics.cluster.partitions_under_way.set(len(found))
        metrics.cluster.waiting_moves.set(sum(one.waiting != "" for one in found.values()))
        metrics.cluster.move_bytes_left.set(sum(one.bytes_left for one in found.values()))

    # for peers

    async def _serve_told(self, _peer: NodeId, payload: bytes) -> bytes:
        self._told(rpc.decode_request(payload, ToldRequest).rows)
        return b""

    async def _serve_progress(self, _peer: NodeId, _payload: bytes) -> bytes:
        return rpc.encode(self._answer())
