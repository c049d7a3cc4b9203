"""What all tests share: properties are not timed, as the machine they run on is shared, and
tracebacks in the log are plain, as those of nodes are: coloured ones take a quarter of a second."""

from __future__ import annotations

import gc
import os
import sys

import pytest
import structlog
from hypothesis import settings

pytest_plugins = ["goqueue.testing.plugin", "pytester"]

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


GARBAGE_MAX = 512 << 20


class _Garbage:
    """Nodes that a test has stopped: each holds 300 MB of a disk in memory, in few objects. The
    collector counts objects, so it comes to them late or never: one worker grew to 18 GB, and the
    machine ended it."""

    def __init__(self) -> None:
        self._after_last = 0

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        if _resident_bytes() > self._after_last + GARBAGE_MAX:
            gc.collect()
            self._after_last = _resident_bytes()


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def pytest_configure(config: pytest.Config) -> None:
    if sys.platform == "linux":
        config.pluginmanager.register(_Garbage())
