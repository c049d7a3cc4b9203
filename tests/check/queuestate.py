"""Compares what a replica holds of its groups with what the model has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from delivery.group.state import GroupState
from tests.check.queuelog import QueueLog
from tests.check.queuemodel import DEAD, LEASED


def compare(
    log: QueueLog, node: str, groups: Mapping[int, GroupState]
) -> Iterator[tuple[str, str]]:
    """(rule, what differs) of a replica that has applied everything."""
    if set(groups) != set(log.groups):
        yield ("Q1", f"{node} has the groups {sorted(groups)}, not {sorted(log.groups)}")
        return
    for id, view in groups.items():
        group = log.groups[id]
        told = f"{node} {group.name}"
        if view.version != group.version:
            yield ("Q1", f"{told} has settings {view.version}, not {group.version}")
        owner = (view.owner.member, view.owner.generation, view.owner.since)
        known_owner = (group.owner.member, group.owner.generation, group.owner.since)
        if owner != known_owner:
            yield ("G1", f"{told} has the owner {owner}, not {known_owner}")
        if view.committed_offset != group.committed_offset:
            yield (
                "G3",
                f"{told} has settled up to {view.committed_offset}, not {group.committed_offset}",
            )
        leased = len(view.leases)
        if leased != len(group.of(LEASED)):
            yield ("Q1", f"{told} has {leased} leases, not {len(group.of(LEASED))}")
        dead = {offset: group.lives[offset] for offset in group.of(DEAD)}
        if set(dead) != set(view.dead):
            yield ("Q2", f"{told} has dead {sorted(view.dead)}, not {sorted(dead)}")
            continue
        by_reason: defaultdict[str, int] = defaultdict(int)
        for offset, letter in view.dead.items():
            life = dead[offset]
            by_reason[letter.reason] += 1
            known = (life.attempts, life.died_for, life.redrives)
            if (letter.attempts, letter.reason, letter.redrives) != known:
                yield ("Q2", f"{told} {offset} is dead as {letter}, not {known}")
        if by_reason != view.dead_by_reason:
            yield ("Q2", f"{told} counts its dead as {dict(view.dead_by_reason)}")
