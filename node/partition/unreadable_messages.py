"""Messages that could not be read where they were to be delivered, and are set aside: damage is
mended from the other replicas meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

UNREAD_MAX = 1000
"""Messages of one partition that are remembered as set aside, the newest."""


class UnreadableMessages:
    """Of one partition, as its leader has met them; a new one knows of none. Loop thread only."""

    def __init__(self) -> None:
        self._until: dict[tuple[int, int], int] = {}

    def note(self, group: int, offsets: Iterable[int], until_ms: int) -> None:
        """These are not delivered to the group before this log time."""
        for offset in offsets:
            self._until.pop((group, offset), None)
            self._until[group, offset] = until_ms
            if len(self._until) > UNREAD_MAX:
                del self._until[next(iter(self._until))]

    def until_ms(self, group: int, offset: int, now_ms: int) -> int:
        """Until when the message is set aside; 0 where it is not."""
        until_ms = self._until.get((group, offset), 0)
        return until_ms if until_ms > now_ms else 0

    def concerns(self, group: int, now_ms: int) -> bool:
        """Whether anything is set aside for the group now."""
        over = [key for key, until_ms in self._until.items() if until_ms <= now_ms]
        for key in over:
            del self._until[key]
        return any(theirs == group for theirs, _offset in self._until)
