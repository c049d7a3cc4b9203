"""What a storm came to: faults of each kind, what was acked and lost, gaps, and times to heal."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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
    """How many are known to have had an effect."""
    gaps_s: list[float] = field(default_factory=list[float])
    healed_s: list[float] = field(default_factory=list[float])


@dataclass
class Score:
    """Of all rounds."""

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

    def add_fault(self, event: Event) -> None:
        row = self.rows[event["fault"]]
        row.asked += 1
        row.shown += bool(event["effect"])
        row.healed_s.append(event["healthy_s"])

    def add_round(self, judged: Judgement) -> None:
        log, queue = judged.log, judged.queue
        self.acked += judged.acked
        self.lost += log.lost
        self.twice += log.twice
        self.two_values += log.two_values
        self.in_doubt += log.in_doubt + queue.in_doubt
        self.refused += log.refused
        self.deliveries += queue.deliveries
        self.settles.update(queue.settles)
        self.violations += [*log.lines(), *queue.lines()]
        self.errors.update(judged.errors)
        for kind, gap_s in gaps(judged.events):
            self.rows[kind].gaps_s.append(gap_s)

    @property
    def is_clean(self) -> bool:
        return not self.violations and not self.findings

    def has_enough(self, each: int, acked: int, kinds: Sequence[str]) -> bool:
        return self.acked >= acked and all(self.rows[kind].shown >= each for kind in kinds)

    def lines(self) -> Iterator[str]:
        yield from self.violations
        yield from (f"finding: {finding}" for finding in self.findings)
        yield "fault            done   shown   gap p50    p99    max   healed p50    p99    max"
        for kind, row in sorted(self.rows.items()):
            yield (
                f"{kind:15} {row.asked:5} {row.shown:7}   {_three(row.gaps_s)}   "
                f"    {_three(row.healed_s)}"
            )
        yield f"acked                 {self.acked}"
        yield f"lost                  {self.lost}   (must be 0)"
        yield f"duplicates            {self.twice}   (must be 0)"
        yield f"offsets of two values {self.two_values}   (must be 0)"
        yield f"violations, findings  {len(self.violations)}, {len(self.findings)}   (must be 0)"
        yield f"in doubt, refused     {self.in_doubt}, {self.refused}"
        yield f"delivered             {self.deliveries}"
        yield f"settled               {dict(sorted(self.settles.items()))}"
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
    of a publish that was sent after it."""
    faults = [event for event in events if event["type"] == "fault"]
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
