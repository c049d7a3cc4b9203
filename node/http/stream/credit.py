"""What a consumer may still be given: credit in messages and in bytes, less what is outstanding."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from node.api.members import Place
from node.http.stream.frames import CreditTotals


@dataclass(slots=True)
class _Given:
    size_bytes: int
    until_s: float | None
    place: Place | None


class Outstanding:
    """Messages that were given and are not settled, by receipt, held against the credit.

    Messages are never more than the credit says. Bytes may be more by what came last: else a
    message larger than all of the credit would never come. Times are the loop's, in seconds.
    """

    __slots__ = ("_given", "_used_bytes", "since_s", "totals")

    def __init__(self, totals: CreditTotals) -> None:
        self.totals = totals
        self.since_s = 0.0
        """When the first was given of those since there was none."""
        self._given: dict[str, _Given] = {}
        self._used_bytes = 0

    def __len__(self) -> int:
        return len(self._given)

    @property
    def messages_left(self) -> int:
        """0 where nothing more may be given, be it for the bytes."""
        if self._used_bytes >= self.totals.bytes:
            return 0
        return max(0, self.totals.messages - len(self._given))

    @property
    def bytes_left(self) -> int:
        return max(0, self.totals.bytes - self._used_bytes)

    def give(
        self, receipt: str, size_bytes: int, until_s: float | None, place: Place | None = None
    ) -> None:
        """It is delivered, from this partition; its lease has no end of its own where `until_s` is
        None."""
        self.free(receipt)
        self._given[receipt] = _Given(size_bytes, until_s, place)
        self._used_bytes += size_bytes

    def extend(self, receipt: str, until_s: float) -> None:
        """Its lease ends then."""
        if receipt in self._given:
            self._given[receipt].until_s = until_s

    def free(self, receipt: str) -> None:
        """It is settled, or its lease is over. Idempotent."""
        given = self._given.pop(receipt, None)
        if given is not None:
            self._used_bytes -= given.size_bytes

    def keep(self, places: Set[Place]) -> None:
        """Free what is of other partitions: those have been taken away, and their leases ended."""
        for receipt, given in list(self._given.items()):
            if given.place not in places:
                self.free(receipt)

    def expire(self, now_s: float) -> float | None:
        """Free what has run out; when the next lease does, None where none will."""
        following: float | None = None
        for receipt, given in list(self._given.items()):
            if given.until_s is None:
                continue
            if given.until_s <= now_s:
                self.free(receipt)
            elif following is None or given.until_s < following:
                following = given.until_s
        return following
