"""Messages that a read was to have and that are no more: an error that says which, or a warning."""

from __future__ import annotations

import sys

ADVICE = "to go on without them, set failOnDataLoss to false"


class DataLoss(Exception):
    """Messages that were to be read are gone. It says which, why, and how to go on."""


def lost(what: str, *, fail: bool) -> None:
    """Raise DataLoss, or say it to standard error, which Spark keeps with the task's log."""
    if fail:
        raise DataLoss(f"{what}; {ADVICE}")
    print(f"goqueue: data loss: {what}", file=sys.stderr, flush=True)


def offsets_gone(topic: str, partition: int, start: int, log_start: int) -> str:
    """That retention was faster."""
    return (
        f"{topic}:{partition}: offsets {start} to {log_start - 1} are deleted: "
        f"the log begins at {log_start} now"
    )


def entries_gone(topic: str, partition: int, start: int, log_start: int) -> str:
    """The same of the log's entries, which events come by."""
    return (
        f"{topic}:{partition}: the events of entries {start} to {log_start - 1} are deleted: "
        f"the log begins with entry {log_start} now"
    )


def end_gone(topic: str, partition: int, start: int, end: int) -> str:
    """That the log is shorter than it was."""
    return (
        f"{topic}:{partition}: reading had come to offset {start}, but the log ends at {end}: "
        "what followed was lost, by a forced recovery"
    )


def recreated(topic: str, planned: str, found: str) -> str:
    return (
        f"{topic} was deleted and created again (id {planned}, now {found}): "
        "what was not read of the old one is gone"
    )


def deleted(topic: str) -> str:
    return f"{topic} was deleted: what was not read of it is gone"
