"""What nodes ask each other about where messages are, as msgpack over the peer link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from node.rpc.partitions import PartitionRequest
from node.rpc.queue import MessageRow

SEARCH = "search"
HASHES = "search_hashes"

NO_BOUND = (1 << 63) - 1
"""Above every offset."""


class SearchRequest(PartitionRequest, array_like=True, frozen=True):
    """Messages of partitions of one leader, newest first: all conditions that are given hold.

    `partitions` are (partition, offset below which to look); times are log times, `to_ms`
    exclusive. `group` is the id, 0 for any, of whom one of `states`, and `status`, is meant.
    """

    partitions: list[tuple[bytes, int]]
    limit: int
    max_bytes: int
    deadline_ms: int
    message_id: str | None = None
    trace_id: str | None = None
    key: bytes | None = None
    headers: list[tuple[str, bytes]] = msgspec.field(default_factory=list[tuple[str, bytes]])
    from_ms: int | None = None
    to_ms: int | None = None
    group: int = 0
    states: list[str] = msgspec.field(default_factory=list[str])
    status: str | None = None
    with_events: bool = False
    only: list[list[int]] = msgspec.field(default_factory=list[list[int]])
    """Of each partition in turn, the offsets that are meant, newest first; all where none is."""

    def packed_partitions(self) -> Sequence[bytes]:
        return [partition for partition, _below in self.partitions]


class FoundRow(msgspec.Struct, array_like=True, frozen=True):
    """A message that was found, its state for each group by name, and its status; with what
    happened to it where that was asked for."""

    message: MessageRow
    trace_id: str | None
    states: Mapping[str, str]
    status: str
    events: list[tuple[int, str, dict[str, str | int | list[str]]]] | None = None


class PartitionFound(msgspec.Struct, array_like=True, frozen=True):
    """Of one partition. There may be more below `below`; -1 where there is not. `missing` says
    what was not searched."""

    partition: bytes
    rows: list[FoundRow]
    below: int
    missing: list[str]


class SearchAnswer(msgspec.Struct, array_like=True, frozen=True):
    """Of the partitions asked for, those that are led there."""

    found: list[PartitionFound]


class HashesAnswer(msgspec.Struct, array_like=True, frozen=True):
    """What the search hashes of one node take, and how far they are: of the replicas there.

    `messages` are those stored in the partitions led there."""

    items: int = 0
    disk_bytes: int = 0
    ram_bytes: int = 0
    behind_entries: int = 0
    segments: int = 0
    replicas: int = 0
    ram_items: int = 0
    ram_items_max: int = 0
    messages: int = 0
