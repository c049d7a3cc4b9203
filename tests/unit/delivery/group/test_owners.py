"""Whose a partition is stands in its log: nobody else's delivery, settle, commit or seek passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delivery.entries.ops import (
    ACK,
    EXTEND,
    FORCED,
    LEASE_EXPIRED,
    NACK,
    NOT_FOUND,
    OK,
    REJECT,
    RELEASE,
    STALE,
    Committed,
    CountResult,
    Delivered,
    Granted,
    Op,
    Own,
    OwnedResult,
    Settled,
    SettledResult,
    Sought,
    StaleResult,
    UnknownGroup,
)
from delivery.group.rules import FENCED
from tests.unit.delivery.desk import Desk, all_of


class Owned(Desk):
    """A partition with a group in it, ten messages, and members."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.open(**config)
        self.publish(10)

    def own(self, member: str, generation: int, *, fence: bool = False) -> OwnedResult:
        (result,) = self.do(Own(1, member, generation, fence))
        assert isinstance(result, OwnedResult)
        return result

    def take(
        self, member: str, generation: int, limit: int = 3, *, request: int = 0
    ) -> Granted | StaleResult:
        offsets = self.group().select(limit, self.now_ms)
        (result,) = self.do(Delivered(1, member, 30_000, offsets, request, generation))
        assert isinstance(result, Granted | StaleResult)
        return result

    def taken(self, member: str, generation: int, limit: int = 3) -> Granted:
        result = self.take(member, generation, limit)
        assert isinstance(result, Granted)
        return result

    def codes(self, granted: Granted, action: int = ACK, **claim: Any) -> list[int]:
        (result,) = self.do(Settled(1, action, all_of(granted), **claim))
        assert isinstance(result, SettledResult)
        return [settle.code for settle in result.settles]


def offsets(granted: Granted | StaleResult) -> list[int]:
    assert isinstance(granted, Granted)
    return [grant.offset for grant in granted.grants]


# -- naming an owner


def test_an_owner_stays_until_a_newer_one_is_named() -> None:
    desk = Owned()

    told = [desk.own("a", 5), desk.own("b", 4), desk.own("b", 5), desk.own("", 3)]

    assert told == [OwnedResult("a", 5)] * 4
    assert desk.own("b", 6) == OwnedResult("b", 6)


def test_the_same_naming_twice_answers_the_same_and_does_nothing() -> None:
    """Its answer may have been lost, with how many leases it ended."""
    desk = Owned()
    desk.own("a", 1)
    desk.taken("a", 1)
    first = desk.own("b", 2)
    kept = desk.taken("b", 2, 2)

    again = desk.own("b", 2)

    assert first == again == OwnedResult("b", 2, 3)
    assert desk.codes(kept) == [OK, OK]


def test_a_newer_generation_of_the_same_owner_keeps_its_leases_and_receipts() -> None:
    desk = Owned()
    desk.own("a", 1)
    granted = desk.taken("a", 1)

    assert desk.own("a", 7) == OwnedResult("a", 7, 0)

    assert desk.codes(granted, EXTEND, visibility_ms=1000) == [OK] * 3
    assert desk.codes(granted) == [OK] * 3


def test_a_partition_that_is_taken_back_may_be_nobodys() -> None:
    desk = Owned()
    desk.own("a", 1)
    granted = desk.taken("a", 1)

    assert desk.own("", 2) == OwnedResult("", 2, 3)

    assert desk.codes(granted) == [STALE] * 3
    assert isinstance(desk.take("a", 1), StaleResult)
    assert offsets(desk.take("anyone", 0)) == [0, 1, 2]


def test_a_group_that_is_not_open_has_no_owner() -> None:
    assert Owned().do(Own(2, "a", 1)) == [UnknownGroup(2)]


def test_members_of_other_groups_are_not_concerned() -> None:
    desk = Owned()
    desk.open(2)
    mine = desk.receive(3, group=2)

    desk.own("a", 1)

    assert [settle.code for settle in desk.ack(mine, 2).settles] == [OK] * 3


# -- what was in flight


def test_a_graceful_handover_gives_attempts_back_in_order() -> None:
    desk = Owned(backoff_ms=60_000)
    desk.own("a", 1)
    desk.taken("a", 1)

    desk.own("b", 2)

    grants = desk.taken("b", 2, 5).grants
    assert [(grant.offset, grant.attempt, grant.reason) for grant in grants] == [
        (offset, 1, "") for offset in range(5)
    ]
    assert desk.group().counters.delivered == 5


