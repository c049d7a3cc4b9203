"""The leader's side: one entry of deliveries at a time, nobody forgotten, nothing spun on."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from delivery.config import GroupConfig, QueueConfig
from delivery.entries.ops import (
    ACK,
    NACK,
    Committed,
    Configure,
    CountResult,
    Delivered,
    DropGroup,
    Expired,
    Granted,
    OpenGroup,
    Settled,
    SettledResult,
    Tick,
    UnknownGroup,
)
from delivery.group.operations import GroupOperations
from delivery.leader.dispatcher import (
    DUE_GRACE_MS,
    EXPIRY_TICK_MS,
    IDLE_TICK_MS,
    OPS_MAX,
    Dispatcher,
    Proposal,
    Want,
)
from goqueue.wire.errors import GroupHalted, TooManyInFlight
from tests.unit.delivery.desk import Desk, all_of


class Office:
    """A dispatcher whose entries apply when the test says so."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.dispatcher: Dispatcher[str] = Dispatcher(self.desk.state)
        self.flying: deque[Proposal[str]] = deque()
        self.told: dict[str, Any] = {}
        self.entries = 0

    def collect(self) -> Proposal[str] | None:
        proposal = self.dispatcher.collect(self.desk.now_ms)
        if proposal is not None:
            self._tell(proposal.answers)
            if proposal.sent:
                self.flying.append(proposal)
        return proposal

    def land(self) -> None:
        proposal = self.flying.popleft()
        self.entries += 1
        self._tell(self.dispatcher.landed(proposal, self.desk.do(*proposal.ops)))

    def fail(self) -> list[str]:
        return self.dispatcher.failed(self.flying.popleft())

    def run(self) -> int:
        """All that there is to do; how many entries it took."""
        before = self.entries
        for _ in range(100):
            if self.flying:
                self.land()
            elif self.collect() is None:
                return self.entries - before
        raise AssertionError("the dispatcher does not come to rest")

    def receive(
        self, ticket: str, limit: int = 10, *, group: int = 1, wait: bool = True, **more: Any
    ) -> None:
        want = Want(group, "m", limit, more.get("visibility_ms"), more.get("request", 0))
        self.dispatcher.receive(want, ticket, wait=wait)

    def offsets(self, ticket: str) -> list[int]:
        found = self.told.pop(ticket)
        assert isinstance(found, Granted)
        return [grant.offset for grant in found.grants]

    def _tell(self, answers: list[tuple[str, Any]]) -> None:
        for ticket, answer in answers:
            assert ticket not in self.told, f"{ticket} is told twice"
            self.told[ticket] = answer


@pytest.fixture
def office() -> Office:
    found = Office()
    found.desk.open(1)
    return found


def kinds(proposal: Proposal[str] | None) -> list[type]:
    return [] if proposal is None else [type(op) for op in proposal.ops]


def test_one_entry_of_deliveries_is_in_flight_and_the_rest_goes_at_once(office: Office) -> None:
    office.desk.publish(10)
    office.receive("a", 3)
    assert kinds(office.collect()) == [Delivered]

    office.receive("b", 3)
    office.dispatcher.submit(Settled(1, ACK, [(99, [0])]), "settle")

    assert kinds(office.collect()) == [Settled]
    assert office.collect() is None
    office.land()
    assert kinds(office.collect()) == [Delivered]
    office.run()
    assert (office.offsets("a"), office.offsets("b")) == ([0, 1, 2], [3, 4, 5])
    assert isinstance(office.told["settle"], SettledResult)


def test_receives_share_an_entry_in_the_order_they_came(office: Office) -> None:
    office.desk.publish(5)
    for ticket in "abc":
        office.receive(ticket, 2)

    assert office.run() == 1

    assert [office.offsets(ticket) for ticket in "abc"] == [[0, 1], [2, 3], [4]]


def test_a_receive_that_waits_gets_what_is_published_later(office: Office) -> None:
    office.receive("a")
    assert office.run() == 0
    assert not office.told

    office.desk.publish(2)
    office.run()

    assert office.offsets("a") == [0, 1]


def test_a_receive_without_wait_is_answered_though_nothing_is_there(office: Office) -> None:
    office.receive("a", wait=False)

    assert office.run() == 0

    assert office.offsets("a") == []


def test_receives_without_wait_are_answered_under_constant_load_of_other_groups(
    office: Office,
) -> None:
    office.desk.open(2)
    office.receive("empty", wait=False)
    office.desk.commit(1000, group=1)

    for number in range(4):
        office.desk.publish(1)
        office.desk.commit(1000, group=1)
        office.receive(f"busy {number}", 1, group=2)
        office.collect()
        office.land()

    assert office.offsets("empty") == []


def test_a_withdrawn_receive_that_waits_takes_nothing(office: Office) -> None:
    ticket = "gone"
    office.receive(ticket)
    office.dispatcher.withdraw(ticket)
    office.desk.publish(1)

    assert office.run() == 0
    assert office.dispatcher.tickets() == []


