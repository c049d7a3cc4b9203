"""The next safe step of one partition towards the replicas it should have.

One change at a time, a learner first, which votes once it is caught up; then one that is not wanted
goes. With `factor` replicas wanted there are never more than one voter above it, and a voter that
is in sync goes only while as many others as are wanted are: so a move never leaves fewer than it
found. What is not in sync goes earlier, as long as those that stay are a working majority.

The same judgement is made twice: where steps are decided, from what the leader told (`next_step`),
and by the leader itself when a step arrives, however late (`refusal`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.topics.partitions import Configuration
from goqueue.wire.types import Index, NodeId, PartitionId, Voter

ADD_LEARNER, PROMOTE, REMOVE, TRANSFER = "add_learner", "promote", "remove", "transfer"
CONFIRM = "confirm"
"""Nobody comes or goes: from then on what was decided earlier is refused."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a partition's leader tells of its replicas.

    `in_sync` are voters that hold what is committed, the leader itself included; `caught_up` are
    learners that may vote. `busy`: a change is under way, or its term has committed nothing yet.
    """

    configuration: Configuration
    leader: NodeId
    in_sync: frozenset[NodeId]
    caught_up: frozenset[NodeId] = frozenset()
    busy: bool = False
    behind_bytes: int = 0
    """What its learners have yet to get."""
    full: frozenset[NodeId] = frozenset()
    """Brokers that should get a replica, and have no room for one."""
    term: int = 0
    """The leader's; 0 where an older version told."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a partition's leader is to do.

    It does so only while its configuration is the one of `index`, and `refusal` finds nothing.
    `factor` is the number of replicas that are wanted. `lost`: the voter that is to be removed will
    never come back, as its broker has another data directory now. `epoch` is the layout's when this
    was decided.
    """

    partition_id: PartitionId
    kind: str
    voter: Voter
    index: Index
    factor: int
    throttle_bytes_s: int = 0
    lost: bool = False
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing can be done now; for people, why."""

    reason: str


def next_step(
    partition_id: PartitionId,
    replicas: Sequence[Voter],
    seen: Seen,
    throttle_bytes_s: int = 0,
    *,
    epoch: int = 0,
    confirmed: int = 0,
) -> Step | Waiting | None:
    """None where all is as it should be, and was so in the epoch `confirmed` or later. `epoch` is
    the present one."""
    if seen.busy:
        return Waiting("another change is under way")
    now = seen.configuration

    def step(kind: str, voter: Voter) -> Step:
        lost = kind == REMOVE and voter in now.voters and _is_lost(voter, replicas)
        return Step(
            partition_id, kind, voter, now.index, len(replicas), throttle_bytes_s, lost, epoch
        )

    for learner in now.learners:
        if learner not in replicas:
            return step(REMOVE, learner)
    found = _removal(replicas, seen)
    if found is not None:
        return found if isinstance(found, Waiting) else step(*found)
    for voter in replicas:
        if voter in now.learners:
            if voter.node in seen.caught_up:
                return step(PROMOTE, voter)
            return _no_room(voter, seen) or Waiting(f"{voter.node} is catching up")
    for voter in replicas:
        if voter not in now.voters:
            return _no_room(voter, seen) or step(ADD_LEARNER, voter)
    return step(CONFIRM, replicas[0]) if now.epoch < confirmed else None


def refusal(step: Step, seen: Seen) -> str | None:
    """Why a leader may not take this step now; None where it may."""
    now = seen.configuration
    if seen.busy:
        return "another change is under way"
    if step.index != now.index:
        return f"the configuration is that of entry {now.index}, not {step.index}"
    if step.epoch < now.epoch:
        return f"it was decided in epoch {step.epoch}, and this is {now.epoch}"
    if step.kind == CONFIRM:
        return None
    if step.kind == ADD_LEARNER:
        taken = any(voter.node == step.voter.node for voter in now.everyone)
        if taken:
            return f"{step.voter.node} takes part already"
        full = _no_room(step.voter, seen)
        return None if full is None else full.reason
    if step.kind == PROMOTE:
        ready = step.voter in now.learners and step.voter.node in seen.caught_up
        return None if ready else f"{step.voter.node} is not caught up"
    if step.kind == TRANSFER:
        ready = step.voter in now.voters and step.voter.node in seen.in_sync
        return None if ready else f"{step.voter.node} can't lead"
    if step.voter in now.learners:
        return None
    if step.voter not in now.voters:
        return f"{step.voter.node} does not vote"
    return _loss(step.voter, step.factor, seen, is_lost=step.lost)


def is_left_out(replica: Voter, seen: Seen, term: int) -> bool:
    """Whether a replica that has heard of no later term takes part no more, by what a leader tells.

    The leader of such a term has committed an entry in it. So it holds all that ever committed in
    the terms before, and what it lacks of them is lost; of its own term it holds all there is. If
    no configuration of its log names the replica, none that the replica holds will ever be obeyed.
    """
    return not seen.busy and seen.term >= term and replica not in seen.configuration.everyone


def _removal(replicas: Sequence[Voter], seen: Seen) -> tuple[str, Voter] | Waiting | None:
    """Whose turn it is to go: those first whose data directory is lost, as their brokers can't take
    part anew before, then who is not in sync, the leader last."""
    voters = seen.configuration.voters
    unwanted = [voter for voter in voters if voter not in replicas]
    lost = [voter for voter in unwanted if _is_lost(voter, replicas)]
    if not lost and len(voters) <= len(replicas):
        return None
    ranked = sorted(
        lost or unwanted,
        key=lambda voter: (voter.node == seen.leader, voter.node in seen.in_sync, voter),
    )
    if not ranked:
        return None
    reason = ""
    for voter in ranked:
        problem = _loss(voter, len(replicas), seen, is_lost=bool(lost))
        if problem is not None:
            reason = reason or problem
        elif voter.node != seen.leader:
            return REMOVE, voter
        else:
            heir = _heir(voter, replicas, seen)
            return (REMOVE, voter) if heir is None else (TRANSFER, heir)
    return Waiting(reason)


def _no_room(voter: Voter, seen: Seen) -> Waiting | None:
    if voter.node in seen.full:
        return Waiting(f"{voter.node} has no room on its disk")
    return None


def _is_lost(voter: Voter, replicas: Sequence[Voter]) -> bool:
    """Whether its broker is wanted with another data directory."""
    return any(one.node == voter.node and one != voter for one in replicas)


def _loss(voter: Voter, factor: int, seen: Seen, *, is_lost: bool) -> str | None:
    """What speaks against taking a voter away."""
    others = [one for one in seen.configuration.voters if one != voter]
    in_sync = sum(one.node in seen.in_sync for one in others)
    if in_sync * 2 <= len(others):
        return f"only {in_sync} of the {len(others)} that would stay are in sync"
    if is_lost or voter.node not in seen.in_sync or in_sync >= factor:
        return None
    lagging = sorted(one.node for one in others if one.node not in seen.in_sync)
    if lagging:
        return f"waiting for {', '.join(lagging)} to be in sync"
    return f"only {in_sync} others of {factor} that are wanted"


def _heir(leader: Voter, replicas: Sequence[Voter], seen: Seen) -> Voter | None:
    """Who should lead instead: the first of those that stay."""
    able = [
        voter
        for voter in (*replicas, *sorted(seen.configuration.voters))
        if voter in seen.configuration.voters
        and voter.node in seen.in_sync
        and voter.node != leader.node
    ]
    return able[0] if able else None
