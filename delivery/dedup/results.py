"""Results of operations that may be sent again: a repeat results in what the first one did.

Grants and settles speak of many messages each, other changes of one group: the two are remembered
apart, so that consumers who take much do not make a partition forget that a group was sought.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import cast

import msgspec

from delivery.entries.ops import CountResult, Granted, Result, SettledResult

REMEMBERED_MS = 10 * 60 * 1000
"""By log time, where there is room: far longer than any node repeats a request."""
REPEATED_MS = 60 * 1000
"""No node repeats a request after this: what is let go of later is not asked for again."""
REQUESTS_MAX = 16_384
MESSAGES_MAX = 262_144
"""Messages that all remembered grants and settles speak of: what bounds their memory, at ten bytes
each. A grant of 1,000 is forgotten after 260 others of as many."""
CHANGES_MAX = 65_536
"""Other changes, at about 200 bytes each."""

Remembered = tuple[int, int, Result]
"""(request id, log time, result): one in a snapshot. With the id 0: a result of this log time, and
all before it of its kind, was let go of before its time."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Result] = msgspec.msgpack.Decoder(Result)


class _Table:
    """Results of one kind, oldest first. Kept encoded: hardly any is asked for."""

    def __init__(self, requests_max: int, messages_max: int) -> None:
        self.requests_max = requests_max
        self.messages_max = messages_max
        self.results = OrderedDict[int, tuple[int, int, bytes]]()
        """Request -> (log time, how many messages it speaks of, result). It has its first one at
        once: a dict whose first keys were deleted looks at all of them for the next."""
        self.evicted = 0
        """Let go of before their time, on this replica since it started."""
        self.evicted_ms = -1
        """Log time of the newest of them ever; -1 for none."""
        self._messages = 0

    def remember(self, request: int, time_ms: int, result: Result) -> None:
        self.drop(request)
        messages = _messages(result)
        self.results[request] = (time_ms, messages, _encoder.encode(result))
        self._messages += messages
        while len(self.results) > self.requests_max or self._messages > self.messages_max:
            self.evicted_ms = self.drop(next(iter(self.results)))
            self.evicted += 1

    def forget(self, before_ms: int) -> None:
        while self.results:
            request, (time_ms, _, _) = next(iter(self.results.items()))
            if time_ms >= before_ms:
                return
            self.drop(request)

    def drop(self, request: int) -> int:
        known = self.results.pop(request, None)
        if known is None:
            return -1
        self._messages -= known[1]
        return known[0]

    def dump(self, kind: Result) -> list[Remembered]:
        lost: list[Remembered] = [] if self.evicted_ms < 0 else [(0, self.evicted_ms, kind)]
        return lost + [
            (request, time_ms, cast("Result", msgspec.Raw(encoded)))
            for request, (time_ms, _, encoded) in self.results.items()
        ]


class Results:
    """Of one partition, the newest."""

    def __init__(self) -> None:
        self._handed = _Table(REQUESTS_MAX, MESSAGES_MAX)
        """Grants and settles."""
        self._changes = _Table(CHANGES_MAX, CHANGES_MAX)

    def __len__(self) -> int:
        return len(self._handed.results) + len(self._changes.results)

    @property
    def evicted(self) -> int:
        """How many were let go of before their time, on this replica since it started."""
        return self._handed.evicted + self._changes.evicted

    def of(self, request: int) -> Result | None:
        """What a request resulted in, None where it is not known."""
        found = self._handed.results.get(request) or self._changes.results.get(request)
        return None if found is None else _decoder.decode(found[2])

    def may_have_forgotten(self, request: int, now_ms: int, *, settles: bool) -> bool:
        """Whether a request that is not known, and is made again, may have been applied by an
        attempt before. `settles`: it is a settle."""
        table = self._handed if settles else self._changes
        if request in self._handed.results or request in self._changes.results:
            return False
        return table.evicted_ms >= max(0, now_ms - REPEATED_MS)

    def remember(self, request: int, time_ms: int, result: Result) -> None:
        """Keep what a request resulted in; of a receive that was granted anew, the newer grant."""
        if request:
            self._table(result).remember(request, time_ms, result)

    def forget(self, now_ms: int) -> None:
        """Let go of what is too old."""
        self._handed.forget(now_ms - REMEMBERED_MS)
        self._changes.forget(now_ms - REMEMBERED_MS)

    def dump(self) -> list[Remembered]:
        """For a snapshot, which takes what is encoded as it is."""
        return self._handed.dump(_HANDED) + self._changes.dump(_CHANGE)

    def load(self, results: Sequence[Remembered]) -> None:
        """Replace everything by what `dump` told."""
        self._handed = _Table(REQUESTS_MAX, MESSAGES_MAX)
        self._changes = _Table(CHANGES_MAX, CHANGES_MAX)
        for request, time_ms, result in results:
            if request:
                self.remember(request, time_ms, result)
            else:
                self._table(result).evicted_ms = time_ms

    def _table(self, result: Result) -> _Table:
        return self._handed if isinstance(result, Granted | SettledResult) else self._changes


_HANDED: Result = Granted(0, 0, [])
_CHANGE: Result = CountResult(0)


def _messages(result: Result) -> int:
    if isinstance(result, Granted):
        return 1 + len(result.grants)
    return 1 + len(result.settles) if isinstance(result, SettledResult) else 1
