"""What a member makes of what it is told, whichever node told it, in whatever order."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.consume.assignment import Changes, Holdings, State
from goqueue.models.groups import MemberAnswer, TopicPartition


def places(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("orders", number) for number in numbers]


def told(
    generation: int, assigned: Sequence[int] = (), revoking: Sequence[int] = ()
) -> MemberAnswer:
    revision = f"{generation}-{assigned}-{revoking}"
    return MemberAnswer(
        generation, revision, assignment=places(*assigned), revoking=places(*revoking)
    )


def after(*answers: MemberAnswer) -> Holdings:
    holdings = Holdings()
    for answer in answers:
        holdings.fold(answer)
    return holdings


def test_a_first_answer_assigns_and_what_it_revokes_is_let_go_of_at_once() -> None:
    holdings = Holdings()

    changes = holdings.fold(told(3, [0, 1], [2]))

    assert changes == Changes(assigned=places(0, 1))
    assert holdings.active == places(0, 1)
    assert holdings.released == places(2)
    assert (holdings.generation, holdings.revision) == (3, "3-[0, 1]-[2]")


def test_partitions_that_stay_are_not_mentioned() -> None:
    holdings = after(told(1, [0, 1]))

    assert holdings.fold(told(2, [0, 1, 2])) == Changes(assigned=places(2))
    assert holdings.fold(told(3, [0, 1, 2])) == Changes()


def test_a_revoked_partition_is_still_ours_until_it_is_released_and_known_to_be() -> None:
    holdings = after(told(1, [0, 1]))

    assert holdings.fold(told(2, [0], [1])) == Changes(revoked=places(1))
    assert (holdings.active, holdings.assigned, holdings.released) == (
        places(0), places(0, 1), [],
    )  # fmt: skip

    assert holdings.release(places(1)[0])
    assert (holdings.assigned, holdings.released) == (places(0), places(1))
    assert holdings.fold(told(2, [0], [1])) == Changes()
    assert holdings.released == places(1)

    assert holdings.fold(told(2, [0])) == Changes()
    assert holdings.released == []


def test_a_revocation_that_is_called_off_keeps_the_partition() -> None:
    holdings = after(told(1, [0]), told(2, [], [0]))

    assert holdings.fold(told(3, [0])) == Changes(kept=places(0))
    assert not holdings.release(places(0)[0])
    assert holdings.active == places(0)


def test_a_partition_that_comes_back_after_its_release_is_assigned_anew() -> None:
    holdings = after(told(1, [0]), told(2, [], [0]))
    holdings.release(places(0)[0])

    assert holdings.fold(told(2, [0])) == Changes()
    assert holdings.fold(told(3, [0])) == Changes(assigned=places(0))


def test_an_older_generation_changes_nothing() -> None:
    holdings = after(told(1, [0, 1]), told(2, [0], [1]))

    assert holdings.fold(told(1, [0, 1])) == Changes()
    assert (holdings.generation, holdings.active) == (2, places(0))


def test_an_older_answer_of_the_same_generation_takes_nothing_away() -> None:
    holdings = after(told(2, [0]), told(2, [0, 1]))

    assert holdings.fold(told(2, [0])) == Changes()
    assert holdings.active == places(0, 1)


def test_an_older_answer_of_the_same_generation_brings_back_nothing_that_was_let_go() -> None:
    holdings = after(told(1, [0, 1]), told(2, [0], [1]))
    holdings.release(places(1)[0])
    holdings.fold(told(2, [0]))

    assert holdings.fold(told(2, [0], [1])) == Changes()
    assert holdings.released == []


def test_what_is_gone_in_a_newer_generation_is_lost() -> None:
    holdings = after(told(1, [0, 1]))

    assert holdings.fold(told(2, [0])) == Changes(lost=places(1))


def test_what_was_not_let_go_of_in_time_is_lost() -> None:
    holdings = after(told(1, [0, 1]), told(2, [0], [1]))

    assert holdings.fold(told(2, [0])) == Changes(lost=places(1))


def test_a_refused_partition_rests_until_an_answer_is_as_new_as_the_refusal() -> None:
    holdings = after(told(4, [0, 1]))

    assert holdings.suspend(places(1, 9), 6) == places(1)
    assert (holdings.active, holdings.assigned) == (places(0), places(0, 1))
    assert holdings.suspend(places(1), 6) == []
    assert holdings.fold(told(5, [0, 1])) == Changes()
    assert holdings.active == places(0)

    assert holdings.fold(told(6, [0, 1])) == Changes()

    assert holdings.active == places(0, 1)


def test_a_refused_partition_that_is_gone_is_lost_and_one_to_let_go_is_revoked() -> None:
    holdings = after(told(4, [0, 1]))
    holdings.suspend(places(0, 1), 5)

    assert holdings.fold(told(5, [], [1])) == Changes(revoked=places(1), lost=places(0))


def test_a_member_that_is_gone_has_lost_all_but_what_it_had_released() -> None:
    holdings = after(told(1, [0, 1, 2]), told(2, [0], [1, 2]))
    holdings.release(places(2)[0])

    assert holdings.lose() == places(0, 1)
    assert holdings.state(places(0)[0]) is None
    assert State.ACTIVE not in {holdings.state(place) for place in places(0, 1, 2)}
