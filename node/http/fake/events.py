"""Events of the fake broker: each stored batch is an entry, and its messages are published."""

from __future__ import annotations

import msgspec

from delivery.timeline.message import published
from goqueue.wire.batch import RecordBatch
from goqueue.wire.events import EventColumns
from node.api.traces import EventsView, EventsWanted
from node.http.fake.partition import FakePartition


class FakeEvents:
    """The part of `FakeBroker`."""

    def topic_id(self, topic: str) -> str:
        raise NotImplementedError

    def _partition(self, name: str, partition: int) -> FakePartition:
        raise NotImplementedError

    async def events(
        self, topic: str, partition: int, wanted: EventsWanted
    ) -> tuple[str, EventsView]:
        log = self._partition(topic, partition)
        if wanted.wait_s and wanted.after >= len(log.batches):
            await log.wait(wanted.wait_s)
        columns, after, offset = EventColumns(), wanted.after, wanted.offset
        for index, stored in enumerate(log.batches[after : wanted.until], after + 1):
            batch = RecordBatch.parse(stored.batch)
            for row, what in enumerate(published(batch)):
                at = stored.base_offset + row
                if offset is not None and at <= offset:
                    continue
                if len(columns.index) >= wanted.limit:
                    return self._told(topic, log, after, offset, columns)
                _add(columns, index, at, log.times_ms[index - 1], batch.keys()[row], dict(what))
                offset = at
            after, offset = index, None
        return self._told(topic, log, after, offset, columns)

    def _told(
        self, topic: str, log: FakePartition, after: int, offset: int | None, columns: EventColumns
    ) -> tuple[str, EventsView]:
        count, data = len(columns.index), msgspec.msgpack.encode(columns)
        end = len(log.batches)
        return self.topic_id(topic), EventsView(1, end, after, offset, True, count, data)


def _add(
    columns: EventColumns,
    index: int,
    offset: int,
    time_ms: int,
    key: bytes | None,
    what: dict[str, object],
) -> None:
    columns.index.append(index)
    columns.offset.append(offset)
    columns.seq.append(0)
    columns.timestamp_ms.append(time_ms)
    columns.event_type.append("PUBLISHED")
    columns.lane.append(str(what["lane"]))
    columns.key.append(key)
    message_id = what.get("message_id")
    columns.message_id.append(None if message_id is None else str(message_id))
    columns.attributes.append({"produced_at_ms": str(what["produced_at_ms"])})
    columns.group.append(None)
    columns.consumer.append(None)
    columns.attempt.append(None)
    columns.reason.append(None)
