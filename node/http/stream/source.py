"""Where a stream's messages come from, and how they are taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from delivery.config import LANES_COUNT
from goqueue.wire.errors import BadRequest
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
    may_grow: bool = False
    """Whether topics may come."""

    @property
    def is_empty(self) -> bool:
        return not (self.topics or self.places)


class Source(Protocol):
    """What changes while a stream lives: topics that match a pattern, or a member's assignment."""

    def places(self) -> Places: ...


class Topics:
    """Those named, and those that match a pattern by now."""

    def __init__(self, wanted: Subscribe, known: Callable[[], Sequence[str]]) -> None:
        """Raises BadName, BadRequest. `known` are all topics that the client may know of."""
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
        self._known = known

    def places(self) -> Places:
        topics = self._named
        if self._patterns:
            matching = (
                name
                for name in self._known()
                if any(fnmatchcase(name, pattern) for pattern in self._patterns)
            )
            topics = list(dict.fromkeys((*self._named, *matching)))
        return Places(topics=topics, partitions=self._partitions, may_grow=bool(self._patterns))


@dataclass(frozen=True, slots=True)
class Manner:
    """`visibility_ms` None: leases live as long as the stream. Lanes below the lowest are left."""

    visibility_ms: int | None
    lowest_lane: int


def manner_of(wanted: Subscribe) -> Manner:
    """Raises BadRequest."""
    name = "visibility_timeout_ms"
    visibility = visibility_ms(wanted.visibility_timeout_ms, name)
    if visibility == 0:
        raise BadRequest(f"{name}: 0 is no time to work in; leave it out for leases that last")
    return Manner(visibility, lowest_lane_of(wanted.lowest_priority))


def lowest_lane_of(priority: str | int | None) -> int:
    """The lowest one that there is, where none is told. Raises BadRequest."""
    return LANES_COUNT - 1 if priority is None else fields.lane_of(priority) or 0


def check_member(wanted: Subscribe) -> None:
    """A member's topics are those of its assignment. Raises BadRequest."""
    named = wanted.topics or wanted.patterns or wanted.partitions
    if named:
        raise BadRequest("give member_id, or topics, patterns and partitions, not both")
