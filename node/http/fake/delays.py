"""Delayed messages of the fake broker, read off its partitions' logs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from goqueue.wire.errors import AlreadyDue, NotFound, UnknownPartition
from goqueue.wire.types import Offset
from node.api.delays import DelayedView
from node.http.fake.log import FakeLog
from node.http.fake.partition import FakePartition
from node.http.fake.schedules import FakeSchedules


class FakeDelays(FakeSchedules, ABC):
    """The delays' part of `FakeBroker`, which says where the partitions are."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        super().__init__(clock_ms)
        self._logs: dict[tuple[str, int], FakeLog] = {}

    @abstractmethod
    def partition_count(self, topic: str) -> int: ...

    @abstractmethod
    def list_topics(self) -> list[str]: ...

    @abstractmethod
    def topic_id(self, topic: str) -> str: ...

    @abstractmethod
    def ttl_ms(self, topic: str) -> int: ...

    @abstractmethod
    def _partition(self, name: str, partition: int) -> FakePartition: ...

    async def delayed(self, topic: str, *, limit: int, skip: int) -> tuple[list[DelayedView], int]:
        pending = sorted(
            (view for view in self._delayed(topic) if view.state == "pending"),
            key=lambda view: (view.deliver_at_ms, view.partition, view.offset),
        )
        return pending[skip : skip + limit], len(pending)

    async def find_delayed(self, topic: str, partition: int | None, offset: int) -> DelayedView:
        self._check([topic], None if partition is None else [partition])
        for view in self._delayed(topic):
            if view.offset == offset and partition in (None, view.partition):
                return view
        raise NotFound("no delayed message", topic=topic, offset=offset)

    async def cancel_delayed(self, topic: str, partition: int, offset: int) -> DelayedView:
        view = await self.find_delayed(topic, partition, offset)
        if view.state not in ("pending", "cancelled"):
            raise AlreadyDue(topic=topic, partition=partition, offset=offset, state=view.state)
        self._log(topic, partition).cancelled.add(offset)
        return replace(view, state="cancelled")

    def _delayed(self, topic: str) -> Iterator[DelayedView]:
        now_ms = self._clock_ms()
        for partition in range(self.partition_count(topic)):
            log = self._log(topic, partition)
            for record in log.records():
                if record.deliver_at_ms is None:
                    continue
                remaining_ms = max(0, record.deliver_at_ms - now_ms)
                state = "pending" if remaining_ms else "delivered"
                if log.gone(record, now_ms):
                    state = "cancelled" if record.offset in log.cancelled else "expired"
                yield DelayedView(
                    topic,
                    partition,
                    Offset(record.offset),
                    record.deliver_at_ms,
                    remaining_ms,
                    state,
                    record.lane,
                    record.key,
                    record.message_id,
                )

    def _check(self, topics: Iterable[str], partitions: Sequence[int] | None) -> None:
        for topic in topics:
            count = self.partition_count(topic)
            for partition in partitions or ():
                if not 0 <= partition < count:
                    raise UnknownPartition(topic, partition)

    def _log(self, topic: str, partition: int) -> FakeLog:
        key = (self.topic_id(topic), partition)
        if key not in self._logs:
            self._logs[key] = FakeLog(
                self._partition(topic, partition), partial(self.ttl_ms, topic)
            )
        return self._logs[key]
