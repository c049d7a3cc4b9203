"""Members of a group and their partitions: only what must move moves, and it has one owner."""

from __future__ import annotations

from typing import cast

import pytest

from coordinator.commands.codec import CreateTopic, DeleteTopic
from coordinator.commands.members import Handed, HandOver, JoinGroup, LetGo, MemberResult
from coordinator.commands.queue import DeleteGroup, PutGroup
from coordinator.errors import BadConfig, ClusterFull
from coordinator.groups import membership, memberships
from coordinator.groups.holdings import HANDING, OWNED, REVOKING, short
from coordinator.groups.rebalances import EXPIRY, JOIN, LEAVE, SUBSCRIPTION, TOPIC
from goqueue.wire.errors import GroupActive, UnknownGroup, UnknownMember, UnknownTopic
from tests.unit.coordinator.groups.consumer_group import NAME, ConsumerGroup

ALL = [0, 1, 2, 3, 4, 5]


def join_of(group: ConsumerGroup, member: str, **more: object) -> JoinGroup:
    fields: dict[str, object] = {"topics": ["orders"], **more}
    return JoinGroup(NAME, group.group.id, member, **fields)  # type: ignore[arg-type]


# -- joining


def test_the_first_member_gets_everything_once_the_logs_name_it() -> None:
    group = ConsumerGroup("orders")

    result = group.join("a")
    before = group.has("a")
    group.hand_over()

    assert result == MemberResult("a", 1)
    assert before == []
    assert group.has("a") == ALL
    assert group.membership.state == "stable"


def test_a_join_asks_only_for_what_moves_and_the_rest_is_never_touched() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")
    before = group.generations()

    group.join("b")

    assert group.has("a") == [0, 1, 2]
    assert group.revoked("a") == [3, 4, 5]
    assert group.has("b") == []
    group.settle()
    after = group.generations()
    assert {p for p in before if before[p] != after[p]} == {("orders", p) for p in (3, 4, 5)}
    assert (group.has("a"), group.has("b")) == ([0, 1, 2], [3, 4, 5])


def test_a_partition_is_named_to_the_next_only_when_its_owner_has_let_go() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")
    group.join("b")

    group.let_go("a", 4)

    assert group.held(4).state == HANDING
    assert group.held(3).state == REVOKING
    assert (group.revoked("a"), group.has("b")) == ([3, 5], [])
    group.hand_over()
    assert group.has("b") == [4]


def test_a_join_that_is_repeated_changes_nothing() -> None:
    group = ConsumerGroup("orders")
    group.joined("a", "b")
    before = group.membership.dump()

    again = group.join("a")

    assert again == MemberResult("a", group.membership.generation)
    assert group.membership.dump() == before


def test_other_timeouts_are_no_rebalance() -> None:
    group = ConsumerGroup("orders")
    group.joined("a", "b")
    receipts = len(group.receipts)

    group.join("a", session_timeout_ms=5000)

    assert group.membership.members["a"].session_timeout_ms == 5000
    assert len(group.receipts) == receipts


def test_timeouts_that_are_not_given_are_the_groups() -> None:
    group = ConsumerGroup("orders", session_timeout_ms=7000, rebalance_timeout_ms=9000)

    group.join("a")

    member = group.membership.members["a"]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (7000, 9000)


def test_another_subscription_gives_up_one_topic_and_gets_another() -> None:
    group = ConsumerGroup("orders", "bills", partitions=2)
    group.joined("a")

    group.join("a", "bills")

    assert group.view("a").revoking == [("orders", 0), ("orders", 1)]
    group.settle()
    assert group.view("a").assigned == [("bills", 0), ("bills", 1)]
    assert group.receipts[-1].cause == SUBSCRIPTION
    assert all(held.topic == "bills" for held in group.membership.holdings.values())


def test_members_of_two_topics_share_both() -> None:
    group = ConsumerGroup("orders", "bills", partitions=3)
    group.join("a", "orders", "bills")
    group.settle()
    group.join("b", "bills")
    group.settle()

    assert group.view("a").assigned == [("orders", 0), ("orders", 1), ("orders", 2)]
    assert group.view("b").assigned == [("bills", 0), ("bills", 1), ("bills", 2)]


# -- letting go


