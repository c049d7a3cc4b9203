"""`ordering: key`: of each key one message is ready or in flight, its next ones wait behind it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from delivery.keys import NO_KEY


@dataclass(slots=True)
class ParkedKey:
    """A key that is withheld; `head` is its first message, if that is not settled."""

    key: bytes
    head: int | None


@dataclass(slots=True)
class KeyOrder:
    """Which message of each key comes first, and which ones wait for it."""

    heads: dict[int, int] = field(default_factory=dict[int, int])
    chains: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Heaps: the lowest offset comes next."""
    parked: dict[int, ParkedKey] = field(default_factory=dict[int, ParkedKey])

    def __contains__(self, offset: int) -> bool:
        """Whether the offset waits behind another; looks at every chain."""
        return any(offset in chain for chain in self.chains.values())

    def waiting(self) -> int:
        return sum(map(len, self.chains.values()))

    def admit(self, key: int, offset: int) -> bool:
        """Whether a message may become ready now; else it waits here."""
        if key == NO_KEY:
            return True
        if key in self.heads:
            heapq.heappush(self.chains.setdefault(key, []), offset)
            return False
        self.heads[key] = offset
        parked = self.parked.get(key)
        if parked is not None:
            parked.head = offset
            return False
        return True

    def finish(self, key: int, offset: int) -> int | None:
        """A message is settled for good; the one that becomes ready for it."""
        if key == NO_KEY or self.heads.get(key) != offset:
            return None
        chain = self.chains.get(key)
        parked = self.parked.get(key)
        if not chain:
            del self.heads[key]
            if parked is not None:
                parked.head = None
            return None
        following = heapq.heappop(chain)
        if not chain:
            del self.chains[key]
        self.heads[key] = following
        if parked is not None:
            parked.head = following
            return None
        return following

    def park(self, key_hash: int, key: bytes) -> int | None:
        """Withhold the key; the message of it that may be ready and must not be."""
        if key_hash in self.parked:
            return None
        head = self.heads.get(key_hash)
        self.parked[key_hash] = ParkedKey(key, head)
        return head

    def release(self, key_hash: int) -> int | None:
        """Let the key flow again; its first message."""
        parked = self.parked.pop(key_hash, None)
        return None if parked is None else parked.head

    def drop(self, gone: Iterable[int]) -> list[int]:
        """Forget messages that wait here and never come; what was waiting of them."""
        dropped: list[int] = []
        wanted = set(gone)
        for key in [key for key, chain in self.chains.items() if not wanted.isdisjoint(chain)]:
            chain = self.chains[key]
            dropped += [offset for offset in chain if offset in wanted]
            left = [offset for offset in chain if offset not in wanted]
            heapq.heapify(left)
            if left:
                self.chains[key] = left
            else:
                del self.chains[key]
        return dropped

    def behind(self, key_hash: int) -> int:
        """How many messages a key has that are not settled, the first one included."""
        return (key_hash in self.heads) + len(self.chains.get(key_hash, ()))

    def dump(
        self,
    ) -> tuple[
        list[tuple[int, int]], list[tuple[int, list[int]]], list[tuple[int, bytes, int | None]]
    ]:
        """Heads, chains, parked keys, for a snapshot: equal wherever the same messages wait."""
        return (
            sorted(self.heads.items()),
            [(key, sorted(self.chains[key])) for key in sorted(self.chains)],
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
            {key: ParkedKey(name, head) for key, name, head in parked},
        )
