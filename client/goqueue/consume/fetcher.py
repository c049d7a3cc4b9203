"""Receiving for a consumer: a long poll stays open for whatever its buffer wants.

A receive that is cancelled may lose messages on their way (they come back when their leases are
over), so none is: what one asked for may be out of date when it answers, and what has no place any
more goes back. When more is wanted than the open ones ask for, another one is opened beside them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from goqueue.consume.prefetch import LOWEST, Want
from goqueue.models.failures import is_final
from goqueue.models.groups import TopicPartition
from goqueue.models.queued import Received, Settles
from goqueue.wire.errors import BadRequest, GoQueueError, GroupHalted, NotFound, StaleGeneration

if TYPE_CHECKING:
    from goqueue.api.client import AsyncClient

WAIT_S = 5.0
"""How long one receive waits: what a node that hangs without closing its connections costs."""
RESTLESS_S = 1.0
RESTLESS_WAIT_S = 0.25
"""While partitions come and go, receives are short, as each is soon out of date."""
OPEN_MAX = 4
ANSWER_S = 5.0
"""How long an answer may take beyond its wait."""
END_S = 0.1
"""Those that are answered at all soon are so within this; the others can be cancelled."""
STALE_PAUSE_S = 0.05
"""Between refusals; after a single one the other partitions go on at once."""
MISSING_PAUSE_S = 0.25
EARLY_PAUSE_S = (0.1, 0.01)
"""After an empty answer before its time, of a server that is about to stop: with no other server,
and with another one."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who receives, and from where."""

    member: str
    generation: int
    places: Sequence[TopicPartition]


class Source(Protocol):
    """The consumer, as its intake sees it."""

    def claimant(self) -> Claimant: ...

    def want(self) -> Want | None: ...

    def came(self, messages: Sequence[Received], asked_s: float) -> None:
        """Messages whose leases began after `asked_s`."""
        ...

    def refused(self, places: Sequence[TopicPartition], generation: int) -> None:
        """These have another owner, since this generation; none named: some of them."""
        ...


@dataclass(eq=False, slots=True)
class _Open:
    places: frozenset[TopicPartition]
    lowest: int


class Intake:
    """`run` receives until it is cancelled; `wake` tells it that something has changed."""

    def __init__(
        self,
        client: AsyncClient,
        group: str,
        source: Source,
        settler: Settles,
        *,
        visibility_s: float,
        max_messages: int,
    ) -> None:
        self._client = client
        self._group = group
        self._source = source
        self._settler = settler
        self._visibility_s = visibility_s
        self._max_messages = max_messages
        self._changed = asyncio.Event()
        self._open: list[_Open] = []
        self._receives: set[asyncio.Task[None]] = set()
        self._ended = False
        self._rests = False
        self._places: frozenset[TopicPartition] = frozenset()
        self._moved_s = 0.0
        self._failures = 0
        self._refused_s = float("-inf")
        self._is_proven = False
        """A receive has gone well."""

    def wake(self) -> None:
        self._changed.set()

    def rest(self, rests: bool) -> None:
        """Open nothing while a stream is there in its place; what is open is answered."""
        if rests != self._rests:
            self._rests = rests
            self.wake()

    async def run(self) -> None:
        """Raises what no repeat can mend."""
        async with asyncio.TaskGroup() as receives:
            self._changed.set()
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._look(receives)

    async def end(self) -> None:
        """Open nothing more, and wait for a short while for answers that are on their way."""
        self._ended = True
        if self._receives:
            await asyncio.wait(set(self._receives), timeout=END_S)

    def _look(self, receives: asyncio.TaskGroup) -> None:
        who, want = self._source.claimant(), self._source.want()
        places = frozenset(who.places)
        if places != self._places:
            self._places = places
            self._moved_s = asyncio.get_running_loop().time()
        if self._ended or self._rests or not places or want is None:
            return
        if len(self._open) >= OPEN_MAX:
            return
        if any(places <= one.places and want.lowest <= one.lowest for one in self._open):
            return
        opened = _Open(places, want.lowest)
        self._open.append(opened)
        receive = receives.create_task(self._receive(opened, who, want))
        self._receives.add(receive)
        receive.add_done_callback(self._receives.discard)

    async def _receive(self, opened: _Open, who: Claimant, want: Want) -> None:
        try:
            await asyncio.sleep(await self._ask(who, want))
        except GoQueueError as error:
            await asyncio.sleep(self._judge(error, who))
        finally:
            self._open.remove(opened)
            self._changed.set()

    async def _ask(self, who: Claimant, want: Want) -> float:
        """How long to rest afterwards."""
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        wait_s = min(WAIT_S, self._visibility_s / 4)
        if asked_s - self._moved_s < RESTLESS_S:
            wait_s = min(wait_s, RESTLESS_WAIT_S)
        found = await self._client.receive(
            self._group,
            limit=max(1, min(want.limit, self._max_messages)),
            wait=wait_s,
            visibility=self._visibility_s,
            member=who.member,
            generation=who.generation,
            assignment=who.places,
            lowest_priority=None if want.lowest == LOWEST else want.lowest,
            settler=self._settler,
            timeout_s=ANSWER_S,
        )
        self._failures, self._is_proven = 0, True
        self._source.came(found, asked_s)
        if found or loop.time() - asked_s >= wait_s / 2:
            return 0.0
        return EARLY_PAUSE_S[self._client.transport.turn_away()]

    def _judge(self, error: GoQueueError, who: Claimant) -> float:
        """How long to rest after an error. Raises it where it is for good."""
        log.debug("a receive failed, outcome %s: %s", error.outcome, error.message)
        if isinstance(error, StaleGeneration):
            self._source.refused(*_refused(error, who))
            before_s, self._refused_s = self._refused_s, asyncio.get_running_loop().time()
            return STALE_PAUSE_S if self._refused_s - before_s < 2 * STALE_PAUSE_S else 0.0
        if isinstance(error, NotFound):  # a topic that is gone, or not yet known everywhere
            self._source.refused([], 0)
            return MISSING_PAUSE_S
        if is_final(error) or isinstance(error, GroupHalted):
            raise error
        if isinstance(error, BadRequest) and not self._is_proven:
            raise error
        self._failures += 1
        return self._client.transport.pause_s(self._failures)


def _refused(error: StaleGeneration, who: Claimant) -> tuple[list[TopicPartition], int]:
    names, generation = error.data.get("partitions"), error.data.get("generation")
    told: list[object] = list(names) if isinstance(names, list) else []
    places = [place for place in who.places if str(place) in told]
    return places, generation if isinstance(generation, int) else 0
