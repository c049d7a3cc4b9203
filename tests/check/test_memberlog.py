"""The judge of the cluster group's log: clean where the groups are, and it names planted faults."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from coordinator.commands.codec import (
    Command,
    CreateTopic,
    DeleteTopic,
    decode_command,
    encode_command,
)
from coordinator.commands.members import Handed, HandOver, LetGo
from coordinator.groups.holdings import HANDING, OWNED, REVOKING
from goqueue.wire.types import Index, PartitionId
from tests.check.memberlog import MemberLog
from tests.unit.coordinator.groups.consumer_group import ConsumerGroup

Fault = Callable[["Judged"], None]


class Judged(ConsumerGroup):
    """A group whose every command is judged; its partitions' logs name whom they are told to."""

    def __init__(self, **settings: Any) -> None:
        self.broken: list[str] = []
        self.owners: dict[PartitionId, list[tuple[str, int]]] = {}
        self.log = MemberLog(
            lambda rule, _text: self.broken.append(rule),
            lambda _group, partition: self.owners.get(partition, []),
        )
        self.fault: Fault | None = None
        """What goes wrong with the next command."""
        super().__init__("orders", **settings)

    def do(self, command: Command) -> object:
        self.index += 1
        result = self.state.apply(
            Index(self.index), self.now_ms, decode_command(encode_command(command))
        )
        fault, self.fault = self.fault, None
        if fault is not None:
            fault(self)
        self.log.applied(command, self.state.members.by_group, lambda _group: True, self.index)
        return result

    def hand_over(self, rows: Sequence[Handed] | None = None) -> object:
        told = self.namings() if rows is None else list(rows)
        for row in told:
            held = self.membership.holdings.named(row.partition)
            if held is not None:
                self.owners.setdefault(held.partition, []).append((row.member, row.generation))
        return self.do(HandOver(self.group.id, told))

    def told(self, member: str) -> None:
        """The member asks what is its own."""
        view = self.view(member)
        assigned = [self.held(number, topic).partition for topic, number in view.assigned]
        self.log.told(self.group.id, member, view.generation, assigned)


def shared_by(*members: str) -> Judged:
    group = Judged()
    group.joined(*members)
    return group


@pytest.mark.parametrize("seed", range(30))
def test_what_a_sound_group_does_is_clean(seed: int) -> None:
    """Joins, leaves, deaths, static restarts and topics that come and go, in any order."""
    rng, group = random.Random(seed), Judged()
    acts = 0
    for number in range(120):
        members = list(group.membership.members)
        someone = rng.choice(members or [""])
        act = rng.randrange(8)
        if act <= 1 or not members:
            instance = rng.choice(("", "", "i1", "i2"))
            group.join(f"m{number}", patterns=["*"], instance_id=instance)
        elif act == 2:
            group.leave(someone)
        elif act == 3:
            group.expire(someone)
        elif act == 4:
            group.let_go(someone)
        elif act == 5:
            group.hand_over()
        elif act == 6:
            group.do(rng.choice((CreateTopic("more", {"partitions": 3}), DeleteTopic("more"))))
        else:
            group.told(someone)
        acts += 1
    group.settle()
    for member in group.membership.members:
        group.told(member)

    assert group.broken == []
    assert acts == 120
    assert group.log.moved > 20


def test_a_partition_that_its_log_never_gave_away_is_found() -> None:
    group = Judged()
    group.join("a")

    group.do(HandOver(group.group.id, group.namings()))

    assert set(group.broken) == {"G1"}


def test_a_member_that_is_told_too_soon_is_found() -> None:
    group = Judged()
    group.join("a")

    group.log.told(group.group.id, "a", 1, [group.held(0).partition])

    assert group.broken == ["G1"]


def test_a_member_that_is_told_of_an_older_generation_is_found() -> None:
    group = shared_by("a")
    since = group.held(0).generation

    group.log.told(group.group.id, "a", since - 1, [group.held(0).partition])

    assert group.broken == ["G1"]


