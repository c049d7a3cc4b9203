"""Sessions and moving partitions, as the leader of the cluster group looks after them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from coordinator.commands.members import ExpireMembers, HandOver, LetGo, MemberCommand
from coordinator.groups import coordinator as group_coordinator
from coordinator.groups.coordinator import (
    AGAIN_MS,
    DRAIN_MS_MAX,
    Drain,
    GroupCoordinator,
    Naming,
    Work,
)
from tests.unit.coordinator.groups.consumer_group import ConsumerGroup

SESSION_MS = 30_000
SLOW_MS = 60_000


class Leader:
    """A leader of the cluster group that does nothing by itself."""

    def __init__(self, *members: str, lets_go: bool = True, partitions: int = 6) -> None:
        self.group = ConsumerGroup("orders", partitions=partitions)
        self.lets_go = lets_go
        self.names: dict[Naming, tuple[str, int, int]] = {}
        """Of namings that were done."""
        self.lead()
        for member in members:
            self.group.join(member, lets_go=lets_go)
            self.run()

    def lead(self) -> None:
        """Another leader, which knows the group's state and nothing else."""
        self.core = GroupCoordinator(lambda: self.group.state.members.by_group)

    @property
    def id(self) -> int:
        return self.group.group.id

    @property
    def now_ms(self) -> int:
        return self.group.now_ms

    def look(self) -> Work:
        return self.core.collect(self.now_ms)

    def wake_in_ms(self) -> int | None:
        wake_ms = self.core.next_wake_ms(self.now_ms)
        return None if wake_ms is None else wake_ms - self.now_ms

    def apply(self, command: MemberCommand) -> None:
        self.group.do(command)
        self.core.answered(command, self.now_ms, applied=True)

    def name(self, naming: Naming, ended: int = 0) -> None:
        self.core.named(naming, (naming.member, naming.generation, ended), self.now_ms)

    def do(self, work: Work) -> None:
        """Everything goes well."""
        for command in work.commands:
            self.apply(command)
        for naming in work.namings:
            self.name(naming)
        for drain in work.drains:
            self.core.drained(drain, 0, self.now_ms)

    def run(self) -> None:
        """Everything goes well until nothing is left to do; members let go at once."""
        for _ in range(20):
            for member in list(self.group.membership.members):
                self.core.heard(self.id, member, self.now_ms)
                if self.lets_go:
                    self.group.let_go(member)
            self.do(self.look())
            self.group.pass_ms(AGAIN_MS)
        assert self.group.membership.state in ("stable", "empty")


def is_idle(work: Work) -> bool:
    return not (work.commands or work.namings or work.drains)


# -- sessions


def test_who_is_not_heard_of_for_its_session_expires() -> None:
    leader = Leader("a", "b")
    leader.core.heard(leader.id, "a", leader.now_ms)
    leader.core.heard(leader.id, "b", leader.now_ms)
    leader.group.pass_ms(SESSION_MS - 1)
    leader.core.heard(leader.id, "a", leader.now_ms)

    early = leader.look()
    leader.group.pass_ms(1)
    late = leader.look()

    assert is_idle(early)
    assert late.commands == [ExpireMembers(leader.id, [("b", SESSION_MS)])]
    assert leader.core.silent_ms(leader.id, "b", leader.now_ms) == SESSION_MS


def test_a_sign_of_life_of_who_is_no_member_is_none() -> None:
    leader = Leader("a")

    assert leader.core.heard(leader.id, "a", leader.now_ms)
    assert not leader.core.heard(leader.id, "b", leader.now_ms)
    assert not leader.core.heard(leader.id + 1, "a", leader.now_ms)


def test_a_new_leader_grants_every_session_its_full_length() -> None:
    leader = Leader("a", "b")
    leader.group.pass_ms(SESSION_MS - 1)
    leader.lead()

    first = leader.look()
    leader.group.pass_ms(SESSION_MS - 1)
    second = leader.look()
    leader.group.pass_ms(1)
    third = leader.look()

    assert is_idle(first)
    assert is_idle(second)
    assert [type(command) for command in third.commands] == [ExpireMembers]


