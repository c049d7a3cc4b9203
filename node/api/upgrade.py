"""What the HTTP front asks of the node about versions: which run, and what they may use.

`Upgrade`. A feature level is a number: docs/internals/feature-levels.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from node.api.rules.rule import admins, everywhere, free, scoped


@dataclass(frozen=True, slots=True)
class VersionView:
    """What is running. `level` is the one that the cluster has finished, as this node knows it:
    what came with a higher one can't be used yet."""

    version: str
    git_commit: str = ""
    build_time: str = ""
    level: int = 1


@dataclass(frozen=True, slots=True)
class BrokerVersion:
    """A registered broker's version, and the levels that it speaks; `status` is alive, dead or
    wiped, as the node sees it that answers."""

    id: str
    version: str
    status: str
    lowest_level: int
    highest_level: int


@dataclass(frozen=True, slots=True)
class LevelsView:
    """`finished` is the cluster's level, `next` the one that an upgrade would finish: the highest
    that any broker speaks. `waiting` says what must happen before; empty where nothing must."""

    finished: int
    next: int
    brokers: Sequence[BrokerVersion]
    waiting: Sequence[str] = ()


class Upgrade(Protocol):
    """Versions and levels, from any node."""

    @scoped(free)
    def version(self) -> VersionView: ...

    @scoped(free)
    def require(self, feature: int) -> None:
        """Raises NotFinished (409) where the cluster's level is below this one."""
        ...

    @scoped(everywhere)
    async def levels(self) -> LevelsView:
        """Which versions run, and what waits for them."""
        ...

    @scoped(admins)
    async def finish_level(self) -> LevelsView:
        """Finish the level `next`; how it is then. Nothing changes where it is finished. Raises
        UpgradeWaits with all of `waiting`."""
        ...
