"""What a node's words go to: structlog where its process has set that up, else `logging`.

A server sets it up (`logs`). A program that embeds a node may not have: then structlog would print
on standard output, which is the program's. Its logger `goqueue` has the words instead, as a
library's, and the program says what becomes of them.
"""

from __future__ import annotations

import logging
from typing import Any, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger

LIBRARY = "goqueue"
logging.getLogger(LIBRARY).addHandler(logging.NullHandler())  # else warnings go to standard error


def get_logger(name: str) -> FilteringBoundLogger:
    """The logger of one subject: an event, and its fields by name."""
    return cast(FilteringBoundLogger, _Logger(name))


class _Logger:
    """Has the methods of structlog's loggers."""

    def __init__(self, name: str) -> None:
        self._structured: Any = structlog.get_logger(name)
        self._plain: Any = structlog.wrap_logger(
            logging.getLogger(f"{LIBRARY}.{name}"),
            processors=[structlog.stdlib.filter_by_level, _as_line],
            wrapper_class=structlog.stdlib.BoundLogger,
            context_class=dict,
            cache_logger_on_first_use=True,
        )

    def __getattr__(self, method: str) -> Any:
        return getattr(self._structured if structlog.is_configured() else self._plain, method)


def _as_line(
    _logger: object, _method: str, event: EventDict
) -> tuple[tuple[str], dict[str, object]]:
    """As `logging` takes it: the event with its fields behind it, the traceback apart."""
    traceback = {"exc_info": event.pop("exc_info", None)}
    name = str(event.pop("event", ""))
    fields = [f"{key}={value}" for key, value in event.items()]
    return (" ".join([name, *fields]),), traceback
