"""The asynchronous client: each of its calls is one of a part's, such as `api.topics`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Unpack

from goqueue.api.admin import AsyncAdmin
from goqueue.api.events import EventFeed
from goqueue.api.moved import with_moved
from goqueue.api.options import ClientOptions, ClientSettings
from goqueue.api.parts import Part
from goqueue.api.publishing import Publisher
from goqueue.api.reading import Reading
from goqueue.api.replay import Replaying
from goqueue.api.search import Searching
from goqueue.api.tailing import Tailing
from goqueue.api.topics import Topics
from goqueue.api.why import Explaining
from goqueue.models.options import ProducerOptions, check_options
from goqueue.publish.metadata import KnownTopics
from goqueue.publish.producer import Producer
from goqueue.publish.request import Publishing
from goqueue.queue.dead_letters import DeadLetters
from goqueue.queue.groups import Groups
from goqueue.queue.members import Members
from goqueue.queue.positions import Positions
from goqueue.queue.receive import Receiving
from goqueue.queue.schedules import Schedules
from goqueue.transport.calls import Calls
from goqueue.transport.channel import Channel
from goqueue.transport.http import DEFAULT_SERVER, Transport

_topics = Part[Topics]("_topics")
_publisher = Part[Publisher]("_publisher")
_reading = Part[Reading]("_reading")
_tailing = Part[Tailing]("_tailing")
_replaying = Part[Replaying]("_replaying")
_events = Part[EventFeed]("_events")
_receiving = Part[Receiving]("_receiving")
_groups = Part[Groups]("_groups")
_members = Part[Members]("_members")
_positions = Part[Positions]("_positions")
_dead_letters = Part[DeadLetters]("_dead_letters")
_schedules = Part[Schedules]("_schedules")
_searching = Part[Searching]("_searching")
_explaining = Part[Explaining]("_explaining")


@with_moved
class AsyncClient:
    """A connection to one cluster. Use as `async with`, or `close` it in the end.

    Name several servers for failover: any of them serves any request. Every call raises a
    `GoQueueError`; its `outcome` says whether what was asked may have happened all the same. A call
    repeats itself only where that is safe. What operators do is `admin`'s.
    """

    def __init__(
        self,
        servers: str | Sequence[str] | Channel = DEFAULT_SERVER,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Opens nothing: the first call does. See `ClientOptions` for the options."""
        check_options("AsyncClient()", options, ClientOptions)
        settings = ClientSettings(**options)
        self._transport = settings.transport(servers)
        calls = Calls(self._transport)
        self._topics = Topics(calls)
        self._publishing = Publishing(
            self._transport,
            self._topics.known,
            settings.compression,
            settings.compression_level,
            _now_ms,
        )
        self._publisher = Publisher(self._transport, self._publishing)
        self._reading = Reading(self._transport, self._topics)
        self._tailing = Tailing(self._transport)
        self._replaying = Replaying(self)
        self._events = EventFeed(calls)
        self._receiving = Receiving(calls)
        self._groups = Groups(calls)
        self._members = Members(calls)
        self._positions = Positions(calls)
        self._dead_letters = DeadLetters(calls)
        self._schedules = Schedules(calls)
        self._searching = Searching(calls)
        self._explaining = Explaining(calls)
        self._calls = calls
        self._admin = AsyncAdmin(calls, self._topics.known)

    async def __aenter__(self) -> AsyncClient:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Open a directory now, in place of at the first call; see `goqueue.open`."""
        await self._transport.connect()

    async def close(self) -> None:
        """Close the connections; calls that wait for one fail as closed. Idempotent."""
        await self._transport.close()
        await self._publishing.close()
        await self._receiving.close()

    @property
    def admin(self) -> AsyncAdmin:
        """What operators do: brokers and moves, versions, running groups, dead letters."""
        return self._admin

    # topics

    create_topic = _topics(Topics.create_topic)
    list_topics = _topics(Topics.list_topics)
    topic = _topics(Topics.topic)
    alter_topic = _topics(Topics.alter_topic)
    delete_topic = _topics(Topics.delete_topic)
    partitions = _topics(Topics.partitions)
    flush_topic = _topics(Topics.flush_topic)
    trim_topic = _topics(Topics.trim_topic)

    # publishing

    publish = _publisher(Publisher.publish)
    publish_many = _publisher(Publisher.publish_many)
    init_producer = _publisher(Publisher.init_producer)

    def producer(self, **options: Unpack[ProducerOptions]) -> Producer:
        """A `Producer` over this client, with its options; use it as `async with`."""
        return Producer(self, **options)

    # reading

    read = _reading(Reading.read)
    pages = _reading(Reading.pages)
    messages = _reading(Reading.messages)
    runs = _reading(Reading.runs)
    tail = _tailing(Tailing.tail)
    tail_runs = _tailing(Tailing.tail_runs)
    replay = _replaying(Replaying.replay)
    replay_runs = _replaying(Replaying.replay_runs)
    events = _events(EventFeed.events)
    events_page = _events(EventFeed.events_page)
    events_pages = _events(EventFeed.events_pages)

    # working a queue

    receive = _receiving(Receiving.receive)
    receiving = _receiving(Receiving.receiving)
    peek = _receiving(Receiving.peek)
    settle = _receiving(Receiving.settle)
    settle_one = _receiving(Receiving.settle_one)
    ack = _receiving(Receiving.ack)
    nack = _receiving(Receiving.nack)
    reject = _receiving(Receiving.reject)
    extend = _receiving(Receiving.extend)
    release = _receiving(Receiving.release)
    commit = _receiving(Receiving.commit)
    seek = _receiving(Receiving.seek)

    list_groups = _groups(Groups.list_groups)
    group = _groups(Groups.group)
    put_group = _groups(Groups.put_group)
    delete_group = _groups(Groups.delete_group)
    join_group = _members(Members.join_group)
    heartbeat = _members(Members.heartbeat)
    leave_group = _members(Members.leave_group)
    lag = _positions(Positions.lag)
    offsets = _positions(Positions.offsets)
    commit_offsets = _positions(Positions.commit_offsets)
    dead_letters = _dead_letters(DeadLetters.dead_letters)
    dead_letter_counts = _dead_letters(DeadLetters.dead_letter_counts)

    delayed = _schedules(Schedules.delayed)
    delayed_message = _schedules(Schedules.delayed_message)
    cancel_delayed = _schedules(Schedules.cancel_delayed)
    create_schedule = _schedules(Schedules.create_schedule)
    schedules = _schedules(Schedules.schedules)
    schedule = _schedules(Schedules.schedule)
    pause_schedule = _schedules(Schedules.pause_schedule)
    resume_schedule = _schedules(Schedules.resume_schedule)
    delete_schedule = _schedules(Schedules.delete_schedule)

    # where is my message?

    timeline = _searching(Searching.timeline)
    search = _searching(Searching.search)
    why = _explaining(Explaining.why)

    # the node that answers

    async def health(self) -> dict[str, Any]:
        """`/health` of the node that answers: it is up."""
        return await self._calls.get("/health", dict[str, Any])

    async def version(self) -> dict[str, Any]:
        """`/version` of the node that answers."""
        return await self._calls.get("/version", dict[str, Any])

    # beneath

    @property
    def transport(self) -> Transport:
        """For requests that have no method here: path, body and answer as they are."""
        return self._transport

    @property
    def known_topics(self) -> KnownTopics:
        """What publishing has to know of each topic, remembered for a while."""
        return self._topics.known


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
