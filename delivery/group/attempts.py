"""What becomes of a message whose attempt failed, and of one that is given back."""

from __future__ import annotations

import heapq

from delivery.config import FAR_MS
from delivery.group.failures import DeadLetter
from delivery.group.lag import GroupStanding

TIMED_OUT = "visibility timeout"
FENCED = "consumer lost"
"""Why an attempt failed whose consumer did not let go of its partition: it died, or is stuck."""
HALTED_BY_FAILURES = "too many of its messages fail"
HALTED_BY_DEAD = "too many dead letters"


class GroupFailures(GroupStanding):
    """A failed message comes again after its backoff, dies, parks its key, or halts its group."""

    # -- failing

    def _release(self, offset: int, now_ms: int, delay_ms: int, to_back: bool) -> None:
        """As if it had not been delivered."""
        self.tally.delivered -= 1
        self.tally.redelivered -= self.failures.count(offset) > 0
        if offset in self._stored.withdrawn:
            self._finish(offset)
        else:
            self._come_back(offset, now_ms, delay_ms, to_back)

    def _fail(
        self, offset: int, reason: str, now_ms: int, delay_ms: int, to_back: bool
    ) -> tuple[str, int]:
        """One more failed attempt: (what becomes of the message, when it may come again)."""
        if offset in self._stored.withdrawn:
            return self._end_withdrawn(offset), 0
        failed = self.failures.add(offset, now_ms, reason)
        if 0 < self.config.max_attempts <= failed:
            return self._kill(offset, reason, now_ms), 0
        self._come_back(
            offset, now_ms, self.backoff_ms(failed) if delay_ms < 0 else delay_ms, to_back
        )
        return "requeued", self._visible_ms(offset, now_ms)

    def _visible_ms(self, offset: int, now_ms: int) -> int:
        """When a message that was given back may be delivered again."""
        waits = self.waiting.get(offset)
        return now_ms if waits is None else waits[0]

    def backoff_ms(self, failed: int) -> int:
        """How long a message waits that has failed so often, unless its consumer says."""
        config = self.config
        return min(config.backoff_ms << min(failed - 1, 30), config.backoff_ms_max)

    def _come_back(self, offset: int, now_ms: int, delay_ms: int, to_back: bool) -> None:
        if delay_ms > 0:
            due_ms = now_ms + min(delay_ms, FAR_MS)
            self.waiting[offset] = (due_ms, to_back)
            heapq.heappush(self.wakes, (due_ms, offset))
        elif to_back:
            self._behind(offset, now_ms)
        else:
            self._make_ready(offset, now_ms)

    def _kill(self, offset: int, reason: str, now_ms: int) -> str:
        """The message has failed for good: dead, unless its key is parked or the group halts. For
        one that has expired, and comes no more, neither does."""
        is_over = offset in self._stored.withdrawn
        hashed = self._stored.keys.of(offset)
        if self.order is not None and self.config.on_poison == "park" and hashed:
            if is_over:
                return self._end_withdrawn(offset)
            self.order.park(hashed, b"")
            self.failures.forgive(offset)
            return "parked"
        halts = self._halts()
        if halts:
            self._stored.chronicle.halted(offset)
            if is_over:
                return self._end_withdrawn(offset)
            self.halted = halts
            self._make_ready(offset, now_ms)
            return "halted"
        failure = self.failures.take(offset)
        self.dead[offset] = DeadLetter(
            now_ms, failure.count, reason, failure.history, self._redrives(offset)
        )
        self.dead_by_reason[reason] = self.dead_by_reason.get(reason, 0) + 1
        self.tally.dead += 1
        if self.config.halt_percent:
            self.outcomes.append(True)
        self._finish(offset, redrives=False)
        return "dead"

    def _end_withdrawn(self, offset: int) -> str:
        """It expired in flight, and is not delivered again."""
        self.tally.withdrawn += 1
        self._finish(offset)
        return "expired"

    def _redrives(self, offset: int) -> int:
        redriven = self.redrives.get(offset)
        return 0 if redriven is None else redriven.count

    def _halts(self) -> str:
        """Why the group halts with one more death, or has halted; empty where it does not."""
        config, outcomes = self.config, self.outcomes
        if len(self.dead) >= config.dead_max:
            return HALTED_BY_DEAD
        if config.halt_percent and len(outcomes) == config.halt_window:
            deaths = sum(outcomes) - outcomes[0] + 1
            if deaths * 100 > config.halt_percent * config.halt_window:
                return HALTED_BY_FAILURES
        return self.halted

    def _forget_dead(self, offset: int) -> bool:
        letter = self.dead.pop(offset, None)
        if letter is None:
            return False
        left = self.dead_by_reason[letter.reason] - 1
        if left:
            self.dead_by_reason[letter.reason] = left
        else:
            del self.dead_by_reason[letter.reason]
        return True
