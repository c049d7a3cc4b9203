"""A subscriber: messages down, one line of JSON each, and what becomes of them up.

Commands settle messages in the order in which those were sent, and wait for those that are still to
come. Nothing is leased while the client's window is shut, or while it has as many messages as its
credit says. Whoever has said all is given what was asked for by then, and nothing more. What a
client has when it is gone is nacked; `StreamsEnded` gives back what was on its way.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from goqueue.background import TaskSet
from goqueue.wire.errors import GoQueueError, GroupHalted, OverBudget, ServerError, Unavailable
from node.api.queue import QueuedMessage, Received, SettleRequest, SettleView
from node.api.spans import MESSAGES_MAX, Work
from node.api.streams import Stream, is_over
from node.http.budget.memory import Kind
from node.http.request.drain_watch import DrainWatch
from node.http.request.long_poll import WAIT_BYTES
from node.http.request.troubles import Troubles
from node.listeners.h2.commands import BadCommand, Command, Commands, Verb
from node.listeners.h2.exchange import PIECE_BYTES, Exchange
from node.listeners.h2.heads import OPERATIONS, Asks, Wanted
from node.listeners.requests import Caller, Requests
from node.listeners.waiting import room_for

WAIT_S = 300.0
"""How long a receive waits: one that waits costs next to nothing."""
FREE_PART = 4
"""Of a credit: so much of it is free before more is leased, so that a receive that brings one
message does not follow each ack. Who has the rest of it has work."""
RECEIVE_BYTES_MAX = 256 << 10
"""Of values that are leased at once."""
HELD_TIMES = 3
"""What a message holds while it is sent, in its own size: itself, and its line."""
SETTLE_S = 15.0
"""How long a settle is repeated that no leader has answered; then the stream ends."""
SETTLED_S = 5.0
"""How long an end waits for settles that are on their way."""
LAST_WORDS_S = 2.0
"""How long a client may take to be told why its stream ends."""

_DACKS = re.compile(r"\(dackCount (\d{1,9})\)$", re.ASCII)

log = logging.getLogger(__name__)


class End(NamedTuple):
    """How a subscription ends. `returned`: what was not settled is as if it had not been delivered;
    else it is nacked."""

    returned: bool
    error: GoQueueError | None = None


LOST = End(returned=False)
DONE = End(returned=True)


@dataclass(frozen=True, slots=True)
class _Given:
    """A message that the client has, and how often it was DACKed before."""

    receipt: str
    dacks: int


class Subscription:
    """Of one exchange, over one stream of the broker's. `run` it once. Loop thread only."""

    def __init__(
        self,
        exchange: Exchange,
        requests: Requests,
        caller: Caller,
        stream: Stream,
        wanted: Wanted,
    ) -> None:
        """Raises OverBudget."""
        self._exchange = exchange
        self._requests = requests
        self._caller = caller
        self._stream = stream
        self._wanted = wanted
        self._held = requests.hold(caller, Kind.POLLS, WAIT_BYTES)
        self._given: deque[_Given] = deque()
        self._settling = 0
        """Messages whose settle has not been applied."""
        self._is_begun = self._is_whole = self._is_left = False
        self._was_given = False
        """Whether anything ever was: who then says no more wants no more."""
        self._changed = asyncio.Event()
        """There may be something to give."""
        self._came = asyncio.Event()
        """Something was given."""
        self._saying = asyncio.Lock()
        self._receiving: asyncio.Timeout | None = None
        self._partitions = 0
        self._troubles = Troubles()
        self._tasks = TaskSet("node", "h2_subscription_failed")
        self._settles = TaskSet("node", "h2_settle_failed")
        self._drain = DrainWatch(caller.broker.node)
        self._end: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._judged_s = asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Serve the client until one of both ends it. Raises nothing but a cancellation."""
        self._exchange.lasting = self
        for work in (self._watch, self._read, self._give):
            self._tasks.begin(self._guarded(work))
        end = DONE
        try:
            end = await self._end
        finally:
            self._exchange.lasting = None
            await self._finish(end)

    def over(self, end: End) -> None:
        """It ends like this, unless it ends already."""
        if not self._end.done():
            self._end.set_result(end)

    # as a `Lasting`

    def look(self, now_s: float) -> None:
        if self._drain.has_begun():
            self._leave("this node is drained: subscribe anew, at another one")
        if now_s - self._judged_s >= self._requests.parts.limits.tail_keepalive_s:
            self._judged_s = now_s
            self._tasks.begin(self._guarded(self._judge))

    def stop(self) -> None:
        self._leave("this node stops: subscribe anew")

    def _leave(self, why: str) -> None:
        self.over(End(returned=True, error=Unavailable(why)))

    # private: what the client says

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except ConnectionError:
            self.over(LOST)
        except GoQueueError as error:
            self.over(End(returned=False, error=error))
        except Exception:
            log.exception("subscription failed")
            self.over(End(returned=True, error=ServerError()))

    async def _watch(self) -> None:
        """Who reads finds out, once all is read that was said before."""
        await self._exchange.hung_up()
        self._is_left = True
        self._came.set()
        self._restart()

    async def _read(self) -> None:
        commands = Commands()
        while piece := await self._exchange.read():
            batch: list[tuple[Command, _Given]] = []
            try:
                for said in commands.feed(piece):
                    if isinstance(said, BadCommand) or not self._is_settle(said):
                        await self._settle(batch)
                        await self._answer(said)
                    else:
                        if not self._given:
                            await self._settle(batch)
                            await self._delivered()
                        batch.append((said, self._given.popleft()))
                        self._settling += 1
            finally:
                await self._settle(batch)
        commands.end()
        self._is_whole = True
        if self._was_given:
            self._restart()
        self._changed.set()
        await self._exchange.hung_up()
        self.over(LOST)

    def _is_settle(self, said: Command) -> bool:
        return said.verb is not Verb.INIT and self._is_begun

    async def _answer(self, said: Command | BadCommand) -> None:
        """To what settles nothing."""
        if isinstance(said, BadCommand):
            await self._tell(said.message, said.code)
        elif self._is_begun:
            await self._tell("INIT came before: it comes once", BadCommand.code)
        elif said.verb is Verb.INIT:
            self._is_begun = True
            self._changed.set()
        else:
            text = f"error {said.verb}ing message: there is none before INIT"
            await self._tell(text, BadCommand.code)

    async def _delivered(self) -> None:
        """Return when the client has a message. Raises ConnectionError."""
        while not self._given:
            if self._is_left:
                raise ConnectionResetError
            self._came.clear()
            await self._came.wait()

    async def _settle(self, batch: list[tuple[Command, _Given]]) -> None:
        """All of them, and empty it: return when their entries have applied. It goes on where who
        waits for it is cancelled."""
        if batch:
            settled, batch[:] = list(batch), []
            await asyncio.shield(self._settles.begin(self._settled(settled)))

    async def _settled(self, batch: Sequence[tuple[Command, _Given]]) -> None:
        """Raises what keeps them from being settled."""
        seen = self._requests.observed(
            self._caller, "settle", "settle", self._wanted.topic, len(batch)
        )
        try:
            with seen:
                action = request_of(*batch[0]).action
                failed = await self._applied(
                    [(command, request_of(command, given)) for command, given in batch]
                )
                seen.tell_span(action, self._wanted.topic, len(batch), group=self._wanted.group)
            for command, error in failed:
                text = f"error {command.verb}ing message: {error.message}"
                await self._tell(text, error.code)
        finally:
            self._settling -= len(batch)
            self._changed.set()

    async def _applied(
        self, left: list[tuple[Command, SettleRequest]]
    ) -> list[tuple[Command, GoQueueError]]:
        """Those whose lease was over. Raises what no repeat has mended."""
        failed: list[tuple[Command, GoQueueError]] = []
        loop = asyncio.get_running_loop()
        until_s, troubles = loop.time() + SETTLE_S, Troubles()
        while True:
            ends = await self._stream.settle([request for _, request in left])
            again: list[tuple[Command, SettleRequest]] = []
            for one, end in zip(left, ends, strict=True):
                if isinstance(end, SettleView):
                    continue
                if is_over(end):
                    failed.append((one[0], end))
                elif end.retriable and loop.time() < until_s:
                    again.append(one)
                else:
                    raise end
            if not again:
                return failed
            left = again
            await asyncio.sleep(troubles.next_pause_s())

    # private: what it is given

    async def _give(self) -> None:
        while not (self._is_left or self._end.done()):
            self._changed.clear()
            if self._is_whole and (self._was_given or not self._is_begun):
                self.over(DONE)
                return
            left = self._wanted.credit - len(self._given) - self._settling
            if not self._is_begun or left < max(1, self._wanted.credit // FREE_PART):
                await self._changed.wait()
                continue
            room_bytes = await self._exchange.room()
            try:
                await self._deliver(left, max(1, room_bytes * 3 // 4))
                self._troubles.passed()
            except GoQueueError as error:
                await self._bear(error)

    async def _deliver(self, limit: int, bytes_max: int) -> None:
        """Raises OverBudget, and what `Stream.receive` does."""
        began_s, began_ns = time.monotonic(), time.time_ns()
        with room_for(self._requests, self._caller) as held:
            found = await self._received(limit, min(bytes_max, RECEIVE_BYTES_MAX))
            if not found:
                return
            try:
                held.resize(HELD_TIMES * sum(len(message.value) for message in found))
            except OverBudget:
                await self._stream.settle([SettleRequest(one.receipt, "release") for one in found])
                raise
            await self._send(found)
        parts = self._requests.parts
        parts.metrics.answered(
            self._requests.protocol, "deliver", "", time.monotonic() - began_s, len(found)
        )
        if parts.spans is not None:
            places = [(m.topic, m.partition, int(m.offset)) for m in found[:MESSAGES_MAX]]
            topic, group = self._wanted.topic, self._wanted.group
            parts.spans.tell(Work("receive", began_ns, None, topic, len(found), places, (), group))

    async def _received(self, limit: int, bytes_max: int) -> Received:
        """Nothing where something has changed meanwhile."""
        topic = self._wanted.topic
        self._partitions = self._caller.broker.topics.partition_count(topic)
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._receiving = scope
                return await self._stream.receive(
                    [topic], limit=limit, bytes_max=bytes_max, wait_s=WAIT_S, visibility_ms=None
                )
        except TimeoutError:
            if not scope.expired():
                raise
            return Received()
        finally:
            self._receiving = None

    async def _send(self, found: Sequence[QueuedMessage]) -> None:
        """A line each; those that fit into a frame go in one."""
        lines, size = list[bytes](), 0
        for message in found:
            dacks = dacks_of(message.reason)
            text = base64.b64encode(message.value).decode()
            line = _encoded({"msg": text, "dackCount": dacks} if dacks else {"msg": text})
            if lines and size + len(line) > PIECE_BYTES:
                await self._say_messages(lines)
                lines, size = [], 0
            self._was_given = True
            self._given.append(_Given(message.receipt, dacks))
            lines.append(line)
            size += len(line)
        await self._say_messages(lines)

    async def _say_messages(self, lines: Sequence[bytes]) -> None:
        """The client has them from now on: what it said before is about them."""
        self._came.set()
        async with self._saying:
            await self._exchange.say(b"".join(lines))
        for _ in lines:
            self._exchange.earn()

    async def _bear(self, error: GoQueueError) -> None:
        """Tell what is in the way, once, and go on after a while; or end."""
        if not (error.retriable or isinstance(error, GroupHalted | OverBudget)):
            self.over(End(returned=True, error=error))
            return
        if self._troubles.is_new(error.code):
            await self._tell(f"error getting next value for consumer: {error.message}", error.code)
        await asyncio.sleep(self._troubles.next_pause_s())

    async def _tell(self, text: str, code: str) -> None:
        await self._say({"error": text, "code": code})

    async def _say(self, line: dict[str, object]) -> None:
        async with self._saying:
            await self._exchange.say(_encoded(line))

    async def _judge(self) -> None:
        """Whether the client's key still holds, and whether the topic has more partitions."""
        operation = OPERATIONS[Asks.SUBSCRIBE]
        try:
            await self._requests.admit(self._caller, operation, self._wanted.topic)
            if self._caller.broker.topics.partition_count(self._wanted.topic) != self._partitions:
                self._restart()
        except GoQueueError as error:
            if not error.retriable:
                self.over(End(returned=True, error=error))

    def _restart(self) -> None:
        """What to receive from has changed: a receive that waits is broken off."""
        self._changed.set()
        if self._receiving is not None and not self._receiving.expired():
            self._receiving.reschedule(asyncio.get_running_loop().time())

    # private: the end

    async def _finish(self, end: End) -> None:
        returned = end.returned
        try:
            await self._tasks.stop()
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLED_S):
                    await self._settles.settled()
            await self._settles.stop()
            returned = returned or await self._nacked()
        finally:
            await self._stream.end(returned=returned)
            self._held.release()
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                if end.error is not None:
                    await self._tell(end.error.message, end.error.code)
                await self._exchange.say(b"", is_last=True)

    async def _nacked(self) -> bool:
        """Whether all that the client has is nacked, each as often DACKed as it was."""
        requests = [
            SettleRequest(one.receipt, "nack", _reason("disconnected", one.dacks), 0)
            for one in self._given
        ]
        if not requests:
            return True
        try:
            async with asyncio.timeout(SETTLED_S):
                ends = await self._stream.settle(requests)
        except (GoQueueError, TimeoutError):
            return False
        return all(isinstance(one, SettleView) or is_over(one) for one in ends)


def request_of(command: Command, given: _Given) -> SettleRequest:
    """What the broker is asked for a command. A failed attempt's reason keeps how often there was a
    DACK: no other place in the log would."""
    if command.verb is Verb.ACK:
        return SettleRequest(given.receipt, "ack")
    dacks = given.dacks + (command.verb is Verb.DACK)
    return SettleRequest(
        given.receipt,
        "nack",
        _reason(command.verb.value, dacks),
        1000 * command.delay_s,
        command.verb is Verb.BACK,
    )


def dacks_of(reason: str) -> int:
    """How often a message was DACKed, as the reason of its last failed attempt says."""
    found = _DACKS.search(reason)
    return 0 if found is None else int(found[1])


def _encoded(line: dict[str, object]) -> bytes:
    """By miniqueue's names: a message in base64, or an error."""
    return msgspec.json.encode(line) + b"\n"


def _reason(what: str, dacks: int) -> str:
    return f"{what} (dackCount {dacks})" if dacks else what