def test_what_is_granted_to_a_caller_who_left_is_released(office: Office) -> None:
    office.desk.publish(2)
    ticket = "gone"
    office.receive(ticket)
    office.collect()
    office.dispatcher.withdraw(ticket)

    office.run()

    assert not office.told
    assert len(office.desk.group().leases) == 0
    granted = office.desk.receive()
    assert [grant.attempt for grant in granted.grants] == [1, 1]


def test_what_was_granted_to_a_request_that_came_again_is_not_released(office: Office) -> None:
    office.desk.publish(2)
    first, again = "first", "again"
    office.receive(first, request=7)
    office.collect()
    office.receive(again, request=7)
    office.dispatcher.withdraw(first)

    office.desk.publish(1)
    office.run()

    granted = office.told[again]
    assert [grant.offset for grant in granted.grants] == [0, 1]
    assert office.desk.ack(granted).committed_offset == 2


def test_leases_that_are_over_are_proposed_once_and_delivered_again(office: Office) -> None:
    office.desk.publish(3)
    office.receive("a")
    office.run()
    office.receive("b")
    office.desk.now_ms += 30_000

    assert kinds(office.collect()) == [Expired]
    assert office.collect() is None
    office.land()
    office.run()

    assert office.offsets("b") == [0, 1, 2]


def test_delays_are_noted_when_due_if_somebody_waits_and_soon_if_not(office: Office) -> None:
    office.desk.publish(1, deliver_at_ms=[1000])
    due_ms = office.desk.now_ms + 1000
    dispatcher = office.dispatcher

    assert dispatcher.next_wake_ms(office.desk.now_ms) == due_ms + IDLE_TICK_MS
    office.receive("a")
    assert dispatcher.next_wake_ms(office.desk.now_ms) == due_ms
    office.desk.now_ms = due_ms

    assert kinds(office.collect()) == [Delivered]
    office.land()
    assert office.offsets("a") == [0]


def test_what_is_due_and_in_no_delivery_gets_an_entry_of_its_own(office: Office) -> None:
    office.desk.open(2, ordering="key")
    office.desk.publish(1, deliver_at_ms=[1000])
    due_ms = office.desk.now_ms + 1000
    office.receive("a", group=2)
    office.desk.now_ms = due_ms

    assert office.collect() is None
    assert office.dispatcher.next_wake_ms(due_ms) == due_ms + DUE_GRACE_MS
    office.desk.now_ms += DUE_GRACE_MS

    assert kinds(office.collect()) == [Tick]
    assert office.dispatcher.next_wake_ms(office.desk.now_ms) is None
    office.run()
    assert office.offsets("a") == [0]


def test_expiry_is_noted_in_the_end_though_nothing_happens(office: Office) -> None:
    office.desk.publish(1, expires_at_ms=[1000])
    office.desk.now_ms += 1000 + EXPIRY_TICK_MS

    assert office.run() == 1

    assert office.desk.state.queue.expired_count == 1
    assert office.dispatcher.next_wake_ms(office.desk.now_ms) is None


def test_after_every_wake_there_is_something_to_do_and_then_rest(office: Office) -> None:
    desk, choice = office.desk, random.Random(3)
    desk.configure(backoff_ms=70, max_attempts=4)
    desk.publish(30, deliver_at_ms=[choice.randrange(1, 5000) for _ in range(30)])
    desk.publish(10, expires_at_ms=[choice.randrange(1, 5000) for _ in range(10)])
    wakes = 0

    while (wake_ms := office.dispatcher.next_wake_ms(desk.now_ms)) is not None:
        assert wake_ms >= desk.now_ms
        desk.now_ms = wake_ms
        assert office.run() > 0
        assert (office.dispatcher.next_wake_ms(desk.now_ms) or desk.now_ms + 1) > desk.now_ms
        office.receive(f"{wakes}", 2, wait=False, visibility_ms=choice.randrange(300))
        office.run()
        wakes += 1

    assert wakes < 400
    assert len(desk.group().leases) == 0


def test_a_group_is_opened_in_the_same_entry_as_what_asked_for_it(office: Office) -> None:
    office.desk.publish(2)
    office.dispatcher.open_group(2, "h", 1, GroupConfig(), 1)
    office.receive("a", group=2)

    assert kinds(office.collect()) == [OpenGroup]
    office.run()

    assert office.offsets("a") == [1]
    office.dispatcher.open_group(2, "h", 1, GroupConfig(), 0)
    assert office.run() == 0


def test_a_group_is_open_for_its_first_operation_while_another_one_is_opened(
    office: Office,
) -> None:
    for id_ in (2, 3):
        office.dispatcher.open_group(id_, f"g{id_}", 1, GroupConfig(), 0)
        office.dispatcher.submit(Committed(id_, 0), f"commit {id_}")
        office.collect()
    office.dispatcher.open_group(3, "g3", 1, GroupConfig(), 0)
    assert office.collect() is None

    office.run()

    assert office.told == {"commit 2": CountResult(0), "commit 3": CountResult(0)}


