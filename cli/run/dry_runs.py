"""What a dry run says where the same command without it would be refused: that is its answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cli.output.errors import HINTS, CliError
from cli.output.terminal import note, warn
from cli.run.session import Session
from goqueue.errors import GoQueueError

IN_THE_WAY = frozenset({"too_few_brokers"})
"""Codes that tell how the cluster stands, though their status is no conflict."""
CONFLICT = 409


def stands_in_the_way(code: str, text: str) -> None:
    """On standard error: what would be refused now, and why."""
    warn(f"would be refused now: {text} ({code})")
    if hint := HINTS.get(code):
        note(f"Hint: {hint}")


@contextmanager
def answering(session: Session, *, dry_run: bool) -> Iterator[None]:
    """A refusal by how things stand is a dry run's answer, and no failure. What can't be asked at
    all, such as a topic that is not there, stays one."""
    try:
        yield
    except GoQueueError as error:
        if not dry_run or (error.http_status != CONFLICT and error.code not in IN_THE_WAY):
            raise
        _refused(session, error.code, error.message)
    except CliError as error:
        if not dry_run or not error.code:
            raise
        _refused(session, error.code, error.message)


def _refused(session: Session, code: str, text: str) -> None:
    stands_in_the_way(code, text)
    if not session.output.is_table:
        session.output.record({"dry_run": True, "refusal": {"code": code, "error": text}})