def test_who_joins_has_its_full_session_from_the_first_look() -> None:
    leader = Leader("a")
    leader.group.pass_ms(SESSION_MS)
    leader.core.heard(leader.id, "a", leader.now_ms)
    leader.group.join("b")

    work = leader.look()

    assert not [c for c in work.commands if isinstance(c, ExpireMembers)]


def test_an_expiry_is_proposed_once_and_again_where_it_came_to_nothing() -> None:
    leader = Leader("a")
    leader.group.pass_ms(SESSION_MS)
    (command,) = leader.look().commands

    meanwhile = leader.look()
    leader.core.answered(command, leader.now_ms, applied=False)
    resting = leader.look()
    leader.group.pass_ms(AGAIN_MS)
    again = leader.look()

    assert is_idle(meanwhile)
    assert is_idle(resting)
    assert [type(c) for c in again.commands] == [ExpireMembers]


def test_who_is_heard_of_in_time_for_the_second_proposal_stays() -> None:
    leader = Leader("a")
    leader.group.pass_ms(SESSION_MS)
    (command,) = leader.look().commands
    leader.core.heard(leader.id, "a", leader.now_ms)

    leader.core.answered(command, leader.now_ms, applied=False)
    leader.group.pass_ms(AGAIN_MS)

    assert is_idle(leader.look())


def test_sessions_end_each_after_its_own_time() -> None:
    leader = Leader()
    leader.group.join("a", session_timeout_ms=2000)
    leader.group.join("b", session_timeout_ms=5000)
    leader.do(leader.look())
    leader.group.pass_ms(2000)

    (command,) = [c for c in leader.look().commands if isinstance(c, ExpireMembers)]

    assert [id for id, _ in command.members] == ["a"]


# -- naming owners


def test_an_owner_is_named_once_until_the_log_has_answered() -> None:
    leader = Leader()
    leader.group.join("a")

    first, second = leader.look(), leader.look()

    assert {(n.member, n.generation, n.fence) for n in first.namings} == {("a", 1, False)}
    assert len(first.namings) == 6
    assert is_idle(second)


def test_what_logs_name_is_told_in_one_command_and_not_asked_again_meanwhile() -> None:
    leader = Leader()
    leader.group.join("a")
    for naming in leader.look().namings:
        leader.name(naming, ended=2)

    told = leader.look()
    meanwhile = leader.look()

    (command,) = told.commands
    assert isinstance(command, HandOver)
    assert {(row.member, row.generation, row.ended) for row in command.handed} == {("a", 1, 2)}
    assert len(command.handed) == 6
    assert not told.namings
    assert is_idle(meanwhile)
    leader.apply(command)
    assert leader.group.has("a") == [0, 1, 2, 3, 4, 5]
    assert is_idle(leader.look())


def test_what_a_log_named_meanwhile_is_told_next() -> None:
    leader = Leader()
    leader.group.join("a")
    namings = leader.look().namings
    leader.name(namings[0])
    (first,) = leader.look().commands
    leader.name(namings[1])

    leader.apply(first)
    (second,) = leader.look().commands

    assert isinstance(first, HandOver)
    assert isinstance(second, HandOver)
    assert [row.partition for row in first.handed] != [row.partition for row in second.handed]


def test_a_naming_whose_end_is_not_known_is_done_again_after_a_rest() -> None:
    leader = Leader(partitions=1)
    leader.group.join("a")
    (naming,) = leader.look().namings

    leader.core.named(naming, None, leader.now_ms)
    resting = leader.look()
    leader.group.pass_ms(AGAIN_MS)

    assert is_idle(resting)
    assert leader.look().namings == [naming]


def test_a_telling_that_came_to_nothing_is_done_again_after_a_rest() -> None:
    leader = Leader(partitions=1)
    leader.group.join("a")
    leader.do(leader.look())
    (command,) = leader.look().commands

    leader.core.answered(command, leader.now_ms, applied=False)
    resting = leader.look()
    leader.group.pass_ms(AGAIN_MS)

    assert is_idle(resting)
    assert leader.look().commands == [command]


