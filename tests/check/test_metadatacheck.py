"""The checker of topics: histories of a locked object pass, and what no lock explains is named."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.check.history import Event
from tests.check.linearizable import Operation, contradiction
from tests.check.metadatacheck import ABSENT, after, check
from tests.steps import Steps

CALL_STEPS_MAX = 1000
"""Of judging one call of many; 410 today."""
ACTIONS = ("create", "alter", "describe", "describe", "delete")


@dataclass
class Call:
    """One call on a topic behind a lock: it takes effect between its begin and its end."""

    op: int
    client: str
    action: str
    topic: str
    began: float
    effect: float
    ended: float
    outcome: str = ""
    shown: int | None = None

    def happen(self, topics: dict[str, int]) -> None:
        is_there = self.topic in topics
        if self.action == "create":
            self.outcome = "exists" if is_there else "ok"
            topics.setdefault(self.topic, self.op)
        elif not is_there:
            self.outcome = "absent"
        else:
            self.outcome = "ok"
            if self.action == "alter":
                topics[self.topic] = self.op
            elif self.action == "delete":
                del topics[self.topic]
            else:
                self.shown = topics[self.topic]


def calls(seed: int, count: int = 150, clients: int = 5, lost: float = 0.1) -> list[Call]:
    """Overlapping calls on two topics; of those that are `lost` nobody learns how they ended, and
    every other one of them never happened."""
    rng = random.Random(seed)
    free = dict.fromkeys(range(clients), 0.0)
    made: list[Call] = []
    for op in range(count):
        client = min(free, key=lambda one: free[one])
        began = free[client] + rng.random() * 0.1
        effect = began + rng.random()
        free[client] = ended = effect + rng.random()
        action, topic = rng.choice(ACTIONS), f"topic-{rng.randrange(2)}"
        made.append(Call(op, f"c{client}", action, topic, began, effect, ended))
    topics: dict[str, int] = {}
    for call in sorted(made, key=lambda one: one.effect):
        if rng.random() < lost:
            if rng.random() < 0.5:
                call.happen(topics)
            call.outcome, call.shown = "unknown", None
        else:
            call.happen(topics)
    return made


def events(made: list[Call]) -> list[Event]:
    """The history of these calls, in the order of time."""
    found: list[Event] = []
    for one in made:
        call: dict[str, Any] = {"client": one.client, "action": one.action, "topic": one.topic}
        found.append({"type": "call", "op": one.op, "time": one.began, "value": one.op, **call})
        end = {"op": one.op, "outcome": one.outcome, "value": one.shown}
        found.append({"type": "answered", "time": one.ended, **end})
    return sorted(found, key=lambda event: event["time"])


@pytest.mark.parametrize("seed", range(20))
def test_history_of_locked_topics_is_clean(seed: int) -> None:
    verdict = check(events(calls(seed)))

    assert list(verdict.lines()) == []
    assert verdict.calls == 150
    assert verdict.unknown > 0


def shows_what_was_before(made: list[Call]) -> bool:
    """A describe shows the setting that the one before it showed, though another was written and
    acknowledged in between."""
    shown = [one for one in made if one.shown is not None]
    for former, later in itertools.permutations(shown, 2):
        written = [
            one
            for one in made
            if one.action == "alter"
            and one.outcome == "ok"
            and one.topic == later.topic
            and former.ended < one.began
            and one.ended < later.began
        ]
        if former.topic == later.topic and former.shown != later.shown and written:
            later.shown = former.shown
            return True
    return False


def finds_what_is_deleted(made: list[Call]) -> bool:
    """A deletion is acknowledged twice, with nothing created in between."""
    for one, other in itertools.permutations(made, 2):
        if one.action == "delete" and one.outcome == "ok" and one.topic == other.topic:
            between = any(
                call.action == "create"
                and call.topic == one.topic
                and call.outcome != "exists"
                and call.ended > one.began
                and call.began < other.ended
                for call in made
            )
            if other.action == "delete" and other.began > one.ended and not between:
                other.outcome = "ok"
                return True
    return False


def shows_what_nobody_wrote(made: list[Call]) -> bool:
    for one in made:
        if one.shown is not None:
            one.shown = 10_000
            return True
    return False


def is_created_twice(made: list[Call]) -> bool:
    """A creation that was told that the topic exists is told that it made it."""
    for one in made:
        if one.action == "create" and one.outcome == "exists":
            deleted = any(
                call.action == "delete" and call.topic == one.topic and call.outcome != "absent"
                for call in made
            )
            if not deleted:
                one.outcome = "ok"
                return True
    return False


@pytest.mark.parametrize(
    "plant", [shows_what_was_before, finds_what_is_deleted, shows_what_nobody_wrote]
)
def test_planted_fault_is_found(plant: Callable[[list[Call]], bool]) -> None:
    planted = 0
    for seed in range(60):
        made = calls(seed, lost=0)
        if plant(made):
            planted += 1
            assert check(events(made)).rules() == {"M1"}, f"seed {seed}"
    assert planted >= 10


def test_topic_that_was_never_deleted_is_created_once() -> None:
    made = [one for one in calls(3, lost=0) if one.action != "delete"]
    topics: dict[str, int] = {}
    for one in sorted(made, key=lambda call: call.effect):
        one.shown = None
        one.happen(topics)
    assert check(events(made)).is_clean

    assert is_created_twice(made)

    assert check(events(made)).rules() == {"M1"}


def test_call_of_unknown_end_may_take_effect_later_or_never() -> None:
    create = Operation("a", "create", 1, "ok", 0, 1)
    alter = Operation("b", "alter", 2, "unknown", 2)
    old = Operation("a", "describe", None, ("ok", 1), 3, 4)
    new = Operation("a", "describe", None, ("ok", 2), 5, 6)
    again = Operation("a", "describe", None, ("ok", 1), 7, 8)

    assert contradiction([create, alter, old], ABSENT, after) is None
    assert contradiction([create, alter, old, new], ABSENT, after) is None
    assert contradiction([create, alter, old, new, again], ABSENT, after) == [again]


def test_calls_that_overlap_may_happen_in_any_order() -> None:
    create = Operation("a", "create", 1, "ok", 0, 1)
    alters = [Operation(f"c{n}", "alter", n, "ok", 2, 5) for n in (2, 3, 4)]
    shown = [
        Operation("r", "describe", None, ("ok", value), 6 + n, 6.5 + n)
        for n, value in enumerate((3, 3, 2))
    ]

    assert contradiction([create, *alters, shown[0], shown[1]], ABSENT, after) is None
    assert contradiction([create, *alters, *shown], ABSENT, after) is not None


def brute_force(operations: list[Operation]) -> bool:
    """Whether any order of any subset that has all closed calls explains the answers."""
    closed = [one for one in operations if not one.is_open]
    open_ones = [one for one in operations if one.is_open]
    for size in range(len(open_ones) + 1):
        for some in itertools.combinations(open_ones, size):
            for order in itertools.permutations([*closed, *some]):
                if _explains(order):
                    return True
    return False


def _explains(order: tuple[Operation, ...]) -> bool:
    state = ABSENT
    for n, one in enumerate(order):
        if any(later.ended < one.began for later in order[n + 1 :]):
            return False
        found = after(state, one)
        if found is None:
            return False
        state = found
    return True


def test_search_agrees_with_trying_every_order() -> None:
    rng = random.Random(7)
    verdicts = [0, 0]
    for seed in range(400):
        made = calls(seed, count=6, clients=3, lost=0.2)
        for one in made:
            one.topic = "topic"
        for one in rng.sample(made, 2):
            if one.shown is not None:
                one.shown = rng.randrange(6)
        operations = [
            Operation(
                one.client,
                one.action,
                one.op,
                ("ok", one.shown if one.shown is not None else 99)
                if one.action == "describe" and one.outcome == "ok"
                else one.outcome,
                one.began,
                float("inf") if one.outcome == "unknown" else one.ended,
            )
            for one in made
        ]
        expected = brute_force(operations)
        assert (contradiction(operations, ABSENT, after) is None) == expected, f"seed {seed}"
        for one in made:
            if one.action == "describe" and one.outcome == "ok" and one.shown is None:
                one.shown = 99
        assert check(events(made)).is_clean == expected, f"seed {seed}"
        verdicts[expected] += 1
    assert min(verdicts) >= 40


def test_two_thousand_calls_take_so_many_steps_each() -> None:
    told = events(calls(11, count=2_000, clients=8))

    with Steps() as counted:
        verdict = check(told)

    assert verdict.is_clean
    assert counted.count < 2_000 * CALL_STEPS_MAX


@pytest.mark.parametrize("plant", [None, shows_what_nobody_wrote, shows_what_was_before])
def test_many_calls_of_unknown_end_take_no_more_steps_than_others(
    plant: Callable[[list[Call]], bool] | None,
) -> None:
    """As in a run whose clients ask nodes that are dead: nothing may be tried in every order."""
    found = 0
    for seed in range(4):
        made = calls(seed, count=800, clients=6, lost=0.2)
        if plant is not None and not plant(made):
            continue
        with Steps() as counted:
            verdict = check(events(made))
        assert verdict.unknown > 50
        assert counted.count < 800 * CALL_STEPS_MAX
        found += not verdict.is_clean

    assert found == {None: 0, shows_what_nobody_wrote: 4}.get(plant, found)


def test_a_call_that_was_never_sent_is_none() -> None:
    made = calls(3, lost=0)
    never = Call(10_000, "c9", "delete", made[0].topic, 0.5, 0.6, 0.7, "unsent")

    verdict = check(events([*made, never]))

    assert verdict.is_clean
    assert (verdict.calls, verdict.unknown) == (len(made), 0)


def test_a_change_that_is_written_twice_is_found() -> None:
    """A node that lost the answer sent an alteration again, and took back what another client had
    written in between."""
    again = [
        Call(1, "a", "create", "t", 0, 0, 1, "ok"),
        Call(2, "b", "alter", "t", 2, 0, 9, "ok"),
        Call(3, "c", "describe", "t", 3, 0, 4, "ok", 2),
        Call(4, "c", "alter", "t", 5, 0, 6, "ok"),
        Call(5, "c", "describe", "t", 10, 0, 11, "ok", 2),
    ]

    assert check(events(again)).rules() == {"M1"}
