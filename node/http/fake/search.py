"""Finding messages for the fake broker: every record is looked at, newest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from delivery.lookup.search_hashes import trace_id_of
from goqueue.wire.errors import UnknownPartition, UnknownTopic
from goqueue.wire.types import Offset
from node.api.search import (
    FoundEvent,
    FoundMessage,
    NotSearched,
    SearchFilter,
    SearchPage,
    SearchStats,
)
from node.api.traces import MessageTrace
from node.http.fake.group import FakeGroup
from node.http.fake.log import FakeLog, FakeRecord
from node.http.fake.queue import FakeQueue

Place = tuple[str, int]


class FakeSearch(FakeQueue):
    """The part of `FakeBroker` that implements `SearchBroker`. Tests name in `unsearched` what is
    out of reach."""

    unsearched: Sequence[NotSearched] = ()

    async def message_trace(self, topic: str, partition: int, offset: Offset) -> MessageTrace:
        raise NotImplementedError

    async def search(
        self,
        topics: Sequence[str] | None,
        which: SearchFilter,
        *,
        below: Mapping[Place, int] | None,
        limit: int,
        with_events: bool = False,
    ) -> SearchPage:
        if which.group is not None:
            self._group(which.group)
        matches: list[tuple[FakeRecord, Place]] = []
        for place in self._searched(topics, which, below):
            high = 1 << 62 if below is None else below[place]
            log = self._log(*place)
            matches += ((r, place) for r in log.records() if r.offset < high and _fits(r, which))
        matches.sort(key=lambda m: (m[0].time_ms, m[0].offset, m[1]), reverse=True)
        found: list[FoundMessage] = []
        following: dict[Place, int] = {}
        for record, place in matches:
            states = self._states(record, place)
            own = {which.group: states.get(which.group, "ready")} if which.group else states
            status = self._status(record, place, own)
            meant = {*own.values(), self._state_for(record, place, None)}
            if which.states and not meant & set(which.states):
                continue
            if which.status not in (None, status):
                continue
            if len(found) == limit:
                following.setdefault(place, record.offset + 1)
                continue
            events = None
            if with_events:
                told = await self.message_trace(*place, Offset(record.offset))
                events = [FoundEvent(e.time_ms, e.type, e.attributes) for e in told.events]
            message = record.message(*place)
            found.append(FoundMessage(message, trace_id_of(record.headers), states, status, events))
        return SearchPage(found, following, list(self.unsearched))

    async def search_stats(self) -> SearchStats:
        logs = [self._log(t, p) for t in self.list_topics() for p in range(self.partition_count(t))]
        records = [record for log in logs for record in log.records()]
        views = [
            group.view(*place)
            for named in self._groups.values()
            for place, group in self._live(named)
        ]
        return SearchStats(
            nodes=1,
            messages=len(records),
            items=sum((r.message_id is not None) + len(r.headers) for r in records),
            disk_bytes=0,
            ram_bytes=0,
            behind_entries=0,
            segments=len(logs),
            acked=sum(view.acked for view in views),
            dead=sum(view.dead for view in views),
            wait_ms_sum=sum(sum(view.lane_wait_ms_sum) for view in views),
            waits=sum(sum(view.lane_waits) for view in views),
        )

    def _searched(
        self, topics: Sequence[str] | None, which: SearchFilter, below: Mapping[Place, int] | None
    ) -> Iterator[Place]:
        for topic in self.list_topics() if topics is None else topics:
            if topic not in self.list_topics():
                raise UnknownTopic(topic)
            count = self.partition_count(topic)
            if topics is not None and which.partition is not None and which.partition >= count:
                raise UnknownPartition(topic, which.partition)
            for partition in range(count):
                is_meant = which.partition in (None, partition)
                if is_meant and (below is None or (topic, partition) in below):
                    yield topic, partition

    def _states(self, record: FakeRecord, place: Place) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, named in self._groups.items():
            group = named.places.get(place)
            if group is not None:
                group.expire()
                found[name] = self._state_for(record, place, group)
        return found

    def _state_for(self, record: FakeRecord, place: Place, group: FakeGroup | None) -> str:
        log: FakeLog = self._log(*place)
        now_ms = self._clock_ms()
        if group is not None and record.offset in group.leases:
            return "in_flight"
        if group is not None and record.offset in group.dead:
            return "dead"
        if log.gone(record, now_ms):
            return "cancelled" if record.offset in log.cancelled else "expired"
        if record.deliver_at_ms is not None and record.deliver_at_ms > now_ms:
            return "delayed"
        if group is None:
            return "ready" if not self._groups else ""
        if record.offset not in group.pending():
            return "acked"
        return "retrying" if group.attempts(record.offset) else "ready"

    def _status(self, record: FakeRecord, place: Place, states: Mapping[str, str]) -> str:
        known = set(states.values())
        if "dead" in known:
            return "failed"
        if "retrying" in known:
            return "retrying"
        alone = self._state_for(record, place, None)
        if alone == "delayed":
            return "delayed"
        if known & {"in_flight", "ready"}:
            return "in_progress"
        if "acked" in known:
            return "completed"
        return alone if alone in ("cancelled", "expired") else "in_progress"


def _fits(record: FakeRecord, which: SearchFilter) -> bool:
    return (
        which.message_id in (None, record.message_id)
        and which.trace_id in (None, trace_id_of(record.headers))
        and which.key in (None, record.key)
        and all(header in record.headers for header in which.headers)
        and (which.from_ms is None or record.time_ms >= which.from_ms)
        and (which.to_ms is None or record.time_ms < which.to_ms)
    )
