"""Methods and their rules: one without is refused, whoever asks."""

from __future__ import annotations

from typing import Any, Protocol, cast

import pytest

from goqueue.wire.errors import Forbidden
from node.api.auth.principal import OutOfScope, Principal, Role
from node.api.rules.rule import admins, everywhere, free, known, parts_of, rules_of, scoped, topic
from node.api.rules.scope import Scope

MINE = Principal("mine", Role.CONSUMER, ("mine.",))
EVERYWHERE = Principal("all", Role.CONSUMER, ("",))


def scope_of(principal: Principal) -> Scope:
    return Scope(cast(Any, None), principal)


class Ruled(Protocol):
    @property
    @scoped(free)
    def name(self) -> str: ...

    @scoped(topic)
    async def read(self, topic: str) -> str: ...


class Upper(Ruled, Protocol):
    @scoped(everywhere, admins=free)
    async def all(self) -> str: ...


async def read(topic: str) -> str:
    return f"read {topic}"


def test_rules_of_ancestors_count_and_properties_are_told_from_methods() -> None:
    found = rules_of(Upper)

    assert {name: (one.rule, one.admins, one.is_property) for name, one in found.items()} == {
        "all": (everywhere, free, False),
        "read": (topic, None, False),
        "name": (free, None, True),
    }


def test_a_method_without_a_rule_is_refused() -> None:
    class Forgotten(Ruled, Protocol):
        async def write(self, topic: str) -> None: ...

    with pytest.raises(TypeError, match=r"Forgotten\.write is declared without a rule"):
        rules_of(Forgotten)


def test_a_property_without_a_rule_is_refused() -> None:
    class Forgotten(Protocol):
        @property
        def secret(self) -> str: ...

    with pytest.raises(TypeError, match=r"Forgotten\.secret is declared without a rule"):
        rules_of(Forgotten)


def test_a_method_that_is_declared_anew_without_its_rule_is_refused() -> None:
    class Anew(Ruled, Protocol):
        async def read(self, topic: str) -> str: ...

    with pytest.raises(TypeError, match=r"Anew\.read is declared without a rule"):
        rules_of(Anew)


async def test_a_topic_is_held_against_the_keys_prefixes() -> None:
    checked = topic(scope_of(MINE), read)

    assert await checked("mine.orders") == "read mine.orders"
    with pytest.raises(OutOfScope):
        await checked("others.orders")


def test_a_method_that_answers_at_once_is_held_against_them_too() -> None:
    counted = known(scope_of(MINE), len)

    assert counted("mine.orders") == 11
    with pytest.raises(OutOfScope):
        counted("others.orders")


async def test_what_concerns_every_topic_is_for_keys_of_every_topic() -> None:
    assert await everywhere(scope_of(EVERYWHERE), read)("any") == "read any"
    with pytest.raises(OutOfScope):
        everywhere(scope_of(MINE), read)


def test_what_admins_have_nobody_else_is_given() -> None:
    with pytest.raises(Forbidden):
        admins(scope_of(EVERYWHERE), read)


class Whole(Protocol):
    @property
    def ruled(self) -> Ruled: ...

    @property
    def upper(self) -> Upper: ...


def test_parts_are_properties_of_protocols() -> None:
    assert parts_of(Whole) == {"ruled": Ruled, "upper": Upper}


def test_what_is_no_part_is_refused_for_it_would_be_beside_all_rules() -> None:
    class Method(Whole, Protocol):
        async def write(self, topic: str) -> None: ...

    class Value(Whole, Protocol):
        @property
        def secret(self) -> str: ...

    for wrong in (Method, Value):
        with pytest.raises(TypeError, match="is no part"):
            parts_of(wrong)
