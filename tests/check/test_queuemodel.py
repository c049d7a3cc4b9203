"""The model of a queue and the queue agree, whatever is asked of them; of what outlived the log it
names what may not come again."""

from __future__ import annotations

import random
from functools import partial

import msgspec
import pytest

from delivery.config import GroupConfig, QueueConfig
from delivery.entries import ops
from tests.check.queuedesk import Judged

VISIBILITY_MS = 400
DELAY_MS = 60_000
STEPS = 80
GROUPS_MAX = 5
NAMELESS = GroupConfig(max_attempts=2)
BY_KEY = GroupConfig(max_attempts=2, ordering="key")


@pytest.fixture
def desk() -> Judged:
    desk = Judged()
    for group in (1, 2):
        desk.begin(group, NAMELESS)
    return desk


# -- what outlives the log


def delayed_and_passed_over(desk: Judged) -> None:
    """Group 1 has committed past a message that is not due; only that outlives the log."""
    desk.store(due_ms=desk.now_ms + DELAY_MS)
    desk.store()
    desk.tell(ops.Committed(1, 2))
    desk.cut(2)


def test_what_was_passed_over_before_it_was_due_comes_after_a_seek(desk: Judged) -> None:
    delayed_and_passed_over(desk)
    desk.tell(ops.Sought(1, 0))

    desk.pass_time(DELAY_MS)

    assert desk.lease([0]) == [0]
    assert desk.broken == desk.differences() == []


def test_what_was_passed_over_does_not_come_without_a_seek(desk: Judged) -> None:
    delayed_and_passed_over(desk)

    desk.pass_time(DELAY_MS)

    assert desk.lease([0]) == []
    assert desk.lease([0], group=2) == [0]
    assert desk.broken == desk.differences() == []


@pytest.mark.parametrize("by_commit", [True, False], ids=["committed", "acked"])
def test_what_was_settled_when_it_was_due_may_not_come_after_a_seek(
    desk: Judged, by_commit: bool
) -> None:
    desk.store(due_ms=desk.now_ms + DELAY_MS)
    desk.pass_time(DELAY_MS)
    if by_commit:
        desk.tell(ops.Committed(1, 1))
    else:
        desk.settle_all(ops.ACK, desk.lease([0]))
    desk.cut(1)
    desk.tell(ops.Sought(1, 0))
    seen = int(desk.state.applied_index)
    assert desk.broken == desk.differences() == []

    again = ops.Granted(seen + 1, desk.now_ms + VISIBILITY_MS, [ops.Grant(0, 1)])
    delivered = ops.Delivered(1, "", VISIBILITY_MS, [0])
    desk.log.apply(seen + 1, desk.now_ms, seen, [delivered], [again])

    assert desk.broken == [f"G3: entry {seen + 1} g1: 0 was delivered, and is done"]


@pytest.mark.parametrize("trimmed", [True, False], ids=["trimmed", "expired"])
def test_what_was_redriven_below_a_commit_holds_its_key_until_it_is_gone(trimmed: bool) -> None:
    desk = Judged(QueueConfig(dead_retention_ms=500))
    desk.begin(1, BY_KEY)
    desk.store(key=b"a", expires_ms=None if trimmed else desk.now_ms + 1000)
    desk.settle_all(ops.REJECT, desk.lease([0]))
    desk.tell(ops.Committed(1, 1))
    desk.tell(ops.Redriven(1, [0]))
    desk.settle_all(ops.NACK, desk.lease([0]))
    desk.store(key=b"a")
    assert desk.lease([1]) == []
    desk.pass_time(1000)
    if trimmed:
        desk.cut(1)

    assert desk.lease([1]) == [1]
    assert desk.broken == desk.differences() == []


def test_a_group_that_begins_late_gets_of_what_outlived_the_log_what_was_delayed() -> None:
    desk = Judged(QueueConfig(retention_ms=DELAY_MS))
    desk.begin(1, NAMELESS)
    desk.store(due_ms=desk.now_ms + 1000)
    desk.store(due_ms=desk.now_ms + DELAY_MS)
    desk.store()
    desk.settle_all(ops.REJECT, desk.lease([2]))
    desk.pass_time(1000)
    desk.cut(3)

    desk.begin(2, NAMELESS, offset=3)
    desk.begin(3, GroupConfig(start="latest"), offset=3)
    desk.pass_time(DELAY_MS)

    assert desk.lease([0, 1, 2], group=2) == [0, 1]
    assert desk.lease([0, 1, 2], group=3) == []
    assert desk.broken == desk.differences() == []


# -- what comes again


@pytest.mark.parametrize("action", [ops.NACK, ops.RELEASE])
def test_what_is_given_back_to_the_back_comes_after_the_others(desk: Judged, action: int) -> None:
    first, second = desk.store(), desk.store()
    assert desk.lease([first]) == [first]
    receipts = [(int(desk.state.applied_index), [first])]
    desk.tell(ops.Settled(1, action, receipts, "bad", 0, to_back=True))

    assert desk.lease([second]) == [second]

    assert desk.broken == desk.differences() == []


def test_a_receive_that_comes_again_after_another_owner_is_a_new_one(desk: Judged) -> None:
    first, second = desk.store(), desk.store()
    desk.tell(ops.Delivered(1, "m", VISIBILITY_MS, [first], 7))
    desk.tell(ops.Own(1, "a", 1))
    desk.tell(ops.Own(1, "", 2))

    (result,) = desk.tell(ops.Delivered(1, "m", VISIBILITY_MS, [first, second], 7))

    assert isinstance(result, ops.Granted) and result.delivery == desk.state.applied_index
    assert [grant.offset for grant in result.grants] == [first, second]
    assert desk.broken == desk.differences() == []


