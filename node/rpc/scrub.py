"""What nodes say to each other about what they hold: hashes of ranges, and how their scrubs go."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from node.rpc.partitions import PartitionRequest

HASHES = "scrub_hashes"
DIVERGED = "scrub_diverged"
"""A leader to a replica that differs from what most replicas hold."""
SCRUB = "scrub"
"""To begin a round now, or only to tell how the last one went."""


class HashesRequest(PartitionRequest, array_like=True, frozen=True):
    """Ranges of entries of a group; `fresh`: read again, whatever was found before."""

    partition: bytes
    ranges: list[tuple[int, int]]
    fresh: bool = False

    def packed_partitions(self) -> Sequence[bytes]:
        return (self.partition,)


class HashesAnswer(msgspec.Struct, array_like=True, frozen=True):
    """A hash for each range asked, empty where not all of it can be read here."""

    hashes: list[bytes]


class DivergedRequest(PartitionRequest, array_like=True, frozen=True):
    """A range, and the hash that most replicas have of it."""

    partition: bytes
    first: int
    last: int
    hash: bytes

    def packed_partitions(self) -> Sequence[bytes]:
        return (self.partition,)


class ScrubRequest(msgspec.Struct, array_like=True, frozen=True):
    begin: bool
