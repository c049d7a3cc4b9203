"""What production parts log in a simulated node: nothing, but for errors that nobody expects. Those
end the run, where a node would log them and go on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from tests.sim.coroutines import EXPECTED


class Quiet:
    """A structlog logger."""

    def __init__(self, *_arguments: object, **_named: object) -> None:
        return None

    def bind(self, **_fields: object) -> Quiet:
        return self

    def debug(self, _event: str, **_fields: object) -> None:
        return None

    info = warning = error = critical = debug

    def exception(self, _event: str, **_fields: object) -> None:
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, EXPECTED):
            raise error


@contextmanager
def quiet() -> Iterator[None]:
    """As long as a run lasts."""
    before = structlog.get_config()
    logger: Any = Quiet  # as much of one as is called
    structlog.configure(wrapper_class=logger)
    try:
        yield
    finally:
        structlog.configure(**before)
