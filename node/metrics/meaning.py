"""What is to be known of a metric beside its name: who tells it, and when it moves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Teller(Enum):
    """Which node tells a figure, and so how figures of several nodes go together."""

    LEADER = "the partition's leader; sum over nodes"
    REPLICA = "every replica, of itself; a sum counts copies"
    FRONT = "the node that was asked; sum over nodes"
    NODE = "every node, of itself"
    VIEW = "every node, as it sees the cluster; take the max, never the sum"
    CONTROLLER = "the leader of the cluster group only; take the max or the sum"


class Moves(Enum):
    """When a metric moves, or is other than zero."""

    ALWAYS = "while a node runs"
    PUBLISH = "with publishing"
    READ = "with reading by offset"
    RECEIVE = "with receiving"
    SETTLE = "with settling"
    GROUP = "with groups that have members"
    DELAY = "with delayed messages"
    HTTP = "with requests"
    CLUSTER = "in a cluster of several nodes"
    FAILURE = "when something fails"
    CHANGE = "when members, nodes, topics or places change"
    UPKEEP = "when retention, compaction, snapshots, scrubbing or copying has something to do"
    TAIL = "with tails of topics"
    STREAM = "with streams of groups"
    LISTENER = "with clients of Redis' protocol, of duplex HTTP/2 or of gRPC"
    LOCKED = "with requests, while `auth.enabled` is on"
    LOADED = "under more load than the node takes at once"

    @property
    def under_load(self) -> bool:
        """Whether ordinary work on a healthy cluster of several nodes moves it."""
        return self not in (
            Moves.FAILURE,
            Moves.CHANGE,
            Moves.UPKEEP,
            Moves.TAIL,
            Moves.STREAM,
            Moves.LISTENER,
            Moves.LOCKED,
            Moves.LOADED,
        )


@dataclass(frozen=True, slots=True)
class Meaning:
    """`alias` names the metric that says the same under another name, kept for its users."""

    told: Teller
    moves: Moves
    alias: str = ""
