"""Receives of members, and of those that want high lanes only, share entries."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from delivery.config import LANES_COUNT
from delivery.entries.ops import Delivered, Granted, Own, StaleResult
from delivery.leader.dispatcher import Want
from goqueue.wire.errors import TooManyInFlight
from goqueue.wire.layout import LANES
from tests.unit.delivery.leader.test_dispatcher import Office

CRITICAL, HIGH, NORMAL, LOW, BACKGROUND = range(LANES_COUNT)


@pytest.fixture
def office() -> Office:
    found = Office()
    found.desk.open(1)
    return found


def want(office: Office, ticket: str, limit: int = 10, *, wait: bool = True, **more: Any) -> None:
    member, generation = more.get("member", "m"), more.get("generation", 0)
    lowest = more.get("lowest", BACKGROUND)
    found = Want(1, member, limit, None, more.get("request", 0), generation, lowest)
    office.dispatcher.receive(found, ticket, wait=wait)


def publish(office: Office, *lanes: int) -> list[int]:
    return office.desk.publish(len(lanes), lanes=list(lanes))


# -- lanes


def test_only_what_is_wanted_is_delivered(office: Office) -> None:
    publish(office, LOW, CRITICAL, NORMAL, HIGH)

    want(office, "a", lowest=HIGH)
    office.run()

    assert office.offsets("a") == [1, 3]


def test_who_wants_higher_lanes_waits_for_them_though_others_have_plenty(office: Office) -> None:
    publish(office, *[NORMAL] * 5)
    want(office, "a", lowest=HIGH)
    office.run()
    assert office.told == {}

    publish(office, LOW, CRITICAL)
    office.run()

    assert office.offsets("a") == [6]


def test_who_does_not_wait_is_told_that_there_is_nothing(office: Office) -> None:
    publish(office, NORMAL)

    want(office, "a", lowest=CRITICAL, wait=False)
    office.run()

    assert office.offsets("a") == []


def test_mixed_wants_share_one_entry_and_no_message(office: Office) -> None:
    publish(office, LOW, CRITICAL, NORMAL, CRITICAL, HIGH, LOW)
    want(office, "all", 3)
    want(office, "critical", 1, lowest=CRITICAL)
    want(office, "high", 2, lowest=HIGH)

    assert office.run() == 1

    assert office.offsets("critical") == [1]
    assert office.offsets("high") == [3, 4]
    assert office.offsets("all") == [2, 0, 5]


def test_what_is_left_by_narrow_wants_goes_to_the_others(office: Office) -> None:
    publish(office, CRITICAL, CRITICAL, LOW)
    want(office, "critical", 10, lowest=CRITICAL)
    want(office, "all", 10)

    office.run()

    assert office.offsets("critical") == [0, 1]
    assert office.offsets("all") == [2]


def test_a_full_group_delivers_no_more_to_any_mixture(office: Office) -> None:
    office.desk.configure(1, in_flight_max=3, lane_max_wait_ms=0, lane_share=2)
    publish(office, *[CRITICAL] * 5, *[LOW] * 5)
    want(office, "critical", 3, lowest=CRITICAL)
    want(office, "all", 3)

    office.run()

    assert len(office.desk.group().leases) == 3
    assert sorted(office.told) == ["critical"]


def test_delayed_messages_that_just_became_due_are_filtered_too(office: Office) -> None:
    office.desk.publish(2, lanes=[LOW, HIGH], deliver_at_ms=[5, 5])
    want(office, "a", lowest=HIGH)
    office.run()
    office.desk.now_ms += 6

    office.run()

    assert office.offsets("a") == [1]


def test_narrow_receives_take_no_turn_of_what_has_waited_too_long(office: Office) -> None:
    """Where one in two deliveries may go to what has waited, and every other one is narrow."""
    office.desk.configure(1, lane_max_wait_ms=1000, lane_share=2)
    low = publish(office, LOW, LOW, LOW)
    publish(office, *[CRITICAL] * 40)
    office.desk.now_ms += 5000
    served: list[int] = []

    for number in range(6):
        want(office, f"all{number}", 1)
        office.run()
        served += office.offsets(f"all{number}")
        want(office, f"critical{number}", 1, lowest=CRITICAL)
        office.run()
        assert office.offsets(f"critical{number}") not in ([o] for o in low)

    assert [offset for offset in served if offset in low] == low


def test_who_always_leaves_the_lowest_lane_serves_what_has_waited_in_the_others(
    office: Office,
) -> None:
    office.desk.configure(1, lane_max_wait_ms=1000, lane_share=3)
    low = publish(office, LOW, LOW)
    publish(office, BACKGROUND, *[CRITICAL] * 40)
    office.desk.now_ms += 5000
    served: list[int] = []

    for number in range(6):
        want(office, f"a{number}", 1, lowest=LOW)
        office.run()
        served += office.offsets(f"a{number}")

    assert [served[2], served[5]] == low


@pytest.mark.parametrize("lowest", range(LANES_COUNT))
def test_a_receive_gets_all_lanes_down_to_its_lowest(office: Office, lowest: int) -> None:
    publish(office, *range(LANES_COUNT))

    want(office, "a", lowest=lowest)
    office.run()

    assert office.offsets("a") == list(range(lowest + 1)), LANES[lowest]


# -- members


def test_who_does_not_own_the_partition_is_told_without_an_entry(office: Office) -> None:
    office.desk.do(Own(1, "a", 5))
    publish(office, NORMAL)
    want(office, "b", member="b", generation=6)
    want(office, "nobody")
    want(office, "old", member="a", generation=4)

    assert office.collect() is not None

    assert office.told == dict.fromkeys(("b", "nobody", "old"), StaleResult(1, "a", 5))
    assert office.flying == office.flying.__class__()


def test_who_waits_is_told_as_soon_as_the_partition_is_somebody_elses(office: Office) -> None:
    office.desk.do(Own(1, "a", 5))
    want(office, "a", member="a", generation=5)
    assert office.run() == 0

    office.desk.do(Own(1, "b", 6))
    office.run()

    assert office.told == {"a": StaleResult(1, "b", 6)}


def test_a_stranger_learns_so_also_while_the_group_is_full(office: Office) -> None:
    office.desk.configure(1, in_flight_max=1)
    publish(office, NORMAL, NORMAL)
    office.desk.do(Own(1, "a", 5))
    want(office, "first", member="a", generation=5)
    office.run()
    want(office, "b", member="b", generation=6)
    want(office, "a", member="a", generation=5, wait=False)

    office.run()

    assert office.told["b"] == StaleResult(1, "a", 5)
    assert isinstance(office.told["a"], TooManyInFlight)


def test_a_delivery_that_an_owner_entry_overtook_grants_nothing(office: Office) -> None:
    office.desk.do(Own(1, "a", 5))
    publish(office, NORMAL)
    want(office, "a", member="a", generation=5)
    office.collect()

    office.desk.do(Own(1, "b", 6))
    office.land()

    assert office.told == {"a": StaleResult(1, "b", 6)}
    assert len(office.desk.group().leases) == 0


def test_an_owner_entry_goes_before_the_deliveries_of_its_entry(office: Office) -> None:
    office.desk.do(Own(1, "a", 5))
    publish(office, NORMAL)
    want(office, "a", member="a", generation=5)
    office.dispatcher.submit(Own(1, "b", 6), None)

    proposal = office.collect()
    office.land()

    assert proposal is not None
    assert [type(op) for op in proposal.ops] == [Own, Delivered]
    assert office.told == {"a": StaleResult(1, "b", 6)}


def test_the_generation_travels_with_the_delivery(office: Office) -> None:
    office.desk.do(Own(1, "a", 5))
    publish(office, NORMAL)
    want(office, "a", member="a", generation=9)

    office.run()

    assert isinstance(office.told["a"], Granted)


# -- any mix


class WantsMachine(RuleBasedStateMachine):
    """Receives of members and others, for any lanes, while owners change and entries fail."""

    def __init__(self) -> None:
        super().__init__()
        self.office = Office()
        self.office.desk.open(1, in_flight_max=12, lane_max_wait_ms=50, lane_share=3)
        self.wants: dict[str, tuple[Want, bool]] = {}
        """Those that were not told yet; whether each waits."""
        self.generation = 0

    @rule(lanes=st.lists(st.integers(0, LANES_COUNT - 1), min_size=1, max_size=6))
    def store(self, lanes: list[int]) -> None:
        publish(self.office, *lanes)

    @rule(
        who=st.sampled_from(["a", "b", "nobody"]),
        newer=st.integers(-1, 1),
        limit=st.integers(1, 5),
        lowest=st.integers(0, LANES_COUNT - 1),
        wait=st.booleans(),
    )
    def ask(self, who: str, newer: int, limit: int, lowest: int, wait: bool) -> None:
        generation = 0 if who == "nobody" else max(1, self.generation + newer)
        ticket = f"t{self.office.entries}-{len(self.wants)}-{self.office.desk.state.applied_index}"
        if ticket not in self.wants:
            found = Want(1, who, limit, None, 0, generation, lowest)
            self.wants[ticket] = (found, wait)
            self.office.dispatcher.receive(found, ticket, wait=wait)

    @rule(member=st.sampled_from(["a", "b", ""]), fence=st.booleans())
    def own(self, member: str, fence: bool) -> None:
        self.generation += 1
        self.office.desk.do(Own(1, member, self.generation, fence))

    @rule()
    def collect(self) -> None:
        proposal = self.office.collect()
        offsets = [
            offset
            for op in (proposal.ops if proposal else [])
            if isinstance(op, Delivered)
            for offset in op.offsets
        ]
        assert len(offsets) == len(set(offsets))
        self.judge()

    @precondition(lambda self: self.office.flying)
    @rule(fails=st.booleans())
    def entry_ends(self, fails: bool) -> None:
        if not fails:
            self.office.land()
        else:
            for ticket in self.office.fail():
                del self.wants[ticket]
        self.judge()

    @rule(ms=st.sampled_from([1, 60, 40_000]))
    def pass_time(self, ms: int) -> None:
        self.office.desk.now_ms += ms

    @rule()
    def come_to_rest(self) -> None:
        """Nobody is left who may have something that is there."""
        self.office.run()
        self.judge()
        group = self.office.desk.group()
        for want_, wait in self.wants.values():
            assert wait
            assert group.is_owned_by(want_.member, want_.generation)
            assert group.select(1, self.office.desk.now_ms, want_.lowest_lane) == []

    def judge(self) -> None:
        """Everybody was told once, and given what was asked for."""
        for ticket, told in self.office.told.items():
            asked, wait = self.wants.pop(ticket)
            if isinstance(told, Granted):
                lanes = [self.office.desk.queue.lane_of(grant.offset) for grant in told.grants]
                assert len(lanes) <= asked.limit
                assert all(lane <= asked.lowest_lane for lane in lanes)
                assert lanes or not wait
            elif isinstance(told, StaleResult):
                owner = self.office.desk.group().owner
                assert told.generation <= owner.generation
                assert (asked.member, asked.generation >= told.generation) != (told.member, True)
            else:
                assert isinstance(told, TooManyInFlight)
                assert not wait
        self.office.told.clear()


TestWants = WantsMachine.TestCase
TestWants.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
