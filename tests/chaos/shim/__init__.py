"""Disk errors and wall-clock jumps of a real process, switched while it runs."""

from tests.chaos.shim.control import (
    ALLOCATE,
    OPEN,
    READ,
    SYNC,
    WRITE,
    Rule,
    Shim,
    ShimUnavailable,
    library,
)

__all__ = [
    "ALLOCATE",
    "OPEN",
    "READ",
    "SYNC",
    "WRITE",
    "Rule",
    "Shim",
    "ShimUnavailable",
    "library",
]
