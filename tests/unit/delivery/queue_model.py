"""What a partition's queue promises, in dicts and lists: slow, and plain enough to be believed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from delivery.config import GroupConfig, QueueConfig
from delivery.entries.ops import StreamId
from delivery.group.rules import FENCED

LATE_RESULT_MS = 10 * 60 * 1000


@dataclass(slots=True)
class Message:
    offset: int
    lane: int
    key: bytes | None
    stored_ms: int
    due_ms: int | None
    expires_ms: int | None
    hidden: bool = False
    late_until_ms: int = 0
    """Delayed: how long it is kept for those who have not settled it."""
    fate: str = ""
    """`cancelled` or `expired`: never delivered any more."""

    @property
    def was_delayed(self) -> bool:
        return self.due_ms is not None


@dataclass(slots=True)
class Pending:
    """A message that a group has to deliver yet: ready, leased, waiting, behind or parked."""

    place: str
    since_ms: int = 0
    back: tuple[int, int] | None = None
    """Given back to the back: (the partition's end then, turn)."""
    delivery: int = 0
    deadline_ms: int = 0
    due_ms: int = 0
    to_back: bool = False
    member: str = ""
    stream: StreamId | None = None


@dataclass(slots=True)
class Owner:
    """Whose the partition is; since which entry it was given to somebody else."""

    member: str = ""
    generation: int = 0
    since: int = 0
    ended: int = 0


@dataclass(slots=True)
class Dead:
    died_ms: int
    attempts: int
    reason: str
    history: list[tuple[int, str]]
    redrives: int


@dataclass(slots=True)
class Failed:
    count: int = 0
    history: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])


