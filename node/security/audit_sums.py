"""Denials of those who showed no key: counted, and told in sums.

Whoever reaches the port can be denied without end, so each has no record of its own: it would push
what was done with keys out of the log. A sum is due once a minute. Of a flood that goes on for
hours the sums get fewer, so that even they fill no log.
"""

from __future__ import annotations

from collections import Counter

from node.api.auth.access import Access
from node.api.auth.audit import DENIED, METHOD_CHARACTERS_MAX, Sample, outcome_of
from node.api.auth.hosts import bucket

SUM_S = 60.0
"""How long denials are gathered."""
ADDRESSES_MAX = 4096
"""Of one sum that are told apart; further ones are not counted."""
REASONS_MAX = 32
"""Codes of errors; what an unexpected further one counts for is `other`."""
SAMPLES_MAX = 5
TARGET_CHARACTERS_MAX = 100
"""Of a sample's path."""
SUMS_SAVED_MAX = 60.0
SUMS_A_MINUTE = 0.1
"""An hour's sums may be told one a minute; after that one in ten minutes. So a node adds at most
204 a day: at 1.2 KB each, 22 MB in the 90 days that the log goes back."""


class Sum:
    """Denials from `since_ms` on."""

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.count = 0
        self.reasons: Counter[str] = Counter()
        self.addresses: set[str] = set()
        self.samples: list[Sample] = []

    def add(self, access: Access) -> None:
        self.count += 1
        reason = access.code or outcome_of(access)
        if reason not in self.reasons and len(self.reasons) >= REASONS_MAX:
            reason = "other"
        self.reasons[reason] += 1
        if len(self.addresses) < ADDRESSES_MAX:
            self.addresses.add(bucket(access.remote))
        if len(self.samples) < SAMPLES_MAX:
            self.samples.append(
                Sample(
                    address=access.remote,
                    action=access.operation,
                    method=access.method[:METHOD_CHARACTERS_MAX],
                    target=access.target[:TARGET_CHARACTERS_MAX],
                    code=access.code,
                    request_id=access.request_id,
                )
            )


class Sums:
    """The sum that is being gathered, and how many may be told. `has_keys`: whoever shows no key
    is a stranger; else nobody shows one, and only who is denied is."""

    def __init__(self, *, has_keys: bool) -> None:
        self._has_keys = has_keys
        self._gathered: Sum | None = None
        self._saved = SUMS_SAVED_MAX

    def takes(self, access: Access) -> bool:
        """Whether a request that the log tells of is told in a sum only."""
        return access.principal is None and (self._has_keys or outcome_of(access) == DENIED)

    def add(self, access: Access, now_ms: int) -> None:
        if self._gathered is None:
            self._gathered = Sum(now_ms)
        self._gathered.add(access)

    def minute(self) -> Sum | None:
        """A minute is over: the sum, where there is one and it may be told."""
        self._saved = min(self._saved + SUMS_A_MINUTE, SUMS_SAVED_MAX)
        if self._gathered is None or self._saved < 1.0:
            return None
        self._saved -= 1.0
        return self.rest()

    def rest(self) -> Sum | None:
        """What is gathered, whenever that is."""
        gathered, self._gathered = self._gathered, None
        return gathered
