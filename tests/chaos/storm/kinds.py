"""The kinds of faults by name, what each needs of the machine, and which can be had here."""

from __future__ import annotations

from collections.abc import Sequence

from tests.chaos.storm.disk_faults import Blackout, Eio, Flip, Full, Power
from tests.chaos.storm.faults import (
    Clock,
    Delay,
    Fault,
    Kill,
    Loss,
    OneWay,
    Partition,
    Pause,
    Transfer,
)
from tests.chaos.storm.site import Abilities

SINGLE: dict[str, type[Fault]] = {
    "kill": Kill,
    "transfer": Transfer,
    "pause": Pause,
    "partition": Partition,
    "oneway": OneWay,
    "loss": Loss,
    "delay": Delay,
    "power": Power,
    "blackout": Blackout,
    "flip": Flip,
    "full": Full,
    "eio": Eio,
    "clock": Clock,
}
COMBINED: dict[str, tuple[str, str]] = {
    "pause+kill": ("pause", "kill"),
    "partition+kill": ("partition", "kill"),
    "flip+kill": ("flip", "kill"),
}
_ONE_NODE = ("kill", "transfer", "pause", "power", "flip", "full", "eio")
BESIDE: dict[str, tuple[str, ...]] = {
    "clock": (*_ONE_NODE, "partition", "oneway"),
    "loss": (*_ONE_NODE, "partition", "oneway"),
    "delay": _ONE_NODE,
}
"""What may strike another node at the same time as which; the third node is left alone."""
_NEEDS = {
    "oneway": "networks",
    "loss": "networks",
    "power": "disks",
    "blackout": "disks",
    "full": "shim",
    "eio": "shim",
    "clock": "shim",
}
_ALONE = {
    "partition": "networks",
    "delay": "networks",
    "full": "disks",
}
"""What a kind is to be had with; without it there is a lesser form."""


def expand(asked: str | None) -> list[str]:
    """The kinds that a list of names means. Raises ValueError."""
    names = (asked or "all").split(",")
    found: list[str] = []
    for name in names:
        if name == "all":
            found += [*SINGLE, *COMBINED]
        elif name == "power":
            found += ["power", "blackout"]
        elif name in SINGLE or name in COMBINED:
            found.append(name)
        else:
            raise ValueError(f"there is no nemesis {name!r}")
    return list(dict.fromkeys(found))


def available(asked: Sequence[str], abilities: Abilities) -> tuple[list[str], dict[str, str]]:
    """What can be done here, and what not, or not fully: why."""
    kinds: list[str] = []
    skipped: dict[str, str] = {}
    for kind in asked:
        parts = COMBINED.get(kind, (kind,))
        absent = [why for part in parts if (why := _missing(part, _NEEDS, abilities))]
        if absent:
            skipped[kind] = absent[0]
            continue
        kinds.append(kind)
        lesser = [why for part in parts if (why := _missing(part, _ALONE, abilities))]
        if lesser:
            skipped[f"{kind} in full"] = lesser[0]
    return kinds, skipped


def _missing(kind: str, needs: dict[str, str], abilities: Abilities) -> str | None:
    need = needs.get(kind)
    why: str | None = getattr(abilities, need) if need else None
    return why
