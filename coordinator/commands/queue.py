"""The cluster group's commands about the queue: groups, schedules, redrive jobs.

All of them may be sent again because an outcome was lost: those that count say what they expect
to find, and change nothing where that is no longer so.
"""

from __future__ import annotations

from typing import Any

import msgspec


class PutGroup(
    msgspec.Struct, frozen=True, tag="put_group", omit_defaults=True, forbid_unknown_fields=True
):
    """Create a group, or change the settings that are named.

    `defaults` are those of a group that is created. With `ensure`, a group that is there stays as
    it is. `owner` is the prefix that a created group belongs to, "" is every key of all groups,
    None is nobody. A group that is there already, and not the owner's, must be the `judged` one.
    """

    name: str
    settings: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    ensure: bool = False
    owner: str | None = None
    judged: int = 0


class AssignGroup(
    msgspec.Struct, frozen=True, tag="assign_group", omit_defaults=True, forbid_unknown_fields=True
):
    """Give a group an owner, or another one; `owner` as of `PutGroup`, `id` as of `DeleteGroup`."""

    name: str
    owner: str
    id: int = 0


class DeleteGroup(
    msgspec.Struct, frozen=True, tag="delete_group", omit_defaults=True, forbid_unknown_fields=True
):
    """Delete a group; `id` is the very one that is meant, 0 for any of the name. One that has
    members only with `force`."""

    name: str
    id: int = 0
    force: bool = False


class PutSchedule(
    msgspec.Struct, frozen=True, tag="put_schedule", omit_defaults=True, forbid_unknown_fields=True
):
    """Create a schedule, or put another one in its place. Exactly one of `cron` and `every_ms`.

    That `cron` and `timezone` are sound is judged before this is proposed.
    """

    name: str
    topic: str
    value: bytes
    cron: str = ""
    every_ms: int = 0
    timezone: str = "UTC"
    missed: str = "once"
    key: bytes | None = None
    headers: list[tuple[str, bytes]] = []
    lane: int = 2


class PauseSchedule(
    msgspec.Struct,
    frozen=True,
    tag="pause_schedule",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Nothing is published until it goes on; then with its next run after that."""

    name: str
    id: int
    paused: bool = True


class DeleteSchedule(
    msgspec.Struct,
    frozen=True,
    tag="delete_schedule",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Delete a schedule; `id` is the very one that is meant, 0 for any of the name."""

    name: str
    id: int = 0


class PlanRun(msgspec.Struct, frozen=True, tag="plan_run", forbid_unknown_fields=True):
    """The next run is at `next_ms`: the first one, or after runs that were missed."""

    name: str
    id: int
    next_ms: int


class BeginRun(
    msgspec.Struct, frozen=True, tag="begin_run", omit_defaults=True, forbid_unknown_fields=True
):
    """The message of this run is about to be published: from now on it will be, exactly once.

    `renew` gives it a new producer identity, where the partition has forgotten the present one.
    """

    name: str
    id: int
    run_ms: int
    renew: bool = False


class EndRun(
    msgspec.Struct, frozen=True, tag="end_run", omit_defaults=True, forbid_unknown_fields=True
):
    """The run's message is published; with `error` it is given up instead."""

    name: str
    id: int
    run_ms: int
    next_ms: int
    error: str = ""


class DeadLetterFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which dead letters are meant: all conditions that are given must hold."""

    reason: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    key: bytes | None = None
    headers: dict[str, str] = {}
    ids: list[str] = []
    partition: int | None = None


class StartRedrive(
    msgspec.Struct, frozen=True, tag="start_redrive", omit_defaults=True, forbid_unknown_fields=True
):
    """Make dead letters of a group in a topic ready again, at most `rate` a second; 0: unbounded.

    `request` is random and not 0: a repeated command results in the job that it made.
    """

    group: str
    group_id: int
    topic: str
    which: DeadLetterFilter = DeadLetterFilter()
    rate: float = 0.0
    force: bool = False
    matched: int = 0
    request: int = 0


class RedriveStep(
    msgspec.Struct, frozen=True, tag="redrive_step", omit_defaults=True, forbid_unknown_fields=True
):
    """The job has gone from one cursor, which must be its present one, to another.

    None is the beginning, and as `after` the end.
    """

    job: int
    before: tuple[int, int] | None
    after: tuple[int, int] | None
    moved: int = 0
    refused: int = 0
    error: str = ""


class StopRedrive(msgspec.Struct, frozen=True, tag="stop_redrive", forbid_unknown_fields=True):
    """What has moved has moved; the rest stays dead. A job that is over stays as it is."""

    job: int


class GroupResult(msgspec.Struct, frozen=True, tag="group"):
    """The group is there, or is deleted."""

    name: str
    id: int
    version: int
    created: bool = False


class ScheduleResult(msgspec.Struct, frozen=True, tag="schedule"):
    """The schedule was changed, or is deleted."""

    name: str
    id: int


class RedriveResult(msgspec.Struct, frozen=True, tag="redrive"):
    """The job and its state: running, done or stopped."""

    job: int
    state: str


QueueCommand = (
    PutGroup
    | AssignGroup
    | DeleteGroup
    | PutSchedule
    | PauseSchedule
    | DeleteSchedule
    | PlanRun
    | BeginRun
    | EndRun
    | StartRedrive
    | RedriveStep
    | StopRedrive
)
QueueResult = GroupResult | ScheduleResult | RedriveResult
