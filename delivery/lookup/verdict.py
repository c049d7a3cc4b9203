"""What is told of a message that is not delivered or not settled, and what is asked with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

Fact = str | int | bool | dict[str, int]


class Reason(msgspec.Struct, array_like=True, frozen=True):
    """`until_ms` is when it ends by itself; 0 where it does not, or nobody can know when."""

    code: str
    until_ms: int = 0
    facts: dict[str, Fact] = {}


class Verdict(msgspec.Struct, array_like=True):
    """What holds for one group.

    `state` is delayed, ready, in_flight, retrying, acked (done with, however), dead, cancelled or
    expired; or unpublished, gone, stored (where no group is meant), unknown. `deliverable` says
    whether a receive would get the message now: the owner's, where the partition has one, and for
    as many messages as it may take. `attempts` counts its deliveries. `eta_ms` estimates when it is
    delivered (again), by `eta_by`: delay, backoff, lease (if that is not settled), or rate; 0 where
    no estimate is honest.
    """

    state: str
    reasons: list[Reason]
    deliverable: bool = False
    attempts: int = 0
    eta_ms: int = 0
    eta_by: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """The message asked about, as it was stored: when it is due, and when it expires; 0 where it
    has no delay, or no end."""

    offset: int
    due_ms: int = 0
    expires_ms: int = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """How a settled message ended for the group, as its timeline tells: acked, purged or
    skipped."""

    code: str
    at_ms: int
    facts: dict[str, Fact]


@dataclass(frozen=True, slots=True)
class Around:
    """What is known besides the partition's state. `members` of the group there are, None where
    that is not known; `subscribed` ones have the topic."""

    begins: int = 0
    """Where a group that has not been here would begin; -1 for no group."""
    members: int | None = None
    subscribed: int = 0
    shared: bool = False
    owner_is_member: bool = True
    moving: str = ""
    """`revoking` or `handing` while the partition goes from `former` to `successor`."""
    former: str = ""
    successor: str = ""
    asked_ms: int = 0
    """When a receive last asked this leader; 0 for never since it leads."""
    asked_by: str = ""
    waiting: bool = False
    """Whether a receive is waiting right now."""
    rate: float = 0.0
    """Messages delivered to the group here in a second, lately."""
    ending: Ending | None = None
    entry_ms: Callable[[int], int] = lambda _index: 0
    """Log time of an entry; 0 where that is not known any more."""