def test_what_was_not_asked_for_can_not_be_let_go() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")
    group.join("b")
    index = group.state.topics["orders"].id.index

    group.do(LetGo(group.group.id, "a", [(index, 0), (index, 99), (7, 3)]))
    group.do(LetGo(group.group.id, "b", [(index, 3)]))

    assert (group.has("a"), group.revoked("a")) == ([0, 1, 2], [3, 4, 5])


def test_letting_go_twice_is_letting_go_once() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")
    group.join("b")
    index = group.state.topics["orders"].id.index
    command = LetGo(group.group.id, "a", [(index, 3), (index, 3)])
    group.do(command)
    group.hand_over()
    before = group.membership.dump()

    group.do(command)

    assert group.membership.dump() == before


def test_a_revocation_that_is_called_off_leaves_the_partition_where_it_was() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")
    before = group.generations()
    group.join("b")

    group.leave("b")

    assert (group.has("a"), group.revoked("a")) == (ALL, [])
    assert group.generations() == before
    assert group.membership.state == "stable"
    assert [r.ended_ms > 0 for r in group.receipts] == [True] * 3


def test_what_was_called_off_can_not_be_let_go_late() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")
    group.join("b")
    index = group.state.topics["orders"].id.index
    late = LetGo(group.group.id, "a", [(index, 3), (index, 4), (index, 5)])
    group.leave("b")

    group.do(late)

    assert group.has("a") == ALL


def test_a_partition_that_is_on_its_way_is_redirected_in_a_newer_generation() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")
    group.join("b")
    group.let_go("a", 3)
    first = group.held(3)

    group.leave("b")

    again = group.held(3)
    assert (first.member, again.member) == ("b", "a")
    assert again.state == HANDING
    assert again.generation > first.generation
    assert (again.former, again.since_ms) == (first.former, first.since_ms)


def test_a_naming_that_was_overtaken_is_no_arrival() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")
    group.join("b")
    group.let_go("a")
    late = group.namings()
    group.leave("b")

    group.hand_over(late)

    assert group.held(3).state == HANDING
    group.hand_over()
    assert group.has("a") == ALL


def test_an_arrival_that_is_told_twice_counts_once() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")
    group.join("b")
    group.let_go("a")
    rows = group.namings()
    group.hand_over(rows)
    moved = group.membership.rebalances.totals.moved

    group.hand_over(rows)

    assert group.membership.rebalances.totals.moved == moved


def test_where_a_log_names_somebody_newer_it_is_named_anew_in_a_generation_beyond() -> None:
    """As after a loss of the cluster group's newest state."""
    group = ConsumerGroup("orders", partitions=1)
    group.join("a")
    (row,) = group.namings()

    group.hand_over([Handed(row.partition, "stranger", 40, 2)])

    held = group.held(0)
    assert (held.state, held.member, held.generation) == (HANDING, "a", 41)
    group.hand_over()
    assert group.has("a") == [0]
    assert group.membership.generation == 41


def test_who_is_fenced_for_being_slow_loses_only_what_it_was_asked_for() -> None:
    group = ConsumerGroup("orders", rebalance_timeout_ms=1000)
    group.joined("a")
    group.join("b")
    group.pass_ms(1000)

    group.let_go("a", fence=True)

    assert group.held(3).fence
    group.hand_over()
    assert (group.has("a"), group.has("b")) == ([0, 1, 2], [3, 4, 5])
    assert group.membership.rebalances.totals.fenced == 3


def test_nobody_is_fenced_before_its_time_is_over() -> None:
    """A fencing that comes late meets a member that was asked anew."""
    group = ConsumerGroup("orders", rebalance_timeout_ms=60_000)
    group.joined("a")
    group.join("b")
    group.pass_ms(60_000)
    group.leave("b")
    group.join("c")

    group.let_go("a", fence=True)

    assert group.revoked("a") == [3, 4, 5]


def test_the_deadline_is_that_of_the_first_asking() -> None:
    group = ConsumerGroup("orders", rebalance_timeout_ms=5000)
    group.joined("a")
    group.join("b")
    asked_ms = group.now_ms
    group.pass_ms(500)

    group.join("c")

    assert group.view("a").deadline_ms == asked_ms + 5000


# -- going


def test_what_a_leaver_had_goes_to_the_others_without_waiting_for_it() -> None:
    group = ConsumerGroup("orders")
    group.joined("a", "b", "c")
    untouched = group.has("a"), group.has("b")

    group.leave("c")

    assert (group.has("a"), group.has("b")) == untouched
    assert group.membership.state == "rebalancing"
    assert not any(held.fence for held in group.membership.moving())
    group.settle()
    assert sorted(group.has("a") + group.has("b")) == ALL


