"""The model of owner entries: clean where the queue is, and it names planted faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from delivery.config import GroupConfig
from delivery.entries import ops
from delivery.group.state import Owner
from tests.check.queuelog import QueueLog
from tests.check.queuestate import compare
from tests.unit.delivery.desk import Desk

Result = ops.Result
Lie = Callable[[Any], Result]


class Judged(Desk):
    """A partition with one group, whose every entry is told to the model as well."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: list[str] = []
        self.told: list[str] = []
        self.log = QueueLog(self._break)
        self.lie: Lie | None = None
        """What is said to have come of the next operation, instead of what has."""
        self.do(ops.OpenGroup(1, "group", 1, GroupConfig(max_attempts=3, visibility_ms=1000)))

    def _break(self, rule: str, text: str) -> None:
        self.broken.append(rule)
        self.told.append(text)

    def do(self, *asked: ops.Op) -> list[Result]:
        seen = int(self.state.applied_index)
        results = super().do(*asked)
        lie, self.lie = self.lie, None
        said = [lie(result) for result in results] if lie is not None else results
        self.log.apply(seen + 1, self.now_ms, seen, asked, said)
        return results

    def publish(self, count: int = 1, **columns: Any) -> list[int]:
        offsets = super().publish(count, **columns)
        rows = [(2, None, None, None, None)] * count
        self.log.records(self.state.applied_index, self.now_ms, offsets[0], rows)
        return offsets

    def own(self, member: str, generation: int, *, fence: bool = False) -> Result:
        return self.do(ops.Own(1, member, generation, fence))[0]

    def grants(self, member: str, generation: int, offsets: Sequence[int], request: int = 0) -> Any:
        want = ops.Delivered(1, member, 1000, list(offsets), request, generation)
        return self.do(want)[0]

    def acks(
        self, delivery: int, offsets: Sequence[int], member: str = "", generation: int = 0
    ) -> Any:
        op = ops.Settled(
            1, ops.ACK, [(delivery, list(offsets))], member=member, generation=generation
        )
        return self.do(op)[0]


