"""Voters of the cluster group stay while they can, and are replaced where others are there."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from coordinator.brokers.electorate import AWAY_MS, Elector, electorate
from goqueue.wire.types import Incarnation, NodeId, Voter


def elector(name: str, zone: str = "", *, takes: bool = True, away_ms: int = 0) -> Elector:
    return Elector(Voter(NodeId(name), Incarnation(1)), zone, takes, away_ms)


def among(*brokers: Elector) -> dict[NodeId, Elector]:
    return {one.voter.node: one for one in brokers}


def names(voters: tuple[Voter, ...]) -> str:
    return " ".join(voter.node for voter in voters)


def voters(brokers: dict[NodeId, Elector], text: str) -> list[Voter]:
    return [brokers[NodeId(name)].voter for name in text.split()]


def test_those_that_vote_go_on() -> None:
    brokers = among(*(elector(name) for name in "abcde"))

    assert names(electorate(brokers, voters(brokers, "c d e"))) == "c d e"


def test_one_that_was_away_for_long_is_replaced_where_another_is_there() -> None:
    brokers = among(elector("a"), elector("b"), elector("c", away_ms=AWAY_MS), elector("d"))

    assert names(electorate(brokers, voters(brokers, "a b c"))) == "a b d"
    del brokers[NodeId("d")]
    assert names(electorate(brokers, voters(brokers, "a b c"))) == "a b c"


def test_a_drained_broker_votes_no_more() -> None:
    brokers = among(elector("a"), elector("b"), elector("c", takes=False), elector("d"))

    assert names(electorate(brokers, voters(brokers, "a b c"))) == "a b d"


def test_voters_are_spread_over_zones() -> None:
    brokers = among(*(elector(name, zone) for name, zone in zip("abcd", "xxyz", strict=True)))

    assert names(electorate(brokers, voters(brokers, "a b c"))) == "a c d"


def test_two_brokers_have_one_voter_and_four_have_three() -> None:
    assert len(electorate(among(elector("a"), elector("b")), [])) == 1
    assert len(electorate(among(*map(elector, "abcd")), [], 5)) == 3


def test_two_that_vote_stay_two_where_there_is_no_third() -> None:
    brokers = among(*map(elector, "ab"))

    assert names(electorate(brokers, voters(brokers, "a b"), 5)) == "a b"
    assert names(electorate(brokers, voters(brokers, "b"), 5)) == "b"


@given(
    st.dictionaries(
        st.sampled_from("abcdefgh"),
        st.tuples(st.sampled_from("xyz"), st.booleans(), st.sampled_from([0, AWAY_MS])),
    ),
    st.sampled_from([1, 3, 5]),
)
def test_the_electorate_is_odd_and_changes_nothing_twice(
    found: dict[str, tuple[str, bool, int]], voters_max: int
) -> None:
    brokers = among(
        *(
            elector(name, zone, takes=takes, away_ms=away)
            for name, (zone, takes, away) in found.items()
        )
    )

    chosen = electorate(brokers, [], voters_max)

    assert len(chosen) % 2 == 1 or not any(one.takes for one in brokers.values())
    assert all(brokers[voter.node].takes for voter in chosen)
    assert electorate(brokers, chosen, voters_max) == chosen
    away = Counter(brokers[voter.node].away_ms > 0 for voter in chosen)
    here = sum(one.takes and not one.away_ms for one in brokers.values())
    assert away[False] == min(len(chosen), here)
