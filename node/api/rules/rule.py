"""Rules of the broker's methods: what a call is held against before it is made.

A rule takes the scope and the method, and returns what is called in the method's place; it raises
what refuses the call, OutOfScope (403) mostly. It stands on the method's declaration:

    @scoped(topic)
    async def flush(self, topic: str) -> None: ...

What is declared without a rule can't be called by anybody: `rules_of` refuses it at import.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, get_type_hints

from goqueue.wire.errors import Forbidden
from node.api.rules.scope import Scope

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Rule = Callable[[Scope, Any], Any]

_RULED = "__ruled__"


@dataclass(frozen=True, slots=True)
class Ruled:
    """What holds for one method: `rule` for keys with prefixes; `admins` for admins of every topic,
    who have the method itself where it is None."""

    rule: Rule
    admins: Rule | None = None
    is_property: bool = False


def scoped(rule: Rule, *, admins: Rule | None = None) -> Callable[[F], F]:
    """Put a rule on a method's declaration, below `@property` where it is one."""

    def put(method: F) -> F:
        setattr(method, _RULED, Ruled(rule, admins))
        return method

    return put


def rules_of(declared: type) -> dict[str, Ruled]:
    """The rules of all public methods and properties that a Protocol declares, by name. Raises
    TypeError where one has none."""
    found: dict[str, Ruled] = {}
    for base in declared.__mro__:
        if base in (object, Generic, Protocol):
            continue
        for name, member in vars(base).items():
            if name.startswith("_"):
                continue
            is_property = isinstance(member, property)
            ruled = getattr(member.fget if is_property else member, _RULED, None)
            if not isinstance(ruled, Ruled):
                raise TypeError(f"{base.__name__}.{name} is declared without a rule")
            found.setdefault(name, Ruled(ruled.rule, ruled.admins, is_property))
    return found


def parts_of(declared: type) -> dict[str, type]:
    """The parts that a Protocol is made of, by name: each a property that returns a Protocol.
    Raises TypeError for anything else that is public: it would be beside all rules."""
    found: dict[str, type] = {}
    for base in declared.__mro__:
        if base in (object, Generic, Protocol):
            continue
        for name, member in vars(base).items():
            if name.startswith("_"):
                continue
            part = get_type_hints(member.fget)["return"] if isinstance(member, property) else None
            if not (isinstance(part, type) and getattr(part, "_is_protocol", False)):
                raise TypeError(f"{base.__name__}.{name} is no part: a property of a Protocol")
            found.setdefault(name, part)
    return found


def free(_scope: Scope, method: T) -> T:
    """Concerns no topic and no group."""
    return method


def topic(scope: Scope, method: Callable[..., Awaitable[T]]) -> Any:
    """The first argument is a topic."""

    async def checked(topic: str, *rest: Any, **named: Any) -> T:
        scope.principal.require(topic)
        return await method(topic, *rest, **named)

    return checked


def known(scope: Scope, method: Callable[..., T]) -> Callable[..., T]:
    """As `topic`, of a method that answers at once."""

    def checked(topic: str, *rest: Any, **named: Any) -> T:
        scope.principal.require(topic)
        return method(topic, *rest, **named)

    return checked


def everywhere(scope: Scope, method: Callable[..., T]) -> Callable[..., T]:
    """For keys of every topic."""
    scope.principal.require_everywhere(getattr(method, "__name__", "this"))
    return method


def admins(_scope: Scope, _method: object) -> Any:
    """For admins of every topic, who have the method itself."""
    raise Forbidden("this is for admins of every topic", missing="scope")
