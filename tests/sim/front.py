"""What clients ask a simulated node: the production road to whoever leads, on virtual time.

Any node takes any request. `Forwarder`, `QueueCalls`, `QueueReceiver` and `QueueService` find the
leader, repeat what may be repeated after a lost answer, and give back what nobody was told of.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from delivery.entries.ops import Granted, StaleResult, UnknownGroup
from goqueue.wire.errors import GoQueueError, ServerError, StaleGeneration
from goqueue.wire.types import CLUSTER_GROUP, NodeId, PartitionId
from node.api.records import AppendResult
from node.queue.calls import QueueCalls
from node.queue.operations import Operations
from node.queue.poll import Poll
from node.queue.receiver import QueueReceiver
from node.queue.service import QueueService
from node.queue.views import QueueViews
from node.queue_assembly import node_tasks
from node.replicas.partition_service import PartitionService
from node.replicas.topology import Topology
from node.rpc import partitions as rpc
from node.rpc.queue import GroupRef, OpsAnswer, OpsRequest, Taken
from tests.sim.queue_requests import Ask, Done, NotDone
from tests.sim.requests import Publish, Refused, Stored
from tests.sim.streams import StreamNode, stream_parts

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.replica import Replica

DEADLINES_S = (0.5, 2.0, 5.0)
"""How long a node tries, before it tells that it is in doubt or that nothing has happened."""
BYTES_MAX = 1 << 20


class Nothing:
    """Metrics that nobody reads."""

    def __getattr__(self, _name: str) -> Nothing:
        return self

    def __call__(self, *_arguments: object) -> Nothing:
        return self


class _CountedOperations(Operations):
    """Operations that come again after a lost answer are counted."""

    seen: Counter[str]

    async def take(self, request: OpsRequest) -> OpsAnswer:
        self.seen["operations sent again"] += request.again
        return await super().take(request)


class _CountedReceiver(QueueReceiver):
    """Leases that nobody was told of, and that are given back, are counted."""

    seen: Counter[str]

    def release(self, group: int, taken: Sequence[Taken]) -> None:
        self.seen["leases given back"] += sum(len(one.grants) for one in taken)
        self.seen["leases recalled"] += sum(len(one.grants) - len(one.messages) for one in taken)
        super().release(group, taken)


class Front:
    """Of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._rng = process.world.rng("front")
        self._coroutines = process.coroutines
        self._asked: dict[Ask, Any] = {}
        self._background_tasks = node_tasks()
        self._connect(process.node, process.link, self._rng, Nothing())

    def _connect(self, node: NodeId, link: Any, rng: random.Random, metrics: Any) -> None:
        topology = Topology(
            node,
            state=self._state,
            cluster_voters=lambda: (),
            cluster_group=lambda: self._process.raft(CLUSTER_GROUP),
            find=self.find,
            is_present=self._is_present,
        )
        hosts: Any = self
        self._forwarder = self._process.world.mutant.forwarder(node, topology, link, rng, metrics)
        self._partitions = PartitionService(node, hosts, link)
        service = QueueService(
            node, hosts, link, self._partitions.confirmed, self._background_tasks
        )
        nobody: Any = Nothing()  # is asked who takes part: nobody here wants figures of groups
        operations = _CountedOperations(self._partitions, self._forwarder, link, rng)
        views = QueueViews(self._partitions, nobody, link)
        self._calls = QueueCalls(node, views, operations, self._forwarder, topology, link)
        self._receiver = _CountedReceiver(
            node,
            service=service,
            calls=self._calls,
            topology=topology,
            link=link,
            background_tasks=self._background_tasks,
            rng=rng,
            metrics=metrics,
        )
        operations.seen = self._receiver.seen = self._process.world.calls
        work = self._process.world.queue
        self.streams: StreamNode | None = None
        if work is not None and work.has_streams:
            self.streams = StreamNode(self._process, work)
            run = self.streams.runs.own
            parts = stream_parts(work, run, self._receiver, self._calls, self._ref)
            self._stream_parts = parts

    def start(self) -> None:
        """Replicas of this node are there."""
        streams = self.streams
        if streams is not None:
            self.within(lambda: streams.start(self._stream_parts))

    def within(self, work: Callable[[], object]) -> None:
        """Do it as if it were called by this process's loop."""
        self._coroutines.within(work)

    def leader_changed(self, partition_id: PartitionId, leader: NodeId) -> None:
        self.within(lambda: self._forwarder.leader_changed(partition_id, leader))

    # as the production code sees this node

    def find(self, partition_id: PartitionId) -> Any:
        """The replica here."""
        replica: Replica | None = self._process.replicas.get(partition_id)
        return replica

    def _state(self) -> Any:
        cluster = self._process.cluster
        if cluster is not None:
            return cluster.state
        voters = SimpleNamespace(voters=self._process.world.voters, index=0)
        return SimpleNamespace(
            layout=SimpleNamespace(
                placement=lambda _group: voters, configuration=lambda _group: voters
            )
        )

    def _is_present(self, node: NodeId) -> bool:
        me = self._process.node
        return node == me or self._process.world.net.is_up(me, node)

    # for clients

    def publish(self, publish: Publish) -> None:
        def ended(answer: Stored | Refused) -> None:
            self._process.answer(publish, answer)

        self._coroutines.start(self._publish(publish), ended)

    async def _publish(self, publish: Publish) -> Stored | Refused:
        partition_id, batch, request_id = (
            publish.partition_id,
            publish.batch.buffer,
            publish.request_id,
        )

        async def here(left_s: float) -> AppendResult:
            return await self._partitions.append(
                partition_id, batch, request_id=request_id, validated=True, deadline_s=left_s
            )

        try:
            found = await self._forwarder.call(
                partition_id,
                local=here,
                method=rpc.APPEND,
                payload=lambda _left_s: rpc.encode_append(partition_id, request_id, True, batch),
                decode=rpc.decode_appended,
                deadline_s=self._rng.choice(DEADLINES_S),
            )
        except GoQueueError as error:
            return Refused(self._in_doubt(error))
        return Stored(found.base_offset, found.duplicate, found.count, found.rows)

    def ask(self, ask: Ask) -> None:
        """Take a request for the queue of a partition."""
        work: Coroutine[Any, Any, Done | NotDone]
        work = self._receive(ask) if ask.want is not None else self._operate(ask)

        def ended(answer: Done | NotDone) -> None:
            self._asked.pop(ask, None)
            self._process.answer_queue(ask, answer)

        self._asked[ask] = self._coroutines.start(work, ended)

    def withdraw(self, ask: Ask) -> None:
        """Who asked has left."""
        task = self._asked.pop(ask, None)
        if task is not None:
            self.within(task.cancel)

    async def _operate(self, ask: Ask) -> Done | NotDone:
        assert ask.op is not None
        opens = self._ref(getattr(ask.op, "group", 0))
        try:
            deadline_s = self._rng.choice(DEADLINES_S)
            answer = await self._calls.operations.put(ask.partition_id, [ask.op], opens, deadline_s)
        except GoQueueError as error:
            return NotDone(self._in_doubt(error))
        return Done(answer.results[0], self._process.node)

    async def _receive(self, ask: Ask) -> Done | NotDone:
        want, me = ask.want, self._process.node
        assert want is not None
        ref = self._ref(want.group)
        if ref is None:
            return Done(UnknownGroup(want.group), me)
        poll = Poll(
            ref,
            [ask.partition_id],
            want.member,
            want.limit,
            ref.config.visibility_ms if want.visibility_ms is None else want.visibility_ms,
            BYTES_MAX,
            want.generation,
            want.lowest_lane,
        )
        try:
            taken = await self._receiver.receive(poll, ask.wait_s)
        except StaleGeneration as error:
            return Done(StaleResult(want.group, "", int(str(error.data.get("generation", 0)))), me)
        except GoQueueError as error:
            return NotDone(self._in_doubt(error))
        for one in taken:
            return Done(Granted(one.delivery, one.deadline_ms, one.grants), me)
        return Done(Granted(0, 0, []), me)

    def _in_doubt(self, error: GoQueueError) -> bool:
        if isinstance(error, ServerError):
            self._process.world.checks.violated(f"crash: {error.message}")
        return error.outcome == "unknown"

    def _ref(self, group: int) -> GroupRef | None:
        """The group as this node knows it now."""
        world = self._process.world
        work = world.queue or world.members
        specs = [] if work is None else work.known_groups(self._process.node)
        known = {spec.id: GroupRef(spec.id, spec.name, spec.version, spec.config) for spec in specs}
        return known.get(group)
