"""Archives of the fake broker: what is reported is kept, and nothing waits for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from goqueue.wire.errors import OffsetOutOfRange, OtherArchive, UnknownTopic
from goqueue.wire.types import Offset
from node.api.archive import PartitionArchive
from node.http.fake.partition import FakePartition


class FakeArchive:
    """The part of `FakeBroker`."""

    _clock_ms: Callable[[], int]

    def topic_id(self, topic: str) -> str:
        raise NotImplementedError

    def _partition(self, name: str, partition: int) -> FakePartition:
        raise NotImplementedError

    async def archived(
        self,
        topic: str,
        location: str,
        positions: Mapping[int, Offset],
        *,
        topic_id: str | None,
        anew: bool,
    ) -> dict[int, PartitionArchive]:
        if topic_id not in (None, self.topic_id(topic)):
            raise UnknownTopic(topic)
        for partition, position in positions.items():
            log = self._partition(topic, partition)
            if position > log.next:
                raise OffsetOutOfRange(position, log.start, log.next)
            known, at = log.archived
            if known not in ("", location) and not anew:
                raise OtherArchive(topic, partition, known)
            log.archived = location, position if anew else max(at, position)
        return {number: self.archive_of(self._partition(topic, number)) for number in positions}

    def archive_of(self, log: FakePartition) -> PartitionArchive:
        location, position = log.archived
        lag = log.next - max(position, log.start)
        return PartitionArchive(location, position, self._clock_ms(), False, lag)