def test_a_new_leader_names_again_what_is_not_known_to_be_named() -> None:
    leader = Leader(partitions=1)
    leader.group.join("a")
    (naming,) = leader.look().namings
    leader.name(naming)

    leader.lead()

    assert leader.look().namings == [naming]


def test_what_was_redirected_is_named_anew_though_the_first_naming_is_under_way() -> None:
    leader = Leader("a", partitions=1)
    leader.group.join("b")
    leader.group.leave("a")
    (old,) = leader.look().namings

    leader.group.leave("b")
    (new,) = leader.look().namings
    leader.name(new)
    leader.name(old)
    (command,) = leader.look().commands

    assert (old.member, new.member) == ("b", "")
    assert new.generation > old.generation
    assert isinstance(command, HandOver)
    assert [row.member for row in command.handed] == [""]


def test_an_answer_that_nobody_waits_for_is_not_told() -> None:
    leader = Leader(partitions=1)
    leader.group.join("a")
    (naming,) = leader.look().namings
    leader.group.leave("a")
    (other,) = leader.look().namings

    leader.name(naming)

    assert leader.look().commands == []
    assert other.generation > naming.generation


def test_where_a_log_names_somebody_newer_the_group_is_told_and_names_anew() -> None:
    leader = Leader(partitions=1)
    leader.group.join("a")
    (naming,) = leader.look().namings
    leader.core.named(naming, ("stranger", 40, 0), leader.now_ms)
    leader.do(leader.look())

    (again,) = leader.look().namings

    assert (again.member, again.generation) == ("a", 41)


def test_many_partitions_are_told_in_several_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_coordinator, "ROWS_MAX", 4)
    leader = Leader("a", "b")
    leader.group.pass_ms(SLOW_MS)
    leader.group.leave("b")
    leader.group.leave("a")
    for naming in leader.look().namings:
        leader.name(naming)

    sizes = []
    for _ in range(2):
        (command,) = leader.look().commands
        assert isinstance(command, HandOver)
        sizes.append(len(command.handed))
        leader.apply(command)

    assert sizes == [4, 2]
    assert leader.group.membership.state == "empty"


# -- taking back


def test_a_member_of_ours_is_left_to_let_go_until_its_time_is_over() -> None:
    leader = Leader("a")
    leader.group.join("b")
    asked_ms = leader.now_ms

    first = leader.look()
    leader.group.pass_ms(SLOW_MS - (leader.now_ms - asked_ms) - 1)
    for member in ("a", "b"):
        leader.core.heard(leader.id, member, leader.now_ms)
    early = leader.look()
    leader.group.pass_ms(1)
    late = leader.look()

    assert is_idle(first)
    assert is_idle(early)
    (command,) = late.commands
    assert isinstance(command, LetGo)
    assert (command.member, command.fence, len(command.partitions)) == ("a", True, 3)


def test_the_others_are_asked_how_much_they_have_in_flight() -> None:
    leader = Leader("a", lets_go=False)
    leader.group.join("b", lets_go=False)

    drains = leader.look().drains

    assert {drain.member for drain in drains} == {"a"}
    assert [drain.partition.partition for drain in drains] == [3, 4, 5]
    assert is_idle(leader.look())


def test_who_has_nothing_in_flight_has_let_go() -> None:
    leader = Leader("a", lets_go=False)
    leader.group.join("b", lets_go=False)
    drains = leader.look().drains

    leader.core.drained(drains[0], 0, leader.now_ms)
    leader.core.drained(drains[1], 4, leader.now_ms)
    leader.core.drained(drains[2], None, leader.now_ms)

    work = leader.look()
    (command,) = work.commands
    assert isinstance(command, LetGo)
    assert (command.partitions, command.fence) == (
        [(drains[0].partition.topic.index, drains[0].partition.partition)],
        False,
    )
    assert work.drains == []
    leader.group.pass_ms(AGAIN_MS)
    assert leader.look().drains == drains[1:]


