"""What a run showed: counts, the gaps in acks after each kill, and whether that is good enough."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.check.history import Event
from tests.check.logcheck import Verdict

GAP_P50_S = 0.5
GAP_P99_S = 2.0


@dataclass(frozen=True, slots=True)
class Gap:
    """How long a partition was without an ack, from the kill of its leader.

    Until the first ack of a publish whose request left after the kill: answers that were already
    on their way do not count. Infinite when none came.
    """

    kill: int
    node: str
    partition: int
    seconds: float


def gaps(events: Iterable[Event]) -> list[Gap]:
    """One gap for every partition led by a killed node."""
    listed = list(events)
    acks: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in listed:
        if event["type"] == "ok":
            acks[event["partition"]].append((event["sent"], event["time"]))
    firsts = {partition: _first_ack_sent_from(found) for partition, found in acks.items()}
    found = []
    for number, kill in enumerate(e for e in listed if e["type"] == "kill"):
        for partition in kill["partitions"]:
            sent, earliest = firsts.get(partition, ([], []))
            at = bisect.bisect_left(sent, kill["at"])
            end = earliest[at] if at < len(earliest) else math.inf
            found.append(Gap(number, kill["node"], partition, end - kill["at"]))
    return found


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all is not above; NaN of nothing."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def lines(
    verdict: Verdict, found: Sequence[Gap], kills: int, recoveries_s: Sequence[float]
) -> Iterator[str]:
    """The report, a line at a time."""
    seconds = [gap.seconds for gap in found]
    p50, p99, worst = quantile(seconds, 0.5), quantile(seconds, 0.99), quantile(seconds, 1.0)
    yield from verdict.lines()
    yield f"kills                 {kills}"
    yield f"acked                 {verdict.acked}"
    yield f"lost                  {verdict.lost}   (must be 0)"
    yield f"duplicates            {verdict.twice}   (must be 0)"
    yield f"offsets of two values {verdict.two_values}   (must be 0)"
    yield f"other violations      {len(verdict.violations)}   (of L1 to L6 and L8, in all)"
    yield f"in doubt              {verdict.in_doubt}, refused {verdict.refused}"
    yield f"stored                {verdict.read}"
    yield (
        f"gap in acks           p50 {p50:.3f} s, p99 {p99:.3f} s, max {worst:.3f} s "
        f"over {len(seconds)} partitions killed"
    )
    yield f"  target p50 <= {GAP_P50_S} s  {'pass' if p50 <= GAP_P50_S else 'FAIL'}"
    yield f"  target p99 <= {GAP_P99_S} s  {'pass' if p99 <= GAP_P99_S else 'FAIL'}"
    yield (
        f"restart to healthy    p50 {quantile(recoveries_s, 0.5):.2f} s, "
        f"max {quantile(recoveries_s, 1.0):.2f} s"
    )


def exit_code(verdict: Verdict, found: Sequence[Gap], kills: int, kills_wanted: int) -> int:
    """0 good; 1 a promise was broken; 3 the gaps miss a target; 4 too few kills to tell."""
    if not verdict.is_clean or not verdict.acked:
        return 1
    if kills < kills_wanted or (kills_wanted and not found):
        return 4
    seconds = [gap.seconds for gap in found]
    if seconds and (quantile(seconds, 0.5) > GAP_P50_S or quantile(seconds, 0.99) > GAP_P99_S):
        return 3
    return 0


def _first_ack_sent_from(found: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Send times in order, and beside each the earliest ack among requests sent then or later."""
    found = sorted(found)
    earliest = [ack for _, ack in found]
    for at in range(len(earliest) - 2, -1, -1):
        earliest[at] = min(earliest[at], earliest[at + 1])
    return [sent for sent, _ in found], earliest
