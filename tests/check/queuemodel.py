"""What a simple queue is: messages, groups, and where each message stands for each group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from delivery.config import GroupConfig

READY, LEASED, WAITING, DONE, DEAD = "ready", "leased", "waiting", "done", "dead"


@dataclass(slots=True)
class Message:
    """One stored message."""

    lane: int
    key: bytes | None
    time_ms: int
    due_ms: int = 0
    expires_ms: int = 0
    visible: int = 0
    """The entry at which it could first be delivered; 0 where it is delayed and not due."""
    late_until_ms: int = 0
    """Delayed, and due: how long it is also for groups that begin when the log has lost it."""
    is_cancelled: bool = False
    is_gone: bool = False
    """Cancelled or expired."""


@dataclass(slots=True)
class Life:
    """Where a message stands for one group."""

    status: str = READY
    since: int = 0
    """The entry at which it became ready."""
    since_ms: int = 0
    failed: int = 0
    reason: str = ""
    redrives: int = 0
    delivery: int = 0
    holder: str = ""
    """Who has it in flight."""
    stream: tuple[int, int] | None = None
    """Its run and number, where it is a stream's."""
    deadline_ms: int = 0
    wakes_ms: int = 0
    is_behind: bool = False
    """Given back to the back of its lane."""
    died_for: str = ""
    attempts: int = 0
    """Of a dead letter."""


@dataclass
class Ownership:
    """Whose the partition is for a group: since which generation, since which entry of another."""

    member: str = ""
    generation: int = 0
    since: int = 0
    ended: int = 0
    """Leases of others that this generation ended."""
    known: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """(member, generation) of every owner entry that counted."""

    def may(self, member: str, generation: int) -> bool:
        """Whether the member may act in this generation: who is none says 0, who forces it -1."""
        if generation < 0:
            return True
        if not self.member:
            return generation == 0
        return member == self.member and generation >= self.generation


@dataclass
class Group:
    """One group of the model."""

    id: int
    name: str
    config: GroupConfig
    version: int
    base: int
    opened_ms: int
    committed_offset: int = 0
    moved: int = 0
    """The entry of the last commit or seek."""
    owner: Ownership = field(default_factory=Ownership)
    lives: dict[int, Life] = field(default_factory=dict[int, Life])
    open: dict[int, None] = field(default_factory=dict[int, None])
    """Offsets that are not settled, dead or gone."""
    heads: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """The message of each key that was delivered and is not settled."""
    passed: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])
    """(when it was chosen, since when it was ready, lane, offset) of every grant."""
    expired: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """(offset, entry and time since which it was ready) of what expired while it was ready."""
    delivered: int = 0
    redelivered: int = 0

    def life(self, offset: int) -> Life:
        return self.lives.setdefault(offset, Life())

    def of(self, status: str) -> list[int]:
        return [offset for offset, life in self.lives.items() if life.status == status]

    def withdraw(self, offset: int, message: Message, since_ms: int) -> None:
        """The message is gone, but for who has it; ready since then, if it was."""
        status = self.lives[offset].status if offset in self.lives else READY
        if offset in self.open and status == READY:
            self.expired.append((offset, self.life(offset).since, since_ms))
        if self.has(offset) and status not in (LEASED, DEAD):
            self.finish(offset, message)

    def has(self, offset: int) -> bool:
        """Whether the message may come: also below the base, if it was redriven there."""
        return offset >= self.base or offset in self.open

    def expired_since(
        self, messages: Mapping[int, Message], lane: int, chosen_ms: int, seen: int
    ) -> Iterator[int]:
        """Since when those of a lane waited that were ready here at this time, when everything up
        to the entry `seen` had applied, and have expired since."""
        for offset, since, since_ms in self.expired:
            message = messages.get(offset)
            if message is None or message.lane != lane or message.expires_ms <= chosen_ms:
                continue
            if 0 < message.visible <= seen and since <= seen:
                yield since_ms

    def finish(self, offset: int, message: Message, status: str = DONE) -> None:
        life = self.life(offset)
        life.status, life.failed = status, 0
        self.open.pop(offset, None)
        if message.key is not None and self.heads.get(message.key) == offset:
            del self.heads[message.key]
        self.advance()

    def advance(self) -> None:
        """What is settled without a gap raises the floor."""
        while self.committed_offset in self.lives and self.lives[self.committed_offset].status in (
            DONE,
            DEAD,
        ):
            self.committed_offset += 1

    def begin_anew(self, offset: int, begins: int, messages: Mapping[int, Message]) -> None:
        """All from the offset on comes again, but for what is dead or gone; of what outlived the
        log, which `begins` later, what was not settled, and what is not due: that is kept for
        all, whoever has passed over it."""
        before, was_open = self.lives, self.open
        self.lives = {o: life for o, life in before.items() if life.status == DEAD}
        self.heads, self.open = {}, {}
        self.base, self.committed_offset = offset, max(offset, begins)
        for other in [o for o in messages if o >= offset and o not in self.lives]:
            message = messages[other]
            is_settled = other < begins and message.visible and other not in was_open
            if is_settled or message.is_gone:
                self.finish(other, message)
                continue
            self.open[other] = None
            if other < begins:
                self.life(other).redrives = before.get(other, Life()).redrives
        self.advance()

    def fail(
        self, offset: int, message: Message, reason: str, delay_ms: int, index: int, now_ms: int
    ) -> str:
        """One more attempt has failed; what becomes of it."""
        life = self.life(offset)
        if message.is_gone:
            self.finish(offset, message)
            return "expired"
        if 0 < self.config.max_attempts <= life.failed + 1:
            self.die(offset, message, reason)
            return "dead"
        life.failed += 1
        life.reason = reason
        if delay_ms < 0:
            backoff_ms = self.config.backoff_ms * 2 ** (life.failed - 1)
            delay_ms = min(backoff_ms, self.config.backoff_ms_max)
        self.come_back(offset, message, delay_ms, index, now_ms)
        return "requeued"

    def come_back(
        self, offset: int, message: Message, delay_ms: int, index: int, now_ms: int
    ) -> None:
        """Ready again, at once or after a delay."""
        life = self.life(offset)
        if message.is_gone:
            self.finish(offset, message)
        elif delay_ms > 0:
            life.status, life.wakes_ms = WAITING, now_ms + delay_ms
        else:
            life.status, life.since, life.since_ms = READY, index, now_ms

    def die(self, offset: int, message: Message, reason: str) -> None:
        """It has failed for good."""
        life = self.life(offset)
        attempts = life.failed + 1
        self.finish(offset, message, DEAD)
        life.died_for, life.attempts = reason, attempts
