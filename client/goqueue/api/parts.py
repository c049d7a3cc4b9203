"""Calls of a whole that one of its parts runs: declared by a line each, with the part's types."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from operator import attrgetter
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


class Part(Generic[S]):
    """The name under which objects keep a part of theirs. Called with a method of the part's
    class, it gives the method of theirs that runs it: of the same arguments, result and text."""

    def __init__(self, attribute: str) -> None:
        self._of = attrgetter(attribute)

    def __call__(self, method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[Any, P], R]:
        of = self._of
        if iscoroutinefunction(method):

            @wraps(method)
            async def run_async(whole: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
                return await cast("Callable[..., Any]", method)(of(whole), *args, **kwargs)

            return cast("Callable[Concatenate[Any, P], R]", run_async)

        @wraps(method)
        def run(whole: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return method(of(whole), *args, **kwargs)

        return run
