"""Why one message is not delivered or not settled now, as its partition's replica here knows.

The judgement is `delivery.lookup.why`; here is gathered what it needs besides the partition's
state: the members that the cluster knows of, who asked this leader lately, and how a settled
message ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from coordinator.cluster.state import ClusterState
from coordinator.groups.membership import OWNED, SHARED, GroupMembership
from delivery.group.state import GroupState
from delivery.lookup.verdict import Around, Ending, Fact, Reason, Subject, Verdict
from delivery.lookup.why import place_of, why
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import Index, Offset
from log.errors import LogError
from node.api.traces import GroupWhy, WhyView
from node.partition.host import PartitionHost
from node.partition.trace import trace_message
from node.queue.group_admin import group_ref
from node.rpc import partitions as rpc
from node.rpc.queue import GroupRef

WHY = "message_why"
GROUPS_MAX = 100
"""Groups in one answer; the others have to be asked about by name."""
_ENDINGS = {"ACKNOWLEDGED": "acked", "PURGED": "purged", "SKIPPED": "skipped"}

_AWAITED = ("ready", "retrying", "delayed", "stored")
"""States in which a message is yet to be delivered."""

_Facts = dict[str, Fact]


class WhyRequest(rpc.PartitionRequest, array_like=True, frozen=True):
    """About one message, for one group or for all that have the topic."""

    partition: bytes
    offset: int
    group: GroupRef | None = None

    def packed_partitions(self) -> Sequence[bytes]:
        return (self.partition,)


async def explain(
    host: PartitionHost,
    state: ClusterState,
    request: WhyRequest,
    taking_part: Collection[int] = (),
) -> WhyView:
    """What this replica knows, with the groups as this node's cluster state has them, and those
    that take part in the topic though they have not begun in this partition."""
    offset, queue = Offset(request.offset), host.state.queue
    message_id, subject, is_damaged = _subject(host, offset)
    refs = [request.group] if request.group is not None else _groups(host, state, taking_part)
    ends = _Endings(host, offset)
    view = WhyView(host.log_time_ms(), message_id, Verdict("", []), [])
    for ref in refs[:GROUPS_MAX]:
        group = queue.groups.get(ref.id)
        ending = None
        if group is not None and _is_settled(host, group, offset):
            ending = await ends.of(ref.name)
        around = _around(host, state, ref, group, ending)
        now_ms = host.log_time_ms()
        verdict = why(queue, group, subject, now_ms, around)
        aside_ms = host.unreadable.until_ms(ref.id, offset, now_ms)
        if verdict.state in _AWAITED and (is_damaged or aside_ms):
            _unreadable(verdict, aside_ms, mended=not is_damaged)
        view.groups.append(GroupWhy(ref.name, verdict))
        await asyncio.sleep(0)
    view.more = max(0, len(refs) - GROUPS_MAX)
    view.message = why(queue, None, subject, host.log_time_ms(), Around(begins=-1))
    if is_damaged and view.message.state in _AWAITED:
        _unreadable(view.message, 0, mended=False)
    if not refs and view.message.state in ("stored", "delayed"):
        view.message.reasons.append(Reason("no_group"))
    return view


def _groups(
    host: PartitionHost, state: ClusterState, taking_part: Collection[int]
) -> list[GroupRef]:
    """Those that are open in the partition, have members that subscribe to the topic, or have begun
    elsewhere in it."""
    subscribed = [id for id, found in state.members.by_group.items() if host.id in found.target]
    known = map(state.group_of, {*subscribed, *taking_part, *host.state.queue.groups})
    refs = [group_ref(group) for group in known if group is not None]
    return sorted(refs, key=lambda ref: ref.name)


def _unreadable(verdict: Verdict, until_ms: int, *, mended: bool) -> None:
    """Whatever else holds, it can't be delivered before it can be read here; when it is mended,
    nobody knows. One that is set aside is tried again at the end of the backoff, whose time is the
    log's, and may be later than was asked for."""
    if until_ms:
        tried_ms = (reason.until_ms for reason in verdict.reasons if reason.code == "backoff")
        until_ms = max([until_ms, *tried_ms])
    verdict.reasons.insert(0, Reason("unreadable", until_ms, {"mended": True} if mended else {}))
    verdict.deliverable = False
    if not mended:
        verdict.eta_ms, verdict.eta_by = 0, ""


