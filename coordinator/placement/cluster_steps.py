"""The next safe step of the cluster group towards the members it should have.

Every broker takes part in it: those that `electorate` names vote, all others follow as learners
with the full state. Pure; the leader of the cluster group takes one step after the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from coordinator.brokers.electorate import VOTERS_MAX, Elector, electorate
from coordinator.brokers.registry import Brokers
from coordinator.placement.steps import ADD_LEARNER, Seen, Step, Waiting, next_step
from coordinator.topics.partitions import Configuration
from goqueue.wire.types import CLUSTER_GROUP, NodeId, Voter


def cluster_members(
    brokers: Brokers, now: Sequence[Voter], away_ms: Callable[[NodeId], int]
) -> dict[NodeId, Elector]:
    """Everyone who belongs in the cluster group: the brokers, and voters that have yet to
    register, as founders do."""
    found = {
        node: Elector(broker.voter, broker.zone, broker.takes, away_ms(node))
        for node, broker in brokers.by_name.items()
    }
    for voter in now:
        if voter.node not in found and voter not in brokers.gone:
            found[voter.node] = Elector(voter, away_ms=away_ms(voter.node))
    return found


def cluster_step(members: Mapping[NodeId, Elector], seen: Seen) -> Step | Waiting | None:
    """None where exactly those take part that should."""
    now = seen.configuration
    wanted = electorate(members, now.voters, VOTERS_MAX)
    everyone = {one.voter for one in members.values()}
    followers = [one for one in now.learners if one in everyone and one not in wanted]
    others = tuple(one for one in now.learners if one not in followers)
    judged = dataclasses.replace(seen, configuration=Configuration(now.index, now.voters, others))
    step = next_step(CLUSTER_GROUP, wanted, judged)
    if isinstance(step, Step) or seen.busy:
        return step
    named = {one.node for one in now.everyone}
    for voter in sorted(everyone):
        if voter.node not in named:
            return Step(CLUSTER_GROUP, ADD_LEARNER, voter, now.index, len(wanted))
    return step
