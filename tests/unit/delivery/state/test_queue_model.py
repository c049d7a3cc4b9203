"""Any mix of what a queue can be asked, on two replicas, against a plain model of its promises.

The leader looks at its state as a leader does, at any moment; the follower only applies entries.
Both must be equal byte for byte, go through snapshots at any point, and do what the model does.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec.structs import asdict

from delivery.config import LANES_COUNT, GroupConfig, QueueConfig
from delivery.entries.ops import (
    ACK,
    EXTEND,
    FORCED,
    NACK,
    OK,
    REJECT,
    RELEASE,
    STALE,
    Cancelled,
    CodesResult,
    Committed,
    Configure,
    CountResult,
    Delivered,
    DeliveredToStream,
    DropGroup,
    Expired,
    Granted,
    Halted,
    Op,
    OpenGroup,
    Own,
    OwnedResult,
    Parked,
    Purged,
    Redriven,
    Resumed,
    Settled,
    SettledResult,
    Sought,
    SoughtResult,
    StaleResult,
    StreamId,
    StreamsEnded,
    UnknownGroup,
    Unparked,
    encode_ops,
)
from delivery.entries.reappended import ReappendedBatch, encode_reappended
from delivery.entries.records import AppendBatch, encode_records, encode_trim
from delivery.group.lag import delayed_count, lag_count, lag_ms, would_seek
from delivery.group.state import GroupState
from delivery.offsets.store_times import STEP_MS
from delivery.state.partition import PartitionState
from goqueue.wire.batch import encode_columns
from goqueue.wire.types import Index, Offset
from log.entry import EntryKind, make_entry
from tests.unit.delivery.batches import START_MS
from tests.unit.delivery.queue_model import (
    LATE_RESULT_MS,
    GroupModel,
    Message,
    Owner,
    QueueModel,
)
from tests.walk import walk

RUNS, STEPS = 920, 100
STEPS_LEAST = 100_000
KEYS = [b"a", b"b", None, b""]
TIMES_MS = [0, 0, 1, 10, 100, 400, 1500, 30_000, 400_000]
CONFIGS = [
    GroupConfig(visibility_ms=100, lane_max_wait_ms=1000, lane_share=2, backoff_ms=10),
    GroupConfig(visibility_ms=0, max_attempts=1, in_flight_max=3, redrives_max=1),
    GroupConfig(ordering="key", max_attempts=2, visibility_ms=400),
    GroupConfig(ordering="key", max_attempts=2, on_poison="park", visibility_ms=100),
    GroupConfig(halt_percent=50, halt_window=4, max_attempts=1, dead_max=5),
    GroupConfig(max_attempts=0, backoff_ms=300, backoff_ms_max=500, lane_share=3),
]
QUEUES = [
    QueueConfig(),
    QueueConfig(lanes=3, retention_ms=2000, dead_retention_ms=30_000),
    QueueConfig(ttl_ms=1500, retention_ms=30_000),
]
small = st.integers(0, 7)
many = st.integers(0, 2**16)


class Count:
    """Rule steps of this run of the tests."""

    steps = 0


def pick(values: list[Any], number: int) -> Any:
    return values[number % len(values)]


class QueueMachine(RuleBasedStateMachine):
    @initialize(queue=small, first=small, second=small)
    def begin(self, queue: int, first: int, second: int) -> None:
        self.leader, self.follower = PartitionState(), PartitionState()
        self.model = QueueModel()
        self.index = 0
        self.now_ms = START_MS
        self.requests: dict[int, tuple[int, Any]] = {}
        self.versions = 1
        self.receipts: list[tuple[int, int, int]] = []
        """(group, delivery, offset) of all that was ever delivered."""
        self.held: list[Op] = []
        self.judged: Any = None
        """What the last operation resulted in."""
        self.apply_ops(Configure(pick(QUEUES, queue)))
        self.publish(3, queue, 7, second, True)
        self.open(1, first)
        self.open(2, second)
        self.publish(4, first, second, 15 * queue, True)

    # -- entries

    def apply(self, kind: EntryKind, body: Any, base: int = 0, count: int = 0) -> Any:
        self.index += 1
        entry = make_entry(
            index=self.index,
            term=1,
            time_ms=self.now_ms,
            kind=kind,
            body=body,
            base_offset=base,
            record_count=count,
        )
        found = self.leader.apply(entry)
        assert self.follower.apply(entry) == found
        self.model.advance(self.now_ms)
        return found

    def apply_ops(self, *ops: Op, hold: bool = False) -> None:
        """Apply the operations, or keep them for the next entry."""
        Count.steps += 1
        self.held += ops
        if hold and len(self.held) < 4:
            return
        held, self.held = self.held, []
        for op, result in zip(held, self.apply(EntryKind.QUEUE, encode_ops(held)), strict=True):
            self.judge(op, result)
        self.compare()

    def judge(self, op: Any, result: Any) -> None:
        self.judged = result
        known = self.requests.get(getattr(op, "request", 0))
        if known is not None and known[0] + LATE_RESULT_MS >= self.now_ms:
            self.judge_repeated(op, result, known[1])
        elif isinstance(op, Configure):
            self.model.config = op.config
        elif isinstance(op, Cancelled):
            assert isinstance(result, CodesResult)
            told = self.model.cancel(op.offsets)
            codes = ["cancelled", "unknown", "", "late"]
            assert [codes[code] for code in result.codes] == told
        elif isinstance(op, DropGroup):
            self.model.groups.pop(op.group, None)
        elif isinstance(op, OpenGroup):
            assert result == CountResult(op.group not in self.model.groups)
            if op.group in self.model.groups:
                self.model.groups[op.group].configure(op.config)
            else:
                self.model.open(op.group, op.config, op.offset)
        elif op.group not in self.model.groups:
            assert result == UnknownGroup(op.group)
        else:
            self.judge_of_group(op, result, self.model.groups[op.group])

    def judge_repeated(self, op: Any, result: Any, known: Any) -> None:
        """The same as the last time, unless what was granted is somebody else's by now."""
        group = self.model.groups.get(getattr(op, "group", 0))
        if isinstance(op, Delivered) and isinstance(known, Granted) and group is not None:
            overtaken = known.delivery < group.owner.since
            if overtaken or not group.lets(op.member, op.generation):
                self.judge_of_group(op, result, group)
                return
        assert result == known

    def judge_of_group(self, op: Any, result: Any, group: GroupModel) -> None:
        claimed = isinstance(op, Delivered | Committed | Sought)
        if claimed and not group.lets(op.member, op.generation):
            owner = group.owner
            assert result == StaleResult(op.group, owner.member, owner.generation)
            return
        request = getattr(op, "request", 0)
        if request and not (isinstance(result, Granted) and not result.grants):
            self.requests[request] = (self.now_ms, result)
        if isinstance(op, Own):
            owner = group.own(op.member, op.generation, self.index, fence=op.fence)
            assert result == OwnedResult(owner.member, owner.generation, owner.ended)
        elif isinstance(op, Delivered):
            assert isinstance(result, Granted)
            grants = group.deliver(
                op.offsets,
                op.visibility_ms,
                self.index,
                op.member,
                lowest=op.lowest_lane,
                stream=op.stream if isinstance(op, DeliveredToStream) else None,
            )
            assert [(g.offset, g.attempt, g.reason, g.redrives) for g in result.grants] == grants
            self.receipts += [(op.group, self.index, grant[0]) for grant in grants]
        elif isinstance(op, Settled):
            self.judge_settles(op, result, group)
        else:
            assert result == self.count_of(op, group)

    def judge_settles(self, op: Settled, result: SettledResult, group: GroupModel) -> None:
        before = group.committed_offset
        told = iter(result.settles)
        if op.generation and not group.lets(op.member, op.generation):
            assert {settle.code for settle in result.settles} <= {STALE}
            assert (result.committed_offset, result.advanced) == (group.committed_offset, False)
            return
        for delivery, offsets in op.deliveries:
            for offset in offsets:
                expected: tuple[str, int, int] | None
                if op.action == ACK:
                    expected = group.ack(delivery, offset)
                elif op.action == EXTEND:
                    expected = group.extend(delivery, offset, op.visibility_ms)
                elif op.action == RELEASE:
                    expected = group.release(delivery, offset, op.delay_ms, op.to_back)
                elif op.action == REJECT:
                    expected = group.reject(delivery, offset, op.reason)
                else:
                    expected = group.fail(delivery, offset, op.reason, op.delay_ms, op.to_back)
                settle = next(told)
                if expected is None:
                    assert settle.code != OK
                    known = 0 <= offset < self.model.end and offset not in group.leased()
                    if known and delivery < group.owner.since:
                        assert settle.code == STALE
                else:
                    assert settle.code == OK
                    assert (settle.outcome, settle.attempts, settle.visible_at_ms) == expected
        assert (result.committed_offset, result.advanced) == (
            group.committed_offset,
            group.committed_offset > before,
        )
        assert result.in_flight == len(group.leased())

    def count_of(self, op: Any, group: GroupModel) -> CountResult | SoughtResult:
        if isinstance(op, Expired):
            return CountResult(group.expire(op.deliveries))
        if isinstance(op, StreamsEnded):
            return CountResult(group.end_streams(op.run, op.streams, lost=op.lost))
        if isinstance(op, Committed):
            return CountResult(group.commit(op.offset))
        if isinstance(op, Sought):
            return SoughtResult(*group.seek(op.offset))
        if isinstance(op, Purged):
            return CountResult(group.purge(op.offsets))
        if isinstance(op, Redriven):
            return CountResult(*group.redrive(op.offsets, force=op.force))
        if isinstance(op, Parked):
            return CountResult(group.park(op.key))
        if isinstance(op, Unparked):
            return CountResult(group.unpark(op.key))
        if isinstance(op, Halted):
            group.halted = op.reason
            return CountResult(1)
        assert isinstance(op, Resumed)
        halted, group.halted, group.outcomes = bool(group.halted), "", []
        return CountResult(int(halted))

    # -- rules

    @rule(count=st.integers(1, 4), lane=small, key=small, how=many, hold=st.booleans())
    def publish(self, count: int, lane: int, key: int, how: int, hold: bool) -> None:
        Count.steps += 1
        rows = range(count)
        lanes = [(lane + how * row) % 5 for row in rows]
        keys = [pick(KEYS, key + how * row) for row in rows]
        delays = [pick([None, None, 5, 500, 2000, 0], how + row * lane) for row in rows]
        lives = [pick([None, None, None, 1, 300, 3000, 60_000], how // 7 + row) for row in rows]
        batch = encode_columns(
            [b"v"] * count,
            keys if key < 6 else None,
            lanes=lanes if hold else lane % 5,
            deliver_at_ms=delays if how % 3 == 0 else None,
            expires_at_ms=lives if how % 5 == 0 else None,
        )
        base = self.leader.next_offset
        body = encode_records([AppendBatch(batch, count, 0)])
        self.apply(EntryKind.RECORDS, body, base, count)
        for row in rows:
            delay, life = delays[row], lives[row]
            self.model.store(
                Message(
                    base + row,
                    lanes[row] if hold else lane % 5,
                    keys[row] if key < 6 else None,
                    self.now_ms,
                    None if how % 3 or delay is None else self.now_ms + delay,
                    None if how % 5 or life is None else self.now_ms + life,
                )
            )
        self.compare()

    @rule(which=small)
    def wait(self, which: int) -> None:
        Count.steps += 1
        self.now_ms += pick(TIMES_MS, which)

    @rule(group=st.integers(1, 2), limit=st.integers(1, 6), how=many, hold=st.booleans())
    def receive(self, group: int, limit: int, how: int, hold: bool) -> None:
        """What the leader selects, or anything, as a leader does whose view is old."""
        found = self.leader.queue.groups.get(group)
        if found is None or self.held or how % 8 == 7:
            offsets = [(how * at) % (self.model.end + 2) for at in range(1, limit)]
            claim = self.claim(group, how // 64)
            self.apply_ops(Delivered(group, claim[0], 300, offsets, 0, claim[1]), hold=hold)
            return
        self.apply(EntryKind.QUEUE, encode_ops([]))  # what a leader sees is as of the last entry
        lowest = LANES_COUNT - 1 if how % 3 else how // 16 % LANES_COUNT
        offsets = found.select(limit, self.now_ms, lowest)
        self.check_order(self.model.groups[group], offsets, limit, lowest)
        request = self.index % 5 + 1 if how % 4 == 3 else 0
        visibility_ms = pick([100, 0, 5, 20_000], how // 8)
        member, generation = self.claim(group, how // 64)
        op = Delivered(group, member, visibility_ms, offsets, request, generation, lowest)
        if how % 5 < 2:
            stream = StreamId(how // 5 % 2 + 1, how // 10 % 2 + 1)
            op = DeliveredToStream(**asdict(op), stream=stream)
        self.apply_ops(op, hold=hold)

    @rule(group=st.integers(1, 2), run=st.integers(1, 2), how=small, hold=st.booleans())
    def end_streams(self, group: int, run: int, how: int, hold: bool) -> None:
        """One of a run, two, or all."""
        streams = pick([[1], [2], [1, 2], []], how)
        self.apply_ops(StreamsEnded(group, run, streams, lost=how > 3), hold=hold)

    def claim(self, group: int, how: int) -> tuple[str, int]:
        """Who asks: mostly who may."""
        model = self.model.groups.get(group)
        owner = Owner() if model is None else model.owner
        if how % 16 != 15:
            return owner.member or "m", owner.generation + how % 2 if owner.member else 0
        return pick(["", "a", "b", owner.member], how // 16), owner.generation + how // 64 % 4 - 2

    @rule(group=st.integers(1, 2), who=small, newer=st.integers(-1, 2), how=many)
    def own(self, group: int, who: int, newer: int, how: int) -> None:
        if how % 3:
            return
        model = self.model.groups.get(group)
        before = 0 if model is None else model.owner.generation
        member = pick(["a", "b", "a", "b", ""], who)
        op = Own(group, member, before + newer, how % 2 == 0)
        self.apply_ops(op, hold=how % 4 == 3)

    @rule(group=st.integers(1, 2), limit=st.integers(1, 6), action=small, how=small)
    def work(self, group: int, limit: int, action: int, how: int) -> None:
        """A consumer that is quick, for better or worse, and gives the dead another chance."""
        model = self.model.groups.get(group)
        if model is not None and model.dead and how > 3:
            self.apply_ops(Redriven(group, list(model.dead), force=how > 4))
        before = len(self.receipts)
        self.receive(group, limit, 8 * how, hold=False)
        flying = [(delivery, [offset]) for _, delivery, offset in self.receipts[before:]]
        actions = [ACK, NACK, NACK, REJECT, REJECT, RELEASE, ACK, NACK]
        self.apply_ops(Settled(group, actions[action], flying, "work", 0, how == 1))

    def chosen(self, number: int, count: int) -> tuple[int, list[tuple[int, list[int]]]]:
        """Receipts: newest first more often than not, and at times repeated or foreign."""
        if not self.receipts:
            return 1, [(1, [0])]
        last = len(self.receipts) - 1
        found = [self.receipts[max(0, last - (number * at) % 12)] for at in range(count)]
        group = found[0][0] if number % 11 else 3 - found[0][0]
        return group, [(delivery, [offset]) for _, delivery, offset in found]

    @rule(number=many, count=st.integers(1, 3), action=small, delay=small, hold=st.booleans())
    def settle(self, number: int, count: int, action: int, delay: int, hold: bool) -> None:
        group, receipts = self.chosen(number, count)
        op = Settled(
            group,
            pick([ACK, NACK, NACK, REJECT, EXTEND, RELEASE, ACK, NACK], action),
            receipts,
            f"reason {number % 3}",
            pick([0, -1, 0, 50, 1000], delay),
            number % 2 == 1,
            pick([0, 10, 600], number),
            100 + number % 4 if number % 5 == 0 else 0,
            *(self.claim(group, number // 7) if number % 6 == 0 else ("", 0)),
        )
        self.apply_ops(op, hold=hold)

    @rule(group=st.integers(1, 2), number=many, hold=st.booleans())
    def expire(self, group: int, number: int, hold: bool) -> None:
        found = self.leader.queue.groups.get(group)
        _, receipts = self.chosen(number, 2)
        if found is not None and number % 4:
            receipts = found.leases.overdue(self.now_ms, 5)
        self.apply_ops(Expired(group, receipts), hold=hold)

    @rule(group=st.integers(1, 2), number=many, which=st.integers(0, 15), hold=st.booleans())
    def command(self, group: int, number: int, which: int, hold: bool) -> None:
        """What is asked more rarely."""
        offset = number % (self.model.end + 3)
        key = pick([b"a", b"b", b"", b"c"], number)
        model = self.model.groups.get(group)
        dead = [0, *model.dead] if model is not None else [0]
        letters = [pick(dead, number), pick(dead, number // 7), pick(dead, number)]
        rare: list[Op] = [
            Redriven(group, letters, force=number % 3 == 0),
            Redriven(group, dead),
            Redriven(group, dead, force=True),
            Purged(group, letters[:1]),
            Committed(group, offset, *self.claim(group, number // 3)),
            Sought(group, offset, 0, *self.claim(group, number // 5)),
            Parked(group, key),
            Unparked(group, key),
            Unparked(group, key),
            Halted(group, "stop"),
            Resumed(group),
            Resumed(group),
            Resumed(group),
            Cancelled([offset, offset, (offset * 7) % (self.model.end + 2)]),
            Cancelled([m.offset for m in self.model.stored() if m.hidden][:2]),
            Cancelled([m.offset for m in self.model.stored() if m.was_delayed][-2:]),
        ]
        self.apply_ops(rare[which], hold=hold)

    @rule(group=st.integers(1, 2), number=many)
    def seek(self, group: int, number: int) -> None:
        """What a seek does is known before."""
        self.apply_ops()
        found = self.leader.queue.groups.get(group)
        if found is not None:
            offset = number % (self.model.end + 3)
            told = would_seek(found, offset)
            self.apply_ops(Sought(group, offset, 0, "", FORCED))
            assert (found.committed_offset, self.judged) == (
                told.after,
                SoughtResult(told.before, told.after, told.replayed, told.skipped),
            )

    @precondition(lambda self: self.index > 20)
    @rule(group=st.integers(1, 2), config=small, which=st.integers(0, 5))
    def change(self, group: int, config: int, which: int) -> None:
        if which == 0:
            self.apply_ops(DropGroup(group))
        elif which == 1:
            self.apply_ops(Configure(pick(QUEUES, config)))
        else:
            self.open(group, config)

    def open(self, group: int, config: int) -> None:
        self.versions += 1
        start = (self.model.end * (config % 3)) // 2
        self.apply_ops(OpenGroup(group, f"g{group}", self.versions, pick(CONFIGS, config), start))

    @precondition(lambda self: self.model.end > 6)
    @rule(number=many, careless=st.integers(0, 3))
    def trim(self, number: int, careless: int) -> None:
        """Retention: most leaders carry first what must outlive the log."""
        Count.steps += 1
        offset = self.model.log_start + number % (self.model.end - self.model.log_start + 1)
        index = max(self.leader.log_start_index, self.index - number % 5)
        needed = self.leader.queue.needed_below(offset)
        assert set(needed) == self.model.should_keep(offset)
        left = [o for o in needed if self.leader.queue.reappended.get(o, 0) < index]
        if left and careless:
            batch = encode_columns([b"v"] * len(left))
            carried = [ReappendedBatch(self.now_ms, left, batch)]
            self.apply(EntryKind.CARRIED, encode_reappended(carried))
            self.model.reappended.update(dict.fromkeys(left, self.index))
        self.apply(EntryKind.TRIM, encode_trim(Index(index), Offset(offset)))
        self.model.trim(index, offset)
        self.compare()

    @rule(how=small)
    def replicate(self, how: int) -> None:
        """A leader may look whenever it likes; any replica may come from a snapshot."""
        Count.steps += 1
        for group in self.leader.queue.groups.values():
            group.peek(3, self.now_ms)
            group.lane_heads(self.now_ms)
        if how < 4:
            snapshot = self.leader.snapshot()
            assert self.follower.snapshot() == snapshot
            self.leader, self.follower = self.follower, PartitionState()
            self.follower.restore(snapshot)
            assert self.follower.snapshot() == snapshot
            if how < 2:
                self.leader = PartitionState()
                self.leader.restore(snapshot)

    # -- checks

    def check_order(self, group: GroupModel, offsets: list[int], limit: int, lowest: int) -> None:
        """FIFO in a lane, strict across lanes, but for a share to what has waited too long; and
        nothing of a lane that is not wanted."""
        config, lanes = group.config, group.lane_orders()[: lowest + 1]
        room = min(limit, config.in_flight_max - len(group.leased()))
        expected = 0 if group.halted else max(0, min(room, sum(map(len, lanes))))
        assert len(offsets) == expected
        ready = [self.model.messages[offset] for lane in lanes for offset in lane]
        for at, offset in enumerate(offsets):
            top = next(lane for lane, found in enumerate(lanes) if found)
            served = self.model.messages[offset].lane
            assert lanes[served][0] == offset
            shared = (group.turns[lowest] + at) % config.lane_share == config.lane_share - 1
            late_ms = self.now_ms - config.lane_max_wait_ms
            lower = [o for lane in lanes[top + 1 :] for o in lane]
            if served != top:
                known = self.model.log_start
                stored = [m.stored_ms * (m.offset >= known) for m in ready if m.lane > top]
                assert shared and max(min(stored) - 1000, group.opened_ms) <= late_ms
            elif shared:
                assert all(group.pending[o].since_ms > late_ms for o in lower)
            lanes[served].pop(0)

    def compare(self) -> None:
        """Every group's messages are where the model has them."""
        queue = self.leader.queue
        assert set(queue.groups) == set(self.model.groups)
        if self.index % 3:
            return
        hidden = [m.offset for m in self.model.stored() if m.hidden]
        assert list(queue.hidden) == hidden
        assert self.leader.log_start_offset == self.model.log_start
        assert queue.reappended == self.model.reappended
        assert [queue.cancelled_count, queue.expired_count] == self.model.withdrawn
        for id_, model in self.model.groups.items():
            group = queue.groups[id_]
            assert group.committed_offset == model.committed_offset
            assert bool(group.halted) == bool(model.halted)
            dead = [(o, d.died_ms, d.attempts, d.reason, d.redrives) for o, d in model.dead.items()]
            told = [(o, d.died_ms, d.attempts, d.reason, d.redrives) for o, d in group.dead.items()]
            assert told == dead
            assert all(list(group.dead[o].history) == d.history for o, d in model.dead.items())
            assert sum(group.dead_by_reason.values()) == len(dead)
            counts = [len(lane) for lane in model.lane_orders()]
            assert group.ready_count() == sum(counts)
            assert group.ready.counts() == counts
            assert sorted(group.leases) == sorted(model.leased())
            waiting = {o: p.due_ms for o, p in model.pending.items() if p.place == "waiting"}
            assert {o: due_ms for o, (due_ms, _) in group.waiting.items()} == waiting
            assert all(group.attempts(o) == model.attempts(o) for o in model.pending)
            assert len(group.parked()) == len(model.parked)
            self.compare_standing(group, model)

    def compare_standing(self, group: GroupState, model: GroupModel) -> None:
        """How far the group has come, and for how long its oldest message waits."""
        now_ms, messages = self.model.now_ms, self.model.messages
        assert lag_count(group) == len(model.unsettled())
        assert lag_count(group) + delayed_count(group) == len(model.coming())
        oldest_ms = model.oldest_ms()
        assert oldest_ms <= lag_ms(group, now_ms) < oldest_ms + STEP_MS
        if not self.model.log_start:  # of what outlives the log it is not known to the millisecond
            found_ms = lag_ms(group, now_ms, lambda offset: messages[offset].stored_ms)
            assert found_ms == oldest_ms


def test_queue_does_what_the_model_does(capsys: pytest.CaptureFixture[str]) -> None:
    walk(QueueMachine, runs=RUNS, steps=STEPS)
    with capsys.disabled():
        print(f"\n{Count.steps} steps")
    assert Count.steps >= STEPS_LEAST
