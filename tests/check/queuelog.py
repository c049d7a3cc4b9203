"""Judges the queue of a partition by its log: each operation's result, as a simple model has it.

The model is told of every applied entry once, in order, with what its operations resulted in. It
knows a group as a dictionary from offset to `Life`, and looks at everything each time: slow, plain,
and independent of `delivery`. What clients are told must be in the log already, and in the end the
state of every replica must be what the model has.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from delivery.config import QueueConfig
from delivery.entries import ops
from delivery.offsets.lanes import LOOKED_AT_MAX
from tests.check.queuemodel import DEAD, DONE, LEASED, READY, WAITING, Group, Message
from tests.check.queueowners import (
    Claiming,
    end_streams,
    is_overtaken,
    judge_claim,
    judge_receipt,
    take_over,
)
from tests.check.queuerules import TIMED_OUT

STORE_STEP_MS = 1000
"""A group takes messages to have waited for up to this longer than they have."""
AT_ONCE = 60
"""Messages that were chosen with one of them, before it had waited too long."""
BEHIND = 1 << 60
"""More than any offset: what was given back to the back of its lane stands there."""

Row = tuple[int, bytes | None, int | None, int | None, str | None]
"""(lane, key, when due, when it expires, message id); times in ms."""


class QueueLog:
    """The model of one partition; `broken(rule, text)` is called for everything that is wrong."""

    def __init__(self, broken: Callable[[str, str], None]) -> None:
        self.messages: dict[int, Message] = {}
        self.groups: dict[int, Group] = {}
        self.config = QueueConfig()
        self.time_ms = 0
        self.granted: set[tuple[int, int, int]] = set()
        """(group, delivery, offset)."""
        self.settled: set[tuple[int, int, int, int]] = set()
        """(group, delivery, offset, action) that were accepted."""
        self.cancelled: set[int] = set()
        self.late_ms: list[tuple[str, int, int]] = []
        """(group, when a delayed message was due, how late it was delivered)."""
        self.ended = Counter[str]()
        """Messages that were taken back from streams: returned, lost, or lost with their run."""
        self._broken = broken
        self.fallen: list[tuple[str, int]] = []
        """(group, offset) of what was trimmed before it was settled."""
        self._requests: dict[int, ops.Result] = {}
        self._ids: dict[str, tuple[int, int]] = {}
        self._due: list[tuple[int, int]] = []
        self._expiries: list[tuple[int, int]] = []
        self.times: dict[int, int] = {}
        """Log time of each entry."""
        self.index = 0
        self._seen = 0
        self.unordered: set[int] = set()
        """Groups in which it is not judged how long a lane may wait: others commit and seek."""
        self.in_vain: dict[int, None] = {}
        """Messages that some delivery named, and that were not granted to it."""
        self._begins = 0
        self._spoken_for: set[int] = set()
        """Chosen in this entry for a request that was refused."""
        self._passed_before: dict[int, int] = {}
        """Grants of each group before this entry."""

    # what applies

    def advance(self, index: int, time_ms: int) -> None:
        """An entry is about to apply: whatever is due by its time happens."""
        self.index, self.time_ms = index, time_ms
        self.times[index] = time_ms
        while self._due and self._due[0][0] <= time_ms:
            due_ms, offset = heapq.heappop(self._due)
            message = self.messages.get(offset)
            if message is not None and not message.is_gone:
                message.visible = index
                message.time_ms = due_ms
                if self.config.retention_ms >= 0:
                    message.late_until_ms = due_ms + self.config.retention_ms
        while self._expiries and self._expiries[0][0] <= time_ms:
            _, offset = heapq.heappop(self._expiries)
            message = self.messages.get(offset)
            if message is not None and not message.is_gone:
                self._withdraw(offset, message)
        for group in self.groups.values():
            for offset in group.of(WAITING):
                life = group.lives[offset]
                if life.wakes_ms <= time_ms:
                    life.status, life.since, life.since_ms = READY, index, life.wakes_ms

    def records(self, index: int, time_ms: int, base: int, rows: Iterable[Row]) -> None:
        """An entry of messages without a producer's identity."""
        self.advance(index, time_ms)
        for offset, (lane, key, due_ms, expires_ms, message_id) in enumerate(rows, base):
            if message_id is not None:
                known, stored_ms = self._ids.get(message_id, (offset, time_ms))
                if known != offset and stored_ms + self.config.dedup_window_ms >= time_ms:
                    self._broken("Q5", f"{message_id!r} is stored at {known} and {offset}")
                self._ids[message_id] = (offset, time_ms)
            message = Message(lane, key, time_ms, due_ms or 0, expires_ms or 0, index)
            if due_ms is not None and due_ms > time_ms:
                message.visible = 0
                heapq.heappush(self._due, (due_ms, offset))
            if expires_ms is not None:
                heapq.heappush(self._expiries, (expires_ms, offset))
            self.messages[offset] = message
            for group in self.groups.values():
                if offset >= group.base:
                    group.open[offset] = None

    def apply(
        self,
        index: int,
        time_ms: int,
        seen: int,
        done: Sequence[ops.Op],
        results: Sequence[ops.Result],
    ) -> None:
        """A queue entry, made by a leader that had applied everything up to `seen`."""
        self.advance(index, time_ms)
        self._seen = seen
        self._spoken_for = set()
        self._passed_before = {group.id: len(group.passed) for group in self.groups.values()}
        if len(done) != len(results):
            self._broken("Q1", f"entry {index}: {len(done)} operations, {len(results)} results")
            return
        for op, result in zip(done, results, strict=True):
            request = getattr(op, "request", 0)
            known = self._requests.get(request) if request else None
            if known is not None and not is_overtaken(self.groups, op, known):
                if isinstance(op, ops.Delivered) and op.offsets:
                    told = f"{op.offsets} was chosen for a request that had its answer"
                    self._broken("Q4", f"entry {index}: {told}")
                    self.in_vain.update(dict.fromkeys(op.offsets))
                if result != known:
                    self._broken("Q1", f"entry {index}: a repeated request resulted in {result}")
                continue
            judge = _JUDGES.get(type(op))
            if judge is not None:
                judge(self, op, result)
            granted = not isinstance(result, ops.Granted) or result.grants
            if request and granted and not isinstance(result, ops.UnknownGroup | ops.StaleResult):
                self._requests[request] = result

    def trimmed(self, begins: int, kept: Iterable[int]) -> None:
        """The log begins at this offset now, but for what is kept elsewhere."""
        carried, self._begins = set(kept), begins
        for offset in [o for o in self.messages if o < begins and o not in carried]:
            message = self.messages.pop(offset)
            if not message.visible and not message.is_gone:
                self._broken("Q3", f"{offset} was trimmed, and is not due")
            for group in self.groups.values():
                life = group.lives.get(offset)
                if life is not None and life.status == DEAD:
                    self._broken("Q2", f"{offset} was trimmed, and is a dead letter")
                if offset in group.open:
                    self.fallen.append((group.name, offset))
                if group.has(offset):
                    group.finish(offset, message)
        for group in self.groups.values():
            group.committed_offset = max(group.committed_offset, begins)
            group.advance()

    def pending(self, group: Group, until_ms: int) -> list[int]:
        """What the group has yet to settle, but for what is not due by this time."""
        return [
            offset
            for offset in group.open
            if (message := self.messages.get(offset)) is not None
            and (message.visible or message.due_ms <= until_ms)
        ]

    # operations

    def _delivered(self, op: ops.Delivered, result: ops.Result) -> None:
        group = self._group(op, result)
        granted = [one.offset for one in result.grants] if isinstance(result, ops.Granted) else []
        self.in_vain.update(dict.fromkeys(o for o in op.offsets if o not in granted))
        if isinstance(result, ops.StaleResult):
            self._spoken_for.update(op.offsets)
        is_claimed = group is not None and self._is_claimed(group, op, result)
        if group is None or not is_claimed or isinstance(result, ops.StaleResult):
            return
        if not isinstance(result, ops.Granted):
            self._broken("Q1", f"a delivery resulted in {result}")
            return
        told = f"entry {self.index} {group.name}"
        offsets = [grant.offset for grant in result.grants]
        stream = None
        deadline_ms = self.time_ms + op.visibility_ms
        if isinstance(op, ops.DeliveredToStream):
            stream = op.stream.run, op.stream.number
            deadline_ms = deadline_ms if op.visibility_ms else 0
        if result.delivery != self.index or result.deadline_ms != deadline_ms:
            self._broken("Q1", f"{told}: a delivery {result.delivery} until {result.deadline_ms}")
        if len(set(offsets)) != len(offsets) or not set(offsets) <= set(op.offsets):
            self._broken("Q1", f"{told}: {offsets} was granted of {op.offsets}")
        is_ordered = self._is_ordered(group)
        if is_ordered:
            self._lanes_hold(group, offsets, told, is_whole=offsets == op.offsets)
        for grant in result.grants:
            self._grant(group, grant, result, told)
            life = group.life(grant.offset)
            life.holder, life.stream = op.member, stream
        if is_ordered and group.id not in self.unordered:
            for at in range(len(group.passed) - len(offsets), len(group.passed)):
                self._served_within_its_share(group, at)

    def _is_ordered(self, group: Group) -> bool:
        """Whether its lanes are judged: not by key, nor for what was chosen before somebody has
        committed or sought."""
        return group.config.ordering != "key" and group.moved <= self._seen

    def _grant(self, group: Group, grant: ops.Grant, result: ops.Granted, told: str) -> None:
        offset = grant.offset
        message, life = self.messages.get(offset), group.life(offset)
        told = f"{told}: {offset} was delivered"
        if message is None or (offset < group.base and not life.redrives):
            self._broken("L6", f"{told}, and is not there")
            return
        if not message.visible:
            self._broken("Q3", f"{told} {message.due_ms - self.time_ms} ms before it is due")
        if message.is_gone:
            self._broken("Q3", f"{told}, and was cancelled or has expired")
        if life.status != READY:
            rule = {LEASED: "Q1", WAITING: "Q1", DEAD: "Q2", DONE: "G3"}[life.status]
            self._broken(rule, f"{told}, and is {life.status}")
        if grant.attempt != life.failed + 1:
            self._broken("Q1", f"{told} as attempt {grant.attempt}, {life.failed} have failed")
        if life.failed and grant.reason != life.reason:
            self._broken("Q1", f"{told} for {grant.reason!r}, it failed for {life.reason!r}")
        if grant.redrives != life.redrives:
            self._broken("Q2", f"{told} redriven {grant.redrives}, not {life.redrives} times")
        if group.config.ordering == "key" and message.key is not None:
            self._key_holds(group, offset, message.key, told)
            group.heads[message.key] = offset
        if message.due_ms and not life.failed and not life.redrives and not life.since:
            due_ms = max(message.due_ms, group.opened_ms)
            self.late_ms.append((group.name, due_ms, self.time_ms - due_ms))
        group.redelivered += grant.attempt > 1
        group.delivered += 1
        since_ms = self._since_ms(group, offset)
        standing = offset + (BEHIND if life.is_behind else 0)
        chosen_ms = self.times.get(self._seen, self.time_ms)
        group.passed.append((chosen_ms, since_ms, message.lane, standing))
        life.status, life.delivery, life.deadline_ms = (
            LEASED,
            self.index,
            result.deadline_ms,
        )
        life.is_behind = False
        self.granted.add((group.id, self.index, offset))

    def _key_holds(self, group: Group, offset: int, key: bytes, told: str) -> None:
        head = group.heads.get(key)
        if head is not None and head != offset:
            self._broken("KEY", f"{told}, and {head} of its key is not settled")
        if group.life(offset).redrives or self.messages[offset].due_ms:
            return
        for other in group.open:
            message = self.messages[other]
            first = other < offset and message.key == key and not message.due_ms
            if first and not group.life(other).redrives and not message.is_gone:
                self._broken("KEY", f"{told}, and {other} of its key comes before it")

    def _lanes_hold(self, group: Group, given: list[int], told: str, *, is_whole: bool) -> None:
        """No higher lane's, and none before it in its lane, was ready when these were chosen."""
        config = group.config
        ready = [o for o in group.open if self._could_go(group, o)]
        before: set[int] = set()
        out_of_turn = 0
        for offset in given:
            message, life = self.messages.get(offset), group.life(offset)
            if message is None:
                continue
            lanes = {o: self.messages[o].lane for o in ready if o not in before}
            higher = [o for o, lane in lanes.items() if lane < message.lane]
            out_of_turn += bool(higher)
            if higher and not self._is_late(group, message.lane, {*ready, *given}):
                told_of = f"{offset} of lane {message.lane} was delivered"
                self._broken("Q4", f"{told}: {told_of}, {higher[0]} is ready in a higher lane")
            ahead = [o for o, lane in lanes.items() if lane == message.lane and o < offset]
            if not life.is_behind and any(not group.life(o).is_behind for o in ahead):
                self._broken("Q4", f"{told}: {offset} was delivered, {ahead} come before it")
            before.add(offset)
        if is_whole and out_of_turn > -(-len(given) // config.lane_share):
            self._broken("Q4", f"{told}: {out_of_turn} of {len(given)} came before higher lanes")

    def _is_late(self, group: Group, lane: int, ready: set[int]) -> bool:
        """Whether anything of the lane had waited too long when messages were chosen."""
        rows = [o for o in ready if self.messages[o].lane == lane]
        waits = [self._since_ms(group, o) for o in rows]
        chosen_ms = self.times.get(self._seen, 0)
        waits += group.expired_since(self.messages, lane, chosen_ms, self._seen)
        if len(rows) > LOOKED_AT_MAX:  # beyond these a group goes by when they were stored
            waits += [self.messages[o].time_ms for o in rows]
        given = group.passed[self._passed_before.get(group.id, 0) :]
        waits += [since for _, since, other, _ in given if other == lane]
        return min(waits) <= self.time_ms + STORE_STEP_MS - group.config.lane_max_wait_ms

    def _since_ms(self, group: Group, offset: int) -> int:
        stored_ms = max(self.messages[offset].time_ms, group.opened_ms)
        return group.life(offset).since_ms or stored_ms

    def _served_within_its_share(self, group: Group, at: int) -> None:
        """One delivery in `lane_share` went to what had waited too long, lane by lane in order."""
        chosen_ms, since_ms, lane, offset = group.passed[at]
        if chosen_ms - since_ms < group.config.lane_max_wait_ms:
            return
        share, before = group.config.lane_share, group.passed[:at]
        old_ms = since_ms + group.config.lane_max_wait_ms
        passed = before[bisect_left(before, (old_ms, -1, -1, -1)) :]
        older = sum(
            other > 0 and (since <= since_ms or (other == lane and o < offset))
            for _, since, other, o in passed
        )
        if len(passed) > share * (older + 2) + AT_ONCE:
            told = f"{offset} of lane {lane} had waited too long"
            self._broken("Q4", f"{group.name}: {told}, and waited for {len(passed)} more")

    def _could_go(self, group: Group, offset: int) -> bool:
        """Whether it was ready when the leader chose, and is still."""
        message = self.messages[offset]
        was_there = 0 < message.visible <= self._seen
        if not was_there or message.is_gone or offset in self._spoken_for:
            return False
        life = group.lives.get(offset)
        return life is None or (life.status == READY and life.since <= self._seen)

    def _settled(self, op: ops.Settled, result: ops.Result) -> None:
        group = self._group(op, result)
        if group is None:
            return
        receipts = [(delivery, o) for delivery, offsets in op.deliveries for o in offsets]
        if not isinstance(result, ops.SettledResult) or len(result.settles) != len(receipts):
            self._broken("Q1", f"a settle of {receipts} resulted in {result}")
            return
        for (delivery, offset), found in zip(receipts, result.settles, strict=True):
            self._settle(group, op, delivery, offset, found)
        if (result.committed_offset, result.in_flight) != (
            group.committed_offset,
            len(group.of(LEASED)),
        ):
            told = f"settled up to {result.committed_offset}, {result.in_flight} in flight"
            known = f"it is {group.committed_offset}, {len(group.of(LEASED))}"
            self._broken("G3", f"entry {self.index} {group.name}: {told}, {known}")

    def _settle(
        self, group: Group, op: ops.Settled, delivery: int, offset: int, found: ops.Settle
    ) -> None:
        life, message = group.life(offset), self.messages.get(offset)
        told = f"entry {self.index} {group.name}: receipt {delivery}/{offset} of {life.status}"
        rule, stands = judge_receipt(group, op, delivery, offset, found.code)
        if rule:
            self._broken(rule, f"{told} (delivery {life.delivery}) was settled as {found}")
        if not stands or message is None:
            return
        self.settled.add((group.id, delivery, offset, op.action))
        attempts = life.failed + 1
        if op.action == ops.ACK:
            expected = "acked"
            group.finish(offset, message)
        elif op.action == ops.EXTEND:
            expected = "extended"
            life.deadline_ms = self.time_ms + op.visibility_ms
        elif op.action == ops.RELEASE:
            expected = "released"
            attempts -= 1
            life.is_behind = op.to_back
            delay_ms = max(0, op.delay_ms)
            group.come_back(offset, message, delay_ms, self.index, self.time_ms)
        elif op.action == ops.REJECT:
            expected = "dead"
            group.die(offset, message, op.reason)
        else:
            life.is_behind = op.to_back
            expected = group.fail(offset, message, op.reason, op.delay_ms, self.index, self.time_ms)
        if found.code != ops.OK:
            return
        if (found.outcome, found.attempts) != (expected, attempts):
            self._broken("Q1", f"{told} is {found}, not {expected} after {attempts} attempts")
        wakes_ms = life.wakes_ms if life.status == WAITING else self.time_ms
        if expected in ("requeued", "released") and found.visible_at_ms != wakes_ms:
            self._broken("Q1", f"{told} comes again at {found.visible_at_ms}, not {wakes_ms}")

    def _expired(self, op: ops.Expired, result: ops.Result) -> None:
        group = self._group(op, result)
        if group is None:
            return
        for delivery, offsets in op.deliveries:
            for offset in offsets:
                life, message = group.life(offset), self.messages.get(offset)
                stands = life.status == LEASED and life.delivery == delivery
                is_over = 0 < life.deadline_ms <= self.time_ms
                if stands and is_over and message is not None:
                    group.fail(offset, message, TIMED_OUT, -1, self.index, self.time_ms)

    def _streams_ended(self, op: ops.StreamsEnded, result: ops.Result) -> None:
        group = self._group(op, result)
        if group is None:
            return
        ended = end_streams(group, op, self.messages, self.index, self.time_ms)
        how = ("lost" if op.streams else "lost with its run") if op.lost else "returned"
        self.ended[how] += ended
        if result != ops.CountResult(ended):
            self._broken("Q1", f"entry {self.index}: {op} ended {ended}, and resulted in {result}")

    def _committed(self, op: ops.Committed, result: ops.Result) -> None:
        group = self._group(op, result)
        if group is None or not self._is_claimed(group, op, result):
            return
        group.moved = self.index
        end = min(op.offset, max(self.messages, default=-1) + 1)
        for offset in [o for o in group.open if o < end]:  # delayed ones, too: they are passed over
            group.finish(offset, self.messages[offset])
        group.base = max(group.base, end)
        group.committed_offset = max(group.committed_offset, end)
        group.advance()

    def _sought(self, op: ops.Sought, result: ops.Result) -> None:
        group = self._group(op, result)
        if group is not None and self._is_claimed(group, op, result):
            group.moved = self.index
            offset = min(op.offset, max(self.messages, default=-1) + 1)
            group.begin_anew(offset, self._begins, self.messages)

    def _owned(self, op: ops.Own, result: ops.Result) -> None:
        group = self._group(op, result)
        if group is not None:
            known = take_over(group, op, self.messages, self.index, self.time_ms)
            if result != known:
                self._broken("G1", f"entry {self.index}: {op} is {result}, not {known}")

    def _is_claimed(self, group: Group, op: Claiming, result: ops.Result) -> bool:
        rule = judge_claim(group, op, result)
        if rule:
            owner = (group.owner.member, group.owner.generation)
            self._broken(rule, f"entry {self.index} {group.name} of {owner}: {op} is {result}")
        return group.owner.may(op.member, op.generation)

    def _cancel(self, op: ops.Cancelled, result: ops.Result) -> None:
        codes = result.codes if isinstance(result, ops.CodesResult) else []
        if len(codes) != len(op.offsets):
            self._broken("Q3", f"a cancel of {op.offsets} resulted in {result}")
            return
        for offset, code in zip(op.offsets, codes, strict=True):
            message = self.messages.get(offset)
            waits = message is not None and not message.visible and not message.is_gone
            is_known = message is not None and message.is_cancelled
            if (code == ops.OK) != (waits or is_known):
                self._broken("Q3", f"entry {self.index}: cancel of {offset} was answered {code}")
            if waits and message is not None:
                message.is_cancelled = True
                self.cancelled.add(offset)
                self._withdraw(offset, message)

    def _withdraw(self, offset: int, message: Message) -> None:
        message.is_gone = True
        for group in self.groups.values():
            group.withdraw(offset, message, self._since_ms(group, offset))

    def _purged(self, op: ops.Purged, result: ops.Result) -> None:
        group = self._group(op, result)
        if group is None:
            return
        dead = {o for o in op.offsets if group.life(o).status == DEAD}
        for offset in dead:
            group.life(offset).status = DONE
        if not isinstance(result, ops.CountResult) or result.count != len(dead):
            self._broken("Q2", f"entry {self.index}: {len(dead)} were purged as {result}")

    def _redriven(self, op: ops.Redriven, result: ops.Result) -> None:
        group = self._group(op, result)
        if group is None:
            return
        count = 0
        for offset in op.offsets:
            life = group.life(offset)
            looping = life.redrives >= group.config.redrives_max and not op.force
            if life.status != DEAD or looping or self.messages[offset].is_gone:
                continue
            count += 1
            life.status, life.failed, life.redrives = READY, 0, life.redrives + 1
            life.since, life.since_ms = self.index, self.time_ms
            group.open[offset] = None
        if not isinstance(result, ops.CountResult) or result.count != count:
            self._broken("Q2", f"entry {self.index}: {count} were redriven as {result}")

    # groups

    def _opened(self, op: ops.OpenGroup, _result: ops.Result) -> None:
        known = self.groups.get(op.group)
        if known is not None:
            if op.version > known.version:
                known.version, known.config = op.version, op.config
            return
        end = max(self.messages, default=-1) + 1
        base = min(op.offset, end)
        if base <= self._begins and op.config.start != "latest":
            base = 0
        committed_offset = max(base, self._begins)
        group = Group(
            op.group, op.name, op.config, op.version, base, self.time_ms, committed_offset
        )
        for offset, message in self.messages.items():
            is_kept_for_it = not message.visible or message.late_until_ms > self.time_ms
            if offset < base:
                continue
            if message.is_gone or (offset < self._begins and not is_kept_for_it):
                group.finish(offset, message)
            else:
                group.open[offset] = None
        group.advance()
        self.groups[op.group] = group

    def _dropped(self, op: ops.DropGroup, _result: ops.Result) -> None:
        self.groups.pop(op.group, None)

    def _configured(self, op: ops.Configure, _result: ops.Result) -> None:
        self.config = op.config

    def _group(self, op: Any, result: ops.Result) -> Group | None:
        found = self.groups.get(op.group)
        if (found is None) != isinstance(result, ops.UnknownGroup):
            self._broken("Q1", f"entry {self.index}: {op} resulted in {result}")
            return None
        return found


_JUDGES: dict[type, Callable[[QueueLog, Any, ops.Result], None]] = {
    ops.Configure: QueueLog._configured,
    ops.OpenGroup: QueueLog._opened,
    ops.DropGroup: QueueLog._dropped,
    ops.Delivered: QueueLog._delivered,
    ops.DeliveredToStream: QueueLog._delivered,
    ops.StreamsEnded: QueueLog._streams_ended,
    ops.Settled: QueueLog._settled,
    ops.Expired: QueueLog._expired,
    ops.Committed: QueueLog._committed,
    ops.Sought: QueueLog._sought,
    ops.Cancelled: QueueLog._cancel,
    ops.Purged: QueueLog._purged,
    ops.Redriven: QueueLog._redriven,
    ops.Own: QueueLog._owned,
}