def test_what_a_dead_member_had_counts_as_a_failed_attempt_and_comes_at_once() -> None:
    desk = Owned(backoff_ms=60_000)
    desk.own("a", 1)
    desk.taken("a", 1)

    desk.own("b", 2, fence=True)

    grants = desk.taken("b", 2, 4).grants
    assert [(grant.offset, grant.attempt, grant.reason) for grant in grants] == [
        *((offset, 2, FENCED) for offset in range(3)),
        (3, 1, ""),
    ]
    assert desk.group().counters.fenced == 3


def test_a_message_that_kills_its_consumers_dies_in_the_end() -> None:
    desk = Owned(max_attempts=2)
    for generation in (1, 2, 3):
        desk.own(f"m{generation}", generation, fence=True)
        desk.take(f"m{generation}", generation, 1)

    assert [(o, d.attempts, d.reason) for o, d in desk.group().dead.items()] == [(0, 2, FENCED)]


def test_what_expired_for_all_is_not_delivered_again_by_a_handover() -> None:
    for fence in (True, False):
        desk = Desk()
        desk.open()
        desk.publish(2, expires_at_ms=[100, 100])
        desk.do(Own(1, "a", 1))
        desk.do(Delivered(1, "a", 30_000, [0, 1], 0, 1))
        desk.wait(200)

        (result,) = desk.do(Own(1, "b", 2, fence))

        assert result == OwnedResult("b", 2, 2)
        assert desk.group().select(10, desk.now_ms) == []
        assert desk.group().committed_offset == 2


def test_what_was_received_by_who_is_no_member_is_taken_back_from_it_too() -> None:
    desk = Owned()
    granted = desk.receive(2)

    assert desk.own("a", 1) == OwnedResult("a", 1, 2)

    assert desk.codes(granted) == [STALE] * 2


def test_leases_end_in_the_same_order_on_every_replica() -> None:
    """A snapshot knows leases in another order than they were made in."""
    desk, restored = Owned(max_attempts=1, dead_max=4), Owned(max_attempts=1, dead_max=4)
    for each in (desk, restored):
        each.own("a", 1)
        each.do(Delivered(1, "a", 30_000, [9, 3, 5], 0, 1), Delivered(1, "a", 9_000, [7, 1], 0, 1))
    restored.restart()

    for each in (desk, restored):
        each.own("b", 2, fence=True)

    assert list(desk.group().dead) == [1, 3, 5, 7]
    assert restored.state.snapshot() == desk.state.snapshot()


# -- who may do what


@pytest.mark.parametrize(
    "op",
    [
        lambda member, generation: Delivered(1, member, 1000, [0], 0, generation),
        lambda member, generation: Committed(1, 2, member, generation),
        lambda member, generation: Sought(1, 0, 0, member, generation),
    ],
    ids=["deliver", "commit", "seek"],
)
@pytest.mark.parametrize(
    ("member", "generation", "passes"),
    [
        ("a", 5, True),
        ("a", 9, True),
        ("a", 4, False),
        ("a", 0, False),
        ("b", 5, False),
        ("b", 9, False),
        ("", 0, False),
        ("", 5, False),
        ("anyone", FORCED, True),
    ],
)
def test_only_the_owner_passes_and_only_in_its_generation_or_a_newer_one(
    op: Callable[[str, int], Op], member: str, generation: int, passes: bool
) -> None:
    desk = Owned()
    desk.own("a", 5)
    before = desk.group().committed_offset, len(desk.group().leases)

    (result,) = desk.do(op(member, generation))

    if passes:
        assert not isinstance(result, StaleResult)
    else:
        assert result == StaleResult(1, "a", 5)
        assert (desk.group().committed_offset, len(desk.group().leases)) == before


@pytest.mark.parametrize(("generation", "passes"), [(0, True), (1, False), (5, False), (-1, True)])
def test_where_nobody_owns_it_only_who_claims_nothing_passes(generation: int, passes: bool) -> None:
    desk = Owned()

    assert isinstance(desk.take("a", generation), Granted) is passes
    desk.own("a", 3)
    desk.own("", 4)
    assert isinstance(desk.take("a", generation), Granted) is passes


def test_a_member_that_had_it_before_and_has_it_again_must_have_heard_of_it() -> None:
    desk = Owned()
    desk.own("a", 1)
    old = desk.taken("a", 1)
    desk.own("b", 2)
    desk.own("a", 3)

    assert isinstance(desk.take("a", 1), StaleResult)
    assert isinstance(desk.take("a", 2), StaleResult)
    assert desk.codes(old) == [STALE] * 3
    assert offsets(desk.take("a", 3)) == [0, 1, 2]


# -- settling


@pytest.mark.parametrize("action", [ACK, NACK, REJECT, EXTEND, RELEASE])
def test_receipts_of_a_former_owner_are_stale_whatever_they_ask(action: int) -> None:
    desk = Owned()
    desk.own("a", 1)
    granted = desk.taken("a", 1)
    desk.own("b", 2)
    now = desk.taken("b", 2)

    assert desk.codes(granted, action) == [STALE] * 3
    assert desk.codes(granted, action, member="a", generation=1) == [STALE] * 3
    assert desk.codes(granted, action, member="b", generation=2) == [STALE] * 3
    assert desk.codes(now, action) == [OK] * 3


