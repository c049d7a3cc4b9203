"""Up, down and wiped are told apart."""

from __future__ import annotations

from coordinator.brokers.health import Standing, standing
from goqueue.wire.types import Incarnation

KNOWN = Incarnation(2)


def test_a_broker_with_the_directory_it_is_known_by_is_up() -> None:
    assert standing(KNOWN, KNOWN) is Standing.UP


def test_a_broker_with_another_directory_is_wiped() -> None:
    assert standing(KNOWN, Incarnation(9)) is Standing.WIPED


def test_a_broker_that_is_not_there_is_down() -> None:
    assert standing(KNOWN, None) is Standing.DOWN
    assert standing(None, None) is Standing.DOWN


def test_a_broker_not_yet_known_by_a_directory_is_up() -> None:
    assert standing(None, Incarnation(5)) is Standing.UP