class GroupModel:
    """One group: where each of its messages is."""

    def __init__(self, config: GroupConfig, base: int, opened_ms: int, queue: QueueModel) -> None:
        self.config = config
        self.queue = queue
        self.base = base
        self.committed_offset = base
        self.opened_ms = opened_ms
        self.halted = ""
        self.pending: dict[int, Pending] = {}
        self.could_ms: dict[int, int] = {}
        """When each of these could be delivered first."""
        self.settled: set[int] = set()
        self.never: set[int] = set()
        """Stored before the group began, and not its."""
        self.failed: dict[int, Failed] = {}
        self.dead: dict[int, Dead] = {}
        self.redrives: dict[int, int] = {}
        self.redriven_ms: dict[int, int] = {}
        self.heads: dict[bytes, int] = {}
        self.parked: set[bytes] = set()
        self.poisoned: set[bytes] = set()
        self.outcomes: list[bool] = []
        self.turns = dict.fromkeys(range(5), 0)
        self.backs = 0
        self.owner = Owner()

    # -- places

    def key_of(self, offset: int) -> bytes | None:
        if self.config.ordering != "key":
            return None
        return self.queue.messages[offset].key or None

    def admit(self, offset: int, since_ms: int) -> None:
        key = self.key_of(offset)
        self.could_ms[offset] = since_ms
        if key is not None and key in self.heads:
            self.pending[offset] = Pending("behind")
        else:
            if key is not None:
                self.heads[key] = offset
            self.make_ready(offset, since_ms)

    def make_ready(self, offset: int, since_ms: int, *, to_back: bool = False) -> None:
        if self.key_of(offset) in self.parked:
            self.pending[offset] = Pending("parked")
            return
        self.backs += 1
        back = (self.queue.end, self.backs) if to_back else None
        self.pending[offset] = Pending("ready", since_ms, back)

    def settle(self, offset: int, *, dead: bool = False) -> None:
        """The message is done with; the next of its key follows."""
        self.pending.pop(offset, None)
        self.failed.pop(offset, None)
        if not dead:
            self.redrives.pop(offset, None)
        self.redriven_ms.pop(offset, None)
        self.settled.add(offset)

    def follow(self) -> None:
        """Keys whose first message is settled go on with their next."""
        for key in [key for key, head in self.heads.items() if head not in self.pending]:
            behind = [o for o in self.pending if self.key_of(o) == key]
            del self.heads[key]
            if behind:
                self.heads[key] = min(behind)
                self.make_ready(min(behind), self.queue.now_ms)
            elif key in self.poisoned:
                self.poisoned.discard(key)
                self.parked.discard(key)
        while self.committed_offset in self.settled:
            self.committed_offset += 1

    def drop(self, gone: Iterable[int], *, leased: bool) -> int:
        count = 0
        for offset in gone:
            found = self.pending.get(offset)
            if found is not None and (leased or found.place != "leased"):
                self.settle(offset)
                count += 1
        self.follow()
        return count

    def leased(self) -> list[int]:
        return [o for o, p in self.pending.items() if p.place == "leased"]

    def lane_orders(self) -> list[list[int]]:
        """The ready messages of each lane, in the order of delivery."""
        lanes: list[list[tuple[tuple[int, int, int], int]]] = [[] for _ in range(5)]
        for offset, found in self.pending.items():
            if found.place == "ready":
                at = (offset, 0, 0) if found.back is None else (found.back[0], -1, found.back[1])
                lanes[self.queue.messages[offset].lane].append((at, offset))
        return [[offset for _, offset in sorted(lane)] for lane in lanes]

    # -- operations

    def lets(self, member: str, generation: int) -> bool:
        """Whether who claims this may deliver, commit and seek."""
        owner = self.owner
        if generation == -1:
            return True
        if not owner.member:
            return generation == 0
        return (member, generation >= owner.generation) == (owner.member, True)

    def own(self, member: str, generation: int, index: int, *, fence: bool) -> Owner:
        """What others have in flight is taken back, in the order of offsets."""
        if generation <= self.owner.generation:
            return self.owner
        taken: list[int] = []
        since = self.owner.since
        if member != self.owner.member:
            since = index
            taken = sorted(o for o in self.leased() if self.pending[o].member != member)
        self.owner = Owner(member, generation, since, len(taken))
        for offset in taken:
            delivery = self.pending[offset].delivery
            if fence:
                self.fail(delivery, offset, FENCED, 0, False)
            else:
                self.release(delivery, offset, 0, False)
        return self.owner

    def deliver(
        self,
        offsets: Sequence[int],
        visibility_ms: int,
        delivery: int,
        member: str,
        *,
        lowest: int,
        stream: StreamId | None = None,
    ) -> list[tuple[int, int, str, int]]:
        if self.halted:
            return []
        room = max(0, self.config.in_flight_max - len(self.leased()))
        grants: list[tuple[int, int, str, int]] = []
        for offset in offsets[:room]:
            found = self.pending.get(offset)
            if found is None or found.place != "ready":
                continue
            deadline_ms = self.queue.now_ms + visibility_ms
            if stream is not None and not visibility_ms:
                deadline_ms = 0  # none: it ends with the stream
            self.pending[offset] = Pending(
                "leased", delivery=delivery, deadline_ms=deadline_ms, member=member, stream=stream
            )
            failed = self.failed.get(offset, Failed())
            reason = failed.history[-1][1] if failed.count else ""
            grants.append((offset, failed.count + 1, reason, self.redrives.get(offset, 0)))
        if grants:
            self.turns[lowest] = (self.turns[lowest] + len(grants)) % self.config.lane_share
        return grants

    def lease(self, delivery: int, offset: int) -> Pending | None:
        found = self.pending.get(offset)
        if found is None or found.place != "leased" or found.delivery != delivery:
            return None
        return found

    def ack(self, delivery: int, offset: int) -> tuple[str, int, int] | None:
        if self.lease(delivery, offset) is None:
            return None
        attempts = self.attempts(offset)
        if self.config.halt_percent:
            self.outcome(death=False)
        self.settle(offset)
        self.follow()
        return "acked", attempts, 0

    def extend(self, delivery: int, offset: int, visibility_ms: int) -> tuple[str, int, int] | None:
        found = self.lease(delivery, offset)
        if found is None:
            return None
        found.deadline_ms = self.queue.now_ms + visibility_ms
        return "extended", self.attempts(offset), found.deadline_ms

    def release(
        self, delivery: int, offset: int, delay_ms: int, to_back: bool
    ) -> tuple[str, int, int] | None:
        if self.lease(delivery, offset) is None:
            return None
        attempts = self.attempts(offset) - 1
        if self.queue.messages[offset].fate:
            self.settle(offset)
        elif delay_ms > 0:
            due_ms = self.queue.now_ms + delay_ms
            self.pending[offset] = Pending("waiting", due_ms=due_ms, to_back=to_back)
            return "released", attempts, due_ms
        else:
            self.make_ready(offset, self.queue.now_ms, to_back=to_back)
        self.follow()
        return "released", attempts, self.queue.now_ms

    def reject(self, delivery: int, offset: int, reason: str) -> tuple[str, int, int] | None:
        if self.lease(delivery, offset) is None:
            return None
        attempts = self.attempts(offset)
        self.note_failure(offset, reason)
        return self.kill(offset, reason), attempts, 0

    def fail(
        self, delivery: int, offset: int, reason: str, delay_ms: int, to_back: bool
    ) -> tuple[str, int, int] | None:
        if self.lease(delivery, offset) is None:
            return None
        attempts = self.attempts(offset)
        now_ms = self.queue.now_ms
        if self.queue.messages[offset].fate:
            self.settle(offset)
            self.follow()
            return "expired", attempts, 0
        count = self.note_failure(offset, reason)
        if self.config.max_attempts and count >= self.config.max_attempts:
            return self.kill(offset, reason), attempts, 0
        if delay_ms < 0:
            delay_ms = min(self.config.backoff_ms * 2 ** (count - 1), self.config.backoff_ms_max)
        if delay_ms:
            due_ms = now_ms + delay_ms
            self.pending[offset] = Pending("waiting", due_ms=due_ms, to_back=to_back)
            return "requeued", attempts, due_ms
        self.make_ready(offset, now_ms, to_back=to_back)
        return "requeued", attempts, now_ms

    def note_failure(self, offset: int, reason: str) -> int:
        failed = self.failed.setdefault(offset, Failed())
        failed.count += 1
        failed.history = [*failed.history, (self.queue.now_ms, reason)][-10:]
        return failed.count

    def kill(self, offset: int, reason: str) -> str:
        key = self.key_of(offset)
        parks = key is not None and self.config.on_poison == "park"
        if self.queue.messages[offset].fate and (parks or self.halts()):
            self.settle(offset)
            self.follow()
            return "expired"
        if key is not None and parks:
            self.failed[offset].count = 0
            if key not in self.parked:
                self.poisoned.add(key)
            self.parked.add(key)
            self.make_ready(offset, 0)
            return "parked"
        if self.halts():
            self.halted = self.halts()
            self.make_ready(offset, self.queue.now_ms)
            return "halted"
        failed = self.failed[offset]
        self.dead[offset] = Dead(
            self.queue.now_ms, failed.count, reason, failed.history, self.redrives.get(offset, 0)
        )
        if self.config.halt_percent:
            self.outcome(death=True)
        self.settle(offset, dead=True)
        self.follow()
        return "dead"

    def halts(self) -> str:
        config, last = self.config, self.outcomes
        if len(self.dead) >= config.dead_max:
            return "dead"
        if config.halt_percent and len(last) == config.halt_window:
            deaths = [*last[1:], True].count(True)
            if deaths / config.halt_window > config.halt_percent / 100:
                return "failures"
        return self.halted

    def outcome(self, *, death: bool) -> None:
        self.outcomes = [*self.outcomes, death][-self.config.halt_window :]

    def attempts(self, offset: int) -> int:
        failed = self.failed[offset].count if offset in self.failed else 0
        return failed + (offset in self.leased())

    def expire(self, deliveries: Sequence[tuple[int, Sequence[int]]]) -> int:
        count = 0
        for delivery, offsets in deliveries:
            for offset in offsets:
                found = self.lease(delivery, offset)
                if found is not None and 0 < found.deadline_ms <= self.queue.now_ms:
                    self.fail(delivery, offset, "visibility timeout", -1, False)
                    count += 1
        return count

    def end_streams(self, run: int, numbers: Sequence[int], *, lost: bool) -> int:
        """Of these streams, or of all of the run."""
        ended = [
            (offset, found.delivery)
            for offset, found in sorted(self.pending.items())
            if found.place == "leased"
            and found.stream is not None
            and found.stream.run == run
            and (not numbers or found.stream.number in numbers)
        ]
        for offset, delivery in ended:
            if lost:
                self.fail(delivery, offset, FENCED, 0, False)
            else:
                self.release(delivery, offset, 0, False)
        return len(ended)

    def commit(self, offset: int) -> int:
        end = min(offset, self.queue.end)
        count = self.drop([o for o in self.pending if o < end], leased=True)
        self.base = max(self.base, end)
        self.committed_offset = max(self.committed_offset, end)
        self.follow()
        return count

    def unsettled(self) -> list[int]:
        return [offset for offset in self.pending if not self.queue.messages[offset].fate]

    def oldest_ms(self) -> int:
        ages = [self.queue.now_ms - self.could_ms[offset] for offset in self.unsettled()]
        return max(ages, default=0)

    def coming(self) -> set[int]:
        """What is unsettled, and what will be once it is due."""
        hidden = {m.offset for m in self.queue.stored() if m.hidden and m.offset >= self.base}
        return {*self.unsettled(), *(hidden - self.settled)}

    def seek(self, offset: int) -> tuple[int, int, int, int]:
        """All that the log has from there on; of what outlived the log, what was not settled."""
        committed_offset, coming = self.committed_offset, self.coming()
        start = min(offset, self.queue.end)
        first = max(start, self.queue.log_start)
        outlived = [o for o in self.pending if start <= o < first]
        self.pending, self.failed, self.heads = {}, {}, {}
        known = {*self.dead, *outlived}
        self.redrives = {o: n for o, n in self.redrives.items() if o in known}
        self.redriven_ms = {o: t for o, t in self.redriven_ms.items() if o in outlived}
        self.settled = set(self.dead)
        self.base, self.committed_offset, self.opened_ms = start, first, self.queue.now_ms
        for found in self.queue.stored():
            if found.offset >= first or (found.offset >= start and found.hidden):
                self.never.discard(found.offset)
        for found in self.queue.stored():
            if found.offset >= first or found.offset in outlived:
                self.offer(found)
        for key in [key for key in self.poisoned if key not in self.heads]:
            self.poisoned.discard(key)
            self.parked.discard(key)
        self.follow()
        after = self.coming()
        return committed_offset, self.committed_offset, len(after - coming), len(coming - after)

    def offer(self, message: Message) -> None:
        if message.fate:
            self.settled.add(message.offset)
        elif not message.hidden and message.offset not in self.dead:
            self.admit(message.offset, max(message.stored_ms, self.opened_ms))

    def purge(self, offsets: Sequence[int]) -> int:
        count = 0
        for offset in offsets:
            if self.dead.pop(offset, None) is not None:
                self.redrives.pop(offset, None)
                count += 1
        return count

    def redrive(self, offsets: Sequence[int], *, force: bool) -> tuple[int, int]:
        count = refused = 0
        for offset in offsets:
            if offset not in self.dead:
                continue
            times = self.redrives.get(offset, 0)
            looping = times >= self.config.redrives_max and not force
            if looping or self.queue.messages[offset].fate:
                refused += 1
                continue
            del self.dead[offset]
            self.redrives[offset] = times + 1
            self.redriven_ms[offset] = self.queue.now_ms
            self.settled.discard(offset)
            self.admit(offset, self.queue.now_ms)
            count += 1
        return count, refused

    def park(self, key: bytes) -> int:
        if self.config.ordering != "key" or not key:
            return 0
        self.parked.add(key)
        self.poisoned.discard(key)
        head = self.heads.get(key)
        if head is not None and self.pending[head].place == "ready":
            self.pending[head] = Pending("parked")
        return sum(self.key_of(o) == key for o in self.pending)

    def unpark(self, key: bytes) -> int:
        if self.config.ordering != "key" or not key:
            return 0
        self.parked.discard(key)
        self.poisoned.discard(key)
        head = self.heads.get(key)
        if head is not None and self.pending[head].place == "parked":
            self.make_ready(head, self.queue.now_ms)
        return sum(self.key_of(o) == key for o in self.pending)

    def configure(self, config: GroupConfig) -> None:
        ordering = self.config.ordering
        self.config = msgspec.structs.replace(config, ordering=ordering)
        self.outcomes = self.outcomes[-config.halt_window :]

    # -- time, and the partition

    def due(self, message: Message) -> None:
        if message.offset >= self.base and message.offset not in self.settled:
            self.admit(message.offset, max(message.due_ms or 0, self.opened_ms))

    def withdraw(self, gone: list[int]) -> None:
        leased = self.leased()
        self.drop(gone, leased=False)
        self.settled.update(o for o in gone if o not in leased and o not in self.dead)
        self.follow()

    def wake(self, now_ms: int) -> None:
        waiting = [(p.due_ms, o) for o, p in self.pending.items() if p.place == "waiting"]
        for due_ms, offset in sorted(waiting):
            if due_ms <= now_ms:
                self.make_ready(offset, due_ms, to_back=self.pending[offset].to_back)

    def trim(self, below: int, kept: set[int]) -> None:
        self.drop([o for o in self.pending if o < below and o not in kept], leased=True)
        self.dead = {o: d for o, d in self.dead.items() if o >= below or o in kept}
        self.committed_offset = max(self.committed_offset, below)
        self.follow()


