"""The cluster group comes, step by step, to have every broker, and the right ones vote."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from coordinator.brokers.electorate import AWAY_MS
from coordinator.brokers.registry import ACTIVE, DRAINED, Broker, Brokers
from coordinator.placement.cluster_steps import cluster_members, cluster_step
from coordinator.placement.steps import Seen, Step, Waiting, refusal
from coordinator.topics.partitions import Configuration
from goqueue.wire.types import Incarnation, Index, NodeId, Voter

STEPS_MAX = 40


def voter(text: str) -> Voter:
    """`a`, or `a2` for its second data directory."""
    return Voter(NodeId(text[0]), Incarnation(int(text[1:] or 1)))


def voters(text: str) -> tuple[Voter, ...]:
    return tuple(sorted(map(voter, text.split())))


def brokers(text: str) -> Brokers:
    """Names of brokers; one with `!` is drained."""
    found: list[Broker] = []
    for word in text.split():
        one = voter(word.rstrip("!"))
        state = DRAINED if word.endswith("!") else ACTIVE
        found.append(Broker(one.node, one.incarnation, "", "", "", "", {}, 0, state))
    return Brokers(found)


def seen(votes: str, learns: str = "", *, leader: str = "a", down: str = "") -> Seen:
    configuration = Configuration(Index(5), voters(votes), voters(learns))
    return Seen(
        configuration,
        NodeId(leader),
        frozenset(one.node for one in configuration.voters if one.node not in down),
        frozenset(one.node for one in configuration.learners if one.node not in down),
    )


def step(known: Brokers, now: Seen, away: str = "") -> str:
    """The next step in short; what it waits for; empty where there is none."""
    found = cluster_step(
        cluster_members(known, now.configuration.voters, lambda node: AWAY_MS * (node in away)), now
    )
    if isinstance(found, Step):
        assert refusal(found, now) is None
        return f"{found.kind} {found.voter.node}{found.voter.incarnation}"
    return "" if found is None else "waits"


def test_every_broker_follows_and_three_of_four_vote() -> None:
    assert step(brokers("a b c d"), seen("a b c")) == "add_learner d1"
    assert step(brokers("a b c d"), seen("a b c", "d")) == ""


def test_one_grows_to_three_as_learners_first() -> None:
    assert step(brokers("a b"), seen("a")) == "add_learner b1"
    assert step(brokers("a b"), seen("a", "b")) == ""
    assert step(brokers("a b c"), seen("a", "b")) == "promote b1"
    assert step(brokers("a b c"), seen("a b", "c")) == "promote c1"


def test_a_broker_is_let_in_while_another_is_waited_for() -> None:
    assert step(brokers("a b c d"), seen("a b", "c", down="c")) == "add_learner d1"


def test_a_wiped_voter_goes_and_comes_back_as_a_learner() -> None:
    known = brokers("a b c2")
    assert step(known, seen("a b c", down="c")) == "remove c1"
    assert step(known, seen("a b")) == "add_learner c2"
    assert step(known, seen("a b", "c2")) == "promote c2"


def test_a_wiped_learner_goes_and_comes_back() -> None:
    known = brokers("a b c d2")
    assert step(known, seen("a b c", "d")) == "remove d1"
    assert step(known, seen("a b c")) == "add_learner d2"


def test_a_removed_broker_takes_no_part() -> None:
    assert step(brokers("a b c"), seen("a b c", "d")) == "remove d1"


def test_a_founder_that_has_yet_to_register_keeps_its_vote() -> None:
    assert step(brokers("a"), seen("a b c")) == ""


def test_a_drained_leader_hands_over_before_it_goes() -> None:
    known = brokers("a! b c d")
    assert step(known, seen("a b c", "d")) == "promote d1"
    assert step(known, seen("a b c d")) == "transfer b1"
    assert step(known, seen("a b c d", leader="b")) == "remove a1"
    assert step(known, seen("b c d", leader="b")) == "add_learner a1"


def test_a_voter_away_for_long_is_replaced_only_where_another_is_there() -> None:
    assert step(brokers("a b c"), seen("a b c", down="c"), away="c") == ""
    known = brokers("a b c d")
    assert step(known, seen("a b c", "d", down="c"), away="c") == "promote d1"
    assert step(known, seen("a b c d", down="c"), away="c") == "remove c1"


def test_the_majority_s_disks_are_not_written_off() -> None:
    assert step(brokers("a b2 c2"), seen("a b c", down="bc")) == "waits"


@given(
    st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=7, unique=True),
    st.sets(st.sampled_from("abcdefg")),
    st.sets(st.sampled_from("abcdefg")),
)
def test_any_cluster_settles_within_few_steps(
    names: list[str], drained: set[str], wiped: set[str]
) -> None:
    """From founders to the electorate, with all there; no step leaves fewer than a majority."""
    founders = names[:5]
    lost = sorted(wiped & set(founders))[: (len(founders) - 1) // 2]
    kept = set(names) - drained
    known = brokers(" ".join(f"{n}{2 if n in lost else 1}{'!' * (n not in kept)}" for n in names))
    leader = next(n for n in founders if n not in lost)
    now = seen(" ".join(founders), leader=leader, down="".join(lost))
    found: Step | Waiting | None = None
    for _ in range(STEPS_MAX):
        found = cluster_step(cluster_members(known, now.configuration.voters, lambda _: 0), now)
        if not isinstance(found, Step):
            break
        assert refusal(found, now) is None
        now = taken(found, now, known)
    everyone = {broker.voter for broker in known.by_name.values()}
    assert found is None or (isinstance(found, Waiting) and not kept)
    if kept:
        assert set(now.configuration.everyone) == everyone
        assert len(now.configuration.voters) in (1, 2, 3, 5)


def taken(found: Step, now: Seen, known: Brokers) -> Seen:
    """What the leader sees once the step has committed, and who is there has caught up."""
    votes, learns = set(now.configuration.voters), set(now.configuration.learners)
    leader = now.leader
    if found.kind == "transfer":
        leader = found.voter.node
    elif found.kind == "add_learner":
        learns.add(found.voter)
    elif found.kind == "promote":
        learns.remove(found.voter)
        votes.add(found.voter)
    else:
        votes.discard(found.voter)
        learns.discard(found.voter)
        if found.voter.node == leader:
            leader = min(votes).node
    there = {broker.voter for broker in known.by_name.values()}
    return replace(
        now,
        configuration=Configuration(
            Index(now.configuration.index + 1), tuple(sorted(votes)), tuple(sorted(learns))
        ),
        leader=leader,
        in_sync=frozenset(one.node for one in votes & there),
        caught_up=frozenset(one.node for one in learns & there),
    )
