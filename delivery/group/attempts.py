"""What is done with a message whose attempt failed, and with one that is given back."""

from __future__ import annotations

import heapq

from delivery.group.failures import DeadLetter
from delivery.group.rules import after_failure, after_last, back_at_ms, parks
from delivery.group.state import GroupState

HALTED_BY_FAILURES = "too many of its messages fail"
HALTED_BY_DEAD = "too many dead letters"


class Attempts:
    """Of one group: its messages come again after their backoff, die, park their keys, or halt
    it."""

    def __init__(self, group: GroupState) -> None:
        self.group = group

    def release(self, offset: int, now_ms: int, delay_ms: int, to_back: bool) -> None:
        """As if it had not been delivered."""
        group = self.group
        failed = group.failures.count(offset)
        group.counters.delivered -= 1
        group.counters.redelivered -= failed > 0
        if offset in group.stored.withdrawn:
            group.finish(offset)
        else:
            self._come_back(offset, now_ms, max(0, delay_ms), to_back)

    def fail(
        self, offset: int, reason: str, now_ms: int, delay_ms: int, to_back: bool
    ) -> tuple[str, int]:
        """One more failed attempt: (what becomes of the message, when it may come again)."""
        group, is_withdrawn = self.group, offset in self.group.stored.withdrawn
        failed = 0 if is_withdrawn else group.failures.add(offset, now_ms, reason)
        after = after_failure(group.config, failed, is_withdrawn=is_withdrawn)
        if after == "over":
            return self._end_withdrawn(offset), 0
        if after == "last":
            return self.kill(offset, reason, now_ms), 0
        self._come_back(offset, now_ms, delay_ms, to_back)
        return "requeued", self.visible_ms(offset, now_ms)

    def kill(self, offset: int, reason: str, now_ms: int) -> str:
        """The message has failed for good: what becomes of it."""
        group, stored = self.group, self.group.stored
        hashed = stored.keys.of(offset)
        halts = "" if parks(group.config, has_key=bool(hashed)) else self._halts()
        if halts:
            stored.outcome_notes.halted(offset)
        after = after_last(
            group.config,
            has_key=bool(hashed),
            halts=bool(halts),
            is_withdrawn=offset in stored.withdrawn,
        )
        if after == "over":
            return self._end_withdrawn(offset)
        if after == "parked":
            assert group.order is not None, "keys are parked where they order"
            group.order.park(hashed, b"")
            group.failures.forgive(offset)
        elif after == "halted":
            group.halted = halts
            group.make_ready(offset, now_ms)
        else:
            self._bury(offset, reason, now_ms)
        return after

    def visible_ms(self, offset: int, now_ms: int) -> int:
        """When a message that was given back may be delivered again."""
        waits = self.group.waiting.get(offset)
        return now_ms if waits is None else waits[0]

    def redrives(self, offset: int) -> int:
        """How often a message was redriven."""
        redriven = self.group.redrives.get(offset)
        return 0 if redriven is None else redriven.count

    def forget_dead(self, offset: int) -> bool:
        """Whether it was a dead letter, which it is no more."""
        group = self.group
        letter = group.dead.pop(offset, None)
        if letter is None:
            return False
        left = group.dead_by_reason[letter.reason] - 1
        if left:
            group.dead_by_reason[letter.reason] = left
        else:
            del group.dead_by_reason[letter.reason]
        return True

    # -- private

    def _come_back(self, offset: int, now_ms: int, delay_ms: int, to_back: bool) -> None:
        group = self.group
        failed = group.failures.count(offset) if delay_ms < 0 else 0
        due_ms = back_at_ms(group.config, failed, now_ms, delay_ms)
        if due_ms:
            group.waiting[offset] = (due_ms, to_back)
            heapq.heappush(group.wakes, (due_ms, offset))
        elif to_back:
            group.make_ready_last(offset, now_ms)
        else:
            group.make_ready(offset, now_ms)

    def _bury(self, offset: int, reason: str, now_ms: int) -> None:
        group = self.group
        failure = group.failures.take(offset)
        group.dead[offset] = DeadLetter(
            now_ms, failure.count, reason, failure.history, self.redrives(offset)
        )
        group.dead_by_reason[reason] = group.dead_by_reason.get(reason, 0) + 1
        group.counters.dead += 1
        if group.config.halt_percent:
            group.outcomes.append(True)
        group.finish(offset, redrives=False)

    def _end_withdrawn(self, offset: int) -> str:
        """It was cancelled or expired in flight, and is not delivered again."""
        self.group.counters.withdrawn += 1
        self.group.finish(offset)
        return "expired"

    def _halts(self) -> str:
        """Why the group halts with one more death, or has halted; empty where it does not."""
        config, outcomes = self.group.config, self.group.outcomes
        if len(self.group.dead) >= config.dead_max:
            return HALTED_BY_DEAD
        if config.halt_percent and len(outcomes) == config.halt_window:
            deaths = sum(outcomes) - outcomes[0] + 1
            if deaths * 100 > config.halt_percent * config.halt_window:
                return HALTED_BY_FAILURES
        return self.group.halted
