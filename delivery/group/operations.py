"""The operations of one consumer group in one partition, applied in the order of the log."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from functools import partial

import msgspec

from delivery.config import (
    LANES_COUNT,
    GroupConfig,
    bounded,
    sound_group,
)
from delivery.entries.ops import (
    ACK,
    EXTEND,
    LEASE_EXPIRED,
    NACK,
    NOT_FOUND,
    OK,
    REJECT,
    STALE,
    Committed,
    CountResult,
    Delivered,
    DeliveredToStream,
    Expired,
    Granted,
    Own,
    OwnedResult,
    Redriven,
    Settle,
    Settled,
    SettledResult,
    Sought,
    SoughtResult,
    StaleResult,
    StreamId,
    StreamsEnded,
)
from delivery.group.attempts import Attempts
from delivery.group.failures import Failures, Redrives
from delivery.group.lag import coming, moved
from delivery.group.leases import Leases
from delivery.group.rules import (
    FENCED,
    TIMED_OUT,
    granted_until_ms,
    is_ended,
    is_redriven,
    is_run_out,
    lease_end_ms,
)
from delivery.group.state import GroupState, Owner, among
from delivery.offsets.bitmaps import BitMap64, remove_below, span, stored_only
from delivery.offsets.keys import NO_KEY, key_hash
from delivery.offsets.lanes import ReadyLanes

_ACKED = Settle(OK, "acked", 1)
_REFUSED = {code: Settle(code) for code in (NOT_FOUND, LEASE_EXPIRED, STALE)}


class GroupOperations:
    """What entries do to a group. Nothing fails on what an operation asks: it is judged."""

    attempts_type = Attempts

    def __init__(self, group: GroupState) -> None:
        self.group = group
        self.attempts = self.attempts_type(group)

    # -- operations

    def own(self, op: Own, index: int, now_ms: int) -> OwnedResult:
        """Give the partition to a member, unless somebody newer has it."""
        group = self.group
        group.look()
        owner = group.owner
        if op.generation <= owner.generation:
            self._note_untouched(op.member)
            return OwnedResult(owner.member, owner.generation, owner.ended)
        ended: list[int] = []
        since = owner.since
        if op.member != owner.member:
            since = index
            ended = group.leases.of_others(op.member)
        else:
            self._note_untouched(op.member)
        group.owner = Owner(op.member, op.generation, since, len(ended))
        for offset in ended:
            self._take_back(offset, now_ms, fence=op.fence)
        group.advance()
        return OwnedResult(op.member, op.generation, len(ended))

    def _note_untouched(self, member: str) -> None:
        """What others have in flight stays so, though the operation names another owner."""
        group = self.group
        if group.leases.of_others(member):
            group.stored.outcome_notes.nothing()

    def _take_back(self, offset: int, now_ms: int, *, fence: bool) -> None:
        group = self.group
        group.leases.end(offset)
        if fence:
            group.counters.fenced += 1
            self.attempts.fail(offset, FENCED, now_ms, delay_ms=0, to_back=False)
        else:
            self.attempts.release(offset, now_ms, delay_ms=0, to_back=False)

    def _stale(self) -> StaleResult:
        group = self.group
        return StaleResult(group.id, group.owner.member, group.owner.generation)

    def deliver(self, op: Delivered, delivery: int, now_ms: int) -> Granted | StaleResult:
        """Lease what of it is ready; the rest is left out."""
        group = self.group
        if not group.is_owned_by(op.member, op.generation):
            group.stored.outcome_notes.nothing()
            return self._stale()
        deadline_ms = granted_until_ms(op, now_ms)
        if group.halted:
            group.stored.outcome_notes.nothing()
            return Granted(delivery, deadline_ms, [])
        group.look()
        room = group.config.in_flight_max - len(group.leases)
        granted = stored_only(op.offsets[: max(0, room)], group.stored.next_offset)
        taken = group.ready.take(BitMap64(granted))
        if len(taken) < len(op.offsets):
            self._note_left_out(op.offsets, taken)
        if len(taken) < len(granted):
            granted = list(dict.fromkeys(filter(taken.__contains__, granted)))
        if not granted:
            return Granted(delivery, deadline_ms, [])
        group.note_waits(taken, now_ms)
        lowest = bounded(op.lowest_lane, 0, LANES_COUNT - 1)
        group.turns[lowest] = (group.turns[lowest] + len(granted)) % group.config.lane_share
        stream = op.stream if isinstance(op, DeliveredToStream) else None
        group.leases.open(delivery, deadline_ms, op.member, granted, stream)
        group.counters.delivered += len(granted)
        if group.failures:
            group.counters.redelivered += sum(map(bool, map(group.failures.count, granted)))
        return Granted(delivery, deadline_ms, group.grants(granted))

    def _note_left_out(self, offsets: Sequence[int], taken: BitMap64) -> None:
        left = [offset for offset in offsets if offset < 0 or offset not in taken]
        if left:
            self.group.stored.outcome_notes.not_granted(left)

    def settle(self, op: Settled, now_ms: int) -> SettledResult:
        """End or extend leases; a receipt that is not one, or no longer, changes nothing."""
        group = self.group
        group.look()
        before = group.committed_offset
        settles: list[Settle] = []
        stale = bool(op.generation) and not group.is_owned_by(op.member, op.generation)
        if stale and any(self._holds(*held) for held in op.deliveries):
            group.stored.outcome_notes.nothing()
        for delivery, offsets in op.deliveries:
            if stale:
                settles += [_REFUSED[STALE]] * len(offsets)
            elif op.action == ACK:
                settles += self._ack(delivery, offsets)
            elif op.action == EXTEND:
                settles += self._extend(op, delivery, offsets, now_ms)
            else:
                settles += [self._give_back(op, delivery, offset, now_ms) for offset in offsets]
        group.advance()
        return SettledResult(
            settles, group.committed_offset, group.committed_offset > before, len(group.leases)
        )

    def expire(self, op: Expired, now_ms: int) -> CountResult:
        """End leases that are over; each message is ready again, or has failed for good."""
        group = self.group
        group.look()
        count = 0
        for delivery, offsets in op.deliveries:
            for offset in offsets:
                lease = group.leases.get(offset)
                over = lease is not None and is_run_out(lease.deadline_ms, now_ms)
                if lease is None or lease.delivery != delivery or not over:
                    continue
                group.leases.end(offset)
                group.counters.expired += 1
                self.attempts.fail(offset, TIMED_OUT, now_ms, delay_ms=-1, to_back=False)
                count += 1
        group.advance()
        return CountResult(count)

    def end_streams(self, op: StreamsEnded, now_ms: int) -> CountResult:
        """Take back what these streams have in flight."""
        group = self.group
        group.look()
        ended = group.leases.of_streams(partial(is_ended, op=op))
        for offset in ended:
            self._take_back(offset, now_ms, fence=op.lost)
        group.advance()
        return CountResult(len(ended))

    def commit(self, op: Committed) -> CountResult | StaleResult:
        """Settle everything below the offset, in flight or not."""
        group = self.group
        if not group.is_owned_by(op.member, op.generation):
            if op.offset > group.base or group.timed:
                group.stored.outcome_notes.nothing()
            return self._stale()
        group.look()
        offset = bounded(op.offset, 0, group.stored.next_offset)
        gone = group.drop(span(0, offset), leased=True)
        group.counters.acked += len(gone)
        group.base = max(group.base, offset)
        group.raise_committed_offset(offset)
        return CountResult(len(gone))

    def seek(self, op: Sought, now_ms: int) -> SoughtResult | StaleResult:
        """Begin anew at the offset: all that the log has from there on is ready again; of what
        outlived the log, what was not settled, and, once it is due, what was passed over before."""
        group = self.group
        if not group.is_owned_by(op.member, op.generation):
            group.stored.outcome_notes.nothing()
            return self._stale()
        stored, committed_offset = group.stored, group.committed_offset
        before = coming(group)
        start = bounded(op.offset, 0, stored.next_offset)
        first = max(start, stored.log_start_offset)
        again = (stored.compacted & span(start, first)) - BitMap64(group.dead)
        outlived = group.pending(span(start, first)) - stored.withdrawn - again
        still = group.never & BitMap64(stored.reappended) & span(start, first)
        group.outside = (group.outside & span(0, start)) | (
            still - stored.compacted - stored.hidden
        )
        group.begins = min(group.begins, start)
        group.ready, group.leases, group.failures = ReadyLanes(), Leases(), Failures()
        group.waiting, group.wakes, group.since, group.first = {}, [], {}, {}
        group.timed = BitMap64()
        if group.order is not None:
            group.order.begin_anew()
        group.base, group.opened_ms = start, now_ms
        group.committed_offset = group.seen = first
        group.done = BitMap64(stored.withdrawn) | BitMap64(group.dead)
        remove_below(group.done, group.committed_offset)
        known = group.redrives.items()
        group.redrives = {o: n for o, n in known if o in group.dead or o in outlived}
        group.admit_kept(again)
        for kept in outlived:
            group.admit_late(kept, now_ms)
        group.look()
        if group.order is not None:
            group.order.release_nameless()
        group.advance()
        move = moved(committed_offset, before, group.committed_offset, coming(group))
        return SoughtResult(move.before, move.after, move.replayed, move.skipped)

    def purge(self, offsets: list[int]) -> CountResult:
        """Forget dead letters: nothing brings them back."""
        count = 0
        for offset in offsets:
            if self.attempts.forget_dead(offset):
                self.group.redrives.pop(offset, None)
                count += 1
        return CountResult(count)

    def redrive(self, op: Redriven, now_ms: int) -> CountResult:
        """Make dead letters ready again, with no attempts, for this group only."""
        group = self.group
        group.look()
        count = refused = 0
        for offset in op.offsets:
            if offset not in group.dead:
                continue
            redrives = self.attempts.redrives(offset)
            is_withdrawn = offset in group.stored.withdrawn
            config = group.config
            if not is_redriven(config, redrives, force=op.force, is_withdrawn=is_withdrawn):
                refused += 1
                continue
            self.attempts.forget_dead(offset)
            group.redrives[offset] = Redrives(redrives + 1, now_ms)
            group.done.discard(offset)
            group.admit_late(offset, now_ms)
            count += 1
        return CountResult(count, refused)

    def park(self, key: bytes) -> CountResult:
        """Withhold a key; what of it is in flight stays so until it is settled."""
        group = self.group
        if group.order is None or key_hash(key) == NO_KEY:
            return CountResult(0)
        group.look()
        hashed = key_hash(key)
        head = group.order.park(hashed, key)
        if head is not None:
            group.ready.discard(head)
        return CountResult(group.order.behind(hashed))

    def release(self, key: bytes, now_ms: int) -> CountResult:
        """Let a parked key flow again."""
        group = self.group
        if group.order is None:
            return CountResult(0)
        group.look()
        hashed = key_hash(key)
        head = group.order.release(hashed)
        if head is not None and head not in group.leases and head not in group.waiting:
            group.make_ready(head, now_ms)
        return CountResult(group.order.behind(hashed))

    def halt(self, reason: str) -> CountResult:
        self.group.halted = reason
        return CountResult(1)

    def resume(self) -> CountResult:
        group = self.group
        halted = bool(group.halted)
        group.halted = ""
        group.outcomes.clear()
        return CountResult(int(halted))

    def configure(self, version: int, config: GroupConfig) -> None:
        """Newer settings; how a group is ordered does not change in its life."""
        group = self.group
        group.version = version
        config = msgspec.structs.replace(sound_group(config), ordering=group.config.ordering)
        if config.halt_window != group.config.halt_window:
            group.outcomes = deque(group.outcomes, maxlen=config.halt_window)
        group.config = config

    # -- what time and the partition bring

    def wake(self, now_ms: int) -> None:
        """Messages whose backoff is over are ready again."""
        group = self.group
        group.look()
        while group.wakes and group.wakes[0][0] <= now_ms:
            due_ms, offset = heapq.heappop(group.wakes)
            found = group.waiting.get(offset)
            if found is not None and found[0] == due_ms:
                del group.waiting[offset]
                if found[1]:
                    group.make_ready_last(offset, due_ms)
                else:
                    group.make_ready(offset, due_ms)

    def withdraw(self, gone: BitMap64) -> None:
        """Messages that are never delivered any more: cancelled, or expired. Leases stand."""
        group = self.group
        group.look()
        ended = group.drop(gone)
        group.counters.withdrawn += len(ended)
        unseen = gone - ended
        if group.leases:
            flying = among(group.leases, unseen)
            group.forget_times(flying)
            unseen -= BitMap64(flying)
        remove_below(unseen, group.committed_offset)
        group.done |= unseen
        group.advance()

    def trim(self, below: int, kept: BitMap64) -> None:
        """The log begins at `below`, but for what is kept: what is pending of the rest falls."""
        group = self.group
        group.look()
        if kept:
            group.keep_times(group.pending(kept) - group.stored.withdrawn)
        gone = span(0, below) - kept
        fallen = group.drop(gone, leased=True)
        self.purge([o for o in group.dead if o in gone])
        group.counters.fallen += len(fallen)
        group.raise_committed_offset(max(group.committed_offset, below))

    def bury_old(self, died_before_ms: int) -> None:
        """Dead letters that died before this are forgotten; they stand in the order of death."""
        group = self.group
        while group.dead:
            offset, letter = next(iter(group.dead.items()))
            if letter.died_ms >= died_before_ms:
                return
            self.purge([offset])

    # -- settling

    def _holds(self, delivery: int, offsets: Sequence[int]) -> bool:
        """Whether any of these is in flight in this delivery."""
        found = map(self.group.leases.get, offsets)
        return any(lease is not None and lease.delivery == delivery for lease in found)

    def _lease_of(self, delivery: int, offset: int) -> Settle | None:
        """None where the lease stands; else why not."""
        group = self.group
        lease = group.leases.get(offset)
        if lease is not None and lease.delivery == delivery:
            return None
        if lease is None and not 0 <= offset < group.stored.next_offset:
            return _REFUSED[NOT_FOUND]
        if delivery < group.owner.since:
            return _REFUSED[STALE]
        if lease is not None or offset in group.waiting or offset in group.ready:
            return _REFUSED[LEASE_EXPIRED]
        if group.is_parked(offset) and group.failures.last_reason(offset):
            return _REFUSED[LEASE_EXPIRED]
        if offset in group.dead and group.dead[offset].reason == TIMED_OUT:
            return _REFUSED[LEASE_EXPIRED]
        return _REFUSED[NOT_FOUND]

    def _ack(self, delivery: int, offsets: list[int]) -> list[Settle]:
        group = self.group
        settles: list[Settle] = []
        leases, failures = group.leases, group.failures
        acked: list[int] = []
        for offset in offsets:
            refused = self._lease_of(delivery, offset)
            if refused is not None:
                settles.append(refused)
                continue
            leases.end(offset)
            failed = failures.count(offset) if failures else 0
            settles.append(Settle(OK, "acked", failed + 1) if failed else _ACKED)
            acked.append(offset)
        group.counters.acked += len(acked)
        if group.config.halt_percent:
            group.outcomes.extend([False] * len(acked))
        group.finish_all(acked)
        return settles

    def _extend(self, op: Settled, delivery: int, offsets: list[int], now_ms: int) -> list[Settle]:
        group = self.group
        settles: list[Settle] = []
        deadline_ms = lease_end_ms(now_ms, op.visibility_ms)
        moved: dict[StreamId | None, list[int]] = {}
        member = ""
        for offset in offsets:
            refused = self._lease_of(delivery, offset)
            lease = group.leases.get(offset)
            if refused is not None or lease is None:
                settles.append(refused or _REFUSED[NOT_FOUND])
                continue
            member = lease.member
            group.leases.end(offset)
            moved.setdefault(lease.stream, []).append(offset)
            attempts = group.failures.count(offset) + 1
            settles.append(Settle(OK, "extended", attempts, deadline_ms))
        for stream, of_stream in moved.items():
            group.leases.open(delivery, deadline_ms, member, of_stream, stream)
            group.counters.extended += len(of_stream)
        return settles

    def _give_back(self, op: Settled, delivery: int, offset: int, now_ms: int) -> Settle:
        """A nack, a reject or a release."""
        group = self.group
        refused = self._lease_of(delivery, offset)
        if refused is not None:
            return refused
        group.leases.end(offset)
        attempts = group.failures.count(offset) + 1
        if op.action == REJECT:
            group.counters.rejected += 1
            group.failures.add(offset, now_ms, op.reason)
            return Settle(OK, self.attempts.kill(offset, op.reason, now_ms), attempts)
        if op.action == NACK:
            group.counters.nacked += 1
            outcome, visible_ms = self.attempts.fail(
                offset, op.reason, now_ms, op.delay_ms, op.to_back
            )
            return Settle(OK, outcome, attempts, visible_ms)
        self.attempts.release(offset, now_ms, max(0, op.delay_ms), op.to_back)
        return Settle(OK, "released", attempts - 1, self.attempts.visible_ms(offset, now_ms))