# -- whatever is asked


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_asked_the_model_and_the_queue_agree(seed: int) -> None:
    walk = Walk(random.Random(seed))
    for _ in range(STEPS):
        walk.step()
        assert walk.desk.broken == walk.desk.differences() == []


class Walk:
    """Everything that may be asked of a partition's queue but to park and to halt, at random. Dead
    letters stay: a model's do."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        kept_ms = rng.choice((-1, 500, 3000))
        self.desk = Judged(QueueConfig(retention_ms=kept_ms, dead_retention_ms=-1))
        self.granted: list[tuple[int, int, list[int]]] = []
        """(group, delivery, offsets)."""
        self.asked: list[ops.Op] = []
        """What would do something else the second time."""
        for ordering in ("none", "key"):
            self.begin(ordering=ordering)

    def begin(self, *, ordering: str = "none", start: str = "earliest") -> None:
        desk, rng = self.desk, self.rng
        number = len(desk.state.queue.groups) + 1
        if number > GROUPS_MAX:
            return
        config = GroupConfig(
            max_attempts=rng.choice((0, 2, 3)),
            backoff_ms=rng.choice((0, 100)),
            ordering=ordering,
            start=start,
        )
        earliest = rng.choice((0, int(desk.state.log_start_offset)))
        desk.begin(number, config, int(desk.state.next_offset) if start == "latest" else earliest)

    def step(self) -> None:
        rng, desk = self.rng, self.desk
        number, end = rng.choice(list(desk.state.queue.groups)), int(desk.state.next_offset)
        group, offset = desk.group(number), rng.randrange(end + 2)
        request, dead = rng.randrange(1, 1 << 40), [*group.dead, 0]
        owner = group.owner
        claim = owner.member, owner.generation if owner.member else 0
        owned = ops.Own(
            number, rng.choice(("a", "b", "")), owner.generation + 1, rng.random() < 0.5
        )
        rare = (
            partial(self.tell, ops.Committed(number, offset, *claim)),
            partial(self.tell, ops.Sought(number, offset, request, *claim)),
            partial(self.tell, ops.Cancelled([offset])),
            partial(self.tell, ops.Redriven(number, [rng.choice(dead)], request=request)),
            partial(self.tell, ops.Purged(number, [rng.choice(dead)], request)),
            partial(self.tell, owned),
            self.repeat,
            partial(desk.cut, rng.randrange(desk.state.log_start_offset, end + 1)),
            partial(self.begin, start=rng.choice(("earliest", "latest"))),
        )
        usual = (self.publish, partial(self.receive, number, *claim), self.settle, self.pass_time)
        rng.choice(usual if rng.random() < 0.7 else rare)()

    def tell(self, op: ops.Op) -> ops.Result:
        if getattr(op, "request", 0):
            self.asked.append(op)
        return self.desk.tell(op)[0]

    def repeat(self) -> None:
        """A request comes again; a receive that has no answer is given what is next by then."""
        op = self.rng.choice(self.asked[-12:] or [ops.Tick()])
        if isinstance(op, ops.Delivered):
            group, known = self.desk.group(op.group), self.desk.queue.results.of(op.request)
            stands = isinstance(known, ops.Granted) and group.upholds(known)
            offsets = [] if stands else group.select(5, self.desk.now_ms)
            op = msgspec.structs.replace(op, offsets=offsets)
        self.tell(op)

    def publish(self) -> None:
        rng, now_ms = self.rng, self.desk.now_ms
        for _ in range(rng.randrange(1, 5)):
            due_ms = rng.choice((None, None, now_ms + 200, now_ms + 900, now_ms + 3000))
            expires_ms = rng.choice((None, None, None, now_ms + 1500))
            key = rng.choice((None, b"a", b"b"))
            self.desk.store(rng.randrange(5), expires_ms, due_ms=due_ms, key=key)

    def receive(self, group: int, member: str, generation: int) -> None:
        offsets = self.desk.group(group).select(self.rng.randrange(1, 8), self.desk.now_ms)
        request = self.rng.randrange(1, 1 << 40)
        asked = ops.Delivered(group, member or "m", VISIBILITY_MS, offsets, request, generation)
        result = self.tell(asked)
        if isinstance(result, ops.Granted):
            given = [grant.offset for grant in result.grants]
            self.granted = [*self.granted, (group, result.delivery, given)][-4:]

    def settle(self) -> None:
        rng = self.rng
        group, delivery, offsets = rng.choice(self.granted or [(1, 0, [0])])
        others = (ops.NACK, ops.REJECT, ops.RELEASE, ops.EXTEND)
        self.tell(
            ops.Settled(
                group,
                rng.choice((*others, ops.ACK, ops.ACK, ops.ACK)),
                [(delivery, offsets)],
                "bad",
                rng.choice((-1, 0, 150)),
                rng.random() < 0.3,
                VISIBILITY_MS,
                rng.randrange(1, 1 << 40),
            )
        )

    def pass_time(self) -> None:
        self.desk.pass_time(self.rng.choice((20, 150, 500, 1200)))
        for number, group in self.desk.state.queue.groups.items():
            overdue = group.leases.overdue(self.desk.now_ms, 1000)
            if overdue:
                self.tell(ops.Expired(number, overdue))
