"""What the queue's front on a node stands on."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from node.api.dead_letters import DeadFilter, RedriveView
from node.api.delays import ScheduleView
from node.groups.request_metrics import RequestMetrics
from node.queue.calls import QueueCalls
from node.queue.dead_letters import DeadLetters, DelayedMessages
from node.queue.group_admin import GroupsBroker
from node.queue.lag import TakingPart
from node.queue.receipts import Receipts
from node.queue.receiver import QueueReceiver
from node.queue.redrive_worker import DeadLetterSource
from node.queue.settle import Settles


class Redriving(Protocol):
    """Redrive jobs, as `node.api.dead_letters` names them."""

    async def redrive(
        self,
        group: str,
        topic: str,
        which: DeadFilter,
        *,
        rate: float,
        dry_run: bool,
        force: bool,
    ) -> RedriveView: ...

    async def redrives(self, group: str) -> list[RedriveView]: ...

    async def stop_redrive(self, group: str, job: int) -> RedriveView: ...


class Scheduling(Protocol):
    """Recurring schedules, as `node.api.dead_letters` names them."""

    async def put_schedule(self, schedule: Mapping[str, object]) -> ScheduleView: ...

    async def schedules(self) -> list[ScheduleView]: ...

    async def schedule(self, name: str) -> ScheduleView: ...

    async def pause_schedule(self, name: str, *, paused: bool) -> ScheduleView: ...

    async def delete_schedule(self, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class QueueParts:
    """What the queue's front stands on."""

    groups: GroupsBroker
    calls: QueueCalls
    receiver: QueueReceiver
    settles: Settles
    receipts: Receipts
    letters: DeadLetters
    delays: DelayedMessages
    redriving: Redriving
    scheduling: Scheduling
    source: DeadLetterSource
    answer_bytes: int
    rng: random.Random
    requests: RequestMetrics
    taking_part: TakingPart
