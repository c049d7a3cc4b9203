"""Feature levels: which formats this version speaks, and which of them the cluster has finished.

A level is a number. Whatever is written to a disk or sent to another node has the level it came
with; level 1 is all that release 0.2.0 knows. A node reads every level from `LOWEST` to `HIGHEST`,
and writes nothing above the level that its cluster has finished: so that the version before can
still run. docs/internals/feature-levels.md has the rules for whoever adds an entry or a field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

from goqueue.wire.errors import GoQueueError

LOWEST = 1
HIGHEST = 2
FIRST = 1
"""The finished level of a cluster that has finished none by command."""


class Feature(IntEnum):
    """What code asks for before it writes or sends it: a name, and the level that it came with."""

    BASE = 1
    """All that release 0.2.0 knows."""
    RECEIPT_KEYS = 2
    """Receipts carry a code (MAC) made with keys of the cluster."""
    ENDED_SESSIONS = 2
    """A session of the console that was logged out of is over on every node."""
    SCOPES = 2
    """Consumer groups belong to the scope that created them."""
    LAG_EVERYWHERE = 2
    """Nodes ask each other which groups have begun a topic."""
    TOPIC_COMPRESSION = 2
    """A topic has a default compression."""
    SETTLING_RECEIVES = 2
    """A receive settles what came before; a node of a lower level would take no notice."""
    RESTING_GROUPS = 2
    """Raft groups with nothing to say rest: one beat between two nodes stands for all of theirs."""
    STREAMS = 2
    """Leases name the stream that they were given to, and end with it."""
    PENDING = 2
    """Leaders tell what of a group is in flight, and with whom."""
    TRIMS_OF_SETTLED = 2
    """What all groups have settled goes when it is asked for; entries begin a segment for it."""
    MANY_PARTITIONS = 2
    """A topic may have more than 1,024 partitions."""


class Unspoken(Exception):
    """Something here was written by a version that speaks a higher level. Nothing was changed."""


class NotFinished(GoQueueError):
    """What was asked for needs a level that the cluster has not finished yet."""

    code = "level_not_finished"
    http_status = 409

    def __init__(self, level: int, finished: int) -> None:
        super().__init__(
            f"this needs level {level}, and the cluster has finished level {finished}: once all"
            " nodes run a version that speaks it, `goqueue-cli cluster upgrade --finish`",
            level=level,
            finished_level=finished,
        )


@dataclass(frozen=True, slots=True)
class Spoken:
    """The levels that a node speaks, and the finished one that it knows of; 0: it knows none."""

    lowest: int = LOWEST
    highest: int = HIGHEST
    finished: int = 0

    def speaks(self, level: int) -> bool:
        return self.lowest <= level <= self.highest

    def __str__(self) -> str:
        if self.lowest == self.highest:
            return f"level {self.lowest}"
        return f"levels {self.lowest} to {self.highest}"


@dataclass(slots=True)
class Levels:
    """What this node speaks, and what it knows of its cluster's finished level.

    `finished` is what its own applied state says: by it is decided what is written. `known` may be
    higher, from its data directory or from peers: by it is decided who takes part. `keep` stores a
    new known level before anything of it is written here, and may raise nothing.
    """

    lowest: int = LOWEST
    highest: int = HIGHEST
    finished: int = FIRST
    known: int = 0
    keep: Callable[[int], bool] = lambda _level: True
    on_known: Callable[[], None] = lambda: None
    """Told of each new known level, after it is kept: peers are told next."""
    problem: str = field(default="", init=False)
    """Why this version can't go on: its cluster has finished a level that it does not speak."""
    refused: str = field(default="", init=False)
    """What a peer says that this version lacks. It may belong to another cluster."""
    _kept: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._kept = self.known

    @property
    def spoken(self) -> Spoken:
        return Spoken(self.lowest, self.highest, self.known)

    def speaks(self, feature: int) -> bool:
        """Whether the feature may be written and sent: everybody knows it, for good."""
        return feature <= self.finished

    def require(self, feature: int) -> None:
        """Raises NotFinished unless `speaks`."""
        if not self.speaks(feature):
            raise NotFinished(feature, self.finished)

    def applied(self, finished: int) -> None:
        """The cluster's state says so, here."""
        if finished != self.finished or finished > self._kept:
            self.learn(finished)
            self.finished = finished

    def learn(self, finished: int) -> None:
        """The cluster's finished level is at least this one."""
        if finished > self._kept and self.keep(finished):
            self._kept = finished
        if finished <= self.known:
            return
        self.known = finished
        if not self.spoken.speaks(finished):
            self.problem = outdated(self.spoken, finished)
        self.on_known()

    def refusal(self, node: str, peer: Spoken) -> str | None:
        """Why a peer and this node can't belong to one cluster; None where they can."""
        finished = max(self.known, peer.finished)
        if not finished:
            if peer.lowest <= self.highest and self.lowest <= peer.highest:
                return None
            return f"{node} speaks {peer}, and this node {self.spoken}: they have none in common"
        if not peer.speaks(finished):
            return outdated(peer, finished, f"{node}'s version")
        if not self.spoken.speaks(finished):
            problem = outdated(self.spoken, finished)
            self.refused = f"{problem} (told by {node})"
            return problem
        return None


def outdated(spoken: Spoken, finished: int, who: str = "this version") -> str:
    """For people: why a version can't run with a cluster, or on a directory, of this level."""
    advice = (
        "run the version that finished it, or a later one"
        if finished > spoken.highest
        else "run an older version, and finish a higher level first"
    )
    return f"{who} speaks {spoken}, and the cluster has finished level {finished}: {advice}"
