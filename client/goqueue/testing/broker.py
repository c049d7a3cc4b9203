"""The broker of a test, and its clock."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from types import TracebackType
from typing import Unpack

from goqueue.api.client import AsyncClient
from goqueue.api.options import ClientOptions
from goqueue.api.search import Timeline
from goqueue.blocking.client import Client
from goqueue.models.messages import Message, Published
from goqueue.models.queued import DeadLetter
from goqueue.models.times import Duration, Time, duration_ms, moment_ms
from goqueue.testing.channel import MemoryChannel
from goqueue.testing.checks import Checks
from goqueue.testing.engine import OpenEngine, VirtualEngine, find_engine
from goqueue.testing.listener import Listener
from goqueue.testing.traffic import Fault, Traffic, What
from goqueue.wire.errors import BadRequest, GoQueueError, Unavailable

START = "2026-01-01T00:00:00+00:00"
"""When a broker's time begins: the same time in every run, a Thursday."""
IDLE_TIMEOUT_S = 10.0
SPARE_AFTER_S = 0.001
"""Whoever has reset goes on first: a thread that has much to do keeps the interpreter for 5 ms."""


class NotIdle(AssertionError):
    """Consumers had not finished in time."""


class Clock:
    """A broker's time. It stands still until `advance` moves it, however long the test takes."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def now(self) -> datetime:
        """In UTC."""
        return datetime.fromtimestamp(self.now_ms / 1000, UTC)

    @property
    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._broker.engine.now_ms

    def advance(self, duration: Duration) -> None:
        """Let so much time pass: `"1h"`, seconds, or a timedelta.

        All that it brings about has happened when this returns, each at its time and in its order:
        delays, backoffs, runs of schedules, the ends of leases, sessions, waits and of messages'
        lives; retention looks once, at the end. Consumers are given no time meanwhile: a message
        that one works on is another's once its lease is over, and a member that sends no sign of
        life is gone. `Broker.run_until_idle` gives them time. Raises BadRequest on what is no
        duration.
        """
        self._broker.engine.advance(duration_ms(duration, "advance"))


class Broker:
    """A real broker of one node in this process: on a disk in memory, on time of its own.

    Use as `with`, or `start` and `close` it. Time begins at `now`, and with the same `seed` a
    broker does the same each time. All methods may be called from any thread, also from one whose
    event loop runs: they take a few milliseconds, but for `run_until_idle`, which waits for
    consumers; `until_idle` is for those on the same loop.
    """

    def __init__(self, *, now: Time = START, seed: int = 0, spare: bool = False) -> None:
        """Opens nothing. With a `spare` the node after the next `reset` is opened beforehand, in
        the background. Raises BadRequest for a time that is none."""
        self._now_ms = moment_ms(now, "now")
        self._seed = seed
        self._keeps_spare = spare
        self._spare: Future[VirtualEngine] | None = None
        self._open_engine: OpenEngine | None = None
        """Found once: it takes milliseconds to look through what is installed."""
        self._engine: VirtualEngine | None = None
        self._traffic: Traffic | None = None
        self._listener: Listener | None = None
        self._checks: Checks | None = None
        self._helper: ThreadPoolExecutor | None = None
        """Opens spares, and closes what was reset."""
        self._clients: list[Client] = []
        self._channels = 0
        self.clock = Clock(self)

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Usable when it returns. Raises EngineMissing where the server is not installed."""
        if self._engine is None:
            self._open_engine = find_engine()
            self._engine = self._opened(self._now_ms)
            self._helper = ThreadPoolExecutor(1, thread_name_prefix="goqueue-spare")
            self._traffic = Traffic(self._engine)
            self._checks = Checks(lambda *asked: self.engine.ask(*asked))
            self._prepare()

    def close(self) -> None:
        """Idempotent; nothing of the broker stays. Clients that it made are closed."""
        self.close_clients()
        if self._listener is not None:
            self._listener.close()
        if self._checks is not None:
            self._checks.close()
        if self._spare is not None and self._spare.exception() is None:
            self._spare.result().close()
        if self._engine is not None:
            self._engine.close()
        if self._helper is not None:
            self._helper.shutdown()
        self._engine = self._traffic = self._listener = self._checks = self._spare = None

    def reset(self, *, now: Time | None = None) -> None:
        """As new: nothing is stored, nothing fails or is held, and time begins anew, at `now` if
        given. The URL and clients stay; whatever waits for an answer loses it."""
        now_ms = self._now_ms if now is None else moment_ms(now, "now")
        old, traffic = self.engine, self._open_traffic
        traffic.cut()
        spare, self._spare = self._spare, None
        if spare is not None and now_ms == self._now_ms:
            self._engine = spare.result()
        else:
            self._engine = self._opened(now_ms)
        traffic.turn_to(self._engine)
        self._channels = 0
        if spare is not None and now_ms != self._now_ms:
            self._spare = spare
        else:
            self._prepare()
        assert self._helper is not None
        self._helper.submit(old.close)

    # how it is asked

    @property
    def url(self) -> str:
        """Where it is served by HTTP, on a free port of this machine: for programs that know
        nothing of tests. It is listened on from the first use on."""
        if self._listener is None:
            self._listener = Listener(self._open_traffic.ask)
        return self._listener.url

    def client(self, **options: Unpack[ClientOptions]) -> Client:
        """A client, without a socket; closed with the broker, if not before."""
        client = Client(self._channel(), **options)
        self._clients.append(client)
        return client

    def async_client(self, **options: Unpack[ClientOptions]) -> AsyncClient:
        """As `client`, for one event loop. It need not be closed."""
        return AsyncClient(self._channel(), **options)

    def close_clients(self) -> None:
        """Those that `client` made."""
        clients, self._clients = self._clients, []
        for client in clients:
            client.close()

    @property
    def engine(self) -> VirtualEngine:
        """The node. Raises Unavailable where the broker is not started."""
        if self._engine is None:
            raise Unavailable("the broker is not started: use it as `with`")
        return self._engine

    # time

    def run_until_idle(self, within: Duration = 0, *, timeout: Duration = IDLE_TIMEOUT_S) -> None:
        """Wait until the consumers that run beside the test have finished what there is for them:
        nothing is in flight, and nothing ready that a group's members, or who waits for messages,
        would take. What no consumer asks for stays.

        With `within`, so much time passes: from one thing that is to happen to the next, and at
        each the consumers finish before time goes on. Their sessions do not end. Where they do not
        finish by `timeout`, of the machine's time, NotIdle is raised, an AssertionError that says
        what is left. A message that the test itself has in hand is in flight, too: ack it before.
        """
        within_ms = duration_ms(within, "within")
        left = self.engine.run_until_idle(within_ms, duration_ms(timeout, "timeout") / 1000)
        if left:
            raise NotIdle("not done in time:\n" + "\n".join(left) + self.checks.unfinished())

    async def until_idle(self, within: Duration = 0, *, timeout: Duration = IDLE_TIMEOUT_S) -> None:
        """As `run_until_idle`, for tests whose consumers run on the same event loop."""
        await asyncio.to_thread(self.run_until_idle, within, timeout=timeout)

    # faults

    def fail_next(
        self,
        what: What = "any",
        error: GoQueueError | type[GoQueueError] | None = None,
        *,
        times: int = 1,
        lose_answer: bool = False,
    ) -> None:
        """Have the next request fail: `publish`, `receive` (polls, too), `settle` (ack, nack,
        reject, extend, release), or `any`; the next `times` of them.

        It is answered with `error`, Unavailable if not given, and nothing is done. With
        `lose_answer` it is done, and its answer is lost as when a connection breaks. Clients repeat
        what may be repeated, in the machine's time. Raises BadRequest.
        """
        if lose_answer and error is not None:
            raise BadRequest("give an error, or lose_answer: an answer that is lost tells none")
        told = error() if isinstance(error, type) else error
        fault = None if lose_answer else told or Unavailable("made to fail by the test")
        self._open_traffic.fail_next(Fault(what, fault, times))

    def pause(self) -> None:
        """Answer nobody until `resume`: requests wait, and so do answers. Time can pass."""
        self._open_traffic.pause()

    def resume(self) -> None:
        self._open_traffic.resume()

    @property
    def waiting_requests(self) -> int:
        """How many have come in and are not answered: receives that wait, and whatever is asked of
        a paused broker. A test whose thread is to wait looks here before it moves time."""
        return self._open_traffic.waiting_requests

    def restart(self, *, power_cut: bool = False) -> None:
        """Stop in order, and start again with what is stored. With a `power_cut` it does not stop
        in order: answers under way are lost, and so is what was not synced; what was acknowledged
        is not. Requests meanwhile wait."""
        self.pause()
        if power_cut:
            self._open_traffic.cut()
        try:
            self.engine.restart(power_cut=power_cut)
        finally:
            self.resume()

    # what became of messages

    @property
    def checks(self) -> Checks:
        assert self._checks is not None, "the broker is not started"
        return self._checks

    def assert_acked(self, topic: str, group: str, count: int | None = None) -> None:
        """The group has acked so many messages of the topic; if None, all of them, and there is
        one at least. Raises AssertionError with the timelines of those that it has not acked."""
        self.checks.assert_acked(topic, group, count)

    def dead_letters(self, topic: str, group: str) -> list[DeadLetter]:
        """What the group has given up of the topic, each with its reason and attempts; empty also
        where there is no such group or topic yet."""
        return self.checks.dead_letters(topic, group)

    def timeline(self, message: str | Published | Message, topic: str | None = None) -> Timeline:
        """All that happened to a message: a published or received one, its `topic:partition:offset`
        or, with a topic, its message id. Raises NotFound."""
        return self.checks.timeline(message, topic)

    # private

    @property
    def _open_traffic(self) -> Traffic:
        self.engine  # noqa: B018 - raises where it is not started
        assert self._traffic is not None
        return self._traffic

    def _channel(self) -> MemoryChannel:
        self._channels += 1
        return MemoryChannel(self._open_traffic.ask, self._seed + self._channels)

    def _prepare(self) -> None:
        if self._keeps_spare and self._helper is not None:
            self._spare = self._helper.submit(self._opened_spare)

    def _opened_spare(self) -> VirtualEngine:
        time.sleep(SPARE_AFTER_S)
        return self._opened(self._now_ms)

    def _opened(self, now_ms: int) -> VirtualEngine:
        assert self._open_engine is not None
        return self._open_engine(now_ms, self._seed)
