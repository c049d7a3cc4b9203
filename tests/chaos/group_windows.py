"""How long partitions waited: those that a change moved, and those that it did not.

Each change of members has a window, and another of the same length before it in which nothing was
changed. Of partitions that did not move, the longest time without a delivery is taken of both.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.chaos.permutation import Comparison, compare
from tests.chaos.report import quantile
from tests.check.groupcase import Delivery, GroupCase

JOIN, LEAVE, KILL = "join", "leave", "kill"
PAIRS_MIN = 20
P_MIN = 0.01
MEDIAN_MS_MAX = 10.0
HEALTHY_MS_MAX = 500.0
KILLED_OVER_SESSION_MS = 1000.0


@dataclass(frozen=True, slots=True)
class Change:
    """A member came, left or was killed at `time`. `moved` are the partitions that changed hands by
    it; its window and the one before it, which is its control, are `window_s` long each."""

    kind: str
    member: str
    time: float
    window_s: float
    control: float
    """When the control window began."""
    moved: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Pause:
    """From the last delivery at the former owner to the first one at the next."""

    partition: int
    former: str
    member: str
    kind: str
    seconds: float


@dataclass
class Waits:
    """What was measured: (with a change, without) for each change, and every pause."""

    pairs: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    kinds: list[str] = field(default_factory=list[str])
    """Of the change of each pair."""
    pauses: list[Pause] = field(default_factory=list[Pause])

    def by_kind(self) -> list[str]:
        """What each kind of change added to the longest gap, a line each."""
        found: list[str] = []
        for kind in (JOIN, LEAVE, KILL):
            pairs = [pair for pair, of in zip(self.pairs, self.kinds, strict=True) if of == kind]
            if pairs:
                one = compare(pairs)
                found.append(
                    f"  {kind:<19} median difference {one.median * 1e3:.1f} ms of {one.pairs}"
                )
        return found

    def healthy_s(self) -> list[float]:
        return [pause.seconds for pause in self.pauses if pause.kind != KILL]

    def killed_s(self) -> list[float]:
        return [pause.seconds for pause in self.pauses if pause.kind == KILL]


@dataclass(frozen=True, slots=True)
class Figures:
    """A run in figures: what the report says, and what benchmarks read."""

    changes: int
    joins: int
    leaves: int
    kills: int
    rate: float
    """Messages a second, over the whole load."""
    pairs: int
    p: float
    median_ms: float
    gap_p50_ms: float
    gap_p99_ms: float
    control_p50_ms: float
    control_p99_ms: float
    healthy: int
    healthy_p50_ms: float
    healthy_p99_ms: float
    killed: int
    killed_p50_ms: float
    killed_p99_ms: float
    session_ms: float
    violations: int

    @property
    def unmoved_hold(self) -> bool:
        return self.pairs >= PAIRS_MIN and self.p > P_MIN and self.median_ms <= MEDIAN_MS_MAX

    @property
    def healthy_hold(self) -> bool:
        return self.healthy > 0 and self.healthy_p99_ms <= HEALTHY_MS_MAX

    @property
    def killed_hold(self) -> bool:
        return self.killed > 0 and self.killed_p99_ms <= self.session_ms + KILLED_OVER_SESSION_MS

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Figures:
        return cls(**json.loads(path.read_text()))


def longest_gap(times: Sequence[float], begin: float, end: float) -> float:
    """The longest time within the window without any of these, which are in order."""
    inside = times[bisect_left(times, begin) : bisect_right(times, end)]
    edges = [begin, *inside, end]
    return max(later - earlier for earlier, later in pairwise(edges))


def measure(case: GroupCase, changes: Sequence[Change], partitions: int) -> Waits:
    """Everything that the changes made anybody wait."""
    waits = Waits()
    times = {p: [one.came for one in case.deliveries.get(p, [])] for p in range(partitions)}
    for change in changes:
        stayed = [p for p in range(partitions) if p not in change.moved]
        if stayed:
            waits.kinds.append(change.kind)
            waits.pairs.append(
                (
                    _longest_of(times, stayed, change.time, change.window_s),
                    _longest_of(times, stayed, change.control, change.window_s),
                )
            )
        for partition in change.moved:
            pause = _pause(case.deliveries.get(partition, []), partition, change)
            if pause is not None:
                waits.pauses.append(pause)
    return waits


def _longest_of(
    times: Mapping[int, Sequence[float]], partitions: Sequence[int], begin: float, window_s: float
) -> float:
    return max(longest_gap(times[p], begin, begin + window_s) for p in partitions)


def _pause(found: Sequence[Delivery], partition: int, change: Change) -> Pause | None:
    """Of the first handover behind the change; None where nobody came after it."""
    at = bisect_left(found, change.time, key=lambda one: one.came)
    former = found[at - 1] if at else None
    for one in found[at:]:
        if former is not None and one.turn != former.turn:
            seconds = one.came - former.came
            kind = change.kind if former.member == change.member else JOIN
            return Pause(partition, former.member, one.member, kind, seconds)
        former = one
    return None


def figures(
    waits: Waits,
    changes: Sequence[Change],
    *,
    rate: float,
    session_s: float,
    violations: int,
) -> Figures:
    """In milliseconds."""
    kinds = [change.kind for change in changes]
    found: Comparison = compare(waits.pairs)
    gaps = [gap * 1e3 for gap, _ in waits.pairs]
    controls = [gap * 1e3 for _, gap in waits.pairs]
    healthy = [seconds * 1e3 for seconds in waits.healthy_s()]
    killed = [seconds * 1e3 for seconds in waits.killed_s()]
    return Figures(
        changes=len(changes),
        joins=kinds.count(JOIN),
        leaves=kinds.count(LEAVE),
        kills=kinds.count(KILL),
        rate=rate,
        pairs=found.pairs,
        p=found.p,
        median_ms=found.median * 1e3,
        gap_p50_ms=quantile(gaps, 0.5),
        gap_p99_ms=quantile(gaps, 0.99),
        control_p50_ms=quantile(controls, 0.5),
        control_p99_ms=quantile(controls, 0.99),
        healthy=len(healthy),
        healthy_p50_ms=quantile(healthy, 0.5),
        healthy_p99_ms=quantile(healthy, 0.99),
        killed=len(killed),
        killed_p50_ms=quantile(killed, 0.5),
        killed_p99_ms=quantile(killed, 0.99),
        session_ms=session_s * 1e3,
        violations=violations,
    )


def lines(found: Figures) -> list[str]:
    """The report, a line at a time."""
    return [
        f"changes               {found.changes}: {found.joins} joins, {found.leaves} leaves, "
        f"{found.kills} kills; {found.rate:.0f} messages/s",
        f"did not move          longest gap p50 {found.gap_p50_ms:.0f} ms, p99 "
        f"{found.gap_p99_ms:.0f} ms; without a change p50 {found.control_p50_ms:.0f} ms, p99 "
        f"{found.control_p99_ms:.0f} ms",
        f"  median difference {found.median_ms:.1f} ms, p {found.p:.3f} over {found.pairs} pairs: "
        f"target <= {MEDIAN_MS_MAX:.0f} ms, > {P_MIN}, >= {PAIRS_MIN} pairs  "
        f"{_verdict(found.unmoved_hold)}",
        f"moved from a healthy  p50 {found.healthy_p50_ms:.0f} ms, p99 "
        f"{found.healthy_p99_ms:.0f} ms over {found.healthy} partitions: "
        f"target p99 <= {HEALTHY_MS_MAX:.0f} ms  {_verdict(found.healthy_hold)}",
        f"moved from a killed   p50 {found.killed_p50_ms:.0f} ms, p99 "
        f"{found.killed_p99_ms:.0f} ms over {found.killed} partitions: target p99 <= "
        f"{found.session_ms + KILLED_OVER_SESSION_MS:.0f} ms  {_verdict(found.killed_hold)}",
        f"violations            {found.violations}   (must be 0)",
    ]


def exit_code(found: Figures, changes_wanted: int) -> int:
    """0 good; 1 a promise was broken; 3 a target was missed; 4 too little happened to tell."""
    if found.violations:
        return 1
    if found.changes < changes_wanted or not found.healthy or (found.kills and not found.killed):
        return 4
    judged = [found.healthy_hold, found.killed_hold or not found.kills]
    if found.pairs >= PAIRS_MIN:
        judged.append(found.unmoved_hold)
    return 0 if all(judged) else 3


def _verdict(holds: bool) -> str:
    return "pass" if holds else "FAIL"
