"""Judges what a group of consumers was given: `check(events)` names every broken promise.

    OWNER    a partition has one owner at a time: its deliveries follow the owners that the group's
             receipts name, in their order, and no ack is accepted from a former one
    ONCE     what was acked never comes again, and is acked once
    LOST     whatever a publisher was told is stored was delivered, and acked or died trying
    ATTEMPT  an attempt fails where its holder died, and nowhere else
    MADE UP  nothing is received that was not published, there, like that

`python -m tests.check.groupcheck FILE` judges a recorded history (`tests.check.groupcase`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.check.groupcase import GroupCase
from tests.check.history import Event, load
from tests.check.verdict import Findings, Violation

Broken = Iterator[str]


@dataclass
class Verdict(Findings):
    """What was counted, and what was broken."""

    published: int
    in_doubt: int
    deliveries: int
    again: int
    """Deliveries of messages that had come before."""
    acked: int
    refused: int
    unknown: int
    """Acks whose end nobody was told."""
    moved: int

    def lines(self) -> Iterator[str]:
        """At most ten violations of each rule, and how many more."""
        return self.lines_of(RULES)

    def counts(self) -> Iterator[str]:
        """What was done, a line at a time."""
        yield f"published             {self.published}, in doubt {self.in_doubt}"
        yield f"deliveries            {self.deliveries}, {self.again} of them again"
        yield (
            f"acks                  {self.acked} accepted, {self.refused} refused, "
            f"{self.unknown} unknown"
        )
        yield f"partitions moved      {self.moved}"


def check(events: Iterable[Event]) -> Verdict:
    """Judge a whole history."""
    case = GroupCase(events)
    violations = {
        Violation(name, text)
        for name, rules in RULES.items()
        for rule in rules
        for text in rule(case)
    }
    deliveries = [one for found in case.deliveries.values() for one in found]
    outcomes = [one.outcome for one in deliveries]
    return Verdict(
        sorted(violations),
        published=len(case.published),
        in_doubt=len(case.doubtful),
        deliveries=len(deliveries),
        again=len(deliveries) - len(case.by_place),
        acked=outcomes.count("acked"),
        refused=outcomes.count("refused"),
        unknown=outcomes.count("unknown"),
        moved=sum(len(owners) - 1 for owners in case.owners.values()),
    )


def owners_take_turns(case: GroupCase) -> Broken:
    """OWNER: nobody is given anything of a partition before its turn, or after it."""
    for partition, found in sorted(case.deliveries.items()):
        owners = case.owners.get(partition, [])
        for delivery in found:
            if delivery.turn < 0:
                yield f"{delivery} came at {delivery.came:.3f}, out of turn: {' '.join(owners)}"


def acks_are_the_owners(case: GroupCase) -> Broken:
    """OWNER: once the next owner has been given something, no ack of the former is accepted."""
    for _, found in sorted(case.deliveries.items()):
        begins = {one.turn: one.came for one in reversed(found) if one.turn >= 0}
        ends = {turn: begins[later] for turn, later in pairwise(sorted(begins))}
        for one in found:
            late_s = one.began - ends.get(one.turn, math.inf)
            if one.outcome == "acked" and late_s > 0:
                yield f"{one} was acked {late_s:.3f} s after another owner's turn had begun"


def acked_is_final(case: GroupCase) -> Broken:
    """ONCE: one ack of a message is accepted, and nothing of it comes afterwards."""
    for place, found in sorted(case.by_place.items()):
        acked = [one for one in found if one.outcome == "acked"]
        if len(acked) > 1:
            yield f"{place} was acked by {' and '.join(one.member for one in acked)}"
        for one in acked:
            for other in found:
                if other.came > one.ended or other.attempt > one.attempt:
                    yield f"{one} was acked, and then came {other}"


def nothing_is_lost(case: GroupCase) -> Broken:
    """LOST: stored is delivered, and then acked, or its ack is in doubt."""
    if not case.is_drained:
        yield "the group was never drained"
    for place in sorted(case.published):
        found = case.by_place.get(place, [])
        if not found:
            yield f"{place} was stored, and never delivered"
        elif not any(one.outcome in ("acked", "unknown") for one in found):
            yield f"{place} was stored, and never acked: {found[-1]} {found[-1].outcome}"


def attempts_fail_by_death(case: GroupCase) -> Broken:
    """ATTEMPT: a graceful handover gives the attempt back; a death costs one. Where a broker was
    stopped, an answer may have been lost, and what it brought waits for its time to be over."""
    for _, found in sorted(case.by_place.items()):
        highest = 0
        for one in found:
            failed = case.deaths_before(one.partition, one.came) + case.troubles_before(one.came)
            if one.attempt < 1 or one.attempt > 1 + failed:
                yield f'{one} after {failed} deaths ("{one.reason}")'
            if one.attempt < highest:
                yield f"{one} came after attempt {highest}"
            highest = max(highest, one.attempt)


def nothing_is_made_up(case: GroupCase) -> Broken:
    """MADE UP: a message is what was stored at its place."""
    for place, found in sorted(case.by_place.items()):
        for one in found:
            value = case.published.get(place)
            if value is None and one.value not in case.doubtful:
                yield f"{one} has the value {one.value!r}, which nobody published"
            elif value is not None and value != one.value:
                yield f"{one} has the value {one.value!r}, stored is {value!r}"


RULES: dict[str, tuple[Callable[[GroupCase], Broken], ...]] = {
    "OWNER": (owners_take_turns, acks_are_the_owners),
    "ONCE": (acked_is_final,),
    "LOST": (nothing_is_lost,),
    "ATTEMPT": (attempts_fail_by_death,),
    "MADE UP": (nothing_is_made_up,),
}


if __name__ == "__main__":
    judged = check(load(Path(sys.argv[1])))
    print(*judged.lines(), *judged.counts(), sep="\n")
    sys.exit(0 if judged.is_clean else 1)
