"""Receives that are proposed more than once by a leader's dispatcher."""

from __future__ import annotations

from delivery.dispatcher import Dispatcher, Want
from delivery.ops import Granted
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