def test_a_group_that_is_dropped_while_it_is_opened_is_gone(office: Office) -> None:
    office.dispatcher.open_group(2, "h", 1, GroupConfig(), 0)
    office.collect()

    office.dispatcher.drop_group(2)
    office.run()

    assert 2 not in office.desk.state.queue.groups
    office.dispatcher.drop_group(9)
    assert office.collect() is None


def test_receives_of_a_group_that_is_not_open_are_told_so(office: Office) -> None:
    office.receive("a", group=9)
    office.dispatcher.drop_group(1)
    office.receive("b", group=1)

    office.run()

    assert office.told == {"a": UnknownGroup(9), "b": UnknownGroup(1)}


def test_halted_and_full_groups_refuse(office: Office) -> None:
    office.desk.open(2, in_flight_max=1)
    office.desk.publish(2)
    office.receive("first", 1, group=2)
    office.run()

    office.receive("full", group=2, wait=False)
    office.receive("patient", group=2)
    office.run()
    assert isinstance(office.told["full"], TooManyInFlight)
    assert "patient" not in office.told

    GroupOperations(office.desk.group(2)).halt("stop")
    office.run()
    assert isinstance(office.told["patient"], GroupHalted)


def test_settings_are_proposed_where_they_differ_even_beyond_their_bounds(office: Office) -> None:
    office.dispatcher.configure(QueueConfig(ttl_ms=-5, lanes=3))

    assert kinds(office.collect()) == [Configure]
    office.run()

    assert office.desk.state.queue.config.ttl_ms == 0
    assert office.collect() is None


def test_those_in_an_entry_that_failed_are_told_and_the_others_wait(office: Office) -> None:
    office.desk.publish(5)
    office.receive("a", 2)
    office.dispatcher.submit(Settled(1, NACK, [(5, [0])]), "settle")
    office.collect()
    office.receive("b", 2)

    assert sorted(office.fail()) == ["a", "settle"]

    assert office.dispatcher.tickets() == ["b"]
    office.run()
    assert office.offsets("b") == [0, 1]


def test_an_entry_holds_no_more_operations_than_its_bound(office: Office) -> None:
    for number in range(OPS_MAX + 5):
        office.dispatcher.submit(Settled(1, ACK, [(1, [number])]), f"{number}")

    assert len(kinds(office.collect())) == OPS_MAX
    office.run()
    assert len(office.told) == OPS_MAX + 5


@pytest.mark.parametrize("seed", range(15))
def test_whatever_happens_each_caller_is_told_once_and_no_message_is_lost(seed: int) -> None:
    choice = random.Random(seed)
    office = Office()
    dispatcher, desk = office.dispatcher, office.desk
    callers: dict[str, int] = {}
    """Ticket -> group."""

    for step in range(300):
        event = choice.randrange(7)
        if event == 0:
            desk.publish(choice.randrange(1, 4), lanes=choice.randrange(5))
        elif event == 1:
            ticket, group = f"receive {step}", choice.choice([1, 2])
            callers[ticket] = group
            dispatcher.open_group(group, f"g{group}", 1, GroupConfig(max_attempts=0), 0)
            office.receive(ticket, 3, group=group, wait=step % 3 > 0, visibility_ms=900)
        elif event == 2 and office.flying:
            office.land()
        elif event == 3 and office.flying and choice.random() < 0.2:
            for ticket in office.fail():
                callers.pop(ticket, None)
        elif event == 4 and callers and choice.random() < 0.3:
            gone = choice.choice(sorted(callers))
            del callers[gone]
            dispatcher.withdraw(gone)
        elif event == 5:
            desk.now_ms += choice.choice([1, 100, 1000])
        else:
            office.collect()
        for ticket in set(office.told) & set(callers):
            group, answer = callers.pop(ticket), office.told[ticket]
            if isinstance(answer, Granted) and answer.grants:
                dispatcher.submit(Settled(group, ACK, all_of(answer)), f"ack {ticket}")

    finish(office)


def finish(office: Office) -> None:
    """Receive and ack until nothing is left of either group."""
    desk = office.desk
    for number in range(100):
        desk.now_ms += 1000
        for group in (1, 2):
            office.dispatcher.open_group(group, f"g{group}", 1, GroupConfig(), 0)
            office.receive(f"last {group} {number}", 1000, group=group, wait=False)
        office.run()
        for group in (1, 2):
            for delivery, _, _, offsets in desk.group(group).leases.dump():
                office.dispatcher.submit(Settled(group, ACK, [(delivery, offsets)]), None)
        office.run()
        if all(desk.group(group).committed_offset == desk.state.next_offset for group in (1, 2)):
            return
    raise AssertionError("messages are left")


def test_a_dropped_group_is_proposed_as_dropped(office: Office) -> None:
    office.dispatcher.drop_group(1)

    assert kinds(office.collect()) == [DropGroup]
