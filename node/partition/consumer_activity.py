"""Who asked a partition's leader for messages, when, and how fast they are delivered.

Of one leadership, in memory: `trace why` tells from it that nobody asks, and how long it may take.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from delivery.leader.pace import Pace


@dataclass(slots=True)
class Asked:
    """Of one group: the last receive, by whom, and what was delivered lately."""

    at_ms: int = 0
    member: str = ""
    pace: Pace = field(default_factory=Pace)


class ConsumerActivity:
    """By group id; there are no more than groups that are known in the cluster."""

    def __init__(self) -> None:
        self._groups: dict[int, Asked] = {}

    def of(self, group: int) -> Asked:
        """Nothing for a group that has not asked."""
        return self._groups.get(group) or Asked()

    def asked(self, group: int, member: str, now_ms: int) -> None:
        """A receive has come that would take from this partition."""
        asked = self._groups.setdefault(group, Asked())
        asked.at_ms, asked.member = now_ms, member

    def delivered(self, group: int, count: int, now_ms: int) -> None:
        """So many messages were leased to the group's consumers."""
        self._groups.setdefault(group, Asked()).pace.note(now_ms, count)

    def forget(self, group: int) -> None:
        """The group was deleted."""
        self._groups.pop(group, None)

    def begin_anew(self) -> None:
        """Another leadership: what was before is not known any more."""
        self._groups.clear()
