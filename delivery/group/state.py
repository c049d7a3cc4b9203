"""Where each message of a group is in one partition, and how it gets from one place to another.

A message is in exactly one place: ready, leased, waiting (for its backoff), behind another of its
key, parked, dead, or settled. Settled is below `committed_offset` or in `done`; a dead letter
counts as settled, and a redriven one is ready again whatever the floor says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from delivery.config import LANES_COUNT, GroupConfig
from delivery.entries.ops import FORCED, UNCLAIMED, Grant, Granted
from delivery.group.counters import Counters
from delivery.group.failures import DeadLetter, Failures, Redrives
from delivery.group.key_order import KeyOrder
from delivery.group.leases import Leases
from delivery.history.outcome_notes import OutcomeNotes
from delivery.offsets.bitmaps import BitMap64, first_missing, remove_below, span
from delivery.offsets.keys import KeyHashes
from delivery.offsets.lanes import Fairness, ReadyLanes
from delivery.offsets.store_times import StoreTimes


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose the partition is, nobody's where `member` is empty: since which generation, and since
    which entry it was given to somebody else. This generation `ended` so many leases of others."""

    member: str = ""
    generation: int = 0
    since: int = 0
    ended: int = 0

    def admits(self, member: str, generation: int) -> bool:
        """Whether this member may act in this generation; who is none says `UNCLAIMED`."""
        if generation == FORCED:
            return True
        if not self.member:
            return generation == UNCLAIMED
        return member == self.member and generation >= self.generation


class Stored(Protocol):
    """What a group looks at in its partition."""

    next_offset: int
    log_start_offset: int
    lanes: list[BitMap64]
    """Offsets stored in each lane."""
    hidden: BitMap64
    """Delayed, and not due."""
    withdrawn: BitMap64
    """Cancelled or expired: never delivered any more."""
    reappended: dict[int, int]
    """What is held below the log's start for the queue's sake."""
    keys: KeyHashes
    times: StoreTimes
    outcome_notes: OutcomeNotes

    @property
    def compacted(self) -> BitMap64:
        """What compaction has left below the log's start."""
        ...

    def lane_of(self, offset: int) -> int: ...

    def due(self, now_ms: int) -> list[int]:
        """Of `hidden`, those that an entry at this time releases."""
        ...


