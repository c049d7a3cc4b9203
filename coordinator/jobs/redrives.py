"""Redrive jobs: dead letters on their way back to their group, and how far each job has come."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.commands.queue import (
    DeadLetterFilter,
    RedriveResult,
    RedriveStep,
    StartRedrive,
    StopRedrive,
)
from coordinator.errors import BadConfig, Overtaken, UnknownRedrive
from goqueue.wire.errors import Busy
from goqueue.wire.types import Index, TopicId

RUNNING_MAX = 100
FINISHED_MAX = 100
"""Of all groups; the newest are remembered."""
RATE_MIN, RATE_MAX = 0.01, 1_000_000.0
"""Messages a second; 0 is unbounded."""
IDS_MAX = 10_000
FILTER_CHARACTERS_MAX = 1 << 20
ERROR_CHARACTERS_MAX = 256
RUNNING, DONE, STOPPED = "running", "done", "stopped"


@dataclass(frozen=True, slots=True)
class Redrive:
    """One job, named by the index of its command."""

    id: int
    group: str
    group_id: int
    topic: str
    topic_id: TopicId
    which: DeadLetterFilter
    rate: float
    force: bool
    matched: int
    """How many dead letters there were when it was asked for."""
    created_ms: int
    request: int
    state: str = RUNNING
    cursor: tuple[int, int] | None = None
    """(partition, offset): what is before it has been looked at."""
    moved: int = 0
    refused: int = 0
    """Dead letters that were redriven too often already, and stay."""
    error: str = ""

    @property
    def is_running(self) -> bool:
        return self.state == RUNNING


class Redrives:
    """The jobs that run, and the last ones that ended."""

    def __init__(self, redrives: Iterable[Redrive] = ()) -> None:
        self.by_id = {redrive.id: redrive for redrive in redrives}

    def running(self) -> list[Redrive]:
        """Oldest first."""
        return [redrive for redrive in self.by_id.values() if redrive.is_running]

    def numbered(self, job: int) -> Redrive:
        """Raises UnknownRedrive."""
        redrive = self.by_id.get(job)
        if redrive is None:
            raise UnknownRedrive(job)
        return redrive

    def start(
        self, index: Index, time_ms: int, command: StartRedrive, topic_id: TopicId
    ) -> RedriveResult:
        """Raises BadConfig, Busy; then nothing has changed."""
        for known in self.by_id.values():
            if known.request == command.request != 0:
                return RedriveResult(known.id, known.state)
        _check(command)
        if len(self.running()) >= RUNNING_MAX:
            raise Busy(f"{RUNNING_MAX} redrive jobs are running already")
        self.by_id[index] = Redrive(
            index,
            command.group,
            command.group_id,
            command.topic,
            topic_id,
            command.which,
            command.rate,
            command.force,
            command.matched,
            time_ms,
            command.request,
        )
        return RedriveResult(index, RUNNING)

    def step(self, command: RedriveStep) -> RedriveResult:
        """Also of a job that was stopped while the step was made: what has moved has moved.

        Raises UnknownRedrive, Overtaken.
        """
        redrive = self.numbered(command.job)
        if redrive.cursor != command.before or redrive.state == DONE:
            raise Overtaken()
        state = redrive.state
        if redrive.is_running and command.error:
            state = STOPPED
        elif redrive.is_running and command.after is None:
            state = DONE
        return self._keep(
            dataclasses.replace(
                redrive,
                state=state,
                cursor=command.after or redrive.cursor,
                moved=redrive.moved + command.moved,
                refused=redrive.refused + command.refused,
                error=command.error[:ERROR_CHARACTERS_MAX] or redrive.error,
            )
        )

    def stop(self, command: StopRedrive) -> RedriveResult:
        """Raises UnknownRedrive."""
        redrive = self.numbered(command.job)
        if not redrive.is_running:
            return RedriveResult(redrive.id, redrive.state)
        return self._keep(dataclasses.replace(redrive, state=STOPPED))

    def group_deleted(self, group_id: int) -> None:
        """Its jobs have nothing left to do."""
        for redrive in self.running():
            if redrive.group_id == group_id:
                self._end(redrive, "the group was deleted")

    def topic_deleted(self, topic_id: TopicId) -> None:
        """Its jobs have nothing left to do."""
        for redrive in self.running():
            if redrive.topic_id == topic_id:
                self._end(redrive, "the topic was deleted")

    def _end(self, redrive: Redrive, error: str) -> None:
        self._keep(dataclasses.replace(redrive, state=STOPPED, error=error))

    def _keep(self, redrive: Redrive) -> RedriveResult:
        self.by_id[redrive.id] = redrive
        ended = [known.id for known in self.by_id.values() if not known.is_running]
        for job in ended[: max(0, len(ended) - FINISHED_MAX)]:
            del self.by_id[job]
        return RedriveResult(redrive.id, redrive.state)


def _check(command: StartRedrive) -> None:
    problems = []
    which = command.which
    if command.rate != 0 and not RATE_MIN <= command.rate <= RATE_MAX:
        problems.append(
            f"rate: {command.rate} is out of range, which is 0, or {RATE_MIN} to {RATE_MAX:.0f}"
        )
    texts = [which.reason or "", *which.headers, *which.headers.values(), *which.ids]
    if len(which.ids) > IDS_MAX:
        problems.append(f"filter: more than {IDS_MAX} ids")
    if sum(map(len, texts)) + len(which.key or b"") > FILTER_CHARACTERS_MAX:
        problems.append(f"filter: more than {FILTER_CHARACTERS_MAX} characters")
    if problems:
        raise BadConfig(problems)
