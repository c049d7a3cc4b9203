"""`ordering: key`: of each key one message is ready or in flight, its next ones wait behind it."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from delivery.offsets.bitmaps import BitMap64
from delivery.offsets.keys import NO_KEY

STALE_MAX = 1000
"""Messages that are gone and still in a heap, beyond as many as there wait."""
COUNTED_MAX = 10_000
"""Messages of one key that are looked at for how many come before another."""


@dataclass(slots=True)
class ParkedKey:
    """A key that is withheld; `head` is its first message, if that is not settled.

    Its name is empty where its own poisoned message brought it here; it is released with its last
    message, because nobody could name it then.
    """

    key: bytes
    head: int | None


@dataclass(slots=True)
class KeyOrder:
    """Which message of each key comes first, and which ones wait for it."""

    heads: dict[int, int] = field(default_factory=dict[int, int])
    chains: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Heaps: the lowest offset comes next. Those that are not in `waits` are gone."""
    waits: BitMap64 = field(default_factory=BitMap64)
    parked: dict[int, ParkedKey] = field(default_factory=dict[int, ParkedKey])
    withheld: BitMap64 = field(default_factory=BitMap64)
    """Heads of parked keys."""
    stale: int = 0
    """No fewer than are in `chains` and gone."""

    def admit(self, key: int, offset: int) -> bool:
        """Whether a message may become ready now; else it waits here."""
        if key == NO_KEY:
            return True
        if key in self.heads:
            self._chain(key, offset)
            return False
        self.heads[key] = offset
        parked = self.parked.get(key)
        if parked is not None:
            self._withhold(parked, offset)
            return False
        return True

    def finish(self, key: int, offset: int) -> int | None:
        """A message is settled for good; the one that becomes ready for it."""
        if key == NO_KEY or self.heads.get(key) != offset:
            return None
        following = self._next(key)
        parked = self.parked.get(key)
        if following is None:
            del self.heads[key]
        else:
            self.heads[key] = following
        if parked is None:
            return following
        self._withhold(parked, following)
        if following is None and not parked.key:
            del self.parked[key]
        return None

    def park(self, key_hash: int, key: bytes) -> int | None:
        """Withhold the key; the message of it that may be ready and must not be."""
        parked = self.parked.get(key_hash)
        if parked is not None:
            parked.key = parked.key or key
            return None
        parked = self.parked[key_hash] = ParkedKey(key, None)
        self._withhold(parked, self.heads.get(key_hash))
        return parked.head

    def release(self, key_hash: int) -> int | None:
        """Let the key flow again; its first message."""
        parked = self.parked.pop(key_hash, None)
        if parked is None:
            return None
        head = parked.head
        self._withhold(parked, None)
        return head

    def begin_anew(self) -> None:
        """No message is known any more; keys stay parked."""
        self.heads, self.chains, self.waits, self.withheld = {}, {}, BitMap64(), BitMap64()
        for parked in self.parked.values():
            parked.head = None

    def release_nameless(self) -> None:
        """Poisoned keys that have no message are parked no more."""
        for key in [
            k for k, parked in self.parked.items() if not parked.key and k not in self.heads
        ]:
            del self.parked[key]

    def drop(self, gone: BitMap64) -> BitMap64:
        """Forget messages that wait here and never come; what was waiting of them."""
        dropped = self.waits & gone
        self.waits -= dropped
        self.stale += len(dropped)
        if self.stale > STALE_MAX + len(self.waits):
            self.chains = {key: sorted(left) for key in self.chains if (left := self._left(key))}
            self.stale = 0
        return dropped

    def behind(self, key_hash: int) -> int:
        """How many messages a key has that are not settled, the first one included."""
        return (key_hash in self.heads) + len(self._left(key_hash))

    def ahead(self, key_hash: int, offset: int) -> int | None:
        """How many of a key's messages must be settled before this one, which waits; None where
        they are too many to be counted now."""
        chain = self.chains.get(key_hash, ())
        if len(chain) > COUNTED_MAX:
            return None
        return 1 + sum(1 for before in chain if before < offset and before in self.waits)

    def _chain(self, key: int, offset: int) -> None:
        heapq.heappush(self.chains.setdefault(key, []), offset)
        self.waits.add(offset)

    def _next(self, key: int) -> int | None:
        chain = self.chains.get(key, [])
        following = None
        while chain and following is None:
            found = heapq.heappop(chain)
            if found in self.waits:
                self.waits.remove(found)
                following = found
        if not chain:
            self.chains.pop(key, None)
        return following

    def _left(self, key: int) -> set[int]:
        return {offset for offset in self.chains.get(key, ()) if offset in self.waits}

    def _withhold(self, parked: ParkedKey, head: int | None) -> None:
        if parked.head is not None:
            self.withheld.discard(parked.head)
        parked.head = head
        if head is not None:
            self.withheld.add(head)

    def dump(
        self,
    ) -> tuple[
        list[tuple[int, int]], list[tuple[int, list[int]]], list[tuple[int, bytes, int | None]]
    ]:
        """Heads, chains, parked keys, for a snapshot: equal wherever the same messages wait."""
        return (
            sorted(self.heads.items()),
            [(key, sorted(left)) for key in sorted(self.chains) if (left := self._left(key))],
            [(key, self.parked[key].key, self.parked[key].head) for key in sorted(self.parked)],
        )

    @classmethod
    def load(
        cls,
        heads: list[tuple[int, int]],
        chains: list[tuple[int, list[int]]],
        parked: list[tuple[int, bytes, int | None]],
    ) -> KeyOrder:
        """What `dump` told."""
        return cls(
            dict(heads),
            {key: list(chain) for key, chain in chains},
            BitMap64(offset for _, chain in chains for offset in chain),
            {key: ParkedKey(name, head) for key, name, head in parked},
            BitMap64(head for _, _, head in parked if head is not None),
        )
