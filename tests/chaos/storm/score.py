"""What a storm came to: faults of each kind, what was acked and lost, gaps, and times to heal."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tests.chaos import report
from tests.chaos.report import quantile
from tests.chaos.storm.round import Judgement
from tests.check.history import Event

FAILOVER_P50_S = 0.5
FAILOVER_P99_S = 2.0
TRANSFER_P99_S = 0.2


@dataclass
class Row:
    """All of one kind."""

    asked: int = 0
    shown: int = 0
    """How many are known to have had an effect, in rounds that were judged to the end."""
    gaps_s: list[float] = field(default_factory=list[float])
    held_s: list[float] = field(default_factory=list[float])
    """From the beginning to what ends it."""
    healed_s: list[float] = field(default_factory=list[float])
    """From then on until all was well."""

    def merge(self, other: Row) -> None:
        self.asked += other.asked
        self.shown += other.shown
        self.gaps_s += other.gaps_s
        self.held_s += other.held_s
        self.healed_s += other.healed_s


@dataclass
class Score:
    """Of all rounds; of several storms, where they were merged."""

    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """What this machine can't do, and why."""
    rows: dict[str, Row] = field(default_factory=lambda: defaultdict(Row))
    acked: int = 0
    lost: int = 0
    twice: int = 0
    two_values: int = 0
    in_doubt: int = 0
    refused: int = 0
    deliveries: int = 0
    settles: Counter[str] = field(default_factory=Counter[str])
    violations: list[str] = field(default_factory=list[str])
    findings: list[str] = field(default_factory=list[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    restarts: list[str] = field(default_factory=list[str])
    spoken: Counter[str] = field(default_factory=Counter[str])
    """Of clients of protocols beside HTTP."""
    unjudged: int = 0
    """Faults that were shown in rounds which were not judged to the end: they do not count."""

    def add_fault(self, event: Event) -> None:
        row = self.rows[event["fault"]]
        row.asked += 1
        row.shown += bool(event["effect"])
        row.held_s.append(event["until"] - event["at"])
        row.healed_s.append(event["healthy_s"])

    def add_round(self, judged: Judgement, *, is_whole: bool = True) -> None:
        """What was found in a round counts in any case; what it proves, if it is whole."""
        log, queue = judged.log, judged.queue
        if is_whole:
            self.acked += judged.acked
        else:
            self._take_back(judged.events)
        self.lost += log.lost
        self.twice += log.twice
        self.two_values += log.two_values
        self.in_doubt += log.in_doubt + queue.in_doubt
        self.refused += log.refused
        self.deliveries += queue.deliveries
        self.settles.update(queue.settles)
        self.violations += [*log.lines(), *queue.lines()]
        self.violations += judged.spoken
        self.spoken.update(judged.spoken_counts)
        self.errors.update(judged.errors)
        for kind, gap_s in gaps(judged.events):
            self.rows[kind].gaps_s.append(gap_s)

    def _take_back(self, events: Sequence[Event]) -> None:
        for event in events:
            if event["type"] == "fault" and event["effect"]:
                self.rows[event["fault"]].shown -= 1
                self.unjudged += 1

    def merge(self, other: Score) -> None:
        """Adds what another storm came to."""
        for kind, row in other.rows.items():
            self.rows[kind].merge(row)
        self.skipped |= other.skipped
        self.acked += other.acked
        self.lost += other.lost
        self.twice += other.twice
        self.two_values += other.two_values
        self.in_doubt += other.in_doubt
        self.refused += other.refused
        self.deliveries += other.deliveries
        self.unjudged += other.unjudged
        self.settles.update(other.settles)
        self.errors.update(other.errors)
        self.spoken.update(other.spoken)
        self.violations += other.violations
        self.findings += other.findings
        self.restarts += other.restarts

    def dump(self) -> dict[str, Any]:
        rows = {kind: asdict(row) for kind, row in self.rows.items()}
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"rows": rows}

    @classmethod
    def load(cls, told: dict[str, Any]) -> Score:
        """What `dump` told."""
        score = cls(**told)
        score.rows = defaultdict(Row, {kind: Row(**row) for kind, row in told["rows"].items()})
        score.settles, score.errors = Counter(told["settles"]), Counter(told["errors"])
        score.spoken = Counter(told["spoken"])
        return score

    @property
    def is_clean(self) -> bool:
        return not self.violations and not self.findings

    def has_enough(self, each: int, acked: int, kinds: Sequence[str]) -> bool:
        return self.acked >= acked and all(self.rows[kind].shown >= each for kind in kinds)

    def lines(self) -> Iterator[str]:
        yield from self.violations
        yield from (f"finding: {finding}" for finding in self.findings)
        yield (
            "fault            done   shown   gap p50    p99    max     held p50    p99    max"
            "   healed p50    p99    max"
        )
        for kind, row in sorted(self.rows.items()):
            yield (
                f"{kind:15} {row.asked:5} {row.shown:7}   {_three(row.gaps_s)}   "
                f"   {_three(row.held_s)}       {_three(row.healed_s)}"
            )
        yield f"acked                 {self.acked}"
        yield f"lost                  {self.lost}   (must be 0)"
        yield f"duplicates            {self.twice}   (must be 0)"
        yield f"offsets of two values {self.two_values}   (must be 0)"
        yield f"violations, findings  {len(self.violations)}, {len(self.findings)}   (must be 0)"
        yield f"in doubt, refused     {self.in_doubt}, {self.refused}"
        yield f"delivered             {self.deliveries}"
        yield f"settled               {dict(sorted(self.settles.items()))}"
        if self.spoken:
            yield f"other protocols       {dict(sorted(self.spoken.items()))}"
        if self.unjudged:
            yield f"not counted           {self.unjudged} faults of rounds not judged to the end"
        yield f"errors seen           {dict(sorted(self.errors.items()))}"
        yield f"left and restarted    {dict(Counter(self.restarts))}"
        yield from self._targets()
        for kind, why in sorted(self.skipped.items()):
            yield f"skipped               {kind}: {why}"
        yield "complete" if not self.skipped else "INCOMPLETE: what was skipped proves nothing"

    def _targets(self) -> Iterator[str]:
        """Of the faults that a target is set for."""
        kill, transfer = self.rows["kill"].gaps_s, self.rows["transfer"].gaps_s
        for name, values, share, bound_s in (
            ("failover p50", kill, 0.5, FAILOVER_P50_S),
            ("failover p99", kill, 0.99, FAILOVER_P99_S),
            ("transfer p99", transfer, 0.99, TRANSFER_P99_S),
        ):
            if values:
                found = quantile(values, share)
                said = "pass" if found <= bound_s else "MISSED"
                yield f"{name}          {found:.3f} s of {bound_s} s: {said}"

    def misses_targets(self) -> bool:
        return any(line.endswith("MISSED") for line in self._targets())


def gaps(events: Sequence[Event]) -> Iterator[tuple[str, float]]:
    """For each fault and each partition that its victims led: from its beginning to the first ack
    of a publish that was sent after it. Where another fault was there at the same time, nobody
    knows whose gap it is: none is told."""
    faults = [event for event in events if event["type"] == "fault" and not event.get("beside")]
    as_kills = [
        {"type": "kill", "node": ",".join(f["nodes"]), "partitions": f["partitions"], "at": f["at"]}
        for f in faults
    ]
    acks = [event for event in events if event["type"] == "ok"]
    for gap in report.gaps([*acks, *as_kills]):
        yield faults[gap.kill]["fault"], gap.seconds


def _three(values: Sequence[float]) -> str:
    if not values:
        return "     -      -      -"
    shown = [quantile(values, share) for share in (0.5, 0.99, 1.0)]
    return " ".join("   inf" if math.isinf(one) else f"{one:6.2f}" for one in shown)
