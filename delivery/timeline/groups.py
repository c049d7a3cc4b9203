"""One message in one group, as operations name it: where it is, and what has become of it.

Judged by the rules of `delivery.group`, for a single message. What they can't tell from it alone,
notes of the chronicle say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from delivery.config import GroupConfig
from delivery.entries.ops import StreamId
from delivery.group.rules import back_at_ms

Attributes = dict[str, str | int | list[str]]
TimelineEvent = tuple[int, str, Attributes]
"""(log time in ms, type, attributes)."""

Place = Literal["coming", "leased", "settled", "dead", "over", "never"]
"""`over`: cancelled or expired before it was settled; `never`: the group began after it, and no
seek has gone back to it."""


class UnstreamedStory(msgspec.Struct, array_like=True):
    """A `GroupStory` as it is carried on where no stream has the message."""

    id: int
    name: str
    place: Place = "coming"
    delivery: int = 0
    """The lease in force, with its holder and its end."""
    consumer: str = ""
    deadline_ms: int = 0
    failed: int = 0
    """Attempts that count towards the group's bound."""
    attempts: int = 0
    """Deliveries that were not given back."""
    retry_at_ms: int = 0
    reason: str = ""
    """Why the last attempt failed."""
    redrives: int = 0
    died_ms: int = 0


class GroupStory(UnstreamedStory, array_like=True):
    """The message in this group, as far as entries were told."""

    stream: StreamId | None = None
    """Whose the lease in force is, where it is a stream's."""

    def carried(self) -> UnstreamedStory:
        """As it is written: what the release before `Feature.STREAMS` knows, where that is all."""
        if self.stream is not None:
            return self
        return UnstreamedStory(*msgspec.structs.astuple(self)[:-1])

    def lease(
        self, delivery: int, consumer: str, deadline_ms: int, stream: StreamId | None = None
    ) -> None:
        self.place, self.delivery = "leased", delivery
        self.consumer, self.deadline_ms, self.stream = consumer, deadline_ms, stream
        self.retry_at_ms = 0
        self.attempts += 1

    def end_lease(self, place: Place) -> None:
        self.place, self.delivery, self.consumer, self.deadline_ms = place, 0, "", 0
        self.stream = None

    def settle(self, place: Place = "settled") -> None:
        """Done with, one way or the other."""
        self.end_lease(place)
        self.failed = self.redrives = self.retry_at_ms = 0

    def holds(self, delivery: int) -> bool:
        """Whether the message is in flight in this delivery."""
        return self.place == "leased" and self.delivery == delivery

    def retry(self, config: GroupConfig, now_ms: int, delay_ms: int) -> None:
        """It comes again, after the delay that was asked for, -1 for the group's own."""
        self.end_lease("coming")
        self.retry_at_ms = back_at_ms(config, self.failed, now_ms, delay_ms)

    def state(self, fate: str) -> str:
        """In the words of look-ups; `fate` is the message's own: delayed, cancelled, expired or
        nothing."""
        if self.place == "leased":
            return "in_flight"
        if self.place in ("dead", "settled"):
            return "dead" if self.place == "dead" else "acked"
        if fate in ("cancelled", "expired", "delayed"):
            return fate
        return "retrying" if self.failed else "ready"


def status_of(states: Mapping[str, str], fate: str) -> str:
    """The whole message in GoQueue's words: in_progress, completed, failed, retrying, delayed,
    cancelled or expired."""
    found = set(states.values())
    if "dead" in found:
        return "failed"
    if "retrying" in found:
        return "retrying"
    if "in_flight" in found or "ready" in found:
        return "in_progress"
    if fate == "delayed":
        return "delayed"
    if "acked" in found and found <= {"acked", "expired", "cancelled"}:
        return "completed"
    return fate if fate in ("cancelled", "expired") else "in_progress"