@pytest.mark.parametrize(
    ("member", "generation", "code"),
    [("a", 5, OK), ("a", 6, OK), ("", 0, OK), ("a", 4, STALE), ("b", 5, STALE), ("b", -1, OK)],
)
def test_a_receipt_settles_unless_it_is_claimed_by_somebody_else(
    member: str, generation: int, code: int
) -> None:
    desk = Owned()
    desk.own("a", 5)
    granted = desk.taken("a", 5)

    assert desk.codes(granted, member=member, generation=generation) == [code] * 3
    if code == STALE:
        assert desk.codes(granted) == [OK] * 3


def test_receipts_that_never_were_or_ran_out_are_told_apart_from_stale_ones() -> None:
    desk = Owned()
    desk.own("a", 1)
    granted = desk.taken("a", 1)
    desk.now_ms += 40_000
    desk.expire()

    assert desk.codes(granted) == [LEASE_EXPIRED] * 3
    assert desk.settle(ACK, [(granted.delivery, [99])]).settles[0].code == NOT_FOUND


# -- repeated requests


def test_a_repeated_receive_of_the_owner_is_granted_the_same() -> None:
    desk = Owned()
    desk.own("a", 1)
    first = desk.take("a", 1, request=77)
    desk.own("a", 4)

    assert desk.take("a", 4, request=77) == first


def test_a_repeated_receive_of_a_former_owner_is_stale() -> None:
    desk = Owned()
    desk.own("a", 1)
    desk.take("a", 1, request=77)
    desk.own("b", 2)

    assert desk.take("a", 1, request=77) == StaleResult(1, "b", 2)


def test_a_receive_that_was_stale_may_be_repeated_by_who_owns_it_then() -> None:
    desk = Owned()
    desk.own("a", 1)
    stale = desk.take("b", 2, request=77)

    desk.own("b", 2)

    assert isinstance(stale, StaleResult)
    assert offsets(desk.take("b", 2, request=77)) == [0, 1, 2]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_receive_is_granted_anew_is_what_its_repeats_are_granted(restarts: bool) -> None:
    desk = Owned()
    desk.own("a", 1)
    first = desk.take("a", 1, request=77)
    desk.own("b", 2)
    desk.own("a", 3)
    anew = desk.take("a", 3, request=77)
    if restarts:
        desk.restart()

    assert desk.take("a", 3, request=77) == anew != first
    assert len(desk.group().leases) == len(offsets(anew))


def test_a_settle_that_is_repeated_after_the_handover_did_what_it_did() -> None:
    desk = Owned()
    desk.own("a", 1)
    granted = desk.taken("a", 1)
    settle = Settled(1, ACK, all_of(granted), request=78, member="a", generation=1)
    (first,) = desk.do(settle)
    desk.own("b", 2)

    assert desk.do(settle) == [first]
    assert desk.group().committed_offset == 3


# -- snapshots


@pytest.mark.parametrize("fence", [True, False])
def test_owners_outlive_a_snapshot(fence: bool) -> None:
    desk = Owned()
    desk.own("a", 1)
    granted = desk.taken("a", 1)
    desk.own("b", 2, fence=fence)
    kept = desk.taken("b", 2, 1)

    desk.restart()

    assert desk.own("b", 2) == OwnedResult("b", 2, 3)
    assert desk.codes(granted) == [STALE] * 3
    assert desk.codes(kept, member="b", generation=2) == [OK]
    assert desk.take("a", 1) == StaleResult(1, "b", 2)


def test_a_group_that_is_made_anew_is_nobodys() -> None:
    desk = Owned()
    desk.own("a", 5)

    desk.open(2)

    assert desk.group(2).owner.member == ""
    assert desk.group(1).owner.member == "a"


def test_a_seek_of_the_owner_leaves_it_the_owner() -> None:
    desk = Owned()
    desk.own("a", 1)
    granted = desk.taken("a", 1)

    desk.do(Sought(1, 0, 0, "a", 1))

    assert desk.codes(granted) == [LEASE_EXPIRED] * 3
    assert offsets(desk.take("a", 1)) == [0, 1, 2]


def test_commits_of_the_owner_settle_and_never_go_back() -> None:
    desk = Owned()
    desk.own("a", 1)

    assert desk.do(Committed(1, 6, "a", 1)) == [CountResult(6)]
    assert desk.do(Committed(1, 2, "a", 1)) == [CountResult(0)]
    assert desk.group().committed_offset == 6
