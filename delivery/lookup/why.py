"""Why a message is not delivered to a group, or not settled, now.

Nothing is decided here: `why` reads where the message is, as of the applied entries, and what its
caller knows besides. Several reasons can hold at once; the first one is decisive. What is due and
not noted yet is told as over: the leader's next entry brings it about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from delivery.config import LANES_COUNT
from delivery.group.rules import NO_DEADLINE, after_failure, backoff_ms
from delivery.group.state import GroupState
from delivery.lookup.verdict import Around, Fact, Reason, Subject, Verdict
from delivery.offsets.keys import NO_KEY
from delivery.state.queue import QueueState
from goqueue.wire.layout import LANES

ASKED_LATELY_MS = 10_000
"""Who asked for messages within this time is taken to go on asking."""
TAKEN_MAX = 1000
"""Messages that one receive takes at most."""
LOOKED_AT = 64
"""Messages that come next, looked at first where one receive can't take all that is ready."""


def place_of(queue: QueueState, group: GroupState, offset: int) -> str:
    """Where a stored message is for the group: leased, dead, hidden, waiting, ready, withheld (as
    first of a parked key), chained (behind another of its key), or settled."""
    group.look()
    order = group.order
    if offset in group.leases:
        return "leased"
    if offset in group.dead:
        return "dead"
    if offset in queue.hidden:
        return "settled" if offset < group.base or offset in group.done else "hidden"
    if offset in group.waiting:
        return "waiting"
    if offset in group.ready:
        return "ready"
    if order is not None and offset in order.withheld:
        return "withheld"
    return "chained" if order is not None and offset in order.waits else "settled"


def is_over(queue: QueueState, offset: int, now_ms: int) -> bool:
    """Whether its time to live is over, and the next entry withdraws it."""
    next_ms = queue.expiries.next_ms()
    if next_ms is None or next_ms > now_ms or offset in queue.withdrawn:
        return False
    due = queue.expiries.due(now_ms)
    return any(first <= offset < first + count for _, first, count in due)


def why(
    queue: QueueState, group: GroupState | None, subject: Subject, now_ms: int, around: Around
) -> Verdict:
    """What holds at this log time; `group` is None for one that is not open in the partition."""
    offset = subject.offset
    if offset >= queue.next_offset:
        return Verdict("unpublished", [Reason("not_published", 0, {"end": queue.next_offset})])
    below = offset < queue.log_start_offset
    if below and queue.held_in(offset) is None:
        return Verdict("gone", [Reason("gone", 0, {"log_start": queue.log_start_offset})])
    place = "" if group is None else place_of(queue, group, offset)
    if place not in _DONE and is_over(queue, offset, now_ms):
        verdict = Verdict("expired", [Reason("expired", 0, {"over": True})])
    elif group is None:
        verdict = _without_group(queue, subject, now_ms, around)
    else:
        case = _Case(queue, group, subject, now_ms, around)
        verdict = _JUDGING[place](case)
        letter = group.dead.get(offset)
        verdict.attempts = group.attempts(offset) if letter is None else letter.attempts
    if below:
        by = "compaction" if offset in queue.compacted else "retention"
        kept: dict[str, Fact] = {"by": by, "log_start": queue.log_start_offset}
        verdict.reasons.append(Reason("kept", 0, kept))
    return verdict


def _without_group(queue: QueueState, subject: Subject, now_ms: int, around: Around) -> Verdict:
    """Of a group that has never asked the partition, or of no group at all."""
    offset, state = subject.offset, "stored" if around.begins < 0 else "ready"
    reasons: list[Reason] = []
    if offset in queue.withdrawn:
        withdrawn = _withdrawn(queue, offset)
        return Verdict(withdrawn.code, [withdrawn])
    if around.begins > offset:
        return Verdict("never", [Reason("below_beginning", 0, {"begins": around.begins})])
    if offset in queue.hidden:
        state = "delayed"
        reasons.append(_delayed(subject, now_ms))
    if around.begins < 0:
        return Verdict(state, reasons)
    return Verdict(state, [*reasons, Reason("not_begun", 0, _asked(around))])


