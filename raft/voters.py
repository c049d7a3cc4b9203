"""The body of a VOTERS entry: who may vote, the same bytes on every node."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from goqueue.wire.types import Incarnation, NodeId, Voter
from log.entry import Entry, EntryKind, make_entry


def encode_voters(voters: Sequence[Voter]) -> bytes:
    """MessagePack: a list of (node, incarnation), sorted."""
    return msgspec.msgpack.encode([(voter.node, voter.incarnation) for voter in sorted(voters)])


def decode_voters(body: bytes | memoryview) -> tuple[Voter, ...]:
    """The voters of a VOTERS entry. Raises msgspec.DecodeError."""
    pairs = msgspec.msgpack.decode(body, type=list[tuple[str, int]])
    return tuple(Voter(NodeId(node), Incarnation(incarnation)) for node, incarnation in pairs)


def creating_entry(voters: Sequence[Voter], created_ms: int) -> Entry:
    """Entry 1 of a group, of term 0: every voter named in it writes the same bytes, once."""
    return make_entry(
        index=1, term=0, time_ms=created_ms, kind=EntryKind.VOTERS, body=encode_voters(voters)
    )