class GroupState:
    """The messages of one group, as of the applied entries. The same on every replica. What entries
    do to it stands in `delivery.group.operations`."""

    def __init__(
        self,
        id: int,
        name: str,
        version: int,
        config: GroupConfig,
        base: int,
        opened_ms: int,
        stored: Stored,
    ) -> None:
        self.id = id
        self.name = name
        self.version = version
        self.config = config
        self.base = base
        """Nothing below is ever delivered."""
        self.begins = base
        """Nothing below was ever its: the lowest `base` that it has had."""
        self.outside = BitMap64()
        """Nor were these, which had outlived the log when it began."""
        self.opened_ms = opened_ms
        """When the group began, here or anew: none of its messages was ready before."""
        self.committed_offset = max(base, stored.log_start_offset)
        self.seen = self.committed_offset
        """Up to here what is stored has been looked at; the rest is when it is needed."""
        self.halted = ""
        self.owner = Owner()
        self.done = BitMap64(stored.withdrawn)
        remove_below(self.done, self.committed_offset)
        self.ready = ReadyLanes()
        self.leases = Leases()
        self.waiting: dict[int, tuple[int, bool]] = {}
        """Offset -> (when it is ready again, whether behind the others)."""
        self.wakes: list[tuple[int, int]] = []
        self.since: dict[int, int] = {}
        """When a message became ready, of those that were not from the moment they were stored."""
        self.timed = BitMap64()
        """Not settled, and could not be delivered when they were stored: delayed, or redriven."""
        self.first: dict[int, int] = {}
        """When one of these could be delivered first, if `since` does not tell so any more."""
        self.failures = Failures()
        self.dead: dict[int, DeadLetter] = {}
        self.dead_by_reason: dict[str, int] = {}
        self.redrives: dict[int, Redrives] = {}
        self.order = KeyOrder() if config.ordering == "key" else None
        self.outcomes: deque[bool] = deque(maxlen=config.halt_window)
        """Whether each of the last final outcomes was a death."""
        self.turns = [0] * LANES_COUNT
        """How much was delivered to those who want lanes down to this one, as a number of turns of
        what has waited too long: each kind of receive has turns of its own."""
        self.counters = Counters()
        self.stored = stored
        self.advance()

    # -- what a leader asks

    def select(self, limit: int, now_ms: int, lowest_lane: int = LANES_COUNT - 1) -> list[int]:
        """Offsets that may be delivered next, in order, of no lane below this one."""
        if self.halted:
            return []
        self.look()
        room = min(limit, self.config.in_flight_max - len(self.leases))
        return self.peek(room, now_ms, lowest_lane) or self._just_due(room, now_ms, lowest_lane)

    def _just_due(self, limit: int, now_ms: int, lowest_lane: int) -> list[int]:
        """Delayed messages that the next entry makes ready before it delivers: for a group without
        anything else, and without keys, whose order only the release tells."""
        if limit <= 0 or self.order is not None:
            return []
        due = [o for o in self.stored.due(now_ms) if o >= self.base and o not in self.done]
        lane_of = self.stored.lane_of
        ordered = sorted((lane_of(offset), offset) for offset in due)
        return [offset for lane, offset in ordered if lane <= lowest_lane][:limit]

    def peek(self, limit: int, now_ms: int, lowest_lane: int = LANES_COUNT - 1) -> list[int]:
        """The same, whatever is in flight."""
        self.look()
        return self.ready.select(limit, self.fairness(now_ms, lowest_lane), lowest_lane)

    def fairness(self, now_ms: int, lowest_lane: int = LANES_COUNT - 1) -> Fairness:
        """The bound on waiting as it stands, for those who want lanes down to this one."""
        config = self.config
        return Fairness(
            now_ms,
            config.lane_max_wait_ms,
            config.lane_share,
            self.turns[lowest_lane],
            self.ready_since,
            self.stored_ms,
            self.since,
        )

    def is_owned_by(self, member: str, generation: int) -> bool:
        """Whether this member may act here in this generation; who is none says `UNCLAIMED`."""
        return self.owner.admits(member, generation)

    def upholds(self, granted: Granted) -> bool:
        """Whether nobody else has owned the partition since, so that it is its owner's still."""
        return granted.delivery >= self.owner.since

    def grants(self, offsets: Sequence[int]) -> list[Grant]:
        """What is told of deliveries."""
        failures, redrives = self.failures, self.redrives
        if not failures and not redrives:
            return [Grant(offset, 1) for offset in offsets]
        found = []
        for offset in offsets:
            failed = failures.count(offset)
            reason = failures.last_reason(offset) if failed else ""
            redriven = redrives.get(offset)
            found.append(Grant(offset, failed + 1, reason, redriven.count if redriven else 0))
        return found

    @property
    def is_full(self) -> bool:
        return len(self.leases) >= self.config.in_flight_max

    def ready_since(self, offset: int) -> int:
        """Since when a ready message could have been delivered, no later than in truth."""
        known = self.since.get(offset)
        return self.stored_ms(offset) if known is None else known

    def stored_ms(self, offset: int) -> int:
        return max(self.stored.times.at(offset), self.opened_ms)

    def ready_count(self) -> int:
        self.look()
        return len(self.ready)

    def waiting_count(self) -> int:
        """Messages that are neither ready nor in flight nor settled: those that wait for their
        backoff, behind another of their key, or under a parked key."""
        self.look()
        if self.order is None:
            return len(self.waiting)
        held = [o for o in self.order.withheld if o not in self.waiting and o not in self.leases]
        return len(self.waiting) + len(self.order.waits) + len(held)

    def lane_heads(self, now_ms: int) -> list[int]:
        """How long each lane's head has been ready, in ms; 0 for an empty lane."""
        self.look()
        return [
            0 if head is None else max(0, now_ms - self.ready_since(head))
            for head in self.ready.heads()
        ]

    def next_deadline_ms(self) -> int | None:
        """When the first lease is over."""
        return self.leases.next_deadline_ms()

    def next_wake_ms(self) -> int | None:
        """When the first message that waits is ready again."""
        return self.wakes[0][0] if self.wakes else None

    def parked(self) -> list[tuple[bytes, int, int | None]]:
        """(key, how many of its messages wait, the first of them).

        A key that was parked by its poisoned message is told as empty: that message has it.
        """
        if self.order is None:
            return []
        self.look()
        behind, parked = self.order.behind, self.order.parked
        return [(found.key, behind(key), found.head) for key, found in parked.items()]

    def attempts(self, offset: int) -> int:
        """How often a message has been delivered, the delivery in flight included."""
        return self.failures.count(offset) + (offset in self.leases)

    def had(self, offset: int) -> bool:
        """Whether a stored message is or was the group's."""
        return offset >= self.begins and offset not in self.outside

    @property
    def never(self) -> BitMap64:
        """All that never was the group's."""
        return span(0, self.begins) | self.outside

    def pending(self, wanted: BitMap64) -> BitMap64:
        """Those of the messages that the group has to deliver yet, or has in flight."""
        self.look()
        found = self.ready.among(wanted)
        found.update(among(self.waiting, wanted))
        found.update(among(self.leases, wanted))
        if self.order is not None:
            found |= (self.order.waits | self.order.withheld) & wanted
        return found

    def outlasting(self, below: int, redriven_from_ms: int) -> list[int]:
        """Messages that were redriven since then, and are neither settled nor dead again."""
        return [
            offset
            for offset, redriven in self.redrives.items()
            if offset < below
            and redriven.at_ms >= redriven_from_ms
            and offset not in self.dead
            and offset not in self.stored.withdrawn
        ]

    def look(self) -> None:
        """Take note of what was stored since; what it comes to does not depend on when."""
        stored, seen = self.stored, self.seen
        if seen >= stored.next_offset:
            return
        self.seen = stored.next_offset
        fresh = span(seen, stored.next_offset)
        for gone in (stored.hidden, stored.withdrawn):
            if gone:
                fresh -= gone
        for lane, offsets in enumerate(stored.lanes):
            if offsets and self.order is None:
                self.ready.add_all(lane, (offsets & fresh) - self.done)
        if self.order is not None:
            self._admit_in_order(fresh)

    def admit_kept(self, kept: BitMap64) -> None:
        """Messages below the log's start that this group has not seen, or is to see again."""
        stored = self.stored
        kept = kept - stored.hidden - stored.withdrawn
        self.timed |= kept
        if self.order is not None:
            for offset in kept:
                self._admit(offset)
        else:
            for lane, offsets in enumerate(stored.lanes):
                self.ready.add_all(lane, offsets & kept)

    # -- becoming ready, for the operations

    def release_due(self, offset: int, due_ms: int) -> None:
        """A delayed message that this group has not settled is due."""
        if offset >= self.base and offset not in self.done:
            self.admit_late(offset, max(due_ms, self.opened_ms))

    def _admit_in_order(self, fresh: BitMap64) -> None:
        """A key's first message is the one of the lowest offset, whatever its lane."""
        stored = BitMap64()
        for offsets in self.stored.lanes:
            stored |= offsets & fresh
        for offset in stored - self.done:
            self._admit(offset)

    def admit_late(self, offset: int, since_ms: int) -> None:
        """It could not be delivered before this time."""
        self.since[offset] = since_ms
        self.timed.add(offset)
        self._admit(offset)

    def _admit(self, offset: int) -> None:
        if self.order is None or self.order.admit(self.stored.keys.of(offset), offset):
            self.ready.add(self.stored.lane_of(offset), offset)

    def make_ready(self, offset: int, since_ms: int) -> None:
        """First in its lane, unless its key is parked."""
        if not self.is_parked(offset):
            self._ready_again(offset, since_ms)
            self.ready.add(self.stored.lane_of(offset), offset)

    def make_ready_last(self, offset: int, since_ms: int) -> None:
        if not self.is_parked(offset):
            self._ready_again(offset, since_ms)
            end = self.stored.next_offset
            self.ready.add_behind(self.stored.lane_of(offset), offset, end)

    def _ready_again(self, offset: int, since_ms: int) -> None:
        if offset in self.timed:
            self.first.setdefault(offset, self.ready_since(offset))
        self.since[offset] = since_ms

    def is_parked(self, offset: int) -> bool:
        return self.order is not None and self.stored.keys.of(offset) in self.order.parked

    def note_waits(self, taken: BitMap64, now_ms: int) -> None:
        """The longest wait of a delivery in each lane."""
        stored, since = self.stored, self.since
        oldest: dict[int, int] = {}
        plain = taken
        if since:
            later = among(since, taken)
            plain = taken - BitMap64(later)
            for offset in later:
                lane, since_ms = stored.lane_of(offset), since.pop(offset)
                oldest[lane] = min(since_ms, oldest.get(lane, now_ms))
                if offset in self.timed:
                    self.first.setdefault(offset, since_ms)
        for lane, offsets in enumerate(stored.lanes):
            hit = plain & offsets
            if hit:
                oldest[lane] = min(self.stored_ms(hit.min()), oldest.get(lane, now_ms))
        for lane, since_ms in oldest.items():
            self.counters.waited(lane, now_ms - since_ms)

    # -- being done

    def finish_all(self, offsets: list[int]) -> None:
        self.forget_times(offsets)
        if self.failures or self.redrives or self.order is not None:
            for offset in offsets:
                self.finish(offset)
        elif offsets:
            self.done.update(offsets)
            if min(offsets) < self.committed_offset:
                remove_below(self.done, self.committed_offset)

    def finish(self, offset: int, *, redrives: bool = True) -> None:
        self.failures.discard(offset)
        self.forget_times([offset])
        if redrives:
            self.redrives.pop(offset, None)
        if offset >= self.committed_offset:
            self.done.add(offset)
        if self.order is not None:
            self.follow(offset)

    def keep_times(self, outlasting: BitMap64) -> None:
        """The log below the floor is over, but for these messages."""
        fresh = outlasting - self.timed
        for offset in fresh - self.stored.compacted:
            self.first[offset] = self.stored_ms(offset)
        self.timed |= fresh

    def forget_times(self, offsets: Sequence[int]) -> None:
        if self.timed:
            self.timed -= BitMap64(offsets)
            for offset in offsets if self.first else ():
                self.first.pop(offset, None)

    def follow(self, offset: int) -> None:
        """What waited for a key's message to be settled is ready."""
        assert self.order is not None
        following = self.order.finish(self.stored.keys.of(offset), offset)
        if following is not None:
            self.ready.add(self.stored.lane_of(following), following)

    def advance(self) -> None:
        if self.committed_offset in self.done:
            self.raise_committed_offset(first_missing(self.done, self.committed_offset))

    def raise_committed_offset(self, committed_offset: int) -> None:
        self.committed_offset = max(self.committed_offset, committed_offset)
        if self.committed_offset in self.done:
            self.committed_offset = first_missing(self.done, self.committed_offset)
        remove_below(self.done, self.committed_offset)

    def drop(self, gone: BitMap64, *, leased: bool = False) -> BitMap64:
        """Take these out of wherever they wait, and settle them; those that were waiting."""
        found = self.ready.take(gone)
        found.update(among(self.waiting, gone))
        if leased:
            flying = among(self.leases, gone)
            for offset in flying:
                self.leases.end(offset)
            found.update(flying)
        if self.order is not None:
            found |= self.order.drop(gone)
            found.update(o for o in self.order.withheld & gone if o not in self.leases)
        for offset in found if self.waiting or self.since else ():
            self.waiting.pop(offset, None)
            self.since.pop(offset, None)
        if self.first or self.failures or self.redrives or self.order is not None:
            self.finish_all(list(found))
        else:
            self.timed -= found
            self.done |= found
            remove_below(self.done, self.committed_offset)
        return found


def among(known: Mapping[int, object] | Leases, wanted: BitMap64) -> list[int]:
    """Those of the offsets that are known, by looking through whichever are fewer."""
    if len(wanted) < len(known):
        return [offset for offset in wanted if offset in known]
    return [offset for offset in known if offset in wanted]
