"""The events of one reader: messages as they are stored, until one of both ends is gone.

What a reader does not take stops its own stream and nothing else: it holds one portion and what its
connection has not sent, and is cut off once it takes nothing for `HttpLimits.write_stall_s`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import AsyncIterablePayload

from goqueue.wire.errors import BadRequest, GoQueueError
from goqueue.wire.types import Offset
from node.api.records import Records
from node.api.times import parse_duration_ms
from node.http.budget.memory import Budgets, Kind
from node.http.budget.slices import SLICE_BYTES, pause
from node.http.connections.client import LocalClient, client_of
from node.http.request.answers import PAGE_TIMES, page_room
from node.http.request.call import Call, FrontMetrics
from node.http.request.long_poll import WAIT_BYTES
from node.http.tail.filters import Filter, filter_of
from node.http.tail.followers import RETRY_S, Followers
from node.http.tail.lines import READ_BYTES, ROWS_MAX, Line, Portion, portion_of
from node.http.tail.places import PLACES_MAX, Place, id_of, places_of
from node.http.text.errors import encode_error
from node.http.text.pieces import LongText

MEDIA_TYPE = "text/event-stream"
RETRY_MS = 1000
"""How soon a browser comes back once a stream has ended."""
PLACE_BYTES = 256
"""What a tail holds of a partition while it waits."""
HEADERS = {
    "Content-Type": f"{MEDIA_TYPE}; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}
"""The last one is for proxies of nginx's: they pass on what there is."""
STOPPING = {"code": "stopping", "reconnect": True, "error": "this node stops: another one goes on"}
WAITED = {"code": "waited", "reconnect": False, "error": "no message came for as long as was asked"}
TEXT = """\
The messages of a topic as they are stored, in the order of their offsets within each partition, for
as long as the connection lasts. It reads, and changes nothing: no group is asked.

    $ curl -N 'http://127.0.0.1:8080/v1/topics/orders/tail?offset=earliest'
    retry: 1000
    id: 0:0,1:0

    id: 0:1,1:0
    data: {"offset":0,"timestamp":"2026-01-31T12:00:00.000Z","value":"a","priority":"normal",\
"partition":0}

    id: 0:1,1:1
    data: {"offset":0,"timestamp":"2026-01-31T12:00:00.250Z","value":"b","priority":"normal",\
"key":"k","partition":1}

    : keep-alive

    event: end
    data: {"code":"stopping","reconnect":true,"error":"this node stops: another one goes on"}

An event's id names the offset that is next in each partition. Sent back as Last-Event-ID, which
browsers do by themselves, it goes on behind that event on any node, without a message lost or sent
twice. Ids come without data at the beginning, and where messages went by that the filters leave
out. `skipped` tells of a partition whose messages from `offset` up to `log_start` were deleted
before they were sent. `end` is the last event: `reconnect` says whether asking again is of use. A
comment comes every 10 s where there is nothing else; it may say why nothing comes. The key is
judged again as often. A reader that takes nothing for 30 s is cut off.
"""


async def tail(call: Call) -> web.Response:
    """GET /topics/{topic}/tail: server-sent events; see `Tails.answer`."""
    return await call.shared.tails.answer(call, call.topic())


