"""Where a stream's messages come from, and how they are taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from delivery.config import LANES_COUNT
from goqueue.wire.errors import BadRequest, GoQueueError
from goqueue.wire.ids import validate_topic_name
from node.api.claims import NOBODY, Claim
from node.api.members import Place
from node.http.messages import fields
from node.http.queue.settle import visibility_ms
from node.http.stream.frames import Subscribe

PATTERN_CHARACTERS_MAX = 249


@dataclass(frozen=True, slots=True)
class Places:
    """What a receive asks: whole topics, some partitions of them, or places that a member has."""

    claim: Claim = NOBODY
    topics: Sequence[str] = ()
    partitions: Sequence[int] | None = None
    places: Sequence[Place] | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.topics or self.places)


class Known(Protocol):
    """What a node knows of topics; see `node.api.topics.Topics`."""

    def list_topics(self) -> list[str]: ...

    def partition_count(self, topic: str) -> int: ...


class Source(Protocol):
    """What changes while a stream lives: topics that match a pattern, or a member's assignment."""

    def places(self) -> Places: ...

    def extent(self) -> object:
        """Differs where topics or partitions have come, or gone, that nobody tells of."""
        ...


class Topics:
    """Those named, and those that match a pattern by now."""

    def __init__(self, wanted: Subscribe, topics: Known) -> None:
        """Raises BadName, BadRequest. `topics` are those that the client may know of."""
        if wanted.partitions == []:
            raise BadRequest("partitions names none: leave it out for all of them")
        self._named = list(dict.fromkeys(map(validate_topic_name, wanted.topics or ())))
        self._patterns = list(dict.fromkeys(wanted.patterns or ()))
        for pattern in self._patterns:
            if not 0 < len(pattern) <= PATTERN_CHARACTERS_MAX:
                raise BadRequest(f"patterns: not of 1 to {PATTERN_CHARACTERS_MAX} characters")
        if not self._named and not self._patterns:
            raise BadRequest("topics is required: at least one topic or pattern, or a member_id")
        self._partitions = wanted.partitions
        self._all = topics
        self._seen: list[str] = []
        self._matching: list[str] = []

    def places(self) -> Places:
        return Places(topics=self._topics(), partitions=self._partitions)

    def extent(self) -> object:
        return [(topic, self._count(topic)) for topic in self._topics()]

    def _topics(self) -> list[str]:
        if not self._patterns:
            return self._named
        known = self._all.list_topics()
        if known != self._seen:
            self._seen = known
            self._matching = [
                name
                for name in known
                if any(fnmatchcase(name, pattern) for pattern in self._patterns)
            ]
        return list(dict.fromkeys((*self._named, *self._matching)))

    def _count(self, topic: str) -> int:
        try:
            return self._all.partition_count(topic)
        except GoQueueError:
            return 0


@dataclass(frozen=True, slots=True)
class Manner:
    """`visibility_ms` None: leases live as long as the stream. Lanes below the lowest are left.
    Messages come as JSON, or `in_batches`."""

    visibility_ms: int | None
    lowest_lane: int
    in_batches: bool = False


def manner_of(wanted: Subscribe) -> Manner:
    """Raises BadRequest."""
    name = "visibility_timeout_ms"
    visibility = visibility_ms(wanted.visibility_timeout_ms, name)
    if visibility == 0:
        raise BadRequest(f"{name}: 0 is no time to work in; leave it out for leases that last")
    in_batches = wanted.format == "batches"
    return Manner(visibility, lowest_lane_of(wanted.lowest_priority), in_batches)


def lowest_lane_of(priority: str | int | None) -> int:
    """The lowest one that there is, where none is told. Raises BadRequest."""
    return LANES_COUNT - 1 if priority is None else fields.lane_of(priority) or 0


def check_member(wanted: Subscribe) -> None:
    """A member's topics are those of its assignment. Raises BadRequest."""
    named = wanted.topics or wanted.patterns or wanted.partitions
    if named:
        raise BadRequest("give member_id, or topics, patterns and partitions, not both")