@pytest.mark.parametrize("seed", range(15))
def test_what_a_sound_partition_does_is_clean(seed: int) -> None:
    """Owners come and go, in generations new and old; everybody receives and settles anything."""
    rng, desk = random.Random(seed), Judged()
    receipts: list[tuple[int, list[int]]] = []
    stale = 0
    for number in range(250):
        desk.now_ms += rng.choice((1, 1, 50))
        member, generation = rng.choice(("a", "b", "", "c")), rng.randrange(number // 12 + 2)
        act = rng.randrange(7)
        if act == 0:
            desk.publish(rng.randrange(1, 4))
        elif act == 1:
            desk.own(member, generation, fence=rng.random() < 0.5)
        elif act <= 3:
            owner = desk.group().owner
            if rng.random() < 0.6:
                member, generation = owner.member, generation if not owner.member else 99
                generation = 0 if not owner.member else generation
            offsets = desk.group().select(rng.randrange(1, 4), desk.now_ms)
            granted = desk.grants(member, generation, offsets, request=rng.choice((0, number + 1)))
            stale += isinstance(granted, ops.StaleResult)
            if isinstance(granted, ops.Granted) and granted.grants:
                receipts.append((granted.delivery, [grant.offset for grant in granted.grants]))
        elif act <= 5 and receipts:
            delivery, offsets = rng.choice(receipts)
            claim = rng.choice((("", 0), (member, generation), (desk.group().owner.member, 99)))
            desk.acks(delivery, offsets, *claim)
        else:
            end = int(desk.state.next_offset)
            desk.do(ops.Committed(1, rng.randrange(end + 1), member, generation))

    assert desk.told == []
    assert list(compare(desk.log, "it", desk.state.queue.groups)) == []
    assert stale > 5
    assert len(receipts) > 10


def owned() -> Judged:
    """A partition that was a's, and is b's; a has four messages of it in flight."""
    desk = Judged()
    desk.publish(8)
    desk.own("a", 1)
    desk.grants("a", 1, [0, 1, 2, 3])
    desk.own("b", 3)
    assert desk.broken == []
    return desk


def test_a_delivery_to_the_former_owner_is_found() -> None:
    desk = owned()

    desk.lie = lambda _: ops.Granted(7, desk.now_ms + 1000, [ops.Grant(4, 1)])
    desk.grants("a", 2, [4])

    assert "G2" in desk.broken


def test_a_delivery_to_who_is_no_member_is_found() -> None:
    desk = owned()

    desk.lie = lambda _: ops.Granted(7, desk.now_ms + 1000, [ops.Grant(4, 1)])
    desk.grants("", 0, [4])

    assert "G2" in desk.broken


def test_a_delivery_in_a_generation_before_the_owners_is_found() -> None:
    desk = owned()

    desk.lie = lambda _: ops.Granted(7, desk.now_ms + 1000, [ops.Grant(4, 1)])
    desk.grants("b", 2, [4])

    assert "G2" in desk.broken


def test_an_owner_that_is_refused_is_found() -> None:
    desk = owned()

    desk.lie = lambda _: ops.StaleResult(1, "b", 3)
    desk.grants("b", 5, [4])

    assert desk.broken == ["G4"]


def test_a_refusal_that_tells_of_another_owner_is_found() -> None:
    desk = owned()

    desk.lie = lambda _: ops.StaleResult(1, "c", 9)
    desk.grants("a", 2, [4])

    assert desk.broken == ["G2"]


def test_a_settle_of_the_former_owner_that_is_accepted_is_found() -> None:
    desk = owned()
    delivery = 4

    desk.lie = lambda _: ops.SettledResult([ops.Settle(ops.OK, "acked", 1)], 1, True, 0)
    desk.acks(delivery, [0])

    assert "G2" in desk.broken


def test_a_settle_in_a_stale_generation_that_is_accepted_is_found() -> None:
    """Though the receipt is the owner's own."""
    desk = owned()
    granted = desk.grants("b", 3, [4])

    desk.lie = lambda _: ops.SettledResult([ops.Settle(ops.OK, "acked", 1)], 0, False, 0)
    desk.acks(granted.delivery, [4], "b", 2)

    assert "G2" in desk.broken


def test_a_settle_of_the_owner_that_is_refused_as_stale_is_found() -> None:
    desk = owned()
    granted = desk.grants("b", 3, [4])

    desk.lie = lambda _: ops.SettledResult([ops.Settle(ops.STALE)], 0, False, 1)
    desk.acks(granted.delivery, [4])

    assert "G4" in desk.broken


def test_a_commit_of_the_former_owner_that_is_accepted_is_found() -> None:
    desk = owned()

    desk.lie = lambda _: ops.CountResult(2)
    desk.do(ops.Committed(1, 2, "a", 2))

    assert desk.broken == ["G2"]


def test_a_commit_of_the_owner_that_is_refused_is_found() -> None:
    desk = owned()

    desk.lie = lambda _: ops.StaleResult(1, "b", 3)
    desk.do(ops.Committed(1, 2, "b", 3))

    assert desk.broken == ["G4"]


@pytest.mark.parametrize(
    "lie",
    [
        ops.OwnedResult("a", 2),
        ops.OwnedResult("b", 2),
        ops.OwnedResult("b", 4),
    ],
    ids=["the older one", "the owner of an older generation", "one that never was"],
)
def test_an_older_owner_entry_that_counts_is_found(lie: ops.OwnedResult) -> None:
    desk = owned()

    desk.lie = lambda _: lie
    desk.own("a", 2)

    assert desk.broken == ["G1"]


def test_an_owner_entry_that_does_not_count_is_found() -> None:
    desk = owned()

    desk.lie = lambda _: ops.OwnedResult("b", 3)
    desk.own("c", 4)

    assert desk.broken == ["G1"]


def test_a_grant_of_a_former_owner_that_is_repeated_is_found() -> None:
    desk = Judged()
    desk.publish(2)
    desk.own("a", 1)
    granted = desk.grants("a", 1, [0], request=77)
    desk.own("b", 2)

    desk.lie = lambda _: granted
    desk.grants("a", 1, [0], request=77)

    assert "G2" in desk.broken


def test_leases_that_outlive_their_owner_are_found() -> None:
    """What was in flight of the former owner is there for the next one at once."""
    desk = owned()

    desk.lie = lambda _: ops.SettledResult([ops.Settle(ops.STALE)], 0, False, 4)
    desk.acks(4, [0])

    assert desk.broken == ["G3"]


def test_a_replica_that_names_another_owner_is_found() -> None:
    desk = owned()
    desk.group().owner = Owner("a", 1, 3)

    broken = [rule for rule, _ in compare(desk.log, "it", desk.state.queue.groups)]

    assert broken == ["G1"]