def test_what_a_dead_member_had_is_fenced() -> None:
    group = ConsumerGroup("orders")
    group.joined("a", "b")

    group.expire("b", silent_ms=30_000)

    moving = list(group.membership.moving())
    assert [held.fence for held in moving] == [True] * 3
    assert {held.former for held in moving} == {"b"}
    group.settle()
    assert group.has("a") == ALL
    move = group.receipts[-1].moves[0]
    assert (move.former, move.member, move.fenced) == ("b", "a", True)
    assert move.pause_ms >= 30_000


def test_who_is_gone_expires_only_once() -> None:
    group = ConsumerGroup("orders")
    group.joined("a", "b")

    group.expire("b", "b", "nobody")
    receipts = len(group.receipts)
    group.expire("b")

    assert len(group.receipts) == receipts
    assert group.receipts[-1].members == ["b"]


def test_several_expire_in_one_rebalance() -> None:
    group = ConsumerGroup("orders")
    group.joined("a", "b", "c")
    receipts = len(group.receipts)

    group.expire("b", "c")

    assert len(group.receipts) == receipts + 1
    group.settle()
    assert group.has("a") == ALL


def test_who_dies_while_it_is_asked_lets_go_by_dying() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")
    group.join("b")
    asked_ms = group.held(3).since_ms

    group.expire("a", silent_ms=10)

    held = group.held(3)
    assert (held.state, held.member, held.former, held.fence) == (HANDING, "b", "a", True)
    assert held.since_ms == asked_ms
    group.settle()
    assert group.has("b") == ALL


def test_the_fence_of_a_dead_owner_outlives_who_was_to_get_its_partition() -> None:
    group = ConsumerGroup("orders")
    group.joined("a", "b")
    group.join("c")
    group.expire("b")

    group.leave("c")

    held = group.held(3)
    assert (held.member, held.former, held.fence) == ("a", "b", True)


def test_the_last_one_leaves_partitions_that_their_logs_give_to_nobody() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")

    group.leave("a")

    assert group.membership.state == "rebalancing"
    assert {(row.member, row.generation) for row in group.namings()} == {("", 2)}
    group.hand_over()
    assert group.membership.state == "empty"
    assert not group.membership.holdings


def test_a_member_that_is_gone_is_unknown() -> None:
    group = ConsumerGroup("orders")
    group.joined("a", "b")
    group.leave("b")

    group.refuses(LetGo(group.group.id, "b", []), UnknownMember)
    assert isinstance(group.leave("b"), UnknownMember)
    with pytest.raises(UnknownMember):
        group.view("b")


def test_generations_outlast_all_members() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")
    before = max(group.generations().values())
    group.leave("a")
    group.settle()

    group.joined("b")

    assert min(group.generations().values()) > before


# -- static members


def test_a_static_member_that_restarts_has_the_same_and_nobody_notices() -> None:
    group = ConsumerGroup("orders")
    group.join("a1", instance_id="a")
    group.settle()
    group.joined("b")
    had, others, receipts = group.has("a1"), group.generations(), len(group.receipts)
    untouched = {("orders", p): others["orders", p] for p in group.has("b")}

    group.join("a2", instance_id="a")
    group.settle()

    assert group.has("a2") == had
    assert len(group.receipts) == receipts
    assert untouched.items() <= group.generations().items()
    assert group.membership.leader == "a2"


def test_a_restarted_static_member_is_fenced_in_the_logs_from_its_predecessor() -> None:
    group = ConsumerGroup("orders")
    group.join("a1", instance_id="a")
    group.settle()
    before = group.membership.generation

    group.join("a2", instance_id="a")

    moving = list(group.membership.moving())
    assert {(h.member, h.former, h.fence) for h in moving} == {("a2", "a1", True)}
    assert all(held.generation > before for held in moving)


def test_who_was_replaced_is_told_so_and_can_not_come_back_by_a_late_join() -> None:
    """Both would take each other's place for ever."""
    group = ConsumerGroup("orders")
    for number in range(4):
        group.join(f"a{number}", instance_id="a")
        group.settle()

    for number in range(3):
        error = group.refuses(join_of(group, f"a{number}", instance_id="a"), UnknownMember)
        assert error.data["replaced"] is True
    assert list(group.membership.members) == ["a3"]
    error = group.refuses(LetGo(group.group.id, "stranger", []), UnknownMember)
    assert error.data["replaced"] is False


