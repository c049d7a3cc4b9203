"""A task's arguments as the value of its message: a JSON object, checked against the function's
annotations when it is sent and again when it is run.

Annotations are read by msgspec: dataclasses, Structs, TypedDicts, datetimes, Literals, bounds by
`Annotated`, and so on. Pydantic's models are read by themselves; pydantic need not be installed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

import msgspec
from msgspec import UNSET

from goqueue.wire.errors import BadRequest
from goqueue.wire.unreadable import UNREADABLE

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class BadArguments(BadRequest):
    """Arguments that the task's function does not take."""

    code, text = "bad_arguments", "the task does not take these arguments"


class _Result:
    def __repr__(self) -> str:
        return "RESULT"


RESULT: Any = _Result()
"""Stands for the result of the task before, as a whole argument of one that follows by `then`;
after `all_of`, for the list of all results."""


class Arguments:
    """What one function takes. Raises TypeError where its annotations can't be resolved."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._signature = inspect.signature(function)
        try:
            hints = get_type_hints(function, include_extras=True)
        except NameError as error:
            raise TypeError(f"annotations of {function.__qualname__}: {error}") from None
        self._types = {
            name: _type_of(parameter, hints.get(name, Any))
            for name, parameter in self._signature.parameters.items()
        }
        fields = [(name, annotation, UNSET) for name, annotation in self._types.items()]
        whole = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        self._decoder = msgspec.json.Decoder(whole, dec_hook=_decoded)
        self._result: Any = hints.get("return", Any)
        self._required = [
            name
            for name, parameter in self._signature.parameters.items()
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]

    def pack(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, msgspec.Raw], list[str]]:
        """The arguments by name, each as JSON, and the names of those that are `RESULT`. Raises
        BadArguments where the function would not take them."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise BadArguments(str(error)) from None
        results = [name for name, value in bound.arguments.items() if value is RESULT]
        packed = {
            name: self._checked(name, value)
            for name, value in bound.arguments.items()
            if value is not RESULT
        }
        return packed, results

    def unpack(self, value: bytes) -> tuple[list[Any], dict[str, Any]]:
        """What to call the function with. Raises BadArguments."""
        try:
            found = self._decoder.decode(value)
        except UNREADABLE as error:
            raise BadArguments(f"arguments: {error}") from None
        missing = [name for name in self._required if getattr(found, name) is UNSET]
        if missing:
            raise BadArguments(f"arguments: {', '.join(missing)} missing")
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        by_position = True
        for name, parameter in self._signature.parameters.items():
            given = getattr(found, name)
            if given is UNSET:  # the function's own default; what follows goes by name
                by_position = by_position and parameter.kind is parameter.VAR_POSITIONAL
            elif parameter.kind is parameter.VAR_POSITIONAL:
                args.extend(given)
            elif parameter.kind is parameter.VAR_KEYWORD:
                kwargs.update(given)
            elif by_position and parameter.kind in _BY_POSITION:
                args.append(given)
            else:
                kwargs[name] = given
        return args, kwargs

    def read_result(self, value: bytes) -> Any:
        """What the function returned, as its annotation has it. Raises BadArguments."""
        kind = Any if self._result is None else self._result
        try:
            return msgspec.json.decode(value, type=kind, dec_hook=_decoded)
        except UNREADABLE as error:
            raise BadArguments(f"result: {error}") from None

    def _checked(self, name: str, value: Any) -> msgspec.Raw:
        raw = as_json(value, f"argument {name}")
        try:
            msgspec.json.decode(raw, type=self._types[name], dec_hook=_decoded)
        except UNREADABLE as error:
            raise BadArguments(f"argument {name}: {error}") from None
        return msgspec.Raw(raw)


def as_json(value: object, what: str) -> bytes:
    """The value as JSON. Raises BadArguments, naming `what`, where none can be made of it."""
    try:
        return msgspec.json.encode(value, enc_hook=_encoded)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadArguments(f"{what}: no JSON can be made of it: {error}") from None


def _type_of(parameter: inspect.Parameter, annotation: Any) -> Any:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return list[annotation]
    if parameter.kind is parameter.VAR_KEYWORD:
        return dict[str, annotation]
    return annotation


def _encoded(value: Any) -> Any:
    if hasattr(value, "model_dump"):  # a model of pydantic's
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is no data")


def _decoded(kind: Any, value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise TypeError(f"{getattr(kind, '__name__', kind)} can't be made of JSON")
