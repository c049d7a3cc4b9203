"""What the HTTP front asks of the node about dead letters: `DeadLetters` and `Redrives`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from node.api.auth.principal import OutOfScope
from node.api.queue import QueuedMessage
from node.api.rules.groups import in_topic
from node.api.rules.rule import scoped
from node.api.rules.scope import Scope


@dataclass(frozen=True, slots=True)
class DeadFilter:
    """Which dead letters are meant: all conditions that are given must hold.

    `reason` is a substring; times are of death, `to_ms` exclusive; headers must be there with
    these values; `ids` are `topic:partition:offset`.
    """

    reason: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    key: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    ids: Sequence[str] = ()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A dead letter of a group: the message itself and why it died."""

    message: QueuedMessage
    group: str
    died_ms: int
    attempts: int
    reason: str
    history: Sequence[tuple[int, str]]
    """(time, reason) of each failed attempt that is remembered, oldest first."""
    redrives: int


@dataclass(frozen=True, slots=True)
class DeadPage:
    """Dead letters in the order of (partition, offset); `following` is where the next page begins,
    None at the end."""

    messages: Sequence[DeadMessage]
    following: tuple[int, int] | None
    total: int
    by_reason: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RedriveView:
    """A redrive job. `state` is running, done or stopped."""

    id: int
    group: str
    topic: str
    state: str
    matched: int
    moved: int
    refused: int
    rate: float
    created_ms: int
    error: str = ""


def _dead_groups(scope: Scope, method: Any) -> Any:
    async def seen(topic: str) -> dict[str, dict[str, int]]:
        scope.principal.require(topic)
        return {group: one for group, one in (await method(topic)).items() if scope.sees(group)}

    return seen


def _redrives(scope: Scope, method: Any) -> Any:
    async def seen(group: str) -> list[RedriveView]:
        await scope.judge(group)
        return [job for job in await method(group) if scope.principal.covers(job.topic)]

    return seen


def _stopped(scope: Scope, method: Any) -> Any:
    async def checked(group: str, job: int) -> RedriveView:
        await scope.judge(group)
        for one in await scope.broker.redriving.redrives(group):
            if one.id == job:
                scope.principal.require(one.topic)
                return cast(RedriveView, await method(group, job))
        raise OutOfScope(scope.principal, f"redrive job {job}")

    return checked


class DeadLetters(Protocol):
    """Messages that a group gave up."""

    @scoped(in_topic)
    async def dead_letters(
        self,
        group: str,
        topic: str,
        which: DeadFilter,
        *,
        after: tuple[int, int] | None,
        limit: int,
    ) -> DeadPage:
        """Those at and behind `after`, the `following` of an earlier page. Totals are of all that
        the group has in the topic, matching or not. Raises `NotFound`."""
        ...

    @scoped(_dead_groups)
    async def dead_groups(self, topic: str) -> dict[str, dict[str, int]]:
        """Group -> reason -> how many dead letters it has in the topic; without groups of none."""
        ...

    @scoped(in_topic)
    async def purge(self, group: str, topic: str, which: DeadFilter, *, dry_run: bool) -> int: ...


class Redrives(Protocol):
    """Jobs that make dead letters ready again."""

    @scoped(in_topic)
    async def redrive(
        self, group: str, topic: str, which: DeadFilter, *, rate: float, dry_run: bool, force: bool
    ) -> RedriveView:
        """Start a job that makes dead letters ready again, at most `rate` a second (0: unbounded).
        With `dry_run` only counts: id 0, nothing is kept."""
        ...

    @scoped(_redrives)
    async def redrives(self, group: str) -> list[RedriveView]: ...

    @scoped(_stopped)
    async def stop_redrive(self, group: str, job: int) -> RedriveView:
        """What has moved has moved; the rest stays dead."""
        ...