def test_a_static_member_that_restarts_while_it_is_asked_lets_go_by_it() -> None:
    group = ConsumerGroup("orders")
    group.join("a1", instance_id="a")
    group.settle()
    group.join("b")

    group.join("a2", instance_id="a")

    assert {(h.partition.partition, h.member) for h in group.membership.moving()} == {
        *((p, "a2") for p in (0, 1, 2)),
        *((p, "b") for p in (3, 4, 5)),
    }
    group.settle()
    assert (group.has("a2"), group.has("b")) == ([0, 1, 2], [3, 4, 5])


def test_a_static_member_that_subscribes_to_something_else_is_a_rebalance() -> None:
    group = ConsumerGroup("orders", "bills", partitions=2)
    group.join("a1", instance_id="a")
    group.settle()

    group.join("a2", "bills", instance_id="a")
    group.settle()

    assert group.receipts[-1].cause == SUBSCRIPTION
    assert group.view("a2").assigned == [("bills", 0), ("bills", 1)]


def test_a_member_that_takes_anothers_instance_id_shares_what_both_had() -> None:
    group = ConsumerGroup("orders")
    group.join("a", instance_id="a")
    group.settle()
    group.joined("b", "c")

    group.join("b", instance_id="a")
    group.settle()

    assert list(group.membership.members) == ["b", "c"]
    assert sorted(group.has("b") + group.has("c")) == ALL
    assert len(group.has("b")) == 3


# -- topics


def test_a_new_topic_goes_to_those_whose_pattern_it_matches() -> None:
    group = ConsumerGroup("orders", partitions=2)
    group.join("a", patterns=["bill*"])
    group.joined("b")

    group.create("bills", 2)
    group.create("other", 2)
    group.settle()

    assert group.view("a").assigned == [("bills", 0), ("bills", 1)]
    assert group.view("b").assigned == [("orders", 0), ("orders", 1)]
    assert [r.cause for r in group.receipts] == [JOIN, JOIN, TOPIC]


@pytest.mark.parametrize("state", [OWNED, REVOKING, HANDING])
def test_the_partitions_of_a_deleted_topic_are_nobodys(state: str) -> None:
    group = ConsumerGroup("orders", "bills", partitions=2)
    group.join("a", "orders", "bills")
    if state != HANDING:
        group.settle()
    if state == REVOKING:
        group.join("a", "bills")

    group.do(DeleteTopic("orders"))

    assert {held.topic for held in group.membership.holdings.values()} == {"bills"}
    group.settle()
    assert group.view("a").assigned == [("bills", 0), ("bills", 1)]
    assert all(not r.is_running for r in group.receipts)


def test_a_topic_that_is_made_anew_is_another_one() -> None:
    group = ConsumerGroup("orders", partitions=2)
    group.joined("a")
    old = group.state.topics["orders"].id

    group.do(DeleteTopic("orders"))
    gone = group.has("a")
    group.create("orders", 1)
    group.settle()

    assert (gone, group.has("a")) == ([], [0])
    assert group.held(0).partition.topic != old


def test_topics_of_others_are_no_rebalance_also_after_a_restart() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")
    receipts = len(group.receipts)

    group.create("b1")
    group.restart()
    group.create("b2")
    group.do(DeleteTopic("b1"))

    assert len(group.receipts) == receipts


def test_nobody_subscribes_to_a_topic_that_is_not_there() -> None:
    group = ConsumerGroup("orders")

    group.refuses(join_of(group, "a", topics=["orders", "nothing"]), UnknownTopic)
    assert isinstance(group.join("a", patterns=["nothing*"]), MemberResult)
    assert group.has("a") == []


# -- shared groups


def test_every_member_of_a_shared_group_has_every_partition() -> None:
    group = ConsumerGroup("orders", mode="shared")
    group.join("a")
    group.join("b")

    assert (group.has("a"), group.has("b")) == (ALL, ALL)
    assert not group.membership.holdings
    assert group.membership.state == "stable"


def test_a_shared_group_learns_of_new_topics() -> None:
    group = ConsumerGroup("orders", mode="shared", partitions=1)
    group.join("a", patterns=["*"])
    before = group.view("a").revision

    group.create("bills", 1)

    assert group.view("a").assigned == [("bills", 0), ("orders", 0)]
    assert group.view("a").revision != before


