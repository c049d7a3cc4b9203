"""What a consumer lets come over a stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from goqueue.consume.credit import FULL_S, Credit, Room
from goqueue.consume.prefetch import LOWEST, Want

ANY = Want(1, LOWEST)


def room(bound: int, waiting: int, unsettled: int, lowest: int = LOWEST) -> Room:
    """As a buffer wants it that holds messages of the lane below `lowest`, all of one."""
    if waiting * 2 <= bound:
        want = Want(bound - waiting, LOWEST)
    else:
        want = Want(waiting + max(0, bound - waiting), lowest)
    return Room(bound, waiting, unsettled, want)


def test_an_empty_buffer_lets_anything_come_and_as_much_as_it_holds() -> None:
    credit = Credit()

    assert credit.due(room(100, 0, 0), 0.0)
    assert (credit.messages, credit.lowest) == (100, LOWEST)


def test_what_is_worked_on_takes_no_room_and_is_said_now_and_then() -> None:
    credit = Credit()
    credit.due(room(100, 0, 0), 0.0)

    assert not credit.due(room(100, 0, 20), 0.0)
    assert credit.due(room(100, 0, 30), 0.0)
    assert credit.messages == 130 - 12
    assert credit.due(room(100, 0, 0), 0.0)
    assert credit.messages == 100 - 12


def test_a_small_buffer_says_so_for_each_message() -> None:
    credit = Credit()
    credit.due(room(1, 0, 0), 0.0)

    assert credit.due(room(1, 0, 1), 0.0)
    assert credit.messages == 2


def test_a_full_buffer_lets_only_higher_lanes_come_until_it_is_half_empty() -> None:
    credit = Credit()
    credit.due(room(100, 0, 0), 0.0)

    assert not credit.due(room(100, 60, 60, 1), 0.0), "there is room for forty of any lane"
    assert not credit.due(room(100, 100, 100, 1), 0.0), "it may have room soon"
    assert not credit.due(room(100, 100, 100, 1), FULL_S / 2)
    assert credit.due(room(100, 100, 100, 1), FULL_S)
    assert (credit.messages, credit.lowest) == (200, 1)
    assert not credit.due(room(100, 51, 60, 1), 0.0)
    assert credit.due(room(100, 50, 60), 0.0)
    assert (credit.messages, credit.lowest) == (110, LOWEST)


def test_a_buffer_that_had_room_meanwhile_waits_anew() -> None:
    credit = Credit()
    credit.due(room(100, 0, 0), 0.0)
    credit.due(room(100, 100, 100, 1), 0.0)

    assert not credit.due(room(100, 99, 99, 1), FULL_S)
    assert not credit.due(room(100, 99, 100, 1), FULL_S)
    assert credit.due(room(100, 99, 100, 1), 2 * FULL_S)
    assert credit.lowest == 1


def test_who_wants_nothing_lets_nothing_come() -> None:
    credit = Credit()
    credit.due(room(100, 0, 0), 0.0)

    assert credit.due(Room(100, 0, 3, None), 0.0)
    assert credit.messages == 3
    assert not credit.due(Room(100, 0, 3, None), 0.0)


@given(st.integers(1, 40), st.lists(st.sampled_from(["come", "take", "settle"]), max_size=60))
def test_it_never_lets_more_of_any_lane_come_than_fits_and_never_starves(
    bound: int, steps: list[str]
) -> None:
    """All are of one lane, which is not the highest; what may come of higher ones is not used."""
    credit, waiting, working = Credit(), 0, 0
    credit.due(room(bound, 0, 0), 0.0)

    for number, step in enumerate(steps):
        if step == "come" and credit.lowest == LOWEST:
            waiting += max(0, credit.messages - waiting - working)
        elif step == "take" and waiting:
            waiting, working = waiting - 1, working + 1
        elif step == "settle" and working:
            working -= 1
        credit.due(room(bound, waiting, waiting + working, 1), number * FULL_S / 3)

        assert waiting <= bound
        if credit.lowest == LOWEST:
            assert credit.messages <= working + bound
        if not waiting:
            assert credit.lowest == LOWEST and credit.messages > working
