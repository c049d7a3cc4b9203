"""A history of queue work: what clients asked for and were told, one JSON object a line.

    group        a group's `settings`: max_attempts, ordering, visibility_ms, lane_max_wait_ms
    publish      a publish begins: `op`, `value` (unique to the message), `partition` (None where
                 the cluster chooses), `lane`, `key`, `message_id`, `delay_ms`, `ttl_ms`
    published    `op` was acked: `partition`, `offset`, `duplicate`, `deliver_at_ms` if it was told
    unpublished  `op` was not acked; `in_doubt` where it may have been stored nevertheless
    received     a group was given a message: `partition`, `offset`, `value`, `lane`, `key`,
                 `attempt`, `reason`, `redrives`, `receipt`; `sent` is when the request left,
                 `log_ms` the log time, where the writer knows it
    unreceived   a receive of a `group`, begun at `sent`, had no answer, or only when repeated:
                 what was granted to it by then is given back. With `partitions` it had one, in
                 which the leaders of these had no part
    settle       a settle begins: `op`, `group`, `receipt`, `action`, `reason`
    settled      how it ended: `outcome` (acked, requeued, dead, extended, released, ...), or
                 `refused` (with a `code`), or `unknown`
    cancel       the cancelling of a delayed message begins: `op`, `partition`, `offset`
    cancelled    how it ended: `outcome` is cancelled, refused or unknown
    redrive      dead letters of a group are being redriven, or `purge`: forgotten
    dead         a dead letter at the end: `group`, `partition`, `offset`, `reason`, `attempts`,
                 `redrives`
    fallen       a message fell to retention before a `group` had settled it
    drained      a group received until nothing came, and all its dead letters are listed
    trouble      something was done to the cluster, or has just healed
    note         anything else

`time` is seconds of one clock that never steps: the writer's. A settle or a cancel without an end
counts as unknown, a publish without one as in doubt.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tests.check.history import Event


class QueueHistory:
    """Events in order, kept in memory and, if a path is given, written as they come."""

    def __init__(
        self, path: Path | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.events: list[Event] = []
        self._clock = clock
        self._file: IO[str] | None = path.open("w") if path else None
        self._next = 0

    def __enter__(self) -> QueueHistory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def now(self) -> float:
        return self._clock()

    def group(self, name: str, **settings: Any) -> None:
        self.add("group", group=name, settings=settings)

    def publish(
        self,
        value: str,
        *,
        partition: int | None,
        lane: int = 2,
        key: str | None = None,
        message_id: str | None = None,
        delay_ms: int = 0,
        ttl_ms: int = 0,
    ) -> int:
        """The number of the operation that begins now."""
        self._next += 1
        self.add(
            "publish",
            op=self._next,
            value=value,
            partition=partition,
            lane=lane,
            key=key,
            message_id=message_id,
            delay_ms=delay_ms,
            ttl_ms=ttl_ms,
        )
        return self._next

    def published(
        self,
        op: int,
        partition: int,
        offset: int,
        *,
        duplicate: bool = False,
        deliver_at_ms: int | None = None,
    ) -> None:
        self.add(
            "published",
            op=op,
            partition=partition,
            offset=offset,
            duplicate=duplicate,
            deliver_at_ms=deliver_at_ms,
        )

    def unpublished(self, op: int, *, in_doubt: bool, why: str = "") -> None:
        self.add("unpublished", op=op, in_doubt=in_doubt, why=why)

    def received(self, group: str, *, sent: float, **fields: Any) -> None:
        self.add("received", group=group, sent=sent, **fields)

    def unreceived(
        self, group: str, *, sent: float, partitions: Sequence[int] | None = None
    ) -> None:
        told = {} if partitions is None else {"partitions": list(partitions)}
        self.add("unreceived", group=group, sent=sent, **told)

    def settle(self, group: str, receipt: str, action: str, reason: str = "") -> int:
        self._next += 1
        self.add(
            "settle", op=self._next, group=group, receipt=receipt, action=action, reason=reason
        )
        return self._next

    def settled(self, op: int, outcome: str, code: str = "") -> None:
        self.add("settled", op=op, outcome=outcome, code=code)

    def cancel(self, partition: int, offset: int) -> int:
        self._next += 1
        self.add("cancel", op=self._next, partition=partition, offset=offset)
        return self._next

    def cancelled(self, op: int, outcome: str) -> None:
        self.add("cancelled", op=op, outcome=outcome)

    def redrive(self, group: str, **fields: Any) -> None:
        self.add("redrive", group=group, **fields)

    def purge(self, group: str, **fields: Any) -> None:
        self.add("purge", group=group, **fields)

    def dead(
        self,
        group: str,
        partition: int,
        offset: int,
        *,
        reason: str,
        attempts: int,
        redrives: int,
    ) -> None:
        self.add(
            "dead",
            group=group,
            partition=partition,
            offset=offset,
            reason=reason,
            attempts=attempts,
            redrives=redrives,
        )

    def drained(self, groups: Sequence[str]) -> None:
        for group in groups:
            self.add("drained", group=group)

    def trouble(self, text: str, **fields: Any) -> None:
        self.add("trouble", text=text, **fields)

    def note(self, text: str, **fields: Any) -> None:
        self.add("note", text=text, **fields)

    def add(self, kind: str, **fields: Any) -> None:
        """One event; `time` is now."""
        event = {"type": kind, "time": self._clock(), **fields}
        self.events.append(event)
        if self._file is not None:
            self._file.write(json.dumps(event, separators=(",", ":")) + "\n")
