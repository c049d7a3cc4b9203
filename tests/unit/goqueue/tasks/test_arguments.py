"""A task's arguments, as data and back."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import BaseModel

from goqueue.tasks import BadArguments
from goqueue.tasks.arguments import Arguments, as_json


@dataclass
class Point:
    x: int
    y: int


class User(BaseModel):
    name: str
    age: int = 0


def plain(a: int, b: str = "b") -> None: ...
def by_name(a: int, *, b: str = "b") -> None: ...
def by_position(a: int, b: int = 2, /) -> None: ...
def many(a: int, *rest: int, **named: str) -> None: ...
def typed(at: datetime.datetime, point: Point, kind: Literal["x", "y"]) -> None: ...
def bounded(n: Annotated[int, msgspec.Meta(ge=0)]) -> None: ...
def untyped(a, b=1): ...  # type: ignore[no-untyped-def]
def modelled(user: User, others: list[User]) -> User: ...  # type: ignore[empty-body]
def opaque(what: object) -> None: ...


NOW = datetime.datetime(2026, 11, 26, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (plain, (1,), {}),
        (plain, (1, "c"), {}),
        (plain, (), {"a": 1}),
        (by_name, (1,), {"b": "c"}),
        (by_position, (1, 3), {}),
        (many, (1, 2, 3), {"x": "y"}),
        (many, (1,), {}),
        (typed, (NOW, Point(1, 2), "x"), {}),
        (bounded, (0,), {}),
        (untyped, ({"a": [1]}, None), {}),
        (modelled, (User(name="ada"), [User(name="eve", age=3)]), {}),
    ],
)
def test_what_is_packed_calls_the_function_as_it_was_meant(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    arguments = Arguments(function)

    packed, results = arguments.pack(args, kwargs)
    told = arguments.unpack(msgspec.json.encode(packed))

    signature = arguments._signature
    assert results == []
    assert signature.bind(*told[0], **told[1]) == signature.bind(*args, **kwargs) or (
        signature.bind(*told[0], **told[1]).arguments == signature.bind(*args, **kwargs).arguments
    )


@pytest.mark.parametrize(
    ("function", "args", "said"),
    [
        (plain, ("x",), "argument a: Expected `int`, got `str`"),
        (plain, (), "missing a required argument: 'a'"),
        (plain, (1, "b", 3), "too many positional arguments"),
        (bounded, (-1,), "argument n: Expected `int` >= 0"),
        (typed, (NOW, Point(1, 2), "z"), "argument kind: Invalid enum value"),
        (modelled, ({"name": "ada", "age": "old"}, []), "argument user: 1 validation error"),
        (opaque, (object(),), "argument what: no JSON can be made of it: object is no data"),
        (opaque, ({1j: 2},), "argument what: no JSON can be made of it"),
    ],
)
def test_what_the_function_would_not_take_is_refused_where_it_is_sent(
    function: Callable[..., Any], args: tuple[Any, ...], said: str
) -> None:
    with pytest.raises(BadArguments) as raised:
        Arguments(function).pack(args, {})

    assert raised.value.message.startswith(said)
    assert (raised.value.code, raised.value.http_status) == ("bad_arguments", 400)


def test_an_annotation_that_is_nowhere_is_told_with_the_function() -> None:
    def lost(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match=r"annotations of .*lost: name 'Missing'"):
        Arguments(lost)


def test_a_result_is_read_as_the_function_says() -> None:
    found = Arguments(modelled).read_result(as_json(User(name="ada"), "result"))

    assert found == User(name="ada")
