"""How a proposal ended, and what stops a replica."""

from __future__ import annotations

from enum import Enum

from goqueue.wire.errors import Busy, GoQueueError, NotLeader


class Outcome(Enum):
    """What a proposer may rely on, exactly once per proposal."""

    APPLIED = "applied"
    """Committed and applied here; the result is the state machine's."""
    NONE = "none"
    """Definitely not: another entry was committed at its index."""
    UNKNOWN = "unknown"
    """It may have been committed, or may yet be."""


class RaftError(GoQueueError):
    """The root of all errors of this floor."""

    code = "raft_error"
    http_status = 500


class Unsafe(RaftError):
    """What was about to happen can't happen in a correct cluster: the replica stops instead."""

    code = "raft_unsafe"


class ApplyFailed(RaftError):
    """The state machine raised on a committed entry: the replica stops, its log stays."""

    code = "apply_failed"
    outcome = "unknown"


class ConfigurationMismatch(RaftError):
    """The log was created with other voters than those given."""

    code = "configuration_mismatch"


class ChangeUnderWay(Busy):
    """A change of the configuration has not committed yet: one at a time."""

    code = "change_under_way"
    text = "another change of this group's replicas has not committed yet"


class ChangeRefused(RaftError):
    """The configuration can't be changed that way; nothing was appended."""

    code = "change_refused"
    http_status = 409


class NotCaughtUp(ChangeRefused):
    """A learner does not vote before it has caught up."""

    code = "not_caught_up"
    retriable = True


class Refused(RaftError):
    """A way into PySyncObj that would unpickle, or change membership unsafely, is closed."""

    code = "refused"


class FrameMalformed(RaftError):
    """A peer's frame contradicts itself; it was dropped whole."""

    code = "frame_malformed"


__all__ = [
    "ApplyFailed",
    "ChangeRefused",
    "ChangeUnderWay",
    "ConfigurationMismatch",
    "FrameMalformed",
    "NotCaughtUp",
    "NotLeader",
    "Outcome",
    "RaftError",
    "Refused",
    "Unsafe",
]
