"""A member on a stream: kept alive while the stream lives, and told of its partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from goqueue.wire.errors import GoQueueError
from node.api.claims import Claim
from node.api.members import Assignment, Place
from node.http.groups.assignments import PLACE_WORK_BYTES, named_places
from node.http.groups.assignments import Place as NamedPlace
from node.http.groups.consumer_identity import check_not_newer
from node.http.groups.members import HeartbeatBody, heartbeat_answer
from node.http.request.body import off_loop
from node.http.request.call import Call
from node.http.stream.frames import Heartbeat, assignment_frame
from node.http.stream.source import Places
from node.http.stream.wire import Wire

RETRY_S = 0.5
SHARED = "shared"
"""The mode of groups whose members own no partitions."""


class StreamMember:
    """Of one stream; a `Source`. `begin`, then `run` until it is cancelled or fails."""

    def __init__(
        self,
        call: Call,
        group: str,
        member: str,
        wire: Wire,
        changed: Callable[[], None],
        failed: Callable[[GoQueueError], None],
    ) -> None:
        """`changed` is called when what to receive from is another set, `failed` when the member is
        none any more."""
        self._call = call
        self._group = group
        self._member = member
        self._wire = wire
        self._changed = changed
        self._failed = failed
        self._told: Assignment | None = None
        self._named: frozenset[Place] | None = None
        """All that the client wants anything of; None for whatever is assigned."""
        self._places = Places()
        self._let_go: list[Place] = []
        self._is_asked = False
        """The client waits for an answer."""
        self._waiting: asyncio.Timeout | None = None

    def places(self) -> Places:
        return self._places

    def extent(self) -> object:
        return None  # its assignment is told

    def held(self) -> frozenset[Place] | None:
        """The partitions of which the member may have messages, what it is to let go of among them;
        None where members own none."""
        told = self._told
        if told is None or told.mode == SHARED:
            return None
        return frozenset((*told.assigned, *told.revoking))

    async def want(self, given: Sequence[NamedPlace] | None) -> None:
        """Of what it is assigned the client wants only these, from now on. Raises BadName."""
        if given is None:
            return
        named = await off_loop(PLACE_WORK_BYTES * len(given), named_places, given)
        self._named = frozenset(named)
        if self._told is not None:
            self._places = self._places_of(self._told)
            self._changed()

    async def begin(self, generation: int | None) -> None:
        """The first sign of life. Raises `UnknownGroup`, `UnknownMember`, StaleGeneration for a
        generation that the group has not come to."""
        told = await self._call.broker.members.heartbeat(self._group, self._member)
        if generation is not None and generation > told.generation:
            await self._call.broker.members.membership(self._group)  # this node may be behind
            told = await self._call.broker.members.heartbeat(self._group, self._member)
        check_not_newer(self._group, generation, told.generation)
        self._told, self._places = told, self._places_of(told)

    async def heard(self, frame: Heartbeat) -> None:
        """The client has let go of some, and is told its assignment. Raises BadName."""
        given = frame.let_go or []
        self._let_go += await off_loop(PLACE_WORK_BYTES * len(given), named_places, given)
        self._is_asked = True
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        assert self._told is not None
        try:
            await self._tell(self._told, former="")
            while True:
                await self._beat(self._told)
        except ConnectionError:
            return  # whoever reads from it finds out, too
        except GoQueueError as error:
            self._failed(error)

    # private

    async def _beat(self, former: Assignment) -> None:
        """Raises what no repeat can mend."""
        let_go, is_asked = self._let_go, self._is_asked
        self._let_go, self._is_asked = [], False
        is_urgent = is_asked or bool(let_go)
        scope = asyncio.timeout(None)
        try:
            async with scope:
                if not is_urgent:
                    self._waiting = scope
                told = await self._call.broker.members.heartbeat(
                    self._group,
                    self._member,
                    revision=None if is_urgent else former.revision,
                    wait_s=0.0 if is_urgent else former.session_timeout_ms / 3000,
                    let_go=let_go,
                )
        except TimeoutError:
            if not scope.expired():
                raise
            return
        except GoQueueError as error:
            if not error.retriable:
                raise
            self._let_go, self._is_asked = let_go + self._let_go, is_asked or self._is_asked
            await asyncio.sleep(RETRY_S)
            return
        finally:
            self._waiting = None
        if told.generation < former.generation:
            return  # of a node that is behind
        self._told = told
        is_new = told.revision != former.revision
        if is_new:
            self._places = self._places_of(told)
        if is_new or is_asked:
            await self._tell(told, former.revision)
        if is_new:
            self._changed()

    async def _tell(self, told: Assignment, former: str) -> None:
        await self._wire.tell(
            assignment_frame(heartbeat_answer(told, HeartbeatBody(revision=former)))
        )

    def _places_of(self, told: Assignment) -> Places:
        claim = Claim(self._member, 0 if told.mode == SHARED else told.generation)
        gone, named = set(told.revoking), self._named
        mine = [place for place in told.assigned if place not in gone]
        return Places(claim, places=mine if named is None else [p for p in mine if p in named])
