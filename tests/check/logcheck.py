"""Judges what a partitioned log showed its clients: `check(events)` names every broken promise.

    L1  no acked value is lost: it is at its offset when the log is read at the end
    L2  one value per (partition, offset): in every ack and every read, of every node, at any time
    L3  offsets are dense: from 0 to the end without a gap, rising in every read and every ack
    L4  values of one key stand in the order in which one publisher was acked for them
    L5  what was acked before another publish began has the lower offset
    L6  nothing is read that was not published there with that key, or that was refused
    L8  no value stands twice, least of all one whose publisher was left in doubt

The history needs a `final` read of every partition that was acked to, from each node that is to be
judged. `python -m tests.check.logcheck FILE` judges a recorded history.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.check.history import Event, load
from tests.check.verdict import Findings, Violation

RULES = ("L1", "L2", "L3", "L4", "L5", "L6", "L8")


@dataclass
class Verdict(Findings):
    """What was counted, and what was broken."""

    acked: int = 0
    lost: int = 0
    twice: int = 0
    two_values: int = 0
    in_doubt: int = 0
    refused: int = 0
    read: int = 0

    def lines(self) -> Iterator[str]:
        """At most ten violations of each rule, and how many more."""
        return self.lines_of(RULES)


@dataclass(slots=True)
class Publish:
    """One operation with its outcome; `end` is infinite while nothing definite was told."""

    op: int
    publisher: str
    partition: int
    key: str | None
    values: list[str]
    start: float
    end: float = math.inf
    outcome: str = "info"
    offsets: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Place:
    """What one offset was seen to hold, and by whom first."""

    value: str
    witness: str


class LogCheck:
    """The state of one judgement."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.publishes: dict[int, Publish] = {}
        self.reads: list[Event] = []
        self.violations: list[Violation] = []
        self.origin: dict[str, Publish] = {}
        self.places: dict[tuple[int, int], Place] = {}
        self.at: dict[str, set[tuple[int, int]]] = defaultdict(set)
        self.finals: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self.two_values: set[tuple[int, int]] = set()
        for event in events:
            self._take(event)

    def verdict(self) -> Verdict:
        self._acks_are_consistent()
        self._reads_are_consistent()
        lost = self._nothing_acked_is_lost()
        self._offsets_are_dense()
        self._order_holds()
        twice = self._nothing_stands_twice()
        outcomes = [p.outcome for p in self.publishes.values() for _ in p.values]
        return Verdict(
            sorted(set(self.violations)),
            acked=outcomes.count("ok"),
            lost=lost,
            twice=twice,
            two_values=len(self.two_values),
            in_doubt=outcomes.count("info"),
            refused=outcomes.count("fail"),
            read=len(self.places),
        )

    def _break(self, rule: str, text: str) -> None:
        self.violations.append(Violation(rule, text))

    def _take(self, event: Event) -> None:
        kind = event["type"]
        if kind == "invoke":
            publish = Publish(
                event["op"],
                event["publisher"],
                event["partition"],
                event["key"],
                event["values"],
                event["time"],
            )
            self.publishes[publish.op] = publish
            for value in publish.values:
                if value in self.origin:
                    raise ValueError(f"the history publishes {value!r} twice: it can't be judged")
                self.origin[value] = publish
        elif kind in ("ok", "fail", "info"):
            publish = self.publishes[event["op"]]
            publish.outcome = kind
            if kind == "ok":
                publish.end, publish.offsets = event["time"], event["offsets"]
        elif kind == "read":
            self.reads.append(event)

    def _see(self, partition: int, offset: int, value: str, witness: str) -> None:
        place = self.places.setdefault((partition, offset), Place(value, witness))
        if place.value != value:
            self.two_values.add((partition, offset))
            self._break(
                "L2",
                f"partition {partition} offset {offset}: {place.value!r} ({place.witness}) "
                f"and {value!r} ({witness})",
            )

    def _acks_are_consistent(self) -> None:
        for publish in self._acked():
            rising = all(
                b == a + 1 for a, b in zip(publish.offsets, publish.offsets[1:], strict=False)
            )
            if len(publish.offsets) != len(publish.values) or not rising:
                self._break("L3", f"ack of op {publish.op}: offsets {publish.offsets[:5]}...")
            for value, offset in zip(publish.values, publish.offsets, strict=False):
                self._see(publish.partition, offset, value, f"ack of op {publish.op}")

    def _reads_are_consistent(self) -> None:
        for read in self.reads:
            partition, node = read["partition"], read["node"]
            offsets = read["offsets"]
            if any(b != a + 1 for a, b in itertools.pairwise(offsets)):
                self._break("L3", f"{node} read partition {partition} with holes: {offsets[:5]}...")
            for offset, key, value in zip(offsets, read["keys"], read["values"], strict=True):
                self._see(partition, offset, value, f"read from {node}")
                self._is_no_phantom(partition, offset, key, value)
                self.at[value].add((partition, offset))
            if read["final"]:
                self.finals[partition][node].update(offsets)

    def _is_no_phantom(self, partition: int, offset: int, key: str | None, value: str) -> None:
        publish = self.origin.get(value)
        where = f"partition {partition} offset {offset}: {value!r}"
        if publish is None:
            self._break("L6", f"{where} was never published")
        elif publish.outcome == "fail":
            self._break("L6", f"{where} was refused, and is there (op {publish.op})")
        elif publish.partition != partition:
            self._break("L6", f"{where} was published to partition {publish.partition}")
        elif publish.key != key:
            self._break("L6", f"{where} has key {key!r}, not {publish.key!r}")

    def _nothing_acked_is_lost(self) -> int:
        lost: set[str] = set()
        for publish in self._acked():
            finals = self.finals[publish.partition]
            if not finals:
                self._break("L1", f"partition {publish.partition} was never read to its end")
                lost.update(publish.values)
            for value, offset in zip(publish.values, publish.offsets, strict=False):
                absent = [node for node, there in finals.items() if offset not in there]
                if absent:
                    self._break("L1", f"{_place(publish, offset)} {value!r} not on {absent}")
                    lost.add(value)
                elif (publish.partition, offset) in self.two_values:
                    self._break("L1", f"{_place(publish, offset)} {value!r} was overwritten")
                    lost.add(value)
        return len(lost)

    def _offsets_are_dense(self) -> None:
        for partition, nodes in self.finals.items():
            for node, offsets in nodes.items():
                missing = set(range(max(offsets, default=-1) + 1)) - offsets
                if missing:
                    self._break("L3", f"{node} partition {partition}: nothing at {min(missing)}")
            ends = {node: max(offsets, default=-1) for node, offsets in nodes.items()}
            if len(set(ends.values())) > 1:
                self._break("L3", f"partition {partition} ends at {ends}")

    def _order_holds(self) -> None:
        by_partition: dict[int, list[Publish]] = defaultdict(list)
        by_key: dict[tuple[int, str, str], list[Publish]] = defaultdict(list)
        for publish in self._acked():
            if not publish.offsets:
                continue
            by_partition[publish.partition].append(publish)
            if publish.key is not None:
                by_key[publish.partition, publish.publisher, publish.key].append(publish)
        for partition, publishes in by_partition.items():
            self._real_time(publishes, "L5", f"partition {partition}")
        for (partition, publisher, key), publishes in by_key.items():
            self._real_time(publishes, "L4", f"partition {partition} {publisher} key {key!r}")

    def _real_time(self, publishes: list[Publish], rule: str, where: str) -> None:
        """From the highest offset down: nothing above may have ended before this one began."""
        first_end, first = math.inf, None
        for publish in sorted(publishes, key=lambda p: p.offsets[0], reverse=True):
            if first is not None and first_end < publish.start:
                self._break(
                    rule,
                    f"{where}: op {first.op} was acked at offset {first.offsets[0]} before op "
                    f"{publish.op} began, which got offset {publish.offsets[0]}",
                )
            if publish.end < first_end:
                first_end, first = publish.end, publish

    def _nothing_stands_twice(self) -> int:
        twice = 0
        for value, places in self.at.items():
            publish = self.origin.get(value)
            if publish is not None and publish.outcome == "ok" and publish.offsets:
                index = publish.values.index(value)
                places = places | {(publish.partition, publish.offsets[index])}
            if len(places) > 1:
                twice += len(places) - 1
                doubt = "" if publish is None or publish.outcome == "ok" else " (in doubt)"
                self._break("L8", f"{value!r}{doubt} stands at {sorted(places)[:4]}")
        return twice

    def _acked(self) -> Iterator[Publish]:
        return (p for p in self.publishes.values() if p.outcome == "ok")


def check(events: Iterable[Event]) -> Verdict:
    """Judge a whole history. Raises ValueError when the history itself is unusable."""
    return LogCheck(events).verdict()


def _place(publish: Publish, offset: int) -> str:
    return f"partition {publish.partition} offset {offset} (op {publish.op})"


if __name__ == "__main__":
    judged = check(load(Path(sys.argv[1])))
    print(*judged.lines(), sep="\n")
    print(f"{judged.acked} acked, {judged.lost} lost, {judged.twice} twice, {judged.read} read")
    sys.exit(0 if judged.is_clean else 1)
