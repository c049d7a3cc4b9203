"""The everyday queue: what is put in is taken out, in order, and done once it is acked.

It stands on `Client` alone, so it runs on a directory, on a server and on a cluster.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import repeat
from types import TracebackType
from typing import Any, Generic, TypeVar, Unpack

import msgspec

from goqueue.admin.redrives import Redrive
from goqueue.blocking.client import Client
from goqueue.blocking.received import BlockingReceived
from goqueue.everyday import new_topic
from goqueue.everyday.at_hand import AtHand
from goqueue.everyday.items import Item, Items, TextHeaders, Unfit
from goqueue.everyday.lease import LeaseKeeper
from goqueue.everyday.new_topic import NewTopic
from goqueue.everyday.opening import open
from goqueue.everyday.targets import Mode, Target
from goqueue.models.failures import Closed, Empty, PublishFailed, SettleFailed
from goqueue.models.messages import OutgoingMessage, Published
from goqueue.models.options import Priority
from goqueue.models.outcomes import failed
from goqueue.models.settles import Settled
from goqueue.models.times import Duration, Time, visibility_s
from goqueue.models.topics import TopicTrim
from goqueue.publish.outgoing import to_headers
from goqueue.wire.errors import (
    BadRequest,
    GoQueueError,
    NotInFlight,
    PayloadTooLarge,
    ReceiptExpired,
    Timeout,
    UnknownGroup,
)

T = TypeVar("T")

ITEMS_MAX = 100_000
BATCH_BYTES_MAX = 15 << 20
ITEM_BYTES = 128
"""Of one `put_many`: what servers take as one batch, ids and headers included."""
TOPIC = "queue"
GROUP = "queue"
WAIT_S = 20.0
"""How long one request waits for something."""
LOST_MAX = 3
"""Answers that may be lost one after the other, as those of servers that end."""
LOOK_S = 0.02
REQUEUE_S = 60.0


class QueueStats(msgspec.Struct, frozen=True):
    """How a queue is. Not done are `ready` items, `in_flight` ones (taken out, and not acked),
    `waiting` ones (failed, to come again) and `delayed` ones: `size` together. `dead` ones failed
    too often. The oldest of those that could be taken out has been able to for `oldest_s`."""

    size: int = 0
    ready: int = 0
    in_flight: int = 0
    waiting: int = 0
    delayed: int = 0
    dead: int = 0
    acked: int = 0
    oldest_s: float = 0.0


class Queue(Generic[T]):
    """Items of one topic, each for one of those who take them out. Use as `with`, or `close` it.

    With one partition they come first in, first out; one that is nacked or not acked in time comes
    again. What is put is synced to disk, or with a majority, before `put` returns, unless the queue
    is `turbo`. Calls may come from any thread.
    """

    def __init__(
        self,
        target: Target | Client = None,
        topic: str = TOPIC,
        type: type[T] | None = None,
        *,
        group: str = GROUP,
        visibility: Duration | None = None,
        mode: Mode = "rw",
        **new: Unpack[NewTopic],
    ) -> None:
        """Open a queue, and make it where it is missing.

        `target` as of `goqueue.open`, or a client, which stays open. `type`: of the items, see
        `Items`; None takes bytes and str. Those who name the same `group` share the items. An item
        that is taken out is the taker's for `visibility`, the group's setting (30 s) if not given.

        A new topic has so many `partitions` (1), and keeps all messages; with `keep` those of that
        time only, taken out or not. Its `durability` is `safe`, or `turbo`: then `put` returns once
        the item is written, and it is synced within 50 ms or 8 MiB. That survives a killed process,
        and a power cut takes at most the last of it: see `sync`.

        With `mode="r"`, as of `goqueue.open`, the queue must be there, and is only looked at.
        Raises what `goqueue.open` raises, and BadRequest for another durability.
        """
        new_topic.check(new)
        self._items: Items[T] = Items(type)
        self._visibility = visibility
        self._owns_client = not isinstance(target, Client)
        self.client = target if isinstance(target, Client) else open(target, mode=mode)
        """For all that a queue has no method for."""
        self.topic = topic
        self.group = group
        self._taken = threading.local()
        self._is_closed = False
        try:
            self._at_hand = AtHand(self.client, topic, group, visibility)
            if mode != "r":
                self._make(new)
            self._partitions = self.client.topic(topic).partitions
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(
        cls,
        target: Target | Client = None,
        topic: str = TOPIC,
        type: type[T] | None = None,
        *,
        group: str = GROUP,
        visibility: Duration | None = None,
        mode: Mode = "rw",
        **new: Unpack[NewTopic],
    ) -> Queue[T]:
        """A queue that is not there yet; as `Queue`. Raises TopicExists where it is."""
        new_topic.check(new)
        with _Lent(target, mode) as lent:
            new_topic.create(lent.client, topic, new)
            return lent.to(cls(lent.client, topic, type, group=group, visibility=visibility))

    @classmethod
    def open(
        cls,
        target: Target | Client = None,
        topic: str = TOPIC,
        type: type[T] | None = None,
        **options: Any,
    ) -> Queue[T]:
        """A queue that is there already; as `Queue`. Raises UnknownTopic where it is not."""
        with _Lent(target, options.get("mode", "rw")) as lent:
            lent.client.topic(topic)
            return lent.to(cls(lent.client, topic, type, **options))

    @classmethod
    def open_or_create(cls, *given: Any, **options: Any) -> Queue[T]:
        """As `Queue`."""
        return cls(*given, **options)

    def __enter__(self) -> Queue[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what was opened; what was taken out and not acked comes again. Idempotent."""
        self._is_closed = True
        if self._owns_client:
            self.client.close()

    # putting in

    def put(
        self,
        item: T,
        *,
        delay: Duration | None = None,
        ttl: Duration | None = None,
        priority: Priority | int = "normal",
        id: str | None = None,
    ) -> Published:
        """Put an item in; it is as durable as the queue says when this returns.

        It can be taken out after `delay`, until `ttl` is over, those of a higher `priority` first.
        One with an `id` that was put before is not put again (for 5 minutes, unless the topic says
        otherwise): the answer is a `duplicate`. Without one this call makes its own, so that it is
        repeated safely where an answer is lost. Raises BadRequest for an item of another type.
        """
        self._check_open()
        if id is None and delay is None and ttl is None and priority == "normal":
            stored = self._put_at_hand(*self._items.encode_all([item]))
            if stored is not None:
                return stored[0]
        outgoing = self._outgoing(item, id)
        return self.client.publish(
            self.topic,
            outgoing.value,
            headers=outgoing.headers,
            priority=priority,
            message_id=outgoing.message_id,
            delay=delay,
            ttl=ttl,
        )

    def put_many(self, items: Iterable[T]) -> list[Published]:
        """Put items in together, in their order, all or none of them: much cheaper than one by one.

        They are one batch in one partition. Raises PayloadTooLarge for more than `ITEMS_MAX` items
        or `BATCH_BYTES_MAX` bytes, with `ITEM_BYTES` counted for each beside its value, and
        BadRequest for an item of another type: nothing is put then. After another error whose
        `outcome` is `unknown` all of them may have been.
        """
        self._check_open()
        given = list(items)
        if not given:
            return []
        values, headers = self._items.encode_all(given)
        _check_batch(values)
        stored = self._put_at_hand(values, headers)
        if stored is not None:
            return stored
        partition, name = random.randrange(self._partitions), uuid.uuid4().hex
        messages = [
            OutgoingMessage(value, headers=told, partition=partition, message_id=f"{name}-{row}")
            for row, (value, told) in enumerate(zip(values, headers or repeat(None), strict=False))
        ]
        try:
            return self.client.publish_many(self.topic, messages)
        except PublishFailed as failed:  # it was one batch: what befell one befell all
            raise next(one for one in failed.results if isinstance(one, GoQueueError)) from None

    # taking out

    def get(self, timeout: float | None = None) -> Item[T]:
        """Take the next item out, waiting for one: for ever, or for so many seconds. Raises Empty
        then. A message that is no item of the type is rejected: it is among the dead letters."""
        return self.get_many(1, timeout)[0]

    def get_many(self, limit: int, timeout: float | None = None) -> list[Item[T]]:
        """Take up to `limit` items out, as many as there are once there is one. See `get`."""
        self._check_open()
        until_s = None if timeout is None else time.monotonic() + timeout
        lost = 0
        while True:
            left_s = WAIT_S if until_s is None else max(0.0, until_s - time.monotonic())
            try:
                found = self._receive(limit, min(left_s, WAIT_S))
            except GoQueueError as error:
                lost += 1
                if error.outcome == "none" or not error.retriable or lost == LOST_MAX:
                    raise
                found = []  # it was lost with who would have answered: what it took comes again
            else:
                lost = 0
            items = [item for item in map(self._item, found) if item is not None]
            if items:
                self._taken.last = items
                return items
            if not found and until_s is not None and time.monotonic() >= until_s:
                raise Empty

    def __iter__(self) -> Iterator[Item[T]]:
        """Take items out for ever, until the queue is closed."""
        while not self._is_closed:
            try:
                yield self.get()
            except Closed:
                return

    def stream(self, handler: Callable[[T], object], *, timeout: float | None = None) -> int:
        """Hand items to the handler, one by one: acked when it returns, and nacked with its error
        when it raises (or as `Retry` and `Reject` say). An item stays the handler's however long it
        takes. Returns how many were acked once the queue is closed (what a handler has then comes
        again), or once nothing came for `timeout` seconds."""
        done = 0
        with LeaseKeeper(self._lease_s()) as leases, suppress(Empty, Closed):
            while not self._is_closed:
                item = self.get(timeout)
                with suppress(NotInFlight, ReceiptExpired):  # lost all the same: it comes again
                    done += self._handle(handler, item, leases)
        return done

    def peek(self) -> T | None:
        """What would be taken out next, and stays; None where there is nothing. Raises BadRequest
        where it is no item of the type."""
        self._check_open()
        found = self.client.peek(self.group, self.topic, limit=1)
        return self._items.decode(found[0]) if found else None

    # settling

    def ack(self, *items: Item[T]) -> list[Settled]:
        """Done with these: they never come again; nothing is where none are named. Raises
        SettleFailed, with the result of each, where some were not this program's any more."""
        self._check_open()
        messages = [item.message for item in items]
        results = self._at_hand.ack(messages) if messages else []
        if results is None:
            return self.client.ack(messages)
        settled = [result for result in results if isinstance(result, Settled)]
        if len(settled) < len(results):
            raise SettleFailed(results)
        return settled

    def task_done(self) -> list[Settled]:
        """As `ack` of what this thread took out last. Raises BadRequest where that was done, or it
        has taken out nothing."""
        self._check_open()
        last: list[Item[T]] = getattr(self._taken, "last", [])
        if not last:
            raise BadRequest("this thread has taken nothing out: name the items in ack()")
        self._taken.last = []
        return self.ack(*last)

    def nack(
        self, *items: Item[T], delay: Duration | None = None, reason: str = ""
    ) -> list[Settled]:
        """These failed: see `Item.nack`. Nothing is done where none are named. Raises as `ack`."""
        self._check_open()
        if not items:
            return []
        return self.client.nack([item.message for item in items], reason, delay=delay)

    # how it is

    def size(self) -> int:
        """How many items are not done: to be taken out, taken out, failed and delayed ones."""
        return self.stats().size

    def empty(self) -> bool:
        """Whether all that was put in is done, or dead."""
        return self.size() == 0

    def stats(self) -> QueueStats:
        """All figures of the queue."""
        self._check_open()
        group = self.client.group(self.group)
        lag = self.client.lag(self.group, self.topic)
        places = [place for place in group.partitions if place.topic == self.topic]
        delayed = sum(place.delayed for place in lag.partitions)
        return QueueStats(
            size=lag.total_lag + delayed,
            ready=sum(place.ready for place in places),
            in_flight=sum(place.in_flight for place in places),
            waiting=sum(place.waiting for place in places),
            delayed=delayed,
            dead=sum(place.dead for place in lag.partitions),
            acked=sum(place.acked for place in places),
            oldest_s=lag.max_lag_seconds,
        )

    # what operators do

    def requeue(self) -> int:
        """Make all dead letters items again, each in its place and with no attempts; how many they
        were. Raises Timeout where that takes longer than a minute: it goes on."""
        self._check_open()
        job: Redrive = self.client.admin.redrive(self.group, self.topic, force=True)
        until_s = time.monotonic() + REQUEUE_S
        while job.state == "running":
            if time.monotonic() >= until_s:
                raise Timeout(f"requeue: {job.moved} of {job.matched} are items again by now")
            time.sleep(LOOK_S)
            for one in self.client.admin.redrives(self.group):
                if one.id == job.id:
                    job = one
        return job.moved

    def seek(self, to: Time) -> None:
        """Go on at an offset (a number), a time, `earliest` or `latest`: items come again, or are
        left out. What is taken out comes again, too; dead letters stay."""
        self._check_open()
        self.client.seek(self.group, self.topic, to)

    def sync(self) -> None:
        """Return once all that was put is synced. It is when `put` returns, unless the queue's
        durability is `turbo`."""
        self._check_open()
        self.client.flush_topic(self.topic)

    def compact(self) -> TopicTrim:
        """Give the space of what is done back, now; `messages` and `bytes` that went. Up to the
        first item that some group has to do yet, in whole files: what is done and stands in one
        file with what is not goes with a later call. All that is not done stays, dead letters and
        delayed items too, also where it is cut short by a crash. `seek` can't go back to what went,
        and its ids may be put again. A group takes part once it has taken something out."""
        self._check_open()
        return self.client.trim_topic(self.topic)

    # private

    def _make(self, new: NewTopic) -> None:
        new_topic.create_if_missing(self.client, self.topic, new)
        try:
            self.client.group(self.group)
        except UnknownGroup:
            self.client.put_group(self.group)

    def _put_at_hand(
        self, values: list[bytes], headers: list[TextHeaders | None] | None
    ) -> list[Published] | None:
        told = None if headers is None else list(map(to_headers, headers))
        return self._at_hand.put(values, told)

    def _receive(self, limit: int, wait_s: float) -> list[BlockingReceived]:
        found = self._at_hand.take(limit, wait_s)
        if found is None:
            found = self.client.receive(
                self.group, self.topic, limit=limit, wait=wait_s, visibility=self._visibility
            )
        return found

    def _outgoing(self, item: T, id: str | None) -> OutgoingMessage:
        value, headers = self._items.encode(item)
        return OutgoingMessage(value, headers=headers, message_id=id or uuid.uuid4().hex)

    def _item(self, message: BlockingReceived) -> Item[T] | None:
        try:
            return Item(self._items.decode(message), message)
        except Unfit as error:
            message.reject(error.message)
            return None

    def _lease_s(self) -> float:
        """How long an item is its taker's."""
        told: object = self._visibility
        if told is None:
            told = self.client.group(self.group).settings.get("visibility_timeout")
        return visibility_s(told)

    def _handle(self, handler: Callable[[T], object], item: Item[T], leases: LeaseKeeper) -> bool:
        """Whether it went well. Raises NotInFlight, ReceiptExpired."""
        try:
            with leases.kept(item.message):
                handler(item.value)
        except Exception as error:  # noqa: BLE001 - told to the group, as why it failed
            ended = failed(error, item.message.attempt)
            if ended.action == "reject":
                item.message.reject(ended.reason)
            else:
                item.nack(ended.delay_s, ended.reason)
            return False
        item.ack()
        return True

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the queue is closed")


class _Lent:
    """A client for a queue to be made with: closed if that fails, else the queue's."""

    def __init__(self, target: Target | Client, mode: Mode) -> None:
        self._is_own = not isinstance(target, Client)
        self.client = target if isinstance(target, Client) else open(target, mode=mode)

    def to(self, queue: Queue[T]) -> Queue[T]:
        queue._owns_client, self._is_own = self._is_own, False
        return queue

    def __enter__(self) -> _Lent:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_own:
            self.client.close()


def _check_batch(values: list[bytes]) -> None:
    size = sum(map(len, values)) + ITEM_BYTES * len(values)
    if len(values) > ITEMS_MAX or size > BATCH_BYTES_MAX:
        raise PayloadTooLarge(
            f"{len(values)} items of {size} bytes, {ITEM_BYTES} counted for each beside its value,"
            f" are more than can be put together: at most {ITEMS_MAX} and {BATCH_BYTES_MAX};"
            " nothing was put",
            items_max=ITEMS_MAX,
            limit=BATCH_BYTES_MAX,
        )