class QueueModel:
    """The partition: its messages, and its groups."""

    def __init__(self) -> None:
        self.config = QueueConfig()
        self.now_ms = 0
        self.end = 0
        self.log_start = 0
        self.log_start_index = 1
        self.messages: dict[int, Message] = {}
        self.reappended: dict[int, int] = {}
        self.groups: dict[int, GroupModel] = {}
        self.withdrawn = [0, 0]
        """How many were cancelled, and how many have expired."""

    def stored(self) -> list[Message]:
        return [self.messages[offset] for offset in sorted(self.messages)]

    def advance(self, now_ms: int) -> None:
        self.now_ms = now_ms
        ripe = [m for m in self.stored() if m.hidden and (m.due_ms or 0) <= now_ms]
        for message in sorted(ripe, key=lambda m: (m.due_ms, m.offset)):
            message.hidden = False
            message.late_until_ms = (message.due_ms or 0) + self.config.retention_ms
            for group in self.groups.values():
                group.due(message)
        old = [m for m in self.stored() if m.expires_ms is not None and m.expires_ms <= now_ms]
        self.withdraw([m.offset for m in old if not m.fate], "expired")
        for group in self.groups.values():
            group.wake(now_ms)
            keep_ms = self.config.dead_retention_ms
            if keep_ms >= 0:
                group.purge([o for o, d in group.dead.items() if d.died_ms + keep_ms < now_ms])

    def withdraw(self, gone: list[int], fate: str) -> None:
        self.withdrawn[fate == "expired"] += len(gone)
        for offset in gone:
            self.messages[offset].fate = fate
            self.messages[offset].hidden = False
        for group in self.groups.values():
            group.withdraw(gone)

    def store(self, message: Message) -> None:
        if self.config.lanes == 3:
            message.lane = min(max(message.lane, 1), 3)
        if message.expires_ms is None and self.config.ttl_ms:
            message.expires_ms = self.now_ms + self.config.ttl_ms
        if message.due_ms is not None and message.due_ms <= self.now_ms:
            message.due_ms = None
        message.hidden = message.due_ms is not None
        self.messages[message.offset] = message
        self.end = message.offset + 1
        for group in self.groups.values():
            if not message.hidden:
                group.admit(message.offset, self.now_ms)

    def open(self, id_: int, config: GroupConfig, offset: int) -> None:
        start = min(offset, self.end)
        first = max(start, self.log_start)
        from_all = start <= self.log_start and config.start != "latest"
        base = 0 if from_all else start
        group = self.groups[id_] = GroupModel(config, base, self.now_ms, self)
        group.committed_offset = first
        for message in self.stored():
            outlived = message.offset >= base and message.late_until_ms > self.now_ms
            if message.offset >= first or outlived:
                group.offer(message)
            elif message.offset < base or not message.hidden:
                group.never.add(message.offset)
        group.follow()

    def cancel(self, offsets: Sequence[int]) -> list[str]:
        told = [self.cancel_outcome(offset) for offset in offsets]
        gone = {o for o in offsets if o in self.messages and self.messages[o].hidden}
        self.withdraw(sorted(gone), "cancelled")
        return told

    def cancel_outcome(self, offset: int) -> str:
        message = self.messages.get(offset)
        if message is None:
            return "unknown"
        if message.hidden or message.fate == "cancelled":
            return "cancelled"
        return "late" if message.was_delayed else "unknown"

    def must_keep(self, below: int) -> set[int]:
        """What no trim may lose: what is not due yet, and dead letters."""
        return {
            m.offset
            for m in self.stored()
            if m.offset < below
            and (m.hidden or any(m.offset in g.dead for g in self.groups.values()))
        }

    def should_keep(self, below: int) -> set[int]:
        """Besides, what is not settled though it came late: delayed, or redriven."""
        kept = self.must_keep(below)
        for message in self.stored():
            if message.offset >= below or message.fate or message.hidden:
                continue
            if message.late_until_ms > self.now_ms:
                pending = [message.offset in g.pending for g in self.groups.values()]
                if any(pending) or not pending:
                    kept.add(message.offset)
            kept.update(
                message.offset
                for g in self.groups.values()
                if message.offset in g.pending
                and message.offset in g.redriven_ms
                and g.redriven_ms[message.offset] + self.config.dead_retention_ms >= self.now_ms
            )
        return kept

    def trim(self, index: int, offset: int) -> None:
        index, offset = max(index, self.log_start_index), max(self.log_start, offset)
        needed = self.must_keep(offset) | (self.must_keep(self.end) & set(self.reappended))
        if any(self.reappended.get(o, 0) < index for o in needed):
            return
        self.reappended = {o: at for o, at in self.reappended.items() if at >= index}
        kept = set(self.reappended)
        for group in self.groups.values():
            group.trim(offset, kept)
        self.messages = {o: m for o, m in self.messages.items() if o >= offset or o in kept}
        self.log_start, self.log_start_index = offset, index