def test_the_mode_stays_while_there_are_members() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")

    group.refuses(PutGroup(NAME, {"mode": "shared"}), GroupActive)
    group.leave("a")
    group.do(PutGroup(NAME, {"mode": "shared"}))
    group.join("b")

    assert group.has("b") == ALL
    assert {row.member for row in group.namings()} == {""}
    group.hand_over()
    assert not group.membership.holdings


# -- the whole group


def test_a_group_with_members_is_deleted_by_force_only() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")

    group.refuses(DeleteGroup(NAME), GroupActive)
    old = group.group
    group.do(DeleteGroup(NAME, force=True))

    assert old.id not in group.state.members.by_group
    group.refuses(JoinGroup(NAME, old.id, "a", topics=["orders"]), UnknownGroup)


def test_a_group_of_the_same_name_begins_without_members() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")
    group.do(DeleteGroup(NAME, force=True))
    group.do(PutGroup(NAME))

    assert group.membership.state == "empty"
    assert group.membership.generation == 0


# -- receipts


def test_a_receipt_tells_what_moved_and_for_how_long_it_paused() -> None:
    group = ConsumerGroup("orders")
    group.joined("a")
    group.join("b")
    asked_ms = group.now_ms
    group.pass_ms(200)
    group.let_go("a")
    group.pass_ms(50)
    rows = [Handed(row.partition, row.member, row.generation, 4) for row in group.namings()]
    group.hand_over(rows)

    receipt = group.receipts[-1]
    assert (receipt.cause, receipt.members) == (JOIN, ["b"])
    assert (receipt.started_ms, receipt.ended_ms) == (asked_ms, group.now_ms)
    assert [(m.topic, m.partition, m.former, m.member) for m in receipt.moves] == [
        ("orders", p, "a", "b") for p in (3, 4, 5)
    ]
    assert {(m.pause_ms, m.in_flight) for m in receipt.moves} == {(group.now_ms - asked_ms, 4)}
    totals = group.membership.rebalances.totals
    assert totals.by_cause == {JOIN: 2}
    assert totals.pause_ms_max == group.now_ms - asked_ms


def test_an_unrelated_rebalance_does_not_take_over_what_is_moving() -> None:
    group = ConsumerGroup("orders", partitions=12)
    group.joined("a", "b", "c")
    group.join("d")
    joined = group.receipts[-1]
    moving = {held.partition for held in group.membership.moving()}

    group.join("b", session_timeout_ms=2000)
    group.create("other")
    group.join("e", patterns=["other"])

    ours = [held for held in group.membership.moving() if held.partition in moving]
    assert {held.rebalance for held in ours} == {joined.id}
    group.settle()
    assert joined.moved == 3


def test_receipts_and_their_moves_are_bounded_and_totals_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coordinator.groups.rebalances.MOVES_MAX", 4)
    monkeypatch.setattr("coordinator.groups.rebalances.MOVES_TOTAL_MAX", 10)
    group = ConsumerGroup("orders")

    for number in range(60):
        group.joined(f"m{number}")
        group.leave(f"m{number}")
        group.settle()

    assert len(group.receipts) == 100
    assert group.receipts[-1].moved == 6
    assert len(group.receipts[-1].moves) == 4
    assert sum(len(receipt.moves) for receipt in group.receipts) <= 10
    assert group.membership.rebalances.totals.by_cause == {JOIN: 60, LEAVE: 60}
    assert group.membership.rebalances.totals.moved == 60 * 2 * 6
    group.restart()
    group.joined("z")
    assert sum(len(receipt.moves) for receipt in group.receipts) <= 10


def test_moves_of_all_groups_are_bounded_and_the_newest_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memberships, "MOVES_ALL_MAX", 20)
    group = ConsumerGroup("orders")
    group.joined("a", "b")
    for name in ("two", "three"):
        group.do(PutGroup(name))
        id = group.state.groups[name].id
        group.do(JoinGroup(name, id, "a", topics=["orders"]))
        moving = list(group.state.members.by_group[id].moving())
        rows = [Handed(short(held.partition), held.member, held.generation) for held in moving]
        group.do(HandOver(id, rows))

    listed = {
        name: sum(len(receipt.moves) for receipt in members.rebalances.known)
        for name, found in group.state.groups.items()
        for members in [group.state.members.of(found)]
    }
    assert listed == {NAME: 0, "two": 6, "three": 6}
    assert [receipt.moved for receipt in group.receipts] == [6, 3]
    group.restart()


