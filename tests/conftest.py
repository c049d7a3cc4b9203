"""What all tests share: properties are not timed, as the machine they run on is shared, and
tracebacks in the log are plain, as those of nodes are: coloured ones take a quarter of a second."""

from __future__ import annotations

import gc

import structlog
from hypothesis import settings

settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")

structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        ),
    ]
)


def pytest_collection_finish() -> None:
    """As a node does at its start: the tests themselves are not looked through again while they
    run, which takes 0.4 s each time among thousands of them."""
    gc.collect()
    gc.freeze()
