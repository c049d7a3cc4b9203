"""What nodes ask each other about members of groups, as msgpack over the peer link."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from node.rpc.partitions import PartitionRequest

HEARD = "group_heard"
SILENT = "group_silent"
IN_FLIGHT = "group_in_flight"


class HeardRequest(PartitionRequest, array_like=True, frozen=True):
    """Signs of life of these members, (group, member) each, for who leads the cluster group."""

    members: list[tuple[int, str]]

    def packed_partitions(self) -> Sequence[bytes]:
        return ()


class HeardAnswer(msgspec.Struct, array_like=True, frozen=True):
    """Those of them that are no members, and up to where the leader had applied by then."""

    gone: list[tuple[int, str]]
    applied: int = 0


class SilentRequest(PartitionRequest, array_like=True, frozen=True):
    """For how long the members of these groups were not heard of."""

    groups: list[int]

    def packed_partitions(self) -> Sequence[bytes]:
        return ()


class SilentAnswer(msgspec.Struct, array_like=True, frozen=True):
    """Milliseconds by group and member."""

    silent_ms: dict[int, dict[str, int]]


class InFlightRequest(PartitionRequest, array_like=True, frozen=True):
    """How many messages a member has in flight in a partition, of its leader."""

    partition: bytes
    group: int
    member: str

    def packed_partitions(self) -> Sequence[bytes]:
        return (self.partition,)


class InFlightAnswer(msgspec.Struct, array_like=True, frozen=True):
    """How many leases stand."""

    count: int