@dataclass(frozen=True, slots=True)
class _Case:
    """One message for one group; a method for each place that it can be in."""

    queue: QueueState
    group: GroupState
    subject: Subject
    now_ms: int
    around: Around

    def leased(self) -> Verdict:
        group, offset = self.group, self.subject.offset
        lease, failed = group.leases.get(offset), group.failures.count(offset)
        assert lease is not None, "its place says so"
        facts: dict[str, Fact] = {"consumer": lease.member, "attempt": failed + 1}
        since_ms = self.around.entry_ms(lease.delivery)
        if since_ms:
            facts["since_ms"] = since_ms
        if lease.stream is not None:
            facts["stream"] = str(lease.stream)
        if lease.deadline_ms != NO_DEADLINE:
            facts = self._over(lease.deadline_ms, facts)
        reasons = [Reason("in_flight", lease.deadline_ms, facts)]
        if offset in self.queue.withdrawn:
            return Verdict("in_flight", [*reasons, _withdrawn(self.queue, offset)])
        blockers = self._blockers()
        after = after_failure(group.config, failed + 1, is_withdrawn=False)
        is_last = after == "last"
        if is_last:
            reasons.append(Reason("last_attempt", 0, {"attempts": group.config.max_attempts}))
        verdict = Verdict("in_flight", reasons + blockers)
        has_end = lease.deadline_ms != NO_DEADLINE
        if has_end and not is_last and not blockers and not self._parked():
            verdict.eta_ms = lease.deadline_ms + backoff_ms(group.config, failed + 1)
            verdict.eta_by = "lease"
        return verdict

    def dead(self) -> Verdict:
        queue, group, offset = self.queue, self.group, self.subject.offset
        letter, withdrawn = group.dead[offset], offset in queue.withdrawn
        may = letter.redrives < group.config.redrives_max
        facts: dict[str, Fact] = {
            "reason": letter.reason,
            "attempts": letter.attempts,
            "since_ms": letter.died_ms,
            "redrives": letter.redrives,
            "redrive": "never" if withdrawn else "yes" if may else "by_force",
        }
        reasons = [Reason("dead", 0, facts)]
        return Verdict("dead", reasons + ([_withdrawn(queue, offset)] if withdrawn else []))

    def settled(self) -> Verdict:
        queue, offset, ending = self.queue, self.subject.offset, self.around.ending
        if not self.group.had(offset):
            base = self.group.base
            begun = base if offset < base else queue.log_start_offset
            return Verdict("never", [Reason("below_beginning", 0, {"begins": begun})])
        if ending is not None:
            facts: dict[str, Fact] = {"at_ms": ending.at_ms, **ending.facts}
            return Verdict("acked", [Reason(ending.code, 0, facts)])
        if offset in queue.withdrawn:
            withdrawn = _withdrawn(queue, offset)
            return Verdict(withdrawn.code, [withdrawn])
        if offset < self.group.base:
            begins = Reason("below_beginning", 0, {"begins": self.group.base})
            return Verdict("acked", [begins])
        return Verdict("acked", [Reason("settled", 0, {"floor": self.group.committed_offset})])

    def hidden(self) -> Verdict:
        reason = _delayed(self.subject, self.now_ms)
        return self._waits("delayed", reason, reason.until_ms, "delay")

    def waiting(self) -> Verdict:
        due_ms, to_back = self.group.waiting[self.subject.offset]
        facts = self._failure()
        if to_back:
            facts["to_back"] = True
        reason = Reason("backoff", due_ms, self._over(due_ms, facts))
        return self._waits(self._pending(), reason, due_ms, "backoff")

    def withheld(self) -> Verdict:
        return Verdict(self._pending(), [*self._blockers(), *self._parked()])

    def chained(self) -> Verdict:
        queue, group, order = self.queue, self.group, self.group.order
        assert order is not None, "its place says so"
        key = queue.keys.of(self.subject.offset)
        head = order.heads[key]
        facts: dict[str, Fact] = {"offset": head, "place": place_of(queue, group, head)}
        lease = group.leases.get(head)
        if lease is not None:
            facts["consumer"] = lease.member
            if lease.deadline_ms != NO_DEADLINE:
                facts["visible_until_ms"] = lease.deadline_ms
        elif head in group.waiting:
            facts["backoff_until_ms"] = group.waiting[head][0]
        ahead = order.ahead(key, self.subject.offset)
        if ahead is not None:
            facts["ahead"] = ahead
        held = Reason("key_held", 0, facts)
        return Verdict(self._pending(), [*self._blockers(), *self._parked(), held])

    def ready(self) -> Verdict:
        group = self.group
        found = group.ready.place(self.subject.offset)
        assert found is not None, "its place says so"
        lane, own = found
        counts = group.ready.counts()
        higher = {LANES[n]: counts[n] for n in range(lane) if counts[n]}
        blockers = self._blockers()
        ahead = own + sum(higher.values())
        room = max(0, group.config.in_flight_max - len(group.leases))
        fits = self._comes_within(min(room, TAKEN_MAX), own, ahead)
        if not fits and room < TAKEN_MAX:
            blockers.append(self._limit())
        queued: list[Reason] = []
        rate = self.around.rate if self._goes_on and not blockers else 0.0
        if higher:
            queued.append(self._lane(lane, own, counts, higher, rate))
        if own:
            queued.append(Reason("behind", 0, {"lane": LANES[lane], "ahead": own}))
        asking = self._asking(queued)
        reasons = [*blockers, *asking]
        if group.owner.member and not any(r.code == "no_owner" for r in blockers):
            reasons.append(self._owned())
        verdict = Verdict(self._pending(), reasons, deliverable=fits and not blockers)
        if rate and asking[0].code != "not_asked":
            verdict.eta_ms = self.now_ms + _span_ms(ahead + 1, rate)
            verdict.eta_by = "rate"
        return verdict

    # what the places have in common

    def _waits(self, state: str, reason: Reason, until_ms: int, by: str) -> Verdict:
        """For its time to come; what else keeps it from being delivered then."""
        others = [*self._blockers(), *self._parked()]
        expires_ms = self.subject.expires_ms
        if 0 < expires_ms <= until_ms:
            others.insert(0, Reason("expires_first", 0, {"expires_ms": expires_ms}))
        verdict = Verdict(state, [reason, *others])
        if not others:
            verdict.eta_ms, verdict.eta_by = until_ms, by
        return verdict

    def _pending(self) -> str:
        return "retrying" if self.group.failures.count(self.subject.offset) else "ready"

    def _failure(self) -> dict[str, Fact]:
        failures, offset = self.group.failures, self.subject.offset
        found: dict[str, Fact] = {"failed": failures.count(offset)}
        if failures.last_reason(offset):
            found["reason"] = failures.last_reason(offset)
        return found

    def _over(self, until_ms: int, facts: dict[str, Fact]) -> dict[str, Fact]:
        return {**facts, "over": True} if until_ms <= self.now_ms else facts

    def _blockers(self) -> list[Reason]:
        """What keeps all messages of the partition from the group."""
        found: list[Reason] = []
        if self.group.halted:
            found.append(Reason("halted", 0, {"reason": self.group.halted}))
        around, owner = self.around, self.group.owner
        if around.members is None or around.shared:
            return found
        is_handed = around.moving == "handing" and owner.member != around.successor
        is_owned = owner.member and around.owner_is_member and not is_handed
        if is_owned or not (owner.member or around.subscribed):
            return found
        facts: dict[str, Fact] = {"members": around.members, "generation": owner.generation}
        known = {
            "former": around.former or owner.member,
            "successor": around.successor,
            "moving": around.moving,
        }
        facts |= {name: told for name, told in known.items() if told}
        return [*found, Reason("no_owner", 0, facts)]

    def _parked(self) -> list[Reason]:
        order, key = self.group.order, self.queue.keys.of(self.subject.offset)
        if order is None or key == NO_KEY or key not in order.parked:
            return []
        facts: dict[str, Fact] = {"poisoned": not order.parked[key].key}
        head = order.parked[key].head
        if head is not None:
            facts["offset"] = head
        return [Reason("key_parked", 0, facts | self._failure())]

    def _comes_within(self, room: int, own: int, ahead: int) -> bool:
        """Whether it is among so many that come next."""
        group = self.group
        if own >= room:
            return False
        if ahead >= room and own >= room // group.config.lane_share + 1:
            return False  # no share of what has waited too long brings it so far
        if group.ready_count() <= room:
            return True
        limit = min(room, LOOKED_AT)
        while True:  # what comes soon is found soon
            if self.subject.offset in group.peek(limit, self.now_ms):
                return True
            if limit == room:
                return False
            limit = min(room, 4 * limit)

    def _limit(self) -> Reason:
        group = self.group
        limit = group.config.in_flight_max
        facts: dict[str, Fact] = {"in_flight": len(group.leases), "limit": limit}
        first_ms = group.next_deadline_ms()
        return Reason("in_flight_limit", first_ms or 0, self._over(first_ms or 1 << 62, facts))

    def _lane(
        self, lane: int, own: int, counts: list[int], higher: dict[str, int], rate: float
    ) -> Reason:
        """`aging_ms`: from then on one delivery in `share` goes to the lane of those below the
        highest that has waited longest. `latest_ms` adds the rate: see `delivery.offsets.lanes`."""
        group, config = self.group, self.group.config
        facts: dict[str, Fact] = {
            "lane": LANES[lane],
            "ahead": sum(higher.values()),
            "lanes": higher,
            "share": config.lane_share,
        }
        since_ms = group.ready.waits_since(lane, group.fairness(self.now_ms))
        if since_ms is not None:
            facts["aging_ms"] = since_ms + config.lane_max_wait_ms
        if rate:
            top = next(n for n in range(LANES_COUNT) if counts[n])
            older = own + sum(counts[n] for n in range(top + 1, LANES_COUNT) if n != lane)
            aged_ms = group.ready_since(self.subject.offset) + config.lane_max_wait_ms
            wait_ms = _span_ms(config.lane_share * (older + 1), rate)
            facts["latest_ms"] = max(aged_ms, self.now_ms) + wait_ms
        return Reason("lane", 0, facts)

    def _asking(self, queued: list[Reason]) -> list[Reason]:
        """That nobody asks comes first where nobody has for a while."""
        around = self.around
        if around.waiting:
            return queued or [Reason("ready", 0, _asked(around))]
        not_asked = Reason("not_asked", 0, _asked(around))
        return [*queued, not_asked] if self._goes_on else [not_asked, *queued]

    @property
    def _goes_on(self) -> bool:
        """Whether the group is taken to go on asking: else its rate says nothing of what comes."""
        around = self.around
        lately = around.asked_ms and self.now_ms - around.asked_ms <= ASKED_LATELY_MS
        return around.waiting or bool(lately)

    def _owned(self) -> Reason:
        owner, around = self.group.owner, self.around
        facts: dict[str, Fact] = {"consumer": owner.member, "generation": owner.generation}
        if around.moving == "revoking":
            facts["revoking"] = True
            if around.successor:
                facts["successor"] = around.successor
        return Reason("owned", 0, facts)


def _delayed(subject: Subject, now_ms: int) -> Reason:
    over: dict[str, Fact] = {"over": True} if subject.due_ms <= now_ms else {}
    return Reason("delayed", subject.due_ms, over)


def _withdrawn(queue: QueueState, offset: int) -> Reason:
    return Reason("cancelled" if offset in queue.cancelled else "expired")


def _asked(around: Around) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    if around.members is not None:
        facts["members"] = around.members
    if around.asked_ms:
        facts["asked_ms"] = around.asked_ms
    if around.asked_by:
        facts["asked_by"] = around.asked_by
    return facts


def _span_ms(messages: int, rate: float) -> int:
    return round(messages * 1000 / rate)


_DONE = ("leased", "dead", "settled")
"""Places where the end of its time to live changes nothing now."""
_JUDGING: dict[str, Callable[[_Case], Verdict]] = {
    "leased": _Case.leased,
    "dead": _Case.dead,
    "hidden": _Case.hidden,
    "waiting": _Case.waiting,
    "ready": _Case.ready,
    "withheld": _Case.withheld,
    "chained": _Case.chained,
    "settled": _Case.settled,
}