def put(group: Judged, number: int, **changes: Any) -> None:
    held = group.held(number)
    group.membership.holdings.put(dataclasses.replace(held, **changes))


def test_a_partition_that_is_taken_from_who_was_not_asked_is_found() -> None:
    group = shared_by("a")

    group.fault = lambda judged: put(judged, 5, state=HANDING, member="b", generation=2)
    group.join("b")

    assert "G1" in group.broken


def test_a_partition_that_is_given_before_it_is_released_is_found() -> None:
    group = shared_by("a")

    group.fault = lambda judged: put(judged, 5, state=OWNED, member="b", generation=2)
    group.join("b")

    assert "G1" in group.broken


def test_what_another_member_lets_go_of_in_its_name_is_found() -> None:
    group = shared_by("a")
    group.join("b")

    def take(judged: Judged) -> None:
        put(judged, 5, state=HANDING, member="b")

    group.fault = take
    group.do(LetGo(group.group.id, "b", [(group.held(5).partition.topic.index, 5)]))

    assert group.broken == ["G1"]


def test_a_generation_that_goes_back_is_found() -> None:
    group = shared_by("a", "b")

    def go_back(judged: Judged) -> None:
        judged.membership.generation = 1

    group.fault = go_back
    group.join("c")

    assert "G1" in group.broken


def test_a_partition_whose_generation_goes_back_is_found() -> None:
    group = shared_by("a", "b")
    moved = next(n for n in range(6) if group.held(n).generation > 1)

    group.fault = lambda judged: put(judged, moved, state=HANDING, generation=1)
    group.expire(group.held(moved).member)

    assert "G1" in group.broken


def test_an_owner_that_stays_and_is_touched_is_found() -> None:
    group = shared_by("a")

    group.fault = lambda judged: put(judged, 0, state=REVOKING)
    group.join("b")

    assert group.broken == ["G4"]


def test_an_owner_that_stays_and_gets_a_new_generation_is_found() -> None:
    group = shared_by("a")

    group.fault = lambda judged: put(judged, 0, generation=2)
    group.join("b")

    assert "G4" in group.broken


def test_a_dead_member_that_is_not_fenced_is_found() -> None:
    group = shared_by("a", "b")

    group.fault = lambda judged: put(judged, 5, fence=False)
    group.expire(group.held(5).member)

    assert group.broken == ["G1"]


def test_a_join_that_moves_more_than_its_share_is_found() -> None:
    group = shared_by("a", "b")

    def shuffle(judged: Judged) -> None:
        target = judged.membership.target
        for partition, member in list(target.items()):
            target[partition] = {"a": "b", "b": "a"}.get(member, member)

    group.fault = shuffle
    group.join("c")

    assert "G4" in group.broken


def test_a_leave_that_moves_what_others_have_is_found() -> None:
    group = shared_by("a", "b", "c")

    def move(judged: Judged) -> None:
        target, holdings = judged.membership.target, judged.membership.holdings
        kept = next(p for p in target if holdings[p].member == "a" and holdings[p].state == OWNED)
        target[kept] = "b"

    group.fault = move
    group.leave("c")

    assert "G4" in group.broken


def test_a_death_that_nobody_notices_in_time_is_found() -> None:
    group = shared_by("a", "b")
    group.log.died(group.group.id, "b", until_s=group.index + 2)

    group.log.overdue(group.index + 1)
    assert group.broken == []
    group.log.overdue(group.index + 3)

    assert set(group.broken) == {"G5"}


def test_a_death_that_is_noticed_late_is_found() -> None:
    group = shared_by("a", "b")
    group.log.died(group.group.id, "b", until_s=group.index + 1)

    group.expire("b")
    group.hand_over()
    group.log.overdue(group.index + 100)

    assert set(group.broken) == {"G5"}


def test_a_death_that_is_noticed_in_time_is_fine() -> None:
    group = shared_by("a", "b")
    group.log.died(group.group.id, "b", until_s=group.index + 2)

    group.expire("b")
    group.hand_over()
    group.log.overdue(group.index + 100)

    assert group.broken == []