def test_who_caused_a_rebalance_is_listed_up_to_a_bound() -> None:
    group = ConsumerGroup("orders")
    names = [f"m{number}" for number in range(120)]
    for name in names:
        group.join(name)

    group.expire(*names)

    assert group.receipts[-1].cause == EXPIRY
    assert group.receipts[-1].members == names[:100]


# -- bounds


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"topics": []}, "topics"),
        ({"topics": ["orders"] * 101}, "topics"),
        ({"patterns": ["*"] * 11}, "patterns"),
        ({"patterns": [""]}, "patterns"),
        ({"patterns": ["x" * 250]}, "patterns"),
        ({"patterns": ["(a|a)*\\1"]}, "patterns"),
        ({"patterns": ["a\n"]}, "patterns"),
        ({"client_id": "x" * 257}, "client_id"),
        ({"instance_id": "x" * 257}, "instance_id"),
        ({"host": "x" * 257}, "host"),
        ({"session_timeout_ms": 999}, "session_timeout_ms"),
        ({"rebalance_timeout_ms": 3_600_001}, "rebalance_timeout_ms"),
    ],
)
def test_what_a_client_asks_for_is_bounded(fields: dict[str, object], problem: str) -> None:
    group = ConsumerGroup("orders")

    error = group.refuses(join_of(group, "a", **fields), BadConfig)

    problems = cast("list[str]", error.data["problems"])
    assert [text.split(":")[0] for text in problems] == [problem]


def test_the_characters_of_a_subscription_are_bounded() -> None:
    long = "o" * 245
    group = ConsumerGroup(long)

    error = group.refuses(join_of(group, "a", topics=[long] * 17), BadConfig)
    group.join("a", *[long] * 16)

    assert "4096 characters" in error.message
    assert len(group.membership.members) == 1


@pytest.mark.parametrize("name", ["", "a b", "../a", "x" * 250])
def test_members_are_named_as_topics_are(name: str) -> None:
    group = ConsumerGroup("orders")

    group.refuses(join_of(group, name), BadConfig)


def test_members_of_a_group_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "MEMBERS_MAX", 2)
    group = ConsumerGroup("orders")
    group.join("a", instance_id="a")
    group.join("b")

    group.refuses(join_of(group, "c"), ClusterFull)
    assert isinstance(group.join("a2", instance_id="a"), MemberResult)
    assert isinstance(group.join("b", session_timeout_ms=2000), MemberResult)


def test_members_of_all_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memberships, "MEMBERS_TOTAL_MAX", 1)
    group = ConsumerGroup("orders")
    group.join("a")
    group.do(PutGroup("other"))
    other = group.state.groups["other"]

    group.refuses(JoinGroup("other", other.id, "b", topics=["orders"]), ClusterFull)
    group.leave("a")
    assert isinstance(group.do(JoinGroup("other", other.id, "b", topics=["orders"])), MemberResult)


def test_partitions_of_all_groups_are_bounded_for_joins_and_for_new_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memberships, "PLACES_MAX", 8)
    group = ConsumerGroup("orders", partitions=4)
    group.do(PutGroup("other"))
    other = group.state.groups["other"].id
    group.join("a", "orders", patterns=["o*"])
    group.do(JoinGroup("other", other, "b", topics=["orders"]))

    group.refuses(CreateTopic("open", {"partitions": 1, "replication_factor": 1}), ClusterFull)
    group.create("bills", 1)
    group.refuses(join_of(group, "c", topics=["bills"]), ClusterFull)
    assert isinstance(group.join("c"), MemberResult)


def test_a_group_has_not_more_different_subscriptions_than_it_can_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(membership, "SUBSCRIPTIONS_MAX", 2)
    group = ConsumerGroup("orders")
    group.join("a", patterns=["a*"])
    group.join("b", patterns=["b*"])

    group.refuses(join_of(group, "c", topics=[], patterns=["c*"]), ClusterFull)
    assert isinstance(group.join("c", patterns=["a*"]), MemberResult)
    assert isinstance(group.join("b", patterns=["a*"]), MemberResult)
    assert isinstance(group.join("c", patterns=["c*"]), MemberResult)
