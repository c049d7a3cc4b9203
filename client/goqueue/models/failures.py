"""The errors that only a client can have, beside those of `goqueue.wire.errors`."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.wire.errors import Conflict, Forbidden, GoQueueError, Unauthenticated

if TYPE_CHECKING:
    from goqueue.models.messages import Published
    from goqueue.models.settles import Settled


def is_final(error: GoQueueError) -> bool:
    """Whether what has gone well before can't go well again. What looks like a fault of the request
    may be one of a node that is older or newer than it, or that has not caught up yet."""
    return isinstance(error, Unauthenticated | Forbidden | Closed)


class Closed(GoQueueError):
    """The client or producer was closed."""

    code, http_status, text = "closed", 400, "already closed"


class EngineMissing(GoQueueError):
    """A directory is to be opened, and the engine that opens directories is not installed."""

    code, http_status = "engine_missing", 400
    text = 'a directory needs the engine, which is not installed: pip install "goqueue[local]"'


class DirectoryInUse(Conflict):
    """Another process has the directory open, and does not answer for it."""

    code, retriable, text = "directory_in_use", True, "another process has the directory open"


class DirectoryUnusable(GoQueueError):
    """The system does not let the directory be opened: it is a file, say, or another user's."""

    code, http_status = "directory_unusable", 400


class Empty(GoQueueError, queue.Empty):
    """A queue had nothing to give within the time: also a `queue.Empty`."""

    code, http_status, retriable, text = "empty", 404, True, "the queue is empty"


class PublishFailed(GoQueueError):
    """Some messages of a call were not published, or it is not known whether they were.

    `results` has one entry a message, in the order given: where it stands, or its error.
    `outcome` is `unknown` if that of any message is.
    """

    code, http_status = "publish_failed", 500

    def __init__(self, results: Sequence[Published | GoQueueError]) -> None:
        self.results = list(results)
        errors = [result for result in self.results if isinstance(result, GoQueueError)]
        first = f": {errors[0].message}" if errors else ""
        unknown = any(error.outcome == "unknown" for error in errors)
        super().__init__(
            f"{len(errors)} of {len(self.results)} messages not published{first}",
            outcome="unknown" if unknown else "none",
            retriable=all(error.retriable for error in errors),
        )


class SettleFailed(GoQueueError):
    """Some messages of an `ack`, `nack`, `reject` or `extend` were not settled.

    `results` has one entry a message, in the order given: what became of it, or its error.
    `outcome` is `unknown` if that of any message is.
    """

    code, http_status = "settle_failed", 409

    def __init__(self, results: Sequence[Settled | GoQueueError]) -> None:
        self.results = list(results)
        errors = [result for result in self.results if isinstance(result, GoQueueError)]
        first = f": {errors[0].message}" if errors else ""
        unknown = any(error.outcome == "unknown" for error in errors)
        super().__init__(
            f"{len(errors)} of {len(self.results)} messages not settled{first}",
            outcome="unknown" if unknown else "none",
            retriable=all(error.retriable for error in errors),
        )
