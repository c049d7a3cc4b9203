"""A broker as one key reaches it: every call is held against the rule that is declared with it.

Handlers ask this one in the broker's place, so it makes no difference where a request names a
topic: in its path, its query, its body, a receipt, a pattern, a schedule's or a job's id. What
lists things leaves out those beyond the prefixes. A method without a rule is refused when this
module is imported, and one that is not declared is not there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from node.api.auth.principal import Principal, Role
from node.api.broker import Broker
from node.api.rules.rule import Rule, Ruled, free, rules_of
from node.api.rules.scope import Scope


def broker_for(broker: Broker, principal: Principal | None) -> Broker:
    """The broker itself for nobody's calls, where the front lets those in; for admins of every
    topic, with the groups that they make for owners; else one that keeps to the key's prefixes."""
    if principal is None:
        return broker
    is_admin = principal.role is Role.ADMIN and principal.is_everywhere
    made = _OfAdmins if is_admin else _Scoped
    return cast(Broker, made(broker, Scope(broker, principal)))


def _derived(name: str, rule_of: Callable[[Ruled], Rule]) -> Any:
    """A class that has what is declared of `Broker`, each behind its rule."""
    members: dict[str, Any] = {"__slots__": ("inner", "scope"), "__init__": _store}
    for one, ruled in rules_of(Broker).items():
        rule = rule_of(ruled)
        is_called = not ruled.is_property and rule is not free
        members[one] = _called(one, rule) if is_called else property(_judged(one, rule))
    return type(name, (), members)


def _store(self: Any, inner: object, scope: Scope) -> None:
    self.inner, self.scope = inner, scope


def _judged(name: str, rule: Rule) -> Callable[[Any], Any]:
    return lambda self: rule(self.scope, getattr(self.inner, name))


def _called(name: str, rule: Rule) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **named: Any) -> Any:
        return rule(self.scope, getattr(self.inner, name))(*args, **named)

    return call


_Scoped = _derived("ScopedBroker", lambda ruled: ruled.rule)
_OfAdmins = _derived("AdminsBroker", lambda ruled: ruled.admins or free)
