"""Sessions of the console that were ended before their time, of each key.

A session is a proof that no node keeps, so what is kept is which ones no longer count, until they
would have ended by themselves. A key's can't be more than `SESSIONS_MAX`: one more, and all that
end no later than the last of them are over, which their users find out by logging in again.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from coordinator.commands.keys import EndSession

SESSIONS_MAX = 16
"""Of one key within a session's life, told apart; there are 10,000 keys, so 8 MB at most."""


class EndedSessions(msgspec.Struct, array_like=True, frozen=True):
    """Of one key: those with these nonces, each with the second at which it ends anyway; and all
    that end no later than `until_s`."""

    key: str
    nonces: dict[str, int] = {}
    until_s: int = 0

    def has(self, nonce: str, ends_s: int) -> bool:
        return ends_s <= self.until_s or nonce in self.nonces


class Sessions:
    """Of all keys. Commands in, state out."""

    def __init__(self, ended: Iterable[EndedSessions] = ()) -> None:
        self._of_key = {one.key: one for one in ended}

    def is_ended(self, key: str, nonce: str, ends_s: int) -> bool:
        found = self._of_key.get(key)
        return found is not None and found.has(nonce, ends_s)

    def end(self, time_ms: int, command: EndSession) -> None:
        """What has ended by itself by then is forgotten."""
        for key, ended in list(self._of_key.items()):
            kept = {n: ends_s for n, ends_s in ended.nonces.items() if ends_s * 1000 > time_ms}
            if not kept and ended.until_s * 1000 <= time_ms:
                del self._of_key[key]
            elif len(kept) < len(ended.nonces):
                self._of_key[key] = EndedSessions(key, kept, ended.until_s)
        ended = self._of_key.get(command.key) or EndedSessions(command.key)
        nonces = {**ended.nonces, command.nonce: command.ends_s}
        if len(nonces) <= SESSIONS_MAX:
            self._of_key[command.key] = EndedSessions(command.key, nonces, ended.until_s)
        else:
            until_s = max(ended.until_s, *nonces.values())
            self._of_key[command.key] = EndedSessions(command.key, {}, until_s)

    def dump(self) -> list[EndedSessions]:
        """For a snapshot."""
        return list(self._of_key.values())
