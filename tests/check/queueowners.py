"""Whose a partition is, and what that refuses: the rules of owner entries, on the model.

G1   an owner entry counts if its generation is newer than the owner's, and only then
G2   nothing of who does not own the partition is accepted: no receive, settle or commit
G4   nothing of its owner is refused as stale
"""

from __future__ import annotations

from collections.abc import Mapping

from delivery.entries import ops
from tests.check.queuemodel import LEASED, Group, Message

FENCED = "consumer lost"
"""The reason of an attempt whose consumer was fenced."""

Claiming = ops.Delivered | ops.Committed | ops.Sought


def take_over(
    group: Group, op: ops.Own, messages: Mapping[int, Message], index: int, now_ms: int
) -> ops.OwnedResult:
    """Let an owner entry count, if it does, and end what was in flight of others."""
    owner = group.owner
    if op.generation <= owner.generation:
        return ops.OwnedResult(owner.member, owner.generation, owner.ended)
    ended: list[int] = []
    if op.member != owner.member:
        ended = [o for o in group.of(LEASED) if group.lives[o].holder != op.member]
        owner.since = index
    owner.member, owner.generation = op.member, op.generation
    owner.known.append((op.member, op.generation))
    owner.ended = len(ended)
    for offset in ended:
        if op.fence:
            group.fail(offset, messages[offset], FENCED, 0, index, now_ms)
        else:
            group.come_back(offset, messages[offset], 0, index, now_ms)
    return ops.OwnedResult(op.member, op.generation, len(ended))


def end_streams(
    group: Group, op: ops.StreamsEnded, messages: Mapping[int, Message], index: int, now_ms: int
) -> int:
    """End what these streams have in flight, of all of the run where none is named; how much."""
    ended = [
        offset
        for offset in group.of(LEASED)
        if (stream := group.lives[offset].stream) is not None
        if stream[0] == op.run and (stream[1] in op.streams or not op.streams)
    ]
    for offset in ended:
        if op.lost:
            group.fail(offset, messages[offset], FENCED, 0, index, now_ms)
        else:
            group.come_back(offset, messages[offset], 0, index, now_ms)
    return len(ended)


def is_overtaken(groups: Mapping[int, Group], op: ops.Op, known: ops.Result) -> bool:
    """Whether what was granted to it once, as a request that comes again, is another's by now, or
    was in between."""
    group = groups.get(op.group) if isinstance(op, ops.Delivered) else None
    if group is None or not isinstance(op, ops.Delivered) or not isinstance(known, ops.Granted):
        return False
    owner = group.owner
    return known.delivery < owner.since or not owner.may(op.member, op.generation)


def judge_claim(group: Group, op: Claiming, result: ops.Result) -> str:
    """The rule that the result breaks; none where the member is served, or a stranger refused."""
    owner = group.owner
    if owner.may(op.member, op.generation):
        return "G4" if isinstance(result, ops.StaleResult) else ""
    stale = ops.StaleResult(group.id, owner.member, owner.generation)
    return "" if result == stale else "G2"


def judge_receipt(
    group: Group, op: ops.Settled, delivery: int, offset: int, code: int
) -> tuple[str, bool]:
    """(the rule that the code breaks, whether the receipt is good)."""
    life, owner = group.life(offset), group.owner
    is_claimed = op.generation == 0 or owner.may(op.member, op.generation)
    stands = life.status == LEASED and life.delivery == delivery
    is_former = delivery < owner.since and not stands
    if not is_claimed or is_former:
        refused = code == ops.STALE or (is_claimed and code == ops.NOT_FOUND)
        return "" if refused else "G2", False
    if code == ops.STALE:
        return "G4", stands
    return "" if (code == ops.OK) == stands else "Q1", stands
