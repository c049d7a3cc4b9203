"""The judge of consumer groups finds what is broken, and nothing else."""

from __future__ import annotations

import itertools
from typing import Any

from tests.check.groupcheck import Verdict, check
from tests.check.history import Event


class Story:
    """A history, told event by event; each is a second after the one before."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._clock = itertools.count(1)
        self._generations = itertools.count(1)

    def add(self, kind: str, **fields: Any) -> Story:
        self.events.append({"type": kind, "time": float(next(self._clock)), **fields})
        return self

    def stored(self, *offsets: int) -> Story:
        for offset in offsets:
            self.add("published", value=f"v{offset}", partition=0, offset=offset)
        return self

    def moved(self, former: str, member: str) -> Story:
        generation = next(self._generations)
        return self.add("moved", partition=0, former=former, member=member, generation=generation)

    def takes(self, member: str, offset: int, attempt: int = 1) -> Story:
        return self.add(
            "received",
            member=member,
            partition=0,
            offset=offset,
            value=f"v{offset}",
            attempt=attempt,
            reason="",
            receipt=f"{member}-{offset}-{attempt}",
        )

    def settling(self, member: str, offset: int, attempt: int = 1) -> Story:
        return self.add("settling", member=member, receipt=f"{member}-{offset}-{attempt}")

    def acks(self, member: str, offset: int, attempt: int = 1, outcome: str = "acked") -> Story:
        self.settling(member, offset, attempt)
        receipt = f"{member}-{offset}-{attempt}"
        return self.add("settled", member=member, receipt=receipt, outcome=outcome, code="")

    def judge(self) -> Verdict:
        return check(self.add("drained").events)


def test_a_group_that_hands_over_and_loses_a_member_is_fine() -> None:
    story = Story().stored(0, 1, 2, 3).moved("", "a").takes("a", 0).acks("a", 0)
    story.takes("a", 1).moved("a", "b").takes("b", 1).acks("b", 1)
    story.takes("b", 2).add("died", member="b").moved("b", "a")
    story.takes("a", 2, attempt=2).acks("a", 2, attempt=2).takes("a", 3).acks("a", 3)

    verdict = story.judge()

    assert list(verdict.lines()) == []
    assert (verdict.published, verdict.deliveries, verdict.again) == (4, 6, 2)
    assert (verdict.acked, verdict.refused, verdict.unknown, verdict.moved) == (4, 0, 0, 2)


def test_a_delivery_to_somebody_who_never_owned_the_partition_is_found() -> None:
    story = Story().stored(0).moved("", "a").takes("b", 0).acks("b", 0)

    assert story.judge().rules() == {"OWNER"}


def test_a_delivery_to_the_former_owner_is_found() -> None:
    story = Story().stored(0, 1).moved("", "a").moved("a", "b").takes("b", 0).acks("b", 0)
    story.takes("a", 1).acks("a", 1)

    assert story.judge().rules() == {"OWNER"}


def test_two_owners_at_once_are_found_though_both_had_their_turn() -> None:
    story = Story().stored(0, 1, 2).moved("", "a").moved("a", "b").moved("b", "a")
    story.takes("a", 0).acks("a", 0).takes("b", 1).takes("a", 2).acks("a", 2).acks("b", 1)

    (violation,) = story.judge().violations

    assert violation.rule == "OWNER"
    assert "0:1 attempt 1 at b was acked" in violation.text


def test_an_ack_of_the_former_owner_after_the_next_ones_first_message_is_found() -> None:
    story = Story().stored(0, 1).moved("", "a").takes("a", 0).moved("a", "b")
    story.takes("b", 1).acks("a", 0).acks("b", 1)

    assert story.judge().rules() == {"OWNER"}


def test_an_ack_that_the_former_owner_asked_for_in_time_is_fine() -> None:
    story = Story().stored(0, 1).moved("", "a").takes("a", 0).settling("a", 0).moved("a", "b")
    story.takes("b", 1).add("settled", member="a", receipt="a-0-1", outcome="acked", code="").acks(
        "b", 1
    )

    assert story.judge().is_clean


def test_a_refused_ack_of_the_former_owner_is_fine() -> None:
    story = Story().stored(0).moved("", "a").takes("a", 0).moved("a", "b")
    story.takes("b", 0).acks("a", 0, outcome="refused").acks("b", 0)

    verdict = story.judge()

    assert verdict.is_clean
    assert verdict.refused == 1


def test_what_was_acked_and_comes_again_is_found() -> None:
    story = Story().stored(0).moved("", "a").takes("a", 0).acks("a", 0).moved("a", "b")
    story.takes("b", 0)

    assert story.judge().rules() == {"ONCE"}


def test_two_accepted_acks_of_a_message_are_found() -> None:
    story = Story().stored(0).moved("", "a").takes("a", 0).moved("a", "b").takes("b", 0)
    story.acks("b", 0).acks("a", 0)

    assert story.judge().rules() == {"ONCE", "OWNER"}


def test_a_message_that_never_came_is_found() -> None:
    story = Story().stored(0, 1).moved("", "a").takes("a", 0).acks("a", 0)

    (violation,) = story.judge().violations

    assert (violation.rule, violation.text) == ("LOST", "(0, 1) was stored, and never delivered")


def test_a_message_that_came_and_was_never_acked_is_found() -> None:
    story = Story().stored(0).moved("", "a").takes("a", 0)

    assert story.judge().rules() == {"LOST"}


def test_an_ack_whose_asker_died_is_in_doubt_and_no_loss() -> None:
    story = Story().stored(0).moved("", "a").takes("a", 0).settling("a", 0)

    verdict = story.add("died", member="a").judge()

    assert verdict.is_clean
    assert verdict.unknown == 1


def test_a_group_that_was_never_drained_is_no_proof() -> None:
    story = Story().stored(0).moved("", "a").takes("a", 0).acks("a", 0)

    assert check(story.events).rules() == {"LOST"}


def test_a_failed_attempt_without_a_death_is_found() -> None:
    story = Story().stored(0).moved("", "a").takes("a", 0).moved("a", "b")
    story.takes("b", 0, attempt=2).acks("b", 0, attempt=2)

    assert story.judge().rules() == {"ATTEMPT"}


def test_where_a_broker_was_stopped_an_attempt_may_fail() -> None:
    story = Story().stored(0).moved("", "a").add("trouble", text="SIGTERM")
    story.takes("a", 0, attempt=2).acks("a", 0, attempt=2)

    assert story.judge().is_clean


def test_an_attempt_that_counts_back_is_found() -> None:
    story = Story().stored(0).moved("", "a").add("died", member="a").moved("a", "b")
    story.takes("b", 0, attempt=2).takes("b", 0).acks("b", 0)

    assert "ATTEMPT" in story.judge().rules()


def test_what_nobody_published_is_found() -> None:
    story = Story().moved("", "a").takes("a", 0).acks("a", 0)

    assert story.judge().rules() == {"MADE UP"}


def test_a_publish_in_doubt_may_come() -> None:
    story = Story().add("doubtful", value="v0").moved("", "a").takes("a", 0).acks("a", 0)

    assert story.judge().is_clean


def test_another_value_than_the_one_stored_is_found() -> None:
    story = Story().add("published", value="else", partition=0, offset=0).moved("", "a")
    story.takes("a", 0).acks("a", 0)

    assert story.judge().rules() == {"MADE UP"}
