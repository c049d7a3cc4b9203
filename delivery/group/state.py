"""The operations of one consumer group in one partition, applied in the order of the log."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

import msgspec

from delivery.config import (
    LANES_COUNT,
    VISIBILITY_MS_MAX,
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
    Expired,
    Grant,
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
)
from delivery.group.attempts import FENCED, TIMED_OUT, GroupFailures
from delivery.group.failures import Failures, Redrives
from delivery.group.lag import moved
from delivery.group.leases import Leases
from delivery.group.messages import Owner, among
from delivery.offsets.bitmaps import BitMap64, remove_below, span, stored_only
from delivery.offsets.keys import NO_KEY, key_hash
from delivery.offsets.lanes import ReadyLanes

_ACKED = Settle(OK, "acked", 1)
_REFUSED = {code: Settle(code) for code in (NOT_FOUND, LEASE_EXPIRED, STALE)}


class GroupState(GroupFailures):
    """What entries do to a group. Nothing fails on what an operation asks: it is judged."""

    # -- operations

    def own(self, op: Own, index: int, now_ms: int) -> OwnedResult:
        """Give the partition to a member, unless somebody newer has it."""
        self.look()
        owner = self.owner
        if op.generation <= owner.generation:
            self._note_untouched(op.member)
            return OwnedResult(owner.member, owner.generation, owner.ended)
        ended: list[int] = []
        since = owner.since
        if op.member != owner.member:
            since = index
            ended = self.leases.of_others(op.member)
        else:
            self._note_untouched(op.member)
        self.owner = Owner(op.member, op.generation, since, len(ended))
        for offset in ended:
            self._take_back(offset, now_ms, fence=op.fence)
        self._advance()
        return OwnedResult(op.member, op.generation, len(ended))

    def _note_untouched(self, member: str) -> None:
        """What others have in flight stays so, though the operation names another owner."""
        if self.leases.of_others(member):
            self._stored.chronicle.nothing()

    def _take_back(self, offset: int, now_ms: int, *, fence: bool) -> None:
        self.leases.end(offset)
        if fence:
            self.tally.fenced += 1
            self._fail(offset, FENCED, now_ms, delay_ms=0, to_back=False)
        else:
            self._release(offset, now_ms, delay_ms=0, to_back=False)

    def upholds(self, granted: Granted) -> bool:
        """Whether nobody else has owned the partition since, so that it is its owner's still."""
        return granted.delivery >= self.owner.since

    def _stale(self) -> StaleResult:
        return StaleResult(self.id, self.owner.member, self.owner.generation)

    def deliver(self, op: Delivered, delivery: int, now_ms: int) -> Granted | StaleResult:
        """Lease what of it is ready; the rest is left out."""
        if not self.is_owned_by(op.member, op.generation):
            self._stored.chronicle.nothing()
            return self._stale()
        deadline_ms = now_ms + bounded(op.visibility_ms, 0, VISIBILITY_MS_MAX)
        if self.halted:
            self._stored.chronicle.nothing()
            return Granted(delivery, deadline_ms, [])
        self.look()
        room = self.config.in_flight_max - len(self.leases)
        granted = stored_only(op.offsets[: max(0, room)], self._stored.next_offset)
        taken = self.ready.take(BitMap64(granted))
        if len(taken) < len(op.offsets):
            self._note_left_out(op.offsets, taken)
        if len(taken) < len(granted):
            granted = list(dict.fromkeys(filter(taken.__contains__, granted)))
        if not granted:
            return Granted(delivery, deadline_ms, [])
        self._note_waits(taken, now_ms)
        lowest = bounded(op.lowest_lane, 0, LANES_COUNT - 1)
        self.turns[lowest] = (self.turns[lowest] + len(granted)) % self.config.lane_share
        self.leases.open(delivery, deadline_ms, op.member, granted)
        self.tally.delivered += len(granted)
        if self.failures:
            self.tally.redelivered += sum(map(bool, map(self.failures.count, granted)))
        return Granted(delivery, deadline_ms, self.grants(granted))

    def _note_left_out(self, offsets: Sequence[int], taken: BitMap64) -> None:
        left = [offset for offset in offsets if offset < 0 or offset not in taken]
        if left:
            self._stored.chronicle.not_granted(left)

    def grants(self, offsets: Sequence[int]) -> list[Grant]:
        """What is told of deliveries."""
        failures, redrives = self.failures, self.redrives
        if not failures and not redrives:
            return [Grant(offset, 1) for offset in offsets]
        found = []
        for offset in offsets:
            failed = failures.count(offset)
            reason = failures.last_reason(offset) if failed else ""
            redriven = redrives.get(offset)
            found.append(Grant(offset, failed + 1, reason, redriven.count if redriven else 0))
        return found

    def settle(self, op: Settled, now_ms: int) -> SettledResult:
        """End or extend leases; a receipt that is not one, or no longer, changes nothing."""
        self.look()
        before = self.floor
        settles: list[Settle] = []
        stale = bool(op.generation) and not self.is_owned_by(op.member, op.generation)
        if stale and any(self._holds(*held) for held in op.deliveries):
            self._stored.chronicle.nothing()
        for delivery, offsets in op.deliveries:
            if stale:
                settles += [_REFUSED[STALE]] * len(offsets)
            elif op.action == ACK:
                settles += self._ack(delivery, offsets)
            elif op.action == EXTEND:
                settles += self._extend(op, delivery, offsets, now_ms)
            else:
                settles += [self._give_back(op, delivery, offset, now_ms) for offset in offsets]
        self._advance()
        return SettledResult(settles, self.floor, self.floor > before, len(self.leases))

    def expire(self, op: Expired, now_ms: int) -> CountResult:
        """End leases that are over; each message is ready again, or has failed for good."""
        self.look()
        count = 0
        for delivery, offsets in op.deliveries:
            for offset in offsets:
                lease = self.leases.get(offset)
                over = lease is not None and lease.deadline_ms <= now_ms
                if lease is None or lease.delivery != delivery or not over:
                    continue
                self.leases.end(offset)
                self.tally.expired += 1
                self._fail(offset, TIMED_OUT, now_ms, delay_ms=-1, to_back=False)
                count += 1
        self._advance()
        return CountResult(count)

    def commit(self, op: Committed) -> CountResult | StaleResult:
        """Settle everything below the offset, in flight or not."""
        if not self.is_owned_by(op.member, op.generation):
            if op.offset > self.base or self.timed:
                self._stored.chronicle.nothing()
            return self._stale()
        self.look()
        offset = bounded(op.offset, 0, self._stored.next_offset)
        gone = self._drop_below(offset)
        self.tally.acked += len(gone)
        self.base = max(self.base, offset)
        self._raise_floor(offset)
        return CountResult(len(gone))

    def seek(self, op: Sought, now_ms: int) -> SoughtResult | StaleResult:
        """Begin anew at the offset: all that the log has from there on is ready again; of what
        outlived the log, what was not settled, and, once it is due, what was passed over before."""
        if not self.is_owned_by(op.member, op.generation):
            self._stored.chronicle.nothing()
            return self._stale()
        stored, floor, coming = self._stored, self.floor, self.coming()
        start = bounded(op.offset, 0, stored.next_offset)
        first = max(start, stored.log_start_offset)
        again = (stored.kept & span(start, first)) - BitMap64(self.dead)
        outlived = self.pending(span(start, first)) - stored.withdrawn - again
        still = self.never & BitMap64(stored.carried) & span(start, first)
        self.outside = (self.outside & span(0, start)) | (still - stored.kept - stored.hidden)
        self.begins = min(self.begins, start)
        self.ready, self.leases, self.failures = ReadyLanes(), Leases(), Failures()
        self.waiting, self.wakes, self.since, self.first = {}, [], {}, {}
        self.timed = BitMap64()
        if self.order is not None:
            self.order.begin_anew()
        self.base, self.opened_ms = start, now_ms
        self.floor = self.seen = first
        self.done = BitMap64(stored.withdrawn) | BitMap64(self.dead)
        remove_below(self.done, self.floor)
        known = self.redrives.items()
        self.redrives = {o: n for o, n in known if o in self.dead or o in outlived}
        self.admit_kept(again)
        for kept in outlived:
            self._admit_late(kept, now_ms)
        self.look()
        if self.order is not None:
            self.order.release_nameless()
        self._advance()
        move = moved(floor, coming, self.floor, self.coming())
        return SoughtResult(move.before, move.after, move.replayed, move.skipped)

    def purge(self, offsets: list[int]) -> CountResult:
        """Forget dead letters: nothing brings them back."""
        count = 0
        for offset in offsets:
            if self._forget_dead(offset):
                self.redrives.pop(offset, None)
                count += 1
        return CountResult(count)

    def redrive(self, op: Redriven, now_ms: int) -> CountResult:
        """Make dead letters ready again, with no attempts, for this group only."""
        self.look()
        count = refused = 0
        for offset in op.offsets:
            if offset not in self.dead:
                continue
            redrives = self._redrives(offset)
            looping = redrives >= self.config.redrives_max and not op.force
            if looping or offset in self._stored.withdrawn:
                refused += 1
                continue
            self._forget_dead(offset)
            self.redrives[offset] = Redrives(redrives + 1, now_ms)
            self.done.discard(offset)
            self._admit_late(offset, now_ms)
            count += 1
        return CountResult(count, refused)

    def park(self, key: bytes) -> CountResult:
        """Withhold a key; what of it is in flight stays so until it is settled."""
        if self.order is None or key_hash(key) == NO_KEY:
            return CountResult(0)
        self.look()
        hashed = key_hash(key)
        head = self.order.park(hashed, key)
        if head is not None:
            self.ready.discard(head)
        return CountResult(self.order.behind(hashed))

    def release(self, key: bytes, now_ms: int) -> CountResult:
        """Let a parked key flow again."""
        if self.order is None:
            return CountResult(0)
        self.look()
        hashed = key_hash(key)
        head = self.order.release(hashed)
        if head is not None and head not in self.leases and head not in self.waiting:
            self._make_ready(head, now_ms)
        return CountResult(self.order.behind(hashed))

    def halt(self, reason: str) -> None:
        self.halted = reason

    def resume(self) -> None:
        self.halted = ""
        self.outcomes.clear()

    def configure(self, version: int, config: GroupConfig) -> None:
        """Newer settings; how a group is ordered does not change in its life."""
        self.version = version
        config = msgspec.structs.replace(sound_group(config), ordering=self.config.ordering)
        if config.halt_window != self.config.halt_window:
            self.outcomes = deque(self.outcomes, maxlen=config.halt_window)
        self.config = config

    # -- what time and the partition bring

    def release_due(self, offset: int, due_ms: int) -> None:
        """A delayed message that this group has not settled is due."""
        if offset >= self.base and offset not in self.done:
            self._admit_late(offset, max(due_ms, self.opened_ms))

    def wake(self, now_ms: int) -> None:
        """Messages whose backoff is over are ready again."""
        self.look()
        while self.wakes and self.wakes[0][0] <= now_ms:
            due_ms, offset = heapq.heappop(self.wakes)
            found = self.waiting.get(offset)
            if found is not None and found[0] == due_ms:
                del self.waiting[offset]
                if found[1]:
                    self._behind(offset, due_ms)
                else:
                    self._make_ready(offset, due_ms)

    def withdraw(self, gone: BitMap64) -> None:
        """Messages that are never delivered any more: cancelled, or expired. Leases stand."""
        self.look()
        ended = self._drop(gone)
        self.tally.withdrawn += len(ended)
        unseen = gone - ended
        if self.leases:
            flying = among(self.leases, unseen)
            self._forget_times(flying)
            unseen -= BitMap64(flying)
        remove_below(unseen, self.floor)
        self.done |= unseen
        self._advance()

    def trim(self, below: int, kept: BitMap64) -> None:
        """The log begins at `below`, but for what is kept: what is pending of the rest falls."""
        self.look()
        if kept:
            self._keep_times(self.pending(kept) - self._stored.withdrawn)
        gone = span(0, below) - kept
        fallen = self._drop(gone, leased=True)
        self.purge([o for o in self.dead if o in gone])
        self.tally.fallen += len(fallen)
        self._raise_floor(max(self.floor, below))

    def bury_old(self, died_before_ms: int) -> None:
        """Dead letters that died before this are forgotten; they stand in the order of death."""
        while self.dead:
            offset, letter = next(iter(self.dead.items()))
            if letter.died_ms >= died_before_ms:
                return
            self.purge([offset])

    # -- settling

    def _holds(self, delivery: int, offsets: Sequence[int]) -> bool:
        """Whether any of these is in flight in this delivery."""
        found = map(self.leases.get, offsets)
        return any(lease is not None and lease.delivery == delivery for lease in found)

    def _lease_of(self, delivery: int, offset: int) -> Settle | None:
        """None where the lease stands; else why not."""
        lease = self.leases.get(offset)
        if lease is not None and lease.delivery == delivery:
            return None
        if lease is None and not 0 <= offset < self._stored.next_offset:
            return _REFUSED[NOT_FOUND]
        if delivery < self.owner.since:
            return _REFUSED[STALE]
        if lease is not None or offset in self.waiting or offset in self.ready:
            return _REFUSED[LEASE_EXPIRED]
        if self._is_parked(offset) and self.failures.last_reason(offset):
            return _REFUSED[LEASE_EXPIRED]
        if offset in self.dead and self.dead[offset].reason == TIMED_OUT:
            return _REFUSED[LEASE_EXPIRED]
        return _REFUSED[NOT_FOUND]

    def _ack(self, delivery: int, offsets: list[int]) -> list[Settle]:
        settles: list[Settle] = []
        leases, failures = self.leases, self.failures
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
        self.tally.acked += len(acked)
        if self.config.halt_percent:
            self.outcomes.extend([False] * len(acked))
        self._finish_all(acked)
        return settles

    def _extend(self, op: Settled, delivery: int, offsets: list[int], now_ms: int) -> list[Settle]:
        settles: list[Settle] = []
        deadline_ms = now_ms + bounded(op.visibility_ms, 0, VISIBILITY_MS_MAX)
        moved: list[int] = []
        member = ""
        for offset in offsets:
            refused = self._lease_of(delivery, offset)
            lease = self.leases.get(offset)
            if refused is not None or lease is None:
                settles.append(refused or _REFUSED[NOT_FOUND])
                continue
            member = lease.member
            self.leases.end(offset)
            moved.append(offset)
            attempts = self.failures.count(offset) + 1
            settles.append(Settle(OK, "extended", attempts, deadline_ms))
        if moved:
            self.leases.open(delivery, deadline_ms, member, moved)
            self.tally.extended += len(moved)
        return settles

    def _give_back(self, op: Settled, delivery: int, offset: int, now_ms: int) -> Settle:
        """A nack, a reject or a release."""
        refused = self._lease_of(delivery, offset)
        if refused is not None:
            return refused
        self.leases.end(offset)
        attempts = self.failures.count(offset) + 1
        if op.action == REJECT:
            self.tally.rejected += 1
            self.failures.add(offset, now_ms, op.reason)
            return Settle(OK, self._kill(offset, op.reason, now_ms), attempts)
        if op.action == NACK:
            self.tally.nacked += 1
            outcome, visible_ms = self._fail(offset, op.reason, now_ms, op.delay_ms, op.to_back)
            return Settle(OK, outcome, attempts, visible_ms)
        self._release(offset, now_ms, max(0, op.delay_ms), op.to_back)
        return Settle(OK, "released", attempts - 1, self._visible_ms(offset, now_ms))
