"""Budgets of memory: nobody takes more than a share, and those who hold little find room."""

from __future__ import annotations

import random

import pytest

from goqueue.wire.errors import GoQueueError, OverBudget
from node.http.budget.memory import BOUNDS, Bounds, Budget, Budgets, Kind, Owner, owner_of

NODE, HOLDER, CONNECTION, RESERVE, SMALL = 1000, 250, 100, 200, 20


@pytest.fixture
def budget() -> Budget:
    return Budget(Kind.BODIES, Bounds(NODE, HOLDER, CONNECTION, RESERVE, SMALL))


def fill(budget: Budget, holders: int) -> None:
    """Each of so many holders takes all that it may."""
    for holder in range(holders):
        for connection, size in enumerate((CONNECTION, CONNECTION, HOLDER - 2 * CONNECTION)):
            budget.hold(Owner(f"key {holder}", (holder, connection)), size)


def refusal(budget: Budget, owner: Owner, size: int) -> str:
    with pytest.raises(OverBudget) as refused:
        budget.hold(owner, size)
    assert (refused.value.http_status, refused.value.retriable) == (429, True)
    return str(refused.value.data["bound"])


def test_each_bound_refuses_by_its_name_and_charges_nothing(budget: Budget) -> None:
    greedy = Owner("key a", 1)
    held = budget.hold(greedy, 50)
    fill(budget, 3)

    assert refusal(budget, greedy, 51) == "connection"
    assert refusal(budget, Owner("key 0", "another"), 1) == "holder"
    assert refusal(budget, Owner("key b", 2), SMALL + 1) == "share"
    assert budget.used == 3 * HOLDER + 50
    assert (held.size, budget.held_by("key b")) == (50, 0)
    assert budget.refused == {"connection": 1, "holder": 1, "share": 1}


def test_those_who_hold_little_find_room_until_the_node_has_none(budget: Budget) -> None:
    fill(budget, 3)
    budget.hold(Owner("key 3", 0), NODE - RESERVE - budget.used)

    for small in range(RESERVE // SMALL):
        budget.hold(Owner(f"key small {small}", small), SMALL)

    assert budget.used == NODE
    assert refusal(budget, Owner("key late", "late"), 1) == "node"


def test_what_is_held_grows_shrinks_and_is_given_back_whole(budget: Budget) -> None:
    owner = Owner("key a", 1)
    with budget.hold(owner, 10) as held:
        held.grow(30)
        held.shrink(5)
        held.resize(50)
        held.resize(20)
        assert (held.size, budget.used, budget.held_by("key a")) == (20, 20, 20)
        with pytest.raises(OverBudget):
            held.grow(CONNECTION)
        assert held.size == 20
        held.release()
        assert budget.used == 0

    assert (budget.used, budget.held_by("key a"), held.size) == (0, 0, 0)


def test_kinds_do_not_take_from_each_other_and_sums_hold_whatever_happens() -> None:
    rng = random.Random(17)
    budgets = Budgets(dict.fromkeys(Kind, Bounds(NODE, HOLDER, CONNECTION, RESERVE, SMALL)))
    held = []
    for _ in range(5000):
        if held and rng.random() < 0.4:
            held.pop(rng.randrange(len(held)))[1].release()
            continue
        kind, owner = rng.choice(list(Kind)), Owner(f"key {rng.randrange(8)}", rng.randrange(40))
        try:
            held.append((kind, budgets.hold(kind, owner, rng.randrange(60))))
        except OverBudget as error:
            assert error.data["kind"] == kind
        for budget in budgets.all:
            assert budget.used == sum(one.size for kind, one in held if kind is budget.kind)
            assert budget.used <= NODE
    for _, one in held:
        one.release()
    assert all(budget.used == 0 for budget in budgets.all)


def test_a_key_is_a_holder_wherever_it_comes_from_and_a_site_is_one_address() -> None:
    assert owner_of("192.0.2.1", 1, "team-a").holder == owner_of("192.0.2.2", 2, "team-a").holder
    assert owner_of("2001:db8::1", 1).holder == owner_of("2001:db8::ffff:1", 2).holder
    assert owner_of("2001:db8::1", 1).holder != owner_of("2001:db8:0:1::1", 2).holder
    assert owner_of("::ffff:192.0.2.1", 1).holder == owner_of("192.0.2.1", 2).holder
    assert owner_of("192.0.2.1", 1).holder != owner_of("x", 1, "192.0.2.1").holder


@pytest.mark.parametrize("kind", Kind)
def test_defaults_leave_room_for_several_and_for_the_small(kind: Kind) -> None:
    bounds = BOUNDS[kind]

    assert bounds.connection <= bounds.holder <= (bounds.node - bounds.reserve)
    assert bounds.holder <= bounds.node // 2
    assert 0 < bounds.small * 4 <= bounds.reserve


def test_refusal_crosses_the_wire_as_itself() -> None:
    told = GoQueueError.from_body(OverBudget("rows", "holder", 5).to_body())

    assert isinstance(told, OverBudget)
    assert (told.data["kind"], told.data["bound"], told.data["limit"]) == ("rows", "holder", 5)
