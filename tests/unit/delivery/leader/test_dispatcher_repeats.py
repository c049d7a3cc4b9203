"""Receives that are proposed more than once by a leader's dispatcher."""

from __future__ import annotations

from delivery.entries.ops import Granted, Own
from delivery.leader.dispatcher import Dispatcher, Want
from tests.unit.delivery.desk import Desk


def test_a_receive_that_was_granted_nothing_gets_the_next_message_with_the_same_request() -> None:
    """Remembered as empty, it would be proposed again for ever, and never be granted anything."""
    desk = Desk()
    desk.open()
    desk.publish(1, expires_at_ms=[50])
    dispatcher: Dispatcher[str] = Dispatcher(desk.state)
    dispatcher.receive(Want(1, "m", 1, None, 77), "ticket", wait=True)

    proposal = dispatcher.collect(desk.now_ms)
    assert proposal is not None
    desk.now_ms += 100  # the message expires as the entry applies
    assert dispatcher.landed(proposal, desk.do(*proposal.ops)) == []
    desk.publish(1)
    again = dispatcher.collect(desk.now_ms)

    assert again is not None
    ((ticket, result),) = dispatcher.landed(again, desk.do(*again.ops))
    assert ticket == "ticket"
    assert isinstance(result, Granted)
    assert [grant.offset for grant in result.grants] == [1]


def test_a_recalled_receive_that_waits_is_forgotten_and_whose_it_was_is_told() -> None:
    desk = Desk()
    desk.open()
    dispatcher: Dispatcher[str] = Dispatcher(desk.state)
    dispatcher.receive(Want(1, "m", 1, None, 77), "recalled", wait=True)
    dispatcher.receive(Want(1, "m", 1, None, 78), "other", wait=True)

    assert dispatcher.recall(77) == ["recalled"]
    desk.publish(2)
    proposal = dispatcher.collect(desk.now_ms)

    assert proposal is not None
    assert [ticket for ticket, _ in dispatcher.landed(proposal, desk.do(*proposal.ops))] == [
        "other"
    ]
    assert dispatcher.recall(77) == []


def test_what_a_recalled_receive_is_being_granted_is_not_known_before_its_entry_has_ended() -> None:
    desk = Desk()
    desk.open()
    desk.publish(1)
    dispatcher: Dispatcher[str] = Dispatcher(desk.state)
    dispatcher.receive(Want(1, "m", 1, None, 77), "recalled", wait=True)
    proposal = dispatcher.collect(desk.now_ms)
    assert proposal is not None

    assert dispatcher.recall(77) is None

    dispatcher.landed(proposal, desk.do(*proposal.ops))
    assert dispatcher.recall(77) == []


def test_a_repeat_chooses_nothing_so_that_others_get_what_is_ready_in_order() -> None:
    """What was chosen for it would be granted to nobody, and lower lanes go out before it."""
    desk, dispatcher = granted_once()
    high, _low = desk.publish(2, lanes=[0, 4])
    dispatcher.receive(Want(1, "m", 1, None, 77), "repeat", wait=True)
    dispatcher.receive(Want(1, "n", 1, None, 78), "other", wait=True)

    assert entry_of(desk, dispatcher) == {"repeat": [0], "other": [high]}


def test_a_repeat_is_told_what_it_was_granted_though_nothing_else_is_ready() -> None:
    desk, dispatcher = granted_once()
    dispatcher.receive(Want(1, "m", 1, None, 77), "repeat", wait=False)

    assert entry_of(desk, dispatcher) == {"repeat": [0]}


def test_a_repeat_that_comes_while_its_grant_is_on_its_way_is_told_of_it() -> None:
    """Its caller was cut off meanwhile: the messages are leased for who asks again, and nobody
    else is told of them."""
    desk = Desk()
    desk.open()
    desk.publish(1)
    dispatcher: Dispatcher[str] = Dispatcher(desk.state)
    dispatcher.receive(Want(1, "m", 1, None, 77), "lost", wait=False)
    proposal = dispatcher.collect(desk.now_ms)
    assert proposal is not None
    dispatcher.withdraw("lost")
    dispatcher.receive(Want(1, "m", 1, None, 77), "repeat", wait=False)

    assert dispatcher.landed(proposal, desk.do(*proposal.ops)) == []

    assert entry_of(desk, dispatcher) == {"repeat": [0]}


def test_two_that_wait_with_one_request_choose_once_and_are_told_the_same() -> None:
    desk = Desk()
    desk.open()
    desk.publish(3)
    dispatcher: Dispatcher[str] = Dispatcher(desk.state)
    dispatcher.receive(Want(1, "m", 1, None, 77), "first", wait=True)
    dispatcher.receive(Want(1, "m", 1, None, 77), "repeat", wait=True)
    dispatcher.receive(Want(1, "n", 1, None, 78), "other", wait=True)

    assert entry_of(desk, dispatcher) == {"first": [0], "repeat": [0], "other": [1]}


def test_two_that_wait_with_one_request_make_no_entry_while_nothing_is_ready() -> None:
    desk = Desk()
    desk.open()
    dispatcher: Dispatcher[str] = Dispatcher(desk.state)
    dispatcher.receive(Want(1, "m", 1, None, 77), "first", wait=True)
    dispatcher.receive(Want(1, "m", 1, None, 77), "repeat", wait=True)

    assert dispatcher.collect(desk.now_ms) is None


def test_a_request_whose_grant_ended_with_another_owner_chooses_anew() -> None:
    desk = Desk()
    desk.open()
    desk.publish(1)
    desk.do(Own(1, "m", 1))
    dispatcher: Dispatcher[str] = Dispatcher(desk.state)
    dispatcher.receive(Want(1, "m", 1, None, 77, 1), "first", wait=True)
    assert entry_of(desk, dispatcher) == {"first": [0]}
    desk.do(Own(1, "n", 2), Own(1, "m", 3))
    desk.publish(1, lanes=[0])
    dispatcher.receive(Want(1, "m", 1, None, 77, 3), "again", wait=True)

    assert entry_of(desk, dispatcher) == {"again": [1]}


def granted_once() -> tuple[Desk, Dispatcher[str]]:
    """Request 77 was granted the only message."""
    desk = Desk()
    desk.open()
    desk.publish(1)
    dispatcher: Dispatcher[str] = Dispatcher(desk.state)
    dispatcher.receive(Want(1, "m", 1, None, 77), "first", wait=True)
    assert entry_of(desk, dispatcher) == {"first": [0]}
    return desk, dispatcher


def entry_of(desk: Desk, dispatcher: Dispatcher[str]) -> dict[str, list[int]]:
    """Which messages each is told of by the next entry, or instead of one."""
    proposal = dispatcher.collect(desk.now_ms)
    assert proposal is not None
    told = [*proposal.answers, *dispatcher.landed(proposal, desk.do(*proposal.ops))]
    found: dict[str, list[int]] = {}
    for ticket, result in told:
        assert isinstance(result, Granted)
        found[ticket] = [grant.offset for grant in result.grants]
    return found
