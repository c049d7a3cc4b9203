"""The blocking client: the same calls, for programs without an event loop.

It runs the asynchronous ones on a loop in a thread of its own. Calls may come from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Unpack
from weakref import WeakSet

from goqueue.api.client import AsyncClient
from goqueue.api.events import events_of
from goqueue.api.moved import with_moved
from goqueue.api.options import ClientOptions
from goqueue.blocking.admin import Admin
from goqueue.blocking.loop_thread import LoopThread
from goqueue.blocking.parts import blocking, each, in_batches, iterated
from goqueue.blocking.producer import BlockingProducer
from goqueue.blocking.received import BlockingReceived, blocking_received
from goqueue.models.failures import Closed
from goqueue.models.groups import TopicPartition
from goqueue.models.messages import OutgoingMessage, Published
from goqueue.models.options import Priority, ProducerOptions
from goqueue.models.settles import Settle, SettleResult
from goqueue.models.times import Duration
from goqueue.publish.outgoing import Text
from goqueue.publish.producer import Producer
from goqueue.queue.receive import WAIT_S
from goqueue.transport.channel import Channel
from goqueue.transport.http import DEFAULT_SERVER, Transport
from goqueue.wire.errors import GoQueueError


@with_moved
class Client:
    """As `AsyncClient`, blocking. Use as `with`, or `close` it in the end."""

    def __init__(
        self,
        servers: str | Sequence[str] | Channel = DEFAULT_SERVER,
        **options: Unpack[ClientOptions],
    ) -> None:
        """See `AsyncClient`."""
        self._twin = AsyncClient(servers, **options)
        self._thread = LoopThread()
        self._producers: WeakSet[Producer] = WeakSet()
        self._admin = Admin(self._thread, self._twin.admin)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def transport(self) -> Transport:
        """As of `AsyncClient`; of its loop's thread."""
        return self._twin.transport

    connect = blocking(AsyncClient.connect)

    def close(self) -> None:
        """Close the connections and end the thread. Idempotent."""
        try:
            self._thread.run(self._end())
        except Closed:
            return
        self._thread.stop()

    async def _end(self) -> None:
        """What producers have not sent yet fails now: on a loop that has stopped it never would."""
        await self._twin.close()
        for producer in list(self._producers):
            with suppress(GoQueueError):
                await producer.close()

    @property
    def admin(self) -> Admin:
        """What operators do: brokers and moves, versions, running groups, dead letters."""
        return self._admin

    # topics

    create_topic = blocking(AsyncClient.create_topic)
    list_topics = blocking(AsyncClient.list_topics)
    topic = blocking(AsyncClient.topic)
    alter_topic = blocking(AsyncClient.alter_topic)
    delete_topic = blocking(AsyncClient.delete_topic)
    partitions = blocking(AsyncClient.partitions)
    flush_topic = blocking(AsyncClient.flush_topic)
    trim_topic = blocking(AsyncClient.trim_topic)

    # publishing

    publish = blocking(AsyncClient.publish)
    init_producer = blocking(AsyncClient.init_producer)

    def publish_many(
        self, topic: str, messages: Iterable[OutgoingMessage | Text], *, json: bool = False
    ) -> list[Published]:
        """Publish messages together. See `AsyncClient.publish_many`; raises `PublishFailed`."""
        return self._thread.run(self._twin.publish_many(topic, list(messages), json=json))

    def producer(self, **options: Unpack[ProducerOptions]) -> BlockingProducer:
        """A producer over this client, with the options of `Producer`; use it as `with`."""
        producer = self._twin.producer(**options)
        self._producers.add(producer)
        return BlockingProducer(self._thread, producer)

    # reading

    read = blocking(AsyncClient.read)
    messages = in_batches(AsyncClient.messages, AsyncClient.runs, iter)
    tail = in_batches(AsyncClient.tail, AsyncClient.tail_runs, iter)
    replay = in_batches(AsyncClient.replay, AsyncClient.replay_runs, iter)
    events = in_batches(AsyncClient.events, AsyncClient.events_pages, events_of)
    events_page = blocking(AsyncClient.events_page)

    # working a queue

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
        settles: Sequence[Settle] = (),
        on_settled: Callable[[list[SettleResult]], object] | None = None,
    ) -> list[BlockingReceived]:
        """Take up to `limit` messages of the group. See `AsyncClient.receive`; `on_settled` is
        called by the thread that receives."""
        results: list[SettleResult] = []
        try:
            found = self._thread.run(
                self._twin.receive(
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
                    settles=settles,
                    on_settled=results.extend,
                )
            )
        finally:
            if on_settled is not None and results:
                on_settled(results)
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
        received = self._twin.receiving(
            group,
            topics,
            limit=limit,
            wait=wait,
            visibility=visibility,
            partitions=partitions,
            member=member,
        )
        for message in each(self._thread, received):
            yield blocking_received(message, self)

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
    join_group = blocking(AsyncClient.join_group)
    heartbeat = blocking(AsyncClient.heartbeat)
    leave_group = blocking(AsyncClient.leave_group)
    lag = blocking(AsyncClient.lag)
    offsets = blocking(AsyncClient.offsets)
    commit_offsets = blocking(AsyncClient.commit_offsets)
    dead_letters = iterated(AsyncClient.dead_letters)
    dead_letter_counts = blocking(AsyncClient.dead_letter_counts)

    delayed = blocking(AsyncClient.delayed)
    delayed_message = blocking(AsyncClient.delayed_message)
    cancel_delayed = blocking(AsyncClient.cancel_delayed)
    create_schedule = blocking(AsyncClient.create_schedule)
    schedules = blocking(AsyncClient.schedules)
    schedule = blocking(AsyncClient.schedule)
    pause_schedule = blocking(AsyncClient.pause_schedule)
    resume_schedule = blocking(AsyncClient.resume_schedule)
    delete_schedule = blocking(AsyncClient.delete_schedule)

    # where is my message?

    timeline = blocking(AsyncClient.timeline)
    search = blocking(AsyncClient.search)
    why = blocking(AsyncClient.why)

    # the node that answers

    health = blocking(AsyncClient.health)
    version = blocking(AsyncClient.version)