def test_a_receipt_counts_what_ended_also_where_its_partition_was_redirected_on_its_way() -> None:
    leader = Leader("a", partitions=1)
    leader.group.join("b")
    leader.group.join("c")
    leader.group.expire("a")
    (to_b,) = leader.look().namings
    leader.name(to_b, ended=5)

    leader.group.leave("b")
    (to_c,) = leader.look().namings
    assert leader.look().commands == []
    assert (leader.wake_in_ms() or 0) > AGAIN_MS
    leader.name(to_c)
    leader.do(leader.look())

    (move,) = leader.group.receipts[-1].moves
    assert (move.former, move.member, move.in_flight, move.fenced) == ("a", "c", 5, True)
    assert not leader.core._handed.get(leader.id)


def test_who_works_on_for_long_is_asked_about_more_and_more_seldom() -> None:
    """A member that keeps a message of each of its partitions costs their leaders little."""
    leader = Leader("a", lets_go=False)
    leader.group.join("b", lets_go=False)
    began_ms = leader.now_ms
    asked_ms = []

    while leader.now_ms < began_ms + SLOW_MS:
        for drain in leader.look().drains[:1]:
            asked_ms.append(leader.now_ms - began_ms)
            leader.core.drained(drain, 1, leader.now_ms)
        for member in ("a", "b"):
            leader.core.heard(leader.id, member, leader.now_ms)
        leader.group.pass_ms(AGAIN_MS)

    pauses = [later - earlier for earlier, later in pairwise(asked_ms)]
    assert pauses[0] == AGAIN_MS
    assert pauses == sorted(pauses)
    assert max(pauses) <= DRAIN_MS_MAX
    assert len(pauses) < SLOW_MS / DRAIN_MS_MAX + 30


def test_an_answer_of_an_earlier_revocation_lets_nothing_go() -> None:
    """Called off, the member has received again: what is in flight is asked anew."""
    leader = Leader("a", lets_go=False)
    leader.group.join("b", lets_go=False)
    old = leader.look().drains
    leader.group.leave("b")
    leader.group.join("c", lets_go=False)

    for drain in old:
        leader.core.drained(drain, 0, leader.now_ms)
    work = leader.look()

    assert work.commands == []
    assert [drain.partition for drain in work.drains] == [drain.partition for drain in old]
    assert work.drains != old


def test_who_was_drained_and_called_off_between_two_looks_keeps_what_it_has() -> None:
    leader = Leader("a", lets_go=False)
    leader.group.join("b", lets_go=False)
    for drain in leader.look().drains:
        leader.core.drained(drain, 0, leader.now_ms)
    leader.group.leave("b")

    work = leader.look()

    assert not [command for command in work.commands if isinstance(command, LetGo)]


def test_letting_go_on_somebodys_behalf_is_repeated_where_it_came_to_nothing() -> None:
    leader = Leader("a", lets_go=False)
    leader.group.join("b", lets_go=False)
    leader.do(leader.look())
    (command,) = leader.look().commands

    leader.core.answered(command, leader.now_ms, applied=False)
    resting = leader.look()
    leader.group.pass_ms(AGAIN_MS)
    (again,) = leader.look().commands

    assert is_idle(resting)
    assert isinstance(again, LetGo)
    assert len(again.partitions) == 3


def test_a_fencing_that_came_too_early_is_not_repeated_at_once() -> None:
    """As where the entry's clock is behind the one that was looked at."""
    leader = Leader("a")
    leader.group.join("b")
    ahead_ms = leader.now_ms + SLOW_MS
    for member in ("a", "b"):
        leader.core.heard(leader.id, member, ahead_ms)
    (early,) = leader.core.collect(ahead_ms).commands
    leader.group.do(early)
    leader.core.answered(early, ahead_ms, applied=True)

    at_once = leader.core.collect(ahead_ms)
    later = leader.core.collect(ahead_ms + AGAIN_MS)

    assert leader.group.revoked("a") == [3, 4, 5]
    assert is_idle(at_once)
    assert later.commands == [early]


# -- waking


