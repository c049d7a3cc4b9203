"""What the HTTP front asks of the node about streams: consumers that messages are pushed to.

A stream is of one group, and lives where its client is connected. What it was given is its own
until it is settled, or the stream ends. Times are log time in Unix milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from delivery.entries.ops import StreamId
from goqueue.wire.errors import GoQueueError, NotFound, ReceiptExpired, StaleGeneration
from node.api.claims import NOBODY, NOBODYS, Claim, Maker
from node.api.queue import Received, SettleRequest, SettleView, settled
from node.api.rules.groups import EVERY_GROUPS
from node.api.rules.rule import scoped
from node.api.rules.scope import Scope


def is_over(end: SettleView | GoQueueError) -> bool:
    """Whether a settle that ended so leaves its stream without the lease."""
    if isinstance(end, SettleView):
        return end.outcome != "extended"
    return isinstance(end, NotFound | ReceiptExpired | StaleGeneration)


class Stream(Protocol):
    """One stream. Its methods may be called at the same time, from the loop's thread."""

    @property
    def id(self) -> StreamId:
        """The run of this node, and the number that the stream has in it: given out once."""
        ...

    @property
    def held(self) -> int:
        """How many messages it was given and has not settled, as far as this node knows: what was
        settled elsewhere, or has run out, counts until the stream's own settle is refused."""
        ...

    async def receive(
        self,
        topics: Sequence[str],
        *,
        claim: Claim = NOBODY,
        limit: int,
        bytes_max: int,
        wait_s: float,
        visibility_ms: int | None,
        partitions: Sequence[int] | None = None,
        places: Sequence[tuple[str, int]] | None = None,
        lowest_lane: int = 4,
    ) -> Received:
        """Lease up to `limit` messages to the stream, of `bytes_max` bytes of values together, but
        one at least; waits up to `wait_s` for the first one.

        With a `visibility_ms` of None their leases end with the stream, and no sooner: the
        `deadline_ms` of such a message is 0. All else is as `Queue.receive` has it, its errors too.
        A stream that has ended, or ends meanwhile, gets nothing.
        """
        ...

    async def settle(
        self, requests: Sequence[SettleRequest], claim: Claim = NOBODY
    ) -> list[SettleView | GoQueueError]:
        """As `Receipts.settle`, for receipts of the stream's group, whoever was given them: each
        one's own end, in order, and none before its entry was applied. An `extend` gives a lease
        without a deadline one. Possible also after the end, when the leases are gone."""
        ...

    async def end(self, *, returned: bool) -> None:
        """What the stream has in flight is ready again at once, in front: where it is `returned`,
        as if it had not been delivered; else its consumer is lost, which is a failed attempt.

        Receives that wait are over. Returns once all leaders have done so, or after 5 s: what is
        left of it goes on without the caller, and where this node ends before that, its run is
        found lost. It may be repeated: the first one counts. Raises nothing.
        """
        ...


class _ScopedStream:
    """A stream as one key reaches it: by the topics that it names, and the receipts."""

    def __init__(self, stream: Stream, group: str, scope: Scope) -> None:
        self._stream = stream
        self._group = group
        self._scope = scope

    @property
    def id(self) -> StreamId:
        return self._stream.id

    @property
    def held(self) -> int:
        return self._stream.held

    async def receive(
        self, topics: Sequence[str], *, claim: Claim = NOBODY, **named: Any
    ) -> Received:
        principal = self._scope.principal
        for topic in topics:
            principal.require(topic)
        for topic, _partition in named.get("places") or ():
            principal.require(topic)
        claim = replace(claim, maker=await self._scope.maker(self._group))
        return await self._stream.receive(topics, claim=claim, **named)

    async def settle(
        self, requests: Sequence[SettleRequest], claim: Claim = NOBODY
    ) -> list[SettleView | GoQueueError]:
        async def settle_here(
            allowed: Sequence[SettleRequest], _group: str | None, claim: Claim
        ) -> list[SettleView | GoQueueError]:
            return await self._stream.settle(allowed, claim)

        found: list[SettleView | GoQueueError] = await settled(self._scope, settle_here)(
            requests, self._group, claim
        )
        return found

    async def end(self, *, returned: bool) -> None:
        await self._stream.end(returned=returned)


def _opened(scope: Scope, method: Any) -> Any:
    async def checked(group: str, *, maker: Maker = NOBODYS, **named: Any) -> Stream:
        del maker  # it is the key's
        stream = await method(group, maker=await scope.maker(group), **named)
        return _ScopedStream(stream, group, scope)

    return checked


def _opened_for_all(_scope: Scope, method: Any) -> Any:
    async def made(group: str, *, maker: Maker = NOBODYS, **named: Any) -> Stream:
        del maker
        stream: Stream = await method(group, maker=EVERY_GROUPS, **named)
        return stream

    return made


class Streams(Protocol):
    """Streams of this node's clients."""

    @scoped(_opened, admins=_opened_for_all)
    async def open(
        self,
        group: str,
        *,
        maker: Maker = NOBODYS,
        settings: Mapping[str, object] | None = None,
    ) -> Stream:
        """A stream of the group, which is created with these settings, and defaults, where there is
        none. It costs nothing until it receives, and must be ended. Raises `NotFinished` (409
        `level_not_finished`) below the level of `Feature.STREAMS`, `Unavailable` (503) while this
        node stops, and what `Queue.receive` raises about the group."""
        ...
