"""Who acts for a group, and for whom a group is made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Maker:
    """For whom a group is made where there is none: it will belong to the prefix `owner`, with ""
    to every key of all groups, with None to nobody. The key was held against the group `judged`, 0
    for none: where another one has the name by then, it is `GroupTaken` (409)."""

    owner: str | None = None
    judged: int = 0


NOBODYS = Maker()


@dataclass(frozen=True, slots=True)
class Claim:
    """Who acts for a group: a member in a generation. Generation 0 is of those who are no members,
    -1 of those who act whoever owns the partitions. `maker` counts where a group is made."""

    member: str = ""
    generation: int = 0
    maker: Maker = NOBODYS


NOBODY = Claim()
FORCED = Claim(generation=-1)


@dataclass(frozen=True, slots=True)
class Ownership:
    """A group, by its id, and whose it is, as `GroupView` says."""

    id: int
    owner: str | None
