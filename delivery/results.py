"""Results of operations that may be sent again: a repeat results in what the first one did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from delivery.ops import Granted, Result, SettledResult

REMEMBERED_MS = 10 * 60 * 1000
"""By log time: far longer than any node repeats a request."""
REQUESTS_MAX = 16_384
MESSAGES_MAX = 65_536
"""Messages that all remembered results speak of: what bounds their memory, at ten bytes each."""

Remembered = tuple[int, int, Result]
"""(request id, log time, result): one in a snapshot."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Result] = msgspec.msgpack.Decoder(Result)


class Results:
    """Of one partition, the newest; oldest first. Kept encoded: hardly any is asked for."""

    def __init__(self) -> None:
        self._results: dict[int, tuple[int, int, bytes]] = {}
        """Request -> (log time, how many messages it speaks of, result)."""
        self._messages = 0

    def __len__(self) -> int:
        return len(self._results)

    def of(self, request: int) -> Result | None:
        """What a request resulted in, None where it is not known."""
        found = self._results.get(request)
        return None if found is None else _decoder.decode(found[2])

    def remember(self, request: int, time_ms: int, result: Result) -> None:
        """Keep what a request resulted in; of a receive that was granted anew, the newer grant."""
        if not request:
            return
        self._drop(request)
        messages = _messages(result)
        self._results[request] = (time_ms, messages, _encoder.encode(result))
        self._messages += messages
        while len(self._results) > REQUESTS_MAX or self._messages > MESSAGES_MAX:
            self._drop(next(iter(self._results)))

    def forget(self, now_ms: int) -> None:
        """Let go of what is too old."""
        while self._results:
            request, (time_ms, _, _) = next(iter(self._results.items()))
            if time_ms + REMEMBERED_MS >= now_ms:
                return
            self._drop(request)

    def dump(self) -> list[Remembered]:
        """For a snapshot, which takes what is encoded as it is."""
        return [
            (request, time_ms, cast("Result", msgspec.Raw(encoded)))
            for request, (time_ms, _, encoded) in self._results.items()
        ]

    def load(self, results: Sequence[Remembered]) -> None:
        """Replace everything by what `dump` told."""
        self._results, self._messages = {}, 0
        for request, time_ms, result in results:
            self.remember(request, time_ms, result)

    def _drop(self, request: int) -> None:
        known = self._results.pop(request, None)
        if known is not None:
            self._messages -= known[1]


def _messages(result: Result) -> int:
    if isinstance(result, Granted):
        return 1 + len(result.grants)
    return 1 + len(result.settles) if isinstance(result, SettledResult) else 1