def test_it_sleeps_until_the_first_session_ends() -> None:
    leader = Leader("a")
    leader.look()
    leader.core.heard(leader.id, "a", leader.now_ms)

    assert leader.wake_in_ms() == SESSION_MS


def test_without_members_it_sleeps_until_something_happens() -> None:
    leader = Leader()

    assert leader.wake_in_ms() is None


def test_what_is_under_way_wakes_nobody() -> None:
    leader = Leader("a", lets_go=False, partitions=2)
    leader.group.join("b", lets_go=False)
    (drain,) = leader.look().drains
    for member in ("a", "b"):
        leader.core.heard(leader.id, member, leader.now_ms)
    assert leader.wake_in_ms() == SESSION_MS

    leader.core.drained(drain, 0, leader.now_ms)
    assert leader.wake_in_ms() == 0
    (command,) = leader.look().commands
    assert (leader.wake_in_ms() or 0) > AGAIN_MS

    leader.apply(command)
    assert leader.wake_in_ms() == 0
    (naming,) = leader.look().namings
    assert (leader.wake_in_ms() or 0) > AGAIN_MS

    leader.name(naming)
    assert leader.wake_in_ms() == 0
    (told,) = leader.look().commands
    assert (leader.wake_in_ms() or 0) > AGAIN_MS
    leader.apply(told)
    assert (leader.wake_in_ms() or 0) > AGAIN_MS


def test_what_failed_wakes_after_its_rest_and_never_at_once() -> None:
    leader = Leader("a", partitions=1)
    leader.group.pass_ms(SESSION_MS)
    (command,) = leader.look().commands

    assert leader.wake_in_ms() is None
    leader.core.answered(command, leader.now_ms, applied=False)

    assert leader.wake_in_ms() == AGAIN_MS
    leader.group.pass_ms(AGAIN_MS)
    assert leader.wake_in_ms() == 0


def test_after_every_look_there_is_nothing_to_do_at_once() -> None:
    """Else its owner would spin."""
    leader = Leader("a", "b", lets_go=False)
    leader.group.join("c", lets_go=False)
    leader.group.leave("b")

    for failing in (True, False) * 6:
        work = leader.look()
        assert leader.wake_in_ms() != 0
        if failing:
            for command in work.commands:
                leader.core.answered(command, leader.now_ms, applied=False)
            for naming in work.namings:
                leader.core.named(naming, None, leader.now_ms)
            for drain in work.drains:
                leader.core.drained(drain, None, leader.now_ms)
            assert leader.wake_in_ms() != 0
        else:
            leader.do(work)
        leader.group.pass_ms(AGAIN_MS)
        for member in leader.group.membership.members:
            leader.core.heard(leader.id, member, leader.now_ms)
    assert leader.group.membership.state == "stable"


# -- what is remembered


def test_nothing_is_remembered_of_members_and_groups_that_are_gone() -> None:
    leader = Leader("a", "b", lets_go=False)
    leader.group.join("c", lets_go=False)
    work = leader.look()
    leader.do(work)
    leader.group.leave("a")
    leader.group.leave("b")
    leader.group.leave("c")
    leader.run()

    core = leader.core
    assert core._heard_ms == {leader.id: {}}
    assert not core._busy
    assert not core._drained
    assert core._handed == {}
    leader.group.state.members.by_group.clear()
    leader.look()
    assert core._heard_ms == {}


def test_what_rests_is_bounded() -> None:
    leader = Leader("a")
    for number in range(group_coordinator.RESTING_MAX + 1):
        command = ExpireMembers(leader.id, [(f"x{number}", 1)])
        leader.core.answered(command, leader.now_ms, applied=False)
    leader.group.pass_ms(AGAIN_MS)

    leader.look()

    assert len(leader.core._again_ms) <= group_coordinator.RESTING_MAX


def test_a_drain_names_its_revocation() -> None:
    leader = Leader("a", lets_go=False, partitions=2)
    leader.group.join("b", lets_go=False)
    asked_ms = leader.now_ms

    partition = leader.group.held(1).partition
    assert leader.look().drains == [Drain(leader.id, partition, "a", asked_ms)]
