"""The election timer of a replica: when it suspects that there is no leader."""

from __future__ import annotations

from raft.state import NEVER, State


class ElectionTimer:
    """The one deadline of a group; what it means that it has come is decided in `raft.election`."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.attempts = 0
        """Pre-votes and elections without result, one after another."""
        self.timeout_s = 0.0
        """How long a leader may be silent; 0 where that is no matter of this replica's."""
        self.leader_heard_at = -NEVER

    def set(self, at: float) -> None:
        self._state.deadline = at
        self._state.host.set_deadline(at)

    def rest(self) -> None:
        """Waits a full random timeout before the next suspicion."""
        state = self._state
        self.timeout_s = state.draw_timeout_s()
        self.set(state.now() + self.timeout_s if state.may_campaign else NEVER)

    def rest_unless_voter(self) -> None:
        """The same; who may not campaign does not count on from the leader's next word either."""
        self.rest()
        if not self._state.may_campaign:
            self.timeout_s = 0.0

    @property
    def leader_was_heard_at(self) -> float:
        """When the leader that is followed has spoken last, or its node for it."""
        state = self._state
        if not state.resting or state.leader is None:
            return self.leader_heard_at
        return max(self.leader_heard_at, state.host.heard_at(state.leader.node))

    def hear_leader(self, now: float) -> None:
        """The leader that is followed has spoken."""
        self.leader_heard_at = now
        if self.timeout_s:
            self.set(now + self.timeout_s)

    def retry_later(self, now: float) -> None:
        """Random at its longest, too: two candidates in step would split their votes for ever."""
        config = self._state.config
        longest = min(config.retry_max_s * 2 ** min(self.attempts, 8), config.election_max_s)
        shortest = longest * config.retry_min_s / config.retry_max_s
        self.set(now + shortest + (longest - shortest) * self._state.rng.random())
        self.attempts += 1

    def wait_until(self, at: float) -> None:
        """Begins no election before."""
        self.set(max(at, self._state.deadline))
