"""Calls of a blocking object, each made of the asynchronous one of the same name by a line.

An object has `_twin`, the asynchronous one, and `_thread`, whose loop runs its calls.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from goqueue.blocking.loop_thread import LoopThread, anext_or_none
from goqueue.models.failures import Closed

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B")


def blocking(
    call: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """A method that waits for the result of its twin's."""

    @wraps(call)
    def run(whole: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        thread: LoopThread = whole._thread
        return thread.run(call(whole._twin, *args, **kwargs))

    return run


def iterated(
    call: Callable[Concatenate[S, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """A method that iterates over what its twin's does."""

    @wraps(call)
    def run(whole: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return each(whole._thread, call(whole._twin, *args, **kwargs))

    return run


def in_batches(
    call: Callable[Concatenate[S, P], AsyncGenerator[T, None]],
    batches: Callable[Concatenate[S, P], AsyncGenerator[B, None]],
    items: Callable[[B], Iterable[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """As `iterated`, over the `items` of what another call of the twin gives: a thread is waited
    for once a batch."""

    @wraps(call)
    def run(whole: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        for batch in each(whole._thread, batches(whole._twin, *args, **kwargs)):
            yield from items(batch)

    return run


def each(thread: LoopThread, found: AsyncGenerator[T, None]) -> Iterator[T]:
    """What the generator yields on the thread's loop; leaving the iteration closes it there."""
    try:
        while (item := thread.run(anext_or_none(found))) is not None:
            yield item
    finally:
        with suppress(Closed):
            thread.run(found.aclose())
