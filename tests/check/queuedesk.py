"""A partition's state and the model of it, side by side: every entry is told to both."""

from __future__ import annotations

from collections.abc import Sequence

from delivery.config import GroupConfig, QueueConfig
from delivery.entries import ops
from delivery.group.lag import coming as group_coming
from tests.check.queuelog import QueueLog
from tests.check.queuestate import compare
from tests.unit.delivery.desk import Desk

FOREVER_MS = 1 << 60


class Judged(Desk):
    """What the model finds wrong is in `broken`."""

    def __init__(self, config: QueueConfig | None = None) -> None:
        super().__init__()
        self.broken: list[str] = []
        self.log = QueueLog(lambda rule, text: self.broken.append(f"{rule}: {text}"))
        if config is not None:
            self.tell(ops.Configure(config))

    def tell(self, *asked: ops.Op) -> list[ops.Result]:
        """One entry, made by a leader that has applied all before it."""
        seen = int(self.state.applied_index)
        results = self.do(*asked)
        self.log.apply(seen + 1, self.now_ms, seen, asked, results)
        return results

    def begin(self, group: int, config: GroupConfig, offset: int = 0) -> None:
        self.tell(ops.OpenGroup(group, f"g{group}", 1, config, offset))

    def store(
        self,
        lane: int = 2,
        expires_ms: int | None = None,
        *,
        due_ms: int | None = None,
        key: bytes | None = None,
    ) -> int:
        (offset,) = self.publish(
            1, lanes=[lane], keys=[key], deliver_at_ms=[due_ms], expires_at_ms=[expires_ms]
        )
        row = (lane, key, due_ms, expires_ms, None)
        self.log.records(self.state.applied_index, self.now_ms, offset, [row])
        return offset

    def pass_time(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.tell(ops.Tick())

    def cut(self, offset: int) -> None:
        """The log begins here; what must outlive it does."""
        self.retain(offset)
        self.log.advance(self.state.applied_index, self.now_ms)
        self.log.trimmed(self.state.log_start_offset, self.state.queue.reappended)

    def lease(
        self, offsets: Sequence[int], group: int = 1, visibility_ms: int = 60_000
    ) -> list[int]:
        """Deliver these; which of them were granted."""
        (granted,) = self.tell(ops.Delivered(group, "", visibility_ms, list(offsets)))
        assert isinstance(granted, ops.Granted)
        return [grant.offset for grant in granted.grants]

    def settle_all(self, action: int, offsets: Sequence[int], group: int = 1) -> None:
        """What was delivered in the newest entry."""
        receipts = [(int(self.state.applied_index), list(offsets))]
        self.tell(ops.Settled(group, action, receipts))

    def differences(self) -> list[str]:
        """Where the state is not what the model has; and of each group, which messages come."""
        queue = self.state.queue
        found = [f"{rule}: {text}" for rule, text in compare(self.log, "it", queue.groups)]
        for id_, group in self.log.groups.items():
            pending = self.log.pending(group, FOREVER_MS)
            known = {offset for offset in pending if not self.log.messages[offset].is_gone}
            coming = set(group_coming(queue.groups[id_]))
            if coming != known:
                found.append(f"to g{id_} {sorted(coming)} is coming, not {sorted(known)}")
        return found
