"""Which partitions a member works on, by what it was told: told of changes, it says what to do.

Any node answers from what it has applied, so an answer may be older than the one before. Within a
generation a member only gets partitions and only loses those that it was asked to let go of; an
answer that says otherwise is an older one, and changes nothing. The same of an older generation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from goqueue.models.groups import MemberAnswer, TopicPartition


class State(Enum):
    """Where one partition stands with this member."""

    ACTIVE = auto()
    """It is worked on."""
    SUSPENDED = auto()
    """Its leader names a newer owner than was told: it is not received from until that is clear."""
    REVOKING = auto()
    """It is to be let go of: nothing is received, what has begun ends."""
    RELEASED = auto()
    """Nothing of it is worked on any more; the group is told so until it knows."""


@dataclass(slots=True)
class Changes:
    """What an answer means: partitions that are new, that are to be let go of, that were to be and
    stay after all, and that are gone without having been let go of."""

    assigned: list[TopicPartition] = field(default_factory=list[TopicPartition])
    revoked: list[TopicPartition] = field(default_factory=list[TopicPartition])
    kept: list[TopicPartition] = field(default_factory=list[TopicPartition])
    lost: list[TopicPartition] = field(default_factory=list[TopicPartition])


class Holdings:
    """One membership, from its join on."""

    def __init__(self) -> None:
        self.generation = 0
        self.revision: str | None = None
        self._states: dict[TopicPartition, State] = {}
        self._stale: dict[TopicPartition, int] = {}
        """The owner's generation, of suspended partitions."""

    @property
    def assigned(self) -> list[TopicPartition]:
        """All that is this member's to work on, in order, also what it is to let go of."""
        return sorted(p for p, state in self._states.items() if state is not State.RELEASED)

    @property
    def active(self) -> list[TopicPartition]:
        """What to receive from, in order."""
        return sorted(p for p, state in self._states.items() if state is State.ACTIVE)

    @property
    def leaving(self) -> list[TopicPartition]:
        """What the group waits for this member to let go of."""
        states = (State.REVOKING, State.RELEASED)
        return sorted(p for p, state in self._states.items() if state in states)

    @property
    def released(self) -> list[TopicPartition]:
        """What the group is to be told that it was let go of."""
        return sorted(p for p, state in self._states.items() if state is State.RELEASED)

    def state(self, place: TopicPartition) -> State | None:
        return self._states.get(place)

    def fold(self, told: MemberAnswer) -> Changes:
        """Take in an answer."""
        changes = Changes()
        if told.generation < self.generation:
            return changes
        is_newer = told.generation > self.generation
        self.generation, self.revision = told.generation, told.revision
        for place in told.assignment:
            self._hold(place, changes, is_newer)
        for place in told.revoking:
            self._revoke(place, changes, is_newer)
        named = {*told.assignment, *told.revoking}
        for place in [place for place in self._states if place not in named]:
            self._miss(place, changes, is_newer)
        return changes

    def suspend(self, places: Iterable[TopicPartition], generation: int) -> list[TopicPartition]:
        """A leader refused these, as another one owns them since `generation`; which of them were
        worked on. They go on when an answer that is not older says that they are this member's."""
        found = [place for place in places if self._states.get(place) is State.ACTIVE]
        for place in found:
            self._states[place] = State.SUSPENDED
            self._stale[place] = generation
        return found

    def release(self, place: TopicPartition) -> bool:
        """Nothing of it is worked on any more: let it go. False where it is not to be, by now."""
        if self._states.get(place) is not State.REVOKING:
            return False
        self._states[place] = State.RELEASED
        return True

    def lose(self) -> list[TopicPartition]:
        """The member is gone: all that it had, in order."""
        lost = self.assigned
        self._states.clear()
        self._stale.clear()
        return lost

    def _hold(self, place: TopicPartition, changes: Changes, is_newer: bool) -> None:
        state = self._states.get(place)
        if state is State.SUSPENDED and self.generation >= self._stale[place]:
            self._activate(place)
        elif state is None or (state is State.RELEASED and is_newer):
            self._activate(place)
            changes.assigned.append(place)
        elif state is State.REVOKING and is_newer:
            self._activate(place)
            changes.kept.append(place)

    def _revoke(self, place: TopicPartition, changes: Changes, is_newer: bool) -> None:
        state = self._states.get(place)
        if state is None:
            if is_newer:
                self._states[place] = State.RELEASED
        elif state in (State.ACTIVE, State.SUSPENDED):
            self._states[place] = State.REVOKING
            self._stale.pop(place, None)
            changes.revoked.append(place)

    def _miss(self, place: TopicPartition, changes: Changes, is_newer: bool) -> None:
        state = self._states[place]
        if state in (State.ACTIVE, State.SUSPENDED) and not is_newer:
            return
        del self._states[place]
        self._stale.pop(place, None)
        if state is not State.RELEASED:
            changes.lost.append(place)

    def _activate(self, place: TopicPartition) -> None:
        self._states[place] = State.ACTIVE
        self._stale.pop(place, None)
