"""What clients were told, line by line, and whether it is true of what is stored in the end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

from tests.protocols.client import Line, Told

SHOWN_MAX = 10


class Ledger:
    """Of one topic and one group. Any thread."""

    def __init__(self, *, stores_once: bool = False, sees_values: bool = True) -> None:
        self._stores_once = stores_once
        self._sees_values = sees_values
        self._lock = threading.Lock()
        self._values: dict[int, str] = {}
        self.confirmed: Counter[int] = Counter()
        self.in_doubt: Counter[int] = Counter()
        """Tries to publish it that nobody knows the outcome of."""
        self.given: Counter[int] = Counter()
        self.acked: Counter[int] = Counter()
        self.unanswered: Counter[int] = Counter()
        """Acks of it that nobody knows the outcome of."""
        self.refused: Counter[str] = Counter()
        self.wrong: list[str] = []

    def begin(self, lines: Iterable[Line]) -> None:
        """These are published from now on."""
        with self._lock:
            self._values.update((line.number, line.value) for line in lines)

    def told(self, told: Told) -> None:
        with self._lock:
            self.confirmed.update(told.stored)
            self.in_doubt.update(told.unknown)
            self.refused.update(told.refused)
            self.wrong += told.wrong

    def give(self, value: bytes) -> int:
        """A consumer was given this; the line's number."""
        with self._lock:
            number = self._number(value)
            self.given[number] += 1
            return number

    def ack(self, number: int) -> None:
        """The ack was confirmed."""
        with self._lock:
            self.acked[number] += 1

    def ack_unanswered(self, numbers: Iterable[int]) -> None:
        with self._lock:
            self.unanswered.update(numbers)

    def complain(self, text: str) -> None:
        with self._lock:
            self.wrong.append(text)

    def problems(self, values: Iterable[bytes]) -> list[str]:
        """Held against all that is stored, now that the group has nothing left."""
        with self._lock:
            stored = Counter(self._number(value) for value in values)
            found = {
                "lost": [n for n, count in self.confirmed.items() if stored[n] < count],
                "stored too often": [n for n in stored if stored[n] > self._most(n)],
            }
            if self._sees_values:
                found |= {
                    "stored, and never given": [n for n in stored if not self.given[n]],
                    "acked twice": [n for n, count in self.acked.items() if count > stored[n]],
                    "gone from the group, and never acked": [
                        n for n in stored if self.acked[n] + self.unanswered[n] < stored[n]
                    ],
                }
            told = [f"{what}: {_some(numbers)}" for what, numbers in found.items() if numbers]
            return told + self.wrong[:SHOWN_MAX]

    def twice(self, values: Iterable[bytes]) -> int:
        """How many are stored again, since a publish without an answer was repeated."""
        with self._lock:
            stored = Counter(self._number(value) for value in values)
            return sum(max(0, stored[n] - self.confirmed[n]) for n in stored)

    def _most(self, number: int) -> int:
        """How often a line may be stored."""
        if self._stores_once:
            return 1
        return self.confirmed[number] + self.in_doubt[number]

    def _number(self, value: bytes) -> int:
        text = value.decode(errors="backslashreplace")
        number = text.partition(" ")[0]
        if not number.isdecimal() or self._values.get(int(number)) != text:
            self.wrong.append(f"nobody has published this: {text[:200]!r}")
            return -1
        return int(number)


def _some(numbers: list[int]) -> str:
    shown = ", ".join(map(str, sorted(numbers)[:SHOWN_MAX]))
    return f"{shown}, … {len(numbers)} in all" if len(numbers) > SHOWN_MAX else shown
