"""Where a consumer's messages come from, as what receives them sees it: whose, how many, and to
whom they go."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.consume.credit import Room
from goqueue.consume.deliveries import Workbench
from goqueue.consume.fetcher import Claimant
from goqueue.consume.membership import MemberSession
from goqueue.consume.prefetch import Want
from goqueue.models.groups import TopicPartition
from goqueue.models.queued import Received, Settles


class MemberSource:
    """Implements `Source` of polls and of streams, by a member and its workbench."""

    def __init__(self, session: MemberSession, bench: Workbench) -> None:
        self._session = session
        self._bench = bench
        self.paused: set[TopicPartition] = set()

    @property
    def settler(self) -> Settles:
        return self._bench

    def places(self) -> list[TopicPartition]:
        """What to receive from, in order."""
        return [place for place in self._session.active() if place not in self.paused]

    def claimant(self) -> Claimant:
        return Claimant(self._session.member, self._session.claim, self.places())

    def want(self) -> Want | None:
        return self._bench.want()

    def room(self) -> Room:
        return self._bench.room()

    def came(
        self, messages: Sequence[Received], asked_s: float, stream: object | None = None
    ) -> None:
        self._bench.came(messages, asked_s, self.places(), stream)

    def gone(self, stream: object) -> None:
        self._bench.gone(stream)

    def refused(self, places: Sequence[TopicPartition], generation: int) -> None:
        self._bench.put_down(self._session.suspend(places, generation))