class Tails:
    """The tails of one front. Loop thread only."""

    def __init__(self, records: Records, budgets: Budgets, figures: FrontMetrics) -> None:
        self.followers = Followers(records, budgets, figures)

    async def answer(self, call: Call, topic: str) -> web.Response:
        """Raises what `places_of` and `filter_of` do, and OverBudget, before anything is sent."""
        if isinstance(call.request.protocol, LocalClient):
            raise BadRequest("a tail has no end: ask for it by a socket of the directory")
        which, asked = filter_of(call), call.query.get("wait")
        wait_s = parse_duration_ms(asked, "wait") / 1000 if asked else None
        places = await places_of(call, topic)
        client_of(call.request).hold(call.hold(Kind.POLLS, WAIT_BYTES + PLACE_BYTES * len(places)))
        one = Tail(call, self.followers, _Asked(topic, which, wait_s), places)
        return web.Response(body=_Body(one.events()), headers=HEADERS)

    def wake(self) -> None:
        """All look what is up: the front may be about to stop."""
        self.followers.wake()

    async def stop(self) -> None:
        """Nothing is read any more. Idempotent."""
        await self.followers.stop()


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a reader wants; `wait_s` None is without an end."""

    topic: str
    which: Filter
    wait_s: float | None


class _Body(AsyncIterablePayload):
    """Events, whose generator is closed as soon as nobody takes them."""

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(cast("AsyncIterator[bytes]", events))
        self._events = events

    async def write(self, writer: AbstractStreamWriter) -> None:
        async with aclosing(self._events):
            await super().write(writer)


class Tail:
    """One stream. Loop thread only."""

    def __init__(
        self, call: Call, followers: Followers, asked: _Asked, places: list[Place]
    ) -> None:
        self._call = call
        self._client = client_of(call.request)
        self._followers = followers
        self._topic = asked.topic
        self._filter = asked.which
        self._wait_s = asked.wait_s
        self._places = places
        self._is_whole = "partition" not in call.query
        self._wake = asyncio.Event()
        self._told_id = ""
        self._now_s = asyncio.get_running_loop().time
        self._sent_s = self._came_s = self._looked_s = self._now_s()

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The stream's bytes. It ends by itself, with an event that says why."""
        hung_up = self._client.hung_up()
        wake = self._awaken
        hung_up.add_done_callback(wake)
        self._followers.enter(self._wake)
        try:
            self._told_id = id_of(self._places)
            yield f"retry: {RETRY_MS}\nid: {self._told_id}\n\n".encode()
            while not hung_up.done():
                self._wake.clear()
                if self._call.shared.stopping.is_set():
                    yield _end(STOPPING)
                    return
                try:
                    async with aclosing(self._round()) as pieces:
                        async for piece in pieces:
                            yield piece
                    await self._look_around()
                except GoQueueError as error:
                    yield _end({**error.to_body(), "reconnect": error.retriable})
                    return
                if self._wait_s is not None and self._now_s() - self._came_s >= self._wait_s:
                    yield _end(WAITED)
                    return
                if self._is_quiet():
                    yield self._sign_of_life()
                await self._rest()
        finally:
            hung_up.remove_done_callback(wake)
            for place in self._places:
                self._leave(place)
            self._followers.exit(self._wake)

    # private

    def _awaken(self, _: object) -> None:
        self._wake.set()

    async def _round(self) -> AsyncGenerator[bytes, None]:
        """What there is of each partition, a portion at a time. Raises what ends the stream."""
        for place in self._places:
            if self._call.shared.stopping.is_set():
                return
            portion = self._shared_portion(place)
            if portion is not None:
                async with aclosing(self._shown(place, portion)) as pieces:
                    async for piece in pieces:
                        yield piece
            elif place.follower is None and self._now_s() >= place.not_before_s:
                async with aclosing(self._own_portion(place)) as pieces:
                    async for piece in pieces:
                        yield piece

    def _shared_portion(self, place: Place) -> Portion | None:
        """What a follower has for it. Raises what has ended the follower."""
        follower = place.follower
        if follower is None:
            where = (self._topic, place.partition, place.position)
            if not (place.is_at_end or self._followers.holds(*where)):
                return None
            follower = place.follower = self._followers.join(*where, self._wake)
        if follower is None:
            return None
        if follower.failure is not None:
            raise follower.failure
        if place.position < follower.start:
            self._leave(place)
            return None
        return follower.portion(place.position)

    async def _own_portion(self, place: Place) -> AsyncGenerator[bytes, None]:
        """What it reads by itself, as nobody near it does. It holds room for that meanwhile."""
        call, partition = self._call, place.partition
        try:
            with await page_room(call, READ_BYTES) as held:
                found = await call.broker.records.read(
                    self._topic,
                    partition,
                    Offset(place.position),
                    max_records=ROWS_MAX,
                    max_bytes=min(READ_BYTES, held.size // PAGE_TIMES),
                    wait_s=0,
                )
                self._followers.figures.tail_read("own")
                place.trouble = ""
                if found.log_start > place.position:
                    if place.is_exact:
                        yield _skipped(place, found.log_start)
                    place.position = found.log_start
                held.grow(sum(len(stored.batch) for stored in found.batches))
                portion = await portion_of(found, partition, place.position, held)
                place.is_at_end = found.is_at_end and portion.following >= found.next_offset
                async with aclosing(self._shown(place, portion)) as pieces:
                    async for piece in pieces:
                        yield piece
            self._wake.set()  # to go on at once
        except GoQueueError as error:
            if not error.retriable:
                raise
            place.trouble = error.message
            place.not_before_s = self._now_s() + RETRY_S

    async def _shown(self, place: Place, portion: Portion) -> AsyncGenerator[bytes, None]:
        """The events of a portion from the place's position on, which goes with them."""
        lines, at = portion.lines, 0
        while at < len(lines):
            piece, at = self._piece(place, lines, at)
            if piece:
                yield piece
                await self._taken()
            if at < len(lines) and lines[at].is_long:
                line, at = lines[at], at + 1
                if line.view.offset >= place.position and self._filter.passes(line.view):
                    async with aclosing(self._long(place, line)) as parts:
                        async for part in parts:
                            yield part
                            await self._taken()
                place.position = max(place.position, line.view.offset + 1)
            if at < len(lines):
                await pause()
        place.position = max(place.position, portion.following)
        place.is_exact = True
        if lines:
            self._wake.set()  # there may be more behind them

    def _piece(self, place: Place, lines: list[Line], at: int) -> tuple[bytes, int]:
        """About a slice of events, from this line on, and the first line that is not in it."""
        where = self._places.index(place)
        before, behind = id_of(self._places[:where]), id_of(self._places[where + 1 :])
        head = f"id: {before}{',' * bool(before)}{place.partition}:".encode()
        tail = f"{',' * bool(behind)}{behind}\ndata: ".encode()
        made, size, is_open, sent = list[bytes](), 0, self._filter.is_open, 0
        position = place.position
        while at < len(lines) and size < SLICE_BYTES:
            line = lines[at]
            if line.is_long:
                break
            at += 1
            offset = line.view.offset
            if offset < position:
                continue
            position = offset + 1
            if is_open or self._filter.passes(line.view):
                data = line.data
                made += (head, b"%d" % position, tail, data, b"\n\n")
                size += len(data) + len(head) + len(tail)
                sent += 1
        place.position = position
        self._count(sent)
        return b"".join(made), at

    async def _long(self, place: Place, line: Line) -> AsyncGenerator[bytes, None]:
        """The event of a long message, in slices."""
        parts = await line.parts()
        place.position = line.view.offset + 1
        self._count(1)
        yield f"id: {id_of(self._places)}\ndata: ".encode()
        for part in parts:
            for piece in part.slices() if isinstance(part, LongText) else (bytes(part),):
                yield piece
        yield b"\n\n"

    async def _taken(self) -> None:
        """The reader has taken what was sent. Raises ConnectionError."""
        await self._client.is_taken()
        self._client.went_on()
        self._sent_s = self._now_s()

    def _count(self, messages: int) -> None:
        if messages:
            self._came_s = self._now_s()
            self._told_id = ""
            self._followers.figures.tail_sent(self._topic, messages)

    def _is_quiet(self) -> bool:
        return self._now_s() - self._sent_s >= self._call.limits.tail_keepalive_s

    def _sign_of_life(self) -> bytes:
        """A comment; where nothing comes for a reason, it says so, and where messages went by that
        the reader does not want, it goes on behind them."""
        self._sent_s = self._now_s()
        troubles = {
            trouble
            for place in self._places
            if (trouble := place.trouble or (place.follower.trouble if place.follower else ""))
        }
        text = " ".join(sorted(troubles)[0].split()) if troubles else "keep-alive"
        reached = id_of(self._places)
        more = "" if reached == self._told_id else f"id: {reached}\n"
        self._told_id = reached
        return f": {text}\n{more}\n".encode()

    async def _look_around(self) -> None:
        """From time to time: whether the reader may still read, and whether the topic has more
        partitions. Raises what it may not go on for."""
        if self._now_s() - self._looked_s < self._call.limits.tail_keepalive_s:
            return
        self._looked_s = self._now_s()
        await self._call.admit_again()
        if not self._is_whole:
            return
        count = self._call.broker.topics.partition_count(self._topic)
        for number in range(len(self._places), min(count, PLACES_MAX)):
            self._places.append(Place(number, 0, is_exact=False))
            self._wake.set()

    async def _rest(self) -> None:
        """Until there is news, or something is to be done."""
        if self._wake.is_set():
            await asyncio.sleep(0)
            return
        limits, now_s = self._call.limits, self._now_s()
        until_s = min(self._sent_s, self._looked_s) + limits.tail_keepalive_s
        if self._wait_s is not None:
            until_s = min(until_s, self._came_s + self._wait_s)
        if any(place.follower is None for place in self._places):
            until_s = min(until_s, now_s + RETRY_S)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await self._wake.wait()

    def _leave(self, place: Place) -> None:
        if place.follower is not None:
            self._followers.leave(place.follower, self._wake)
            place.follower, place.is_at_end = None, False


def _end(told: dict[str, object]) -> bytes:
    return b"event: end\ndata: " + encode_error(told) + b"\n\n"


def _skipped(place: Place, log_start: int) -> bytes:
    """Messages from the place on were deleted before they were sent."""
    told = {"partition": place.partition, "offset": place.position, "log_start": log_start}
    return b"event: skipped\ndata: " + encode_error(dict(told)) + b"\n\n"