def _subject(host: PartitionHost, offset: Offset) -> tuple[str | None, Subject, bool]:
    """The message's id, what is asked about, and whether it can't be read here."""
    queue = host.state.queue
    if offset >= queue.next_offset or (
        offset < queue.log_start_offset and queue.held_in(offset) is None
    ):
        return None, Subject(offset), False
    row = host.messages.rows([offset], 1)[0]
    if row is None:  # damaged here
        return None, Subject(offset, queue.delays.time_of(offset) or 0), True
    ttl_ms = queue.config.ttl_ms
    expires_ms = row.expires_at_ms or (row.time_ms + ttl_ms if ttl_ms else 0)
    return row.message_id, Subject(offset, row.deliver_at_ms or 0, expires_ms), False


def _is_settled(host: PartitionHost, group: GroupState, offset: int) -> bool:
    queue = host.state.queue
    return offset < queue.next_offset and place_of(queue, group, offset) == "settled"


class _Endings:
    """How the message ended for groups, from its timeline, which is read once it is needed."""

    def __init__(self, host: PartitionHost, offset: Offset) -> None:
        self._host = host
        self._offset = offset
        self._events: list[tuple[int, str, dict[str, Any]]] | None = None

    async def of(self, group: str) -> Ending | None:
        """None where the timeline tells of none."""
        if self._events is None:
            try:
                self._events = list((await trace_message(self._host, self._offset)).events)
            except (GoQueueError, LogError):  # switched off, or damaged here
                self._events = []
        theirs = [event for event in self._events if event[2].get("group") == group]
        for time_ms, type_, what in reversed(theirs):
            if type_ in _ENDINGS:
                return Ending(_ENDINGS[type_], time_ms, _ended(what, theirs))
        return None


def _ended(what: Mapping[str, Any], events: Sequence[tuple[int, str, dict[str, Any]]]) -> _Facts:
    """By whom and how: an ack that names no consumer is of who had the message last."""
    names = ("consumer", "member", "attempt", "committed_offset", "to_offset", "reason")
    facts: _Facts = {name: what[name] for name in names if name in what}
    delivered = [event[2] for event in events if event[1] == "DELIVERED"]
    if "attempt" in facts and delivered:
        had_it = delivered[-1].get("consumer") or delivered[-1].get("member", "")
        facts = {"consumer": had_it, **facts}
    member = facts.pop("member", "")
    consumer = facts.pop("consumer", "") or member
    return {"consumer": consumer, **facts} if consumer else facts


def _around(
    host: PartitionHost,
    state: ClusterState,
    ref: GroupRef,
    group: GroupState | None,
    ending: Ending | None,
) -> Around:
    asked = host.queue.consumer_activity.of(ref.id)
    known = state.group_of(ref.id)
    membership = GroupMembership.of(ref.id) if known is None else state.members.of(known)
    members, held = membership.members, membership.holdings.get(host.id)
    return Around(
        begins=host.queue.begins(ref) if ref.config.start == "latest" else 0,
        members=len(members),
        subscribed=len(members) if host.id in membership.target else 0,
        shared=known is not None and known.settings.mode == SHARED,
        owner_is_member=group is not None and group.owner.member in members,
        moving="" if held is None or held.state == OWNED else held.state,
        former="" if held is None else held.former,
        successor=membership.target.get(host.id, ""),
        asked_ms=asked.at_ms,
        asked_by=asked.member,
        waiting=host.queue.is_watched(ref.id),
        rate=asked.pace.per_second(host.log_time_ms()),
        ending=ending,
        entry_ms=partial(_entry_ms, host),
    )


def _entry_ms(host: PartitionHost, index: int) -> int:
    try:
        return host.log.entry(Index(index)).time_ms
    except LogError:
        return 0
