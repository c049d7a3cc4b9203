"""Groups, dead letters, delays, schedules, brokers and moves for the blocking client.

Each call is the asynchronous one of the same name, with the same arguments.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from goqueue.api.client import AsyncClient
from goqueue.blocking.loop_thread import LoopThread, anext_or_none
from goqueue.models.failures import Closed
from goqueue.models.groups import TopicPartition
from goqueue.models.options import Priority
from goqueue.models.queued import DeadLetter, Leased, Received
from goqueue.models.settles import Settled
from goqueue.models.times import Duration
from goqueue.queue.dead_letters import PAGE_LIMIT, DeadFilter
from goqueue.queue.receive import WAIT_S

P = ParamSpec("P")
T = TypeVar("T")


def blocking(
    call: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingQueue, P], T]:
    """A method that runs the asynchronous client's and waits for its result."""

    @wraps(call)
    def run(client: BlockingQueue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client._thread.run(call(client._client, *args, **kwargs))

    return run


class BlockingSettles(Protocol):
    """Who a received message asks to settle it."""

    def settle_one(
        self,
        message: Leased,
        action: str,
        *,
        reason: str = "",
        delay: Duration | None = None,
        position: str | None = None,
        visibility: Duration | None = None,
    ) -> Settled: ...


class BlockingReceived(Leased, frozen=True, gc=True):
    """A message leased to this caller until `visible_until_ms`: settle it before. See `Received`;
    the methods are the same, blocking."""

    client: BlockingSettles | None = None

    def ack(self) -> Settled:
        """Done: the group never gets it again."""
        return self._settle("ack")

    def nack(
        self, reason: str = "", *, delay: Duration | None = None, position: str | None = None
    ) -> Settled:
        """Failed: it comes again after `delay`, or is dead if it has failed too often."""
        return self._settle("nack", reason=reason, delay=delay, position=position)

    def reject(self, reason: str = "") -> Settled:
        """It can't succeed: it is dead at once, to be seen among the group's dead letters."""
        return self._settle("reject", reason=reason)

    def extend(self, visibility: Duration) -> Settled:
        """Needs longer: the lease ends this long after now, at the answer's `visible_at_ms`."""
        return self._settle("extend", visibility=visibility)

    def release(self) -> Settled:
        """Give it back as if it had not been delivered."""
        return self._settle("release")

    def _settle(self, action: str, **options: Any) -> Settled:
        if self.client is None:
            raise TypeError("only a client's received message can be settled by itself")
        return self.client.settle_one(self, action, **options)


class BlockingQueue:
    """The part of the blocking client that works queues."""

    _client: AsyncClient
    _thread: LoopThread

    def receive(
        self,
        group: str,
        topics: str | Sequence[str] = (),
        *,
        limit: int = 10,
        wait: Duration = 0.0,
        visibility: Duration | None = None,
        partitions: Sequence[int] | None = None,
        member: str | None = None,
        generation: int | None = None,
        assignment: Sequence[TopicPartition] | None = None,
        lowest_priority: Priority | int | None = None,
    ) -> list[BlockingReceived]:
        """Take up to `limit` messages of the group. See `AsyncClient.receive`."""
        found = self._thread.run(
            self._client.receive(
                group,
                topics,
                limit=limit,
                wait=wait,
                visibility=visibility,
                partitions=partitions,
                member=member,
                generation=generation,
                assignment=assignment,
                lowest_priority=lowest_priority,
            )
        )
        return [blocking_received(message, self) for message in found]

    def receiving(
        self,
        group: str,
        topics: str | Sequence[str],
        *,
        limit: int = 1,
        wait: Duration = WAIT_S,
        visibility: Duration | None = None,
        partitions: Sequence[int] | None = None,
        member: str | None = None,
    ) -> Iterator[BlockingReceived]:
        """Receive for ever, message by message. See `AsyncClient.receiving`."""
        received = self._client.receiving(
            group,
            topics,
            limit=limit,
            wait=wait,
            visibility=visibility,
            partitions=partitions,
            member=member,
        )
        for message in self._each(received):
            yield blocking_received(message, self)

    def dead_letters(
        self,
        group: str,
        topic: str,
        which: DeadFilter | None = None,
        *,
        page_limit: int = PAGE_LIMIT,
    ) -> Iterator[DeadLetter]:
        """Iterate over a group's dead letters. See `AsyncClient.dead_letters`."""
        yield from self._each(self._client.dead_letters(group, topic, which, page_limit=page_limit))

    create_topic = blocking(AsyncClient.create_topic)
    add_partitions = blocking(AsyncClient.add_partitions)

    brokers = blocking(AsyncClient.brokers)
    broker = blocking(AsyncClient.broker)
    plan_drain = blocking(AsyncClient.plan_drain)
    drain_broker = blocking(AsyncClient.drain_broker)
    undrain_broker = blocking(AsyncClient.undrain_broker)
    remove_broker = blocking(AsyncClient.remove_broker)
    level = blocking(AsyncClient.level)
    cluster_version = blocking(AsyncClient.cluster_version)
    plan_upgrade = blocking(AsyncClient.plan_upgrade)
    finish_upgrade = blocking(AsyncClient.finish_upgrade)
    plan_rebalance = blocking(AsyncClient.plan_rebalance)
    rebalance = blocking(AsyncClient.rebalance)
    plan_moves = blocking(AsyncClient.plan_moves)
    reassign = blocking(AsyncClient.reassign)
    reassignments = blocking(AsyncClient.reassignments)
    reassignment = blocking(AsyncClient.reassignment)
    cancel_reassignment = blocking(AsyncClient.cancel_reassignment)

    peek = blocking(AsyncClient.peek)
    settle = blocking(AsyncClient.settle)
    settle_one = blocking(AsyncClient.settle_one)
    ack = blocking(AsyncClient.ack)
    nack = blocking(AsyncClient.nack)
    reject = blocking(AsyncClient.reject)
    extend = blocking(AsyncClient.extend)
    release = blocking(AsyncClient.release)
    commit = blocking(AsyncClient.commit)
    seek = blocking(AsyncClient.seek)

    list_groups = blocking(AsyncClient.list_groups)
    group = blocking(AsyncClient.group)
    put_group = blocking(AsyncClient.put_group)
    delete_group = blocking(AsyncClient.delete_group)
    assign_group = blocking(AsyncClient.assign_group)
    resume_group = blocking(AsyncClient.resume_group)
    park_key = blocking(AsyncClient.park_key)
    release_key = blocking(AsyncClient.release_key)
    parked_keys = blocking(AsyncClient.parked_keys)

    join_group = blocking(AsyncClient.join_group)
    heartbeat = blocking(AsyncClient.heartbeat)
    leave_group = blocking(AsyncClient.leave_group)
    members = blocking(AsyncClient.members)
    rebalances = blocking(AsyncClient.rebalances)
    lag = blocking(AsyncClient.lag)
    offsets = blocking(AsyncClient.offsets)
    commit_offsets = blocking(AsyncClient.commit_offsets)
    reset_offsets = blocking(AsyncClient.reset_offsets)

    dead_letter_counts = blocking(AsyncClient.dead_letter_counts)
    redrive = blocking(AsyncClient.redrive)
    redrives = blocking(AsyncClient.redrives)
    redrive_job = blocking(AsyncClient.redrive_job)
    stop_redrive = blocking(AsyncClient.stop_redrive)
    purge = blocking(AsyncClient.purge)

    delayed = blocking(AsyncClient.delayed)
    delayed_message = blocking(AsyncClient.delayed_message)
    cancel_delayed = blocking(AsyncClient.cancel_delayed)
    create_schedule = blocking(AsyncClient.create_schedule)
    schedules = blocking(AsyncClient.schedules)
    schedule = blocking(AsyncClient.schedule)
    pause_schedule = blocking(AsyncClient.pause_schedule)
    resume_schedule = blocking(AsyncClient.resume_schedule)
    delete_schedule = blocking(AsyncClient.delete_schedule)

    timeline = blocking(AsyncClient.timeline)
    search = blocking(AsyncClient.search)
    why = blocking(AsyncClient.why)

    def _each(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        try:
            while (item := self._thread.run(anext_or_none(items))) is not None:
                yield item
        finally:
            with suppress(Closed):
                self._thread.run(items.aclose())


def blocking_received(message: Received, client: BlockingSettles) -> BlockingReceived:
    """The same message, to be settled through `client`."""
    fields = {name: getattr(message, name) for name in Leased.__struct_fields__}
    return BlockingReceived(**fields, client=client)
