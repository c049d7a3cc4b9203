"""A broker as one key reaches it: every call is held against the rule that is declared with it.

Handlers ask this one in the broker's place, so it makes no difference where a request names a
topic: in its path, its query, its body, a receipt, a pattern, a schedule's or a job's id. What
lists things leaves out those beyond the prefixes. A method without a rule is refused when this
module is imported, and one that is not declared is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from node.api.auth.principal import Principal, Role
from node.api.broker import Broker
from node.api.rules.rule import Rule, Ruled, free, parts_of, rules_of
from node.api.rules.scope import Scope


def broker_for(broker: Broker, principal: Principal | None) -> Broker:
    """The broker itself for nobody's calls, where the front lets those in; for admins of every
    topic, with the groups that they make for owners; else one that keeps to the key's prefixes."""
    if principal is None:
        return broker
    is_admin = principal.role is Role.ADMIN and principal.is_everywhere
    made = _AdminsBroker if is_admin else _ScopedBroker
    return cast(Broker, made(broker, Scope(broker, principal)))


def _broker(name: str, rule_of: Callable[[Ruled], Rule]) -> Any:
    """A class with the parts of `Broker`, each made when it is first asked for."""
    parts = {
        one: _derived(f"{name}.{one}", (), _members(rules_of(declared), rule_of))
        for one, declared in parts_of(Broker).items()
    }

    def part(self: Any, asked: str) -> Any:
        made = parts.get(asked)
        if made is None:
            raise AttributeError(f"the broker has no part {asked}")
        found = made(getattr(self.inner, asked), self.scope)
        setattr(self, asked, found)
        return found

    return _derived(name, parts, {"__getattr__": part})


def _derived(name: str, slots: Iterable[str], members: Mapping[str, Any]) -> Any:
    made = {"__slots__": ("inner", "scope", *slots), "__init__": _store, **members}
    return type(name, (), made)


def _store(self: Any, inner: object, scope: Scope) -> None:
    self.inner, self.scope = inner, scope


def _members(ruled: Mapping[str, Ruled], rule_of: Callable[[Ruled], Rule]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, one in ruled.items():
        rule = rule_of(one)
        is_called = not one.is_property and rule is not free
        found[name] = _called(name, rule) if is_called else property(_judged(name, rule))
    return found


def _judged(name: str, rule: Rule) -> Callable[[Any], Any]:
    return lambda self: rule(self.scope, getattr(self.inner, name))


def _called(name: str, rule: Rule) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **named: Any) -> Any:
        return rule(self.scope, getattr(self.inner, name))(*args, **named)

    return call


_ScopedBroker = _broker("ScopedBroker", lambda ruled: ruled.rule)
_AdminsBroker = _broker("AdminsBroker", lambda ruled: ruled.admins or free)
