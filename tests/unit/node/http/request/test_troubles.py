from __future__ import annotations

from node.http.request.troubles import FIRST_S, MOST_S, Troubles


def test_pauses_double_up_to_the_longest_and_begin_anew_once_it_has_passed() -> None:
    troubles = Troubles()
    assert [troubles.next_pause_s() for _ in range(7)] == [0.25, 0.5, 1.0, 2.0, 4.0, MOST_S, MOST_S]

    troubles.passed()
    assert troubles.next_pause_s() == FIRST_S


def test_a_trouble_is_told_once_until_another_one_comes_or_it_has_passed() -> None:
    troubles = Troubles()
    assert [troubles.is_new(code) for code in ("busy", "busy", "halted", "busy")] == [
        True,
        False,
        True,
        True,
    ]

    troubles.passed()
    assert troubles.is_new("busy")
