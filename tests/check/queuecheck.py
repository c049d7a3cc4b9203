"""Judges what a queue did to its clients: `check(events)` names every broken promise.

    Q1   attempts are exact: 1, 2, 3, one lease at a time, each with the reason of the last failure
    Q2   a message that failed too often, or was rejected, is dead once, and not delivered again
    Q3   nothing is delivered before it is due, or late without a cause; cancelled or delivered
    Q4   nothing comes before what is ready in a higher lane, or before it in its own
    Q5   a message id is stored once
    G3   all that was acked is delivered to every group; what a group has acked never comes again
    KEY  of an `ordering: key` group one message of a key is in flight, in the order of offsets
    L6   nothing is received that was not published

`python -m tests.check.queuecheck FILE` judges a recorded history (`tests.check.queuehistory`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.check.history import Event, load
from tests.check.queuecase import Case
from tests.check.queuerules import RULES, Limits
from tests.check.verdict import Findings, Violation


@dataclass
class Verdict(Findings):
    """What was counted, and what was broken."""

    published: int = 0
    in_doubt: int = 0
    duplicates: int = 0
    deliveries: int = 0
    redeliveries: int = 0
    settles: dict[str, int] = field(default_factory=dict[str, int])
    """By outcome; `unknown` and `refused` included."""
    cancelled: int = 0
    dead: dict[str, int] = field(default_factory=dict[str, int])
    lateness_s: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Of first deliveries of delayed messages, from when they were due, by group."""

    def lines(self) -> Iterator[str]:
        """At most ten violations of each rule, and how many more."""
        return self.lines_of(RULES)

    def counts(self) -> Iterator[str]:
        """What was done, a line at a time."""
        settles = ", ".join(f"{n} {outcome}" for outcome, n in sorted(self.settles.items()))
        yield f"published {self.published}, duplicates {self.duplicates}, in doubt {self.in_doubt}"
        yield f"deliveries {self.deliveries}, redeliveries {self.redeliveries}"
        yield f"settles {settles}; cancelled {self.cancelled}"
        yield f"dead letters {dict(sorted(self.dead.items()))}"


def check(events: Iterable[Event], limits: Limits | None = None) -> Verdict:
    """Judge a whole history."""
    case = Case(events)
    limits = limits or Limits()
    violations = {
        Violation(name, text)
        for name, rules in RULES.items()
        for rule in rules
        for text in rule(case, limits)
    }
    verdict = Verdict(sorted(violations))
    for publish in case.publishes.values():
        verdict.published += publish.outcome == "published"
        verdict.in_doubt += publish.outcome == "in doubt"
        verdict.duplicates += publish.duplicate
    for grant in case.all_grants():
        verdict.deliveries += 1
        verdict.redeliveries += grant.attempt > 1
        message = case.messages[grant.place]
        if message.delay_s and grant.attempt == 1 and not grant.redrives:
            late = verdict.lateness_s.setdefault(grant.group, [])
            late.append(grant.came - message.acked - message.delay_s)
        for tried in grant.settles:
            verdict.settles[tried.outcome] = verdict.settles.get(tried.outcome, 0) + 1
    verdict.cancelled = sum(
        c.outcome == "cancelled" for cancels in case.cancels.values() for c in cancels
    )
    verdict.dead = {group: len(letters) for group, letters in case.dead.items()}
    return verdict


if __name__ == "__main__":
    judged = check(load(Path(sys.argv[1])))
    print(*judged.lines(), *judged.counts(), sep="\n")
    sys.exit(0 if judged.is_clean else 1)
