"""Searching topics as the HTTP front sees it: every leader is asked once, and the pages merged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from msgspec import structs

from coordinator.cluster.state import Topic
from delivery.lookup.message_states import STATES_OF
from goqueue.wire.errors import BadRequest, UnknownPartition
from goqueue.wire.types import NodeId, PartitionId
from node.api.search import (
    FoundEvent,
    FoundMessage,
    NotSearched,
    SearchFilter,
    SearchPage,
    SearchStats,
)
from node.cluster.topic_finder import TopicFinder
from node.lookup.message_search import MessageSearch
from node.lookup.search_counts import SearchCounts
from node.queue.calls import QueueCalls
from node.queue.group_admin import GroupsBroker
from node.rpc import search as search_rpc
from node.rpc.queue import queued
from node.rpc.search import NO_BOUND, FoundRow, SearchAnswer, SearchRequest

PARTITIONS_MAX = 4096
"""Partitions of one search."""
SEARCH_MS = 1500
"""What a leader may take; what it has not searched by then it names."""
EVENTS_MS = 8000
EVENTS_S = 10.0
"""The same, for what happened to the messages of a page: a few milliseconds each."""
ANSWER_BYTES = 4 << 20
ROUNDS = 2

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class SearchParts:
    """What searches ask of this node."""

    messages: MessageSearch
    counts: SearchCounts
    timelines: bool = True
    """Whether this node tells timelines."""
    exports: bool = False
    """Whether it exports spans."""


class NodeSearch:
    """Implements `node.api.search.Search`. Loop thread only."""

    def __init__(
        self, search: SearchParts, finder: TopicFinder, groups: GroupsBroker, calls: QueueCalls
    ) -> None:
        self._search = search.messages
        self._counts = search.counts
        self._tells = search.timelines, search.exports
        self._finder = finder
        self._groups = groups
        self._calls = calls

    async def search(
        self,
        topics: Sequence[str] | None,
        which: SearchFilter,
        *,
        below: Mapping[Place, int] | None,
        limit: int,
        with_events: bool = False,
    ) -> SearchPage:
        places = await self._searched(topics, which, below)
        group = 0
        if which.group is not None:
            group = (await self._groups.find(which.group)).id
        answers: dict[PartitionId, search_rpc.PartitionFound] = {}

        async def ask(node: NodeId, asked: list[PartitionId]) -> Iterable[PartitionId]:
            request = _request(which, group, limit)
            request.partitions.extend((one.pack(), places[one][1]) for one in asked)
            answer = await self._calls.ask_node(
                node, request, self._search.search, search_rpc.SEARCH, SearchAnswer
            )
            found = [] if answer is None else answer.found
            answers.update((PartitionId.unpack(one.partition), one) for one in found)
            return [PartitionId.unpack(one.partition) for one in found]

        left = await self._calls.each_leader(places, ask, ROUNDS)
        missing = [NotSearched(*places[one][0], "no leader answers") for one in sorted(left)]
        page = _merged(places, answers, missing, limit)
        return await self._with_events(page, places, group) if with_events else page

    async def _with_events(
        self, page: SearchPage, places: Mapping[PartitionId, tuple[Place, int]], group: int
    ) -> SearchPage:
        """The page's messages with what happened to each; where that can't be told, it is named."""
        offsets: dict[Place, list[int]] = {}
        for found in page.found:
            message = found.message
            offsets.setdefault((message.topic, message.partition), []).append(message.offset)
        groups = {place: one for one, (place, _) in places.items() if place in offsets}
        told: dict[tuple[Place, int], FoundMessage] = {}
        missing = list(page.not_searched)

        async def ask(node: NodeId, asked: list[PartitionId]) -> Iterable[PartitionId]:
            request = _request(SearchFilter(), group, len(page.found))
            request = structs.replace(request, with_events=True, deadline_ms=EVENTS_MS)
            for partition in asked:
                request.partitions.append((partition.pack(), NO_BOUND))
                request.only.append(offsets[places[partition][0]])
            answer = await self._calls.ask_node(
                node, request, self._search.search, search_rpc.SEARCH, SearchAnswer, EVENTS_S
            )
            found = [] if answer is None else answer.found
            for one in found:
                place = places[PartitionId.unpack(one.partition)][0]
                missing.extend(NotSearched(*place, reason) for reason in one.missing)
                if one.below >= 0:
                    reason = f"offsets below {one.below}: out of time"
                    missing.append(NotSearched(*place, reason))
                for row in one.rows:
                    told[place, row.message.offset] = _found(place, row)
            return [PartitionId.unpack(one.partition) for one in found]

        left = await self._calls.each_leader(groups.values(), ask, ROUNDS)
        missing += [NotSearched(*places[one][0], "no leader answers") for one in sorted(left)]
        whole = [
            told.get(((one.message.topic, one.message.partition), one.message.offset), one)
            for one in page.found
        ]
        return SearchPage(whole, page.following, missing)

    async def search_stats(self) -> SearchStats:
        topics = self._finder.all()
        told, figures = await asyncio.gather(
            self._counts.of_all_nodes(), self._calls.figures(topics)
        )
        groups = [view for one in figures.partitions for view in one.groups.values()]
        return SearchStats(
            nodes=len(told),
            messages=sum(one.messages for one in told),
            items=sum(one.items for one in told),
            disk_bytes=sum(one.disk_bytes for one in told),
            ram_bytes=sum(one.ram_bytes for one in told),
            behind_entries=sum(one.behind_entries for one in told),
            segments=sum(one.segments for one in told),
            ram_items=sum(one.ram_items for one in told),
            ram_items_max=sum(one.ram_items_max for one in told),
            acked=sum(view.acked for view in groups),
            dead=sum(view.dead for view in groups),
            wait_ms_sum=sum(sum(view.lane_wait_ms_sum) for view in groups),
            waits=sum(sum(view.lane_waits) for view in groups),
            timelines=self._tells[0],
            exports=self._tells[1],
        )

    async def _searched(
        self,
        names: Sequence[str] | None,
        which: SearchFilter,
        below: Mapping[Place, int] | None,
    ) -> dict[PartitionId, tuple[Place, int]]:
        """Partitions to ask, each with the offset below which to look."""
        topics: list[Topic] = self._finder.all()
        if names is not None:
            count = 0 if which.partition is None else which.partition + 1
            topics = [await self._finder.find(name, count) for name in names]
        places: dict[PartitionId, tuple[Place, int]] = {}
        for topic in topics:
            count = len(topic.partitions)
            if which.partition is not None and which.partition >= count:
                if names is not None:
                    raise UnknownPartition(topic.name, which.partition)
                continue
            for number in range(count):
                place = (topic.name, number)
                is_meant = which.partition in (None, number)
                if is_meant and (below is None or place in below):
                    high = NO_BOUND if below is None else below[place]
                    places[PartitionId(topic.id, number)] = (place, high)
        if len(places) > PARTITIONS_MAX:
            raise BadRequest(
                f"{len(places)} partitions to search: at most {PARTITIONS_MAX}; name a topic"
            )
        return places


def _request(which: SearchFilter, group: int, limit: int) -> SearchRequest:
    return SearchRequest(
        [],
        limit,
        ANSWER_BYTES,
        SEARCH_MS,
        which.message_id,
        which.trace_id,
        which.key,
        list(which.headers),
        which.from_ms,
        which.to_ms,
        group,
        list(which.states or STATES_OF.get(which.status or "", ())),
        which.status,
    )


def _merged(
    places: Mapping[PartitionId, tuple[Place, int]],
    answers: Mapping[PartitionId, search_rpc.PartitionFound],
    missing: list[NotSearched],
    limit: int,
) -> SearchPage:
    """The newest of all pages, and where each partition goes on."""
    rows: list[tuple[int, int, Place, FoundRow]] = []
    following: dict[Place, int] = {}
    for partition_id, answer in answers.items():
        place = places[partition_id][0]
        missing += [NotSearched(*place, reason) for reason in answer.missing]
        rows += [(row.message.time_ms, row.message.offset, place, row) for row in answer.rows]
        if answer.below >= 0:
            following[place] = answer.below
    rows.sort(key=lambda row: row[:3], reverse=True)
    for _, offset, place, _ in rows[limit:]:
        following[place] = max(offset + 1, following.get(place, 0))
    found = [_found(place, row) for _, _, place, row in rows[:limit]]
    missing.sort(key=attrgetter("topic", "partition"))
    return SearchPage(found, following, missing)


def _found(place: Place, row: FoundRow) -> FoundMessage:
    events = None
    if row.events is not None:
        events = [FoundEvent(*event) for event in row.events]
    message = queued(*place, row.message)
    return FoundMessage(message, row.trace_id, row.states, row.status, events)
