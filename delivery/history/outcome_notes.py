"""What applying an entry decided and the log does not say: what timelines need beside its entries.

An operation is told as it stands in the log, and judged when it applies. Most does what it says, or
does not for a reason that the message's own past tells. What neither tells is noted here: messages
of a delivery that were not granted, a failure that halted its group instead of killing, operations
that did nothing (a request that was repeated, a member that is no owner any more). Beside that:
which groups there were, with which settings since when, the partition's settings, and who voted.

It is part of the snapshot, the same on every replica, and goes as the log's start moves on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from delivery.config import GroupConfig, QueueConfig

NOTHING, NOT_GRANTED, HALTED = range(3)
"""What a note says: the operation changed nothing; these messages of it were not delivered; the
failures of these messages, which they would have died of, halted the group, or came when the
message had expired."""

NOTED_MAX = 50_000
"""Notes, and messages in them. Beyond it the oldest go: see `OutcomeNotes.noted_from`."""
CHANGES_MAX = 256
"""Changes of settings, or of voters, that are remembered; beyond it the oldest go."""
GROUPS_GONE_MAX = 1000
"""Groups that were dropped; beyond it those that were dropped first go."""

Position = tuple[int, int]
"""(index of an entry, number of the operation in it)."""
Note = tuple[int, int, Sequence[int]]
"""(number of the operation, what is noted, the messages meant)."""


class GroupRecord(msgspec.Struct, array_like=True, frozen=True):
    """A group in a snapshot."""

    id: int
    name: str
    base: int
    opened_ms: int
    settings: list[tuple[Position, GroupConfig]]
    dropped: Position | None


class OutcomeNotesRecord(msgspec.Struct, array_like=True, frozen=True):
    """All of it in a snapshot."""

    notes: list[tuple[int, list[Note]]]
    noted_from: int
    groups: list[GroupRecord]
    settings: list[tuple[Position, QueueConfig]]
    voters: list[tuple[int, list[str]]]
    start_index: int = 1


@dataclass(slots=True)
class GroupPast:
    """A group, from its opening on. Messages below `base` are none of its."""

    id: int
    name: str
    base: int
    opened_ms: int
    settings: list[tuple[Position, GroupConfig]] = field(
        default_factory=list[tuple[Position, GroupConfig]]
    )
    dropped: Position | None = None


@dataclass(slots=True)
class OutcomeNotes:
    """Written by what applies, read by whoever tells a message's timeline."""

    notes: dict[int, list[Note]] = field(default_factory=dict[int, "list[Note]"])
    noted_from: int = 0
    """Not all that was to be noted of entries below this index, or held at them, is known any more:
    who reads this beside notes reads the notes first."""
    groups: list[GroupPast] = field(default_factory=list[GroupPast])
    settings: list[tuple[Position, QueueConfig]] = field(
        default_factory=list[tuple[Position, QueueConfig]]
    )
    voters: list[tuple[int, list[str]]] = field(default_factory=list[tuple[int, list[str]]])
    """(index of the configuration's entry, the nodes that vote from there on)."""
    start_index: int = 1
    """Where the log begins."""
    index: int = 0
    number: int = 0
    """The operation that applies now."""
    _noted: int = 0

    # -- while an entry applies

    def nothing(self) -> None:
        """The operation changes nothing, whatever it says."""
        self._note(NOTHING, ())

    def not_granted(self, offsets: Sequence[int]) -> None:
        self._note(NOT_GRANTED, offsets)

    def halted(self, offset: int) -> None:
        """The message's failure halts its group, or finds it halted; it would, if the message had
        not expired."""
        self._note(HALTED, (offset,))

    def configured(self, config: QueueConfig) -> None:
        self.settings.append(((self.index, self.number), config))
        self._bound(self.settings)

    def opened(self, past: GroupPast, config: GroupConfig) -> None:
        past.settings.append(((self.index, self.number), config))
        self.groups.append(past)

    def regrouped(self, id: int, config: GroupConfig) -> None:
        """A group has other settings."""
        known = self._living(id)
        if known is not None:
            known.settings.append(((self.index, self.number), config))
            self._bound(known.settings)

    def dropped(self, id: int) -> None:
        known = self._living(id)
        if known is None:
            return
        known.dropped = self.index, self.number
        gone = [past for past in self.groups if past.dropped is not None]
        if len(gone) > GROUPS_GONE_MAX:
            self.groups.remove(gone[0])
            self._lose(gone[0].dropped or (0, 0))

    def vote(self, index: int, nodes: Sequence[str]) -> None:
        """These are the voters from this entry on."""
        if not self.voters or index > self.voters[-1][0]:
            self.voters.append((index, list(nodes)))
            if len(self.voters) > CHANGES_MAX:
                del self.voters[0]
                self._lose((self.voters[0][0], 0))

    def trim(self, index: int) -> None:
        """The log begins at this entry."""
        self.start_index = index
        for noted in [noted for noted in self.notes if noted < index]:
            self._noted -= _weight(self.notes.pop(noted))
        self.noted_from = 0 if self.noted_from <= index else self.noted_from
        before = index, 0
        self.groups = [p for p in self.groups if p.dropped is None or p.dropped >= before]
        for past in self.groups:
            _keep_since(past.settings, before)
        _keep_since(self.settings, before)
        while len(self.voters) > 1 and self.voters[1][0] <= index:
            del self.voters[0]

    # -- for timelines

    def did_nothing(self, index: int, number: int) -> bool:
        """Whether this operation is known to have changed nothing."""
        notes = self.notes.get(index)
        return notes is not None and any(note[:2] == (number, NOTHING) for note in notes)

    def excepts(self, index: int, number: int, what: int, offset: int) -> bool:
        """Whether the message is one of those that this is noted of."""
        notes = self.notes.get(index)
        return notes is not None and any(
            note[:2] == (number, what) and offset in note[2] for note in notes
        )

    def voters_at(self, index: int) -> list[str]:
        """Who voted when this entry was appended; empty where that is not known any more."""
        found: list[str] = []
        for since, nodes in self.voters:
            if since <= index:
                found = nodes
        return found

    def changes(self) -> Iterator[tuple[Position, GroupPast, GroupConfig | None]]:
        """Openings, settings and ends of groups in the log's order; None for the end."""
        found: list[tuple[Position, GroupPast, GroupConfig | None]] = [
            (at, past, config) for past in self.groups for at, config in past.settings
        ]
        found += [(past.dropped, past, None) for past in self.groups if past.dropped is not None]
        return iter(sorted(found, key=lambda change: change[0]))

    # -- snapshots

    def dump(self) -> OutcomeNotesRecord:
        """What was noted of an entry is not changed any more once it has applied."""
        return OutcomeNotesRecord(
            list(self.notes.items()),
            self.noted_from,
            [
                GroupRecord(
                    past.id, past.name, past.base, past.opened_ms, list(past.settings), past.dropped
                )
                for past in self.groups
            ],
            list(self.settings),
            list(self.voters),
            self.start_index,
        )

    def load(self, record: OutcomeNotesRecord) -> None:
        """Replace everything by what `dump` told."""
        self.notes = {index: list(notes) for index, notes in record.notes}
        self._noted = sum(map(_weight, self.notes.values()))
        self.noted_from, self.start_index = record.noted_from, record.start_index
        self.groups = [
            GroupPast(
                past.id, past.name, past.base, past.opened_ms, list(past.settings), past.dropped
            )
            for past in record.groups
        ]
        self.settings, self.voters = list(record.settings), list(record.voters)

    def begin_anew(self, index: int, config: QueueConfig, groups: Sequence[GroupPast]) -> None:
        """How things stand after this entry; of what was before nothing is known."""
        self.settings, self.groups = [((index, 0), config)], list(groups)
        self._lose((index, 0))

    # -- private

    def _lose(self, at: Position) -> None:
        """What held before this operation is not known any more."""
        self.noted_from = max(self.noted_from, at[0] + 1)

    def _bound(
        self, changes: list[tuple[Position, GroupConfig]] | list[tuple[Position, QueueConfig]]
    ) -> None:
        if len(changes) > CHANGES_MAX:
            del changes[0]
            self._lose(changes[0][0])

    def _living(self, id: int) -> GroupPast | None:
        return next((p for p in reversed(self.groups) if p.id == id and p.dropped is None), None)

    def _note(self, what: int, offsets: Sequence[int]) -> None:
        noted = self.notes.setdefault(self.index, [])
        if what == HALTED and noted and noted[-1][:2] == (self.number, HALTED):
            noted[-1] = self.number, HALTED, [*noted[-1][2], *offsets]
            self._noted += len(offsets)
        else:
            noted.append((self.number, what, list(offsets)))
            self._noted += 1 + len(offsets)
        while self._noted > NOTED_MAX and len(self.notes) > 1:
            oldest = next(iter(self.notes))
            self._lose((oldest, 0))
            self._noted -= _weight(self.notes.pop(oldest))


def _weight(notes: Sequence[Note]) -> int:
    return sum(1 + len(offsets) for _number, _what, offsets in notes)


def _keep_since(
    changes: list[tuple[Position, GroupConfig]] | list[tuple[Position, QueueConfig]], at: Position
) -> None:
    """Forget what was replaced before this position."""
    while len(changes) > 1 and changes[1][0] <= at:
        del changes[0]
