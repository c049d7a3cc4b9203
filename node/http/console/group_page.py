"""Groups with their lag, and one of them: members, partitions, and what rebalances paused."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aiohttp import web

from node.api.figures import GroupPartitionView
from node.api.members import MembershipView
from node.http.console.census import GroupFigures
from node.http.console.paging import page_of
from node.http.console.parts import Visit, answered, tried
from node.http.console.pauses import draw_pauses
from node.http.groups.settings import shown_settings

GROUPS_A_PAGE = 50
PARTITIONS_A_PAGE = 100
TOPICS_MAX = 32
"""Of one group, whose partitions are asked for."""
REBALANCES_SHOWN = 12
ASK_S = 2.5


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in the list, with its figures over all topics."""

    membership: MembershipView
    topics: int
    lag: int
    lag_ms: int
    in_flight: int
    dead: int
    halted: int


async def show_all(visit: Visit) -> web.Response:
    wanted = visit.query_text()
    memberships, sweep = await asyncio.gather(
        answered(visit.broker.members.memberships), visit.census.all()
    )
    found: defaultdict[str, list[GroupFigures]] = defaultdict(list)
    for topic in sweep.topics:
        for name, figures in topic.groups.items():
            found[name].append(figures)
    matching = [one for one in await _seen(visit, memberships) if wanted in one.group]
    shown, where = page_of(matching, visit.page_number(), GROUPS_A_PAGE)
    rows = [_row(one, found[one.group]) for one in shown]
    return await visit.page("groups.html", rows=rows, where=where, sweep=sweep)


async def show(visit: Visit) -> web.Response:
    name = visit.group()
    membership, (groups, _), sweep = await asyncio.gather(
        answered(lambda: visit.broker.members.membership(name)),
        tried(visit.broker.groups.list_groups),
        visit.census.all(),
    )
    topics = sorted(
        {*membership.topics, *(one.topic for one in sweep.topics if name in one.groups)}
    )
    places, silent = await _places(visit, name, topics[:TOPICS_MAX])
    shown, where = page_of(places, visit.page_number(), PARTITIONS_A_PAGE)
    settings = next((one.settings for one in groups or () if one.name == name), {})
    return await visit.page(
        "group.html",
        group=membership,
        settings=shown_settings(settings),
        places=shown,
        where=where,
        silent=silent,
        lag=sum(place.lag for place in places),
        lag_ms=max((place.lag_ms for place in places), default=0),
        in_flight=sum(place.in_flight for place in places),
        dead=sum(place.dead for place in places),
        delayed=sum(place.delayed for place in places),
        dead_topics=sorted({place.topic for place in places if place.dead}),
        left_out=topics[TOPICS_MAX:],
        pauses=draw_pauses(membership.rebalances[-REBALANCES_SHOWN:]),
        rebalances=list(reversed(membership.rebalances[-REBALANCES_SHOWN:])),
    )


async def _places(
    visit: Visit, group: str, topics: Iterable[str]
) -> tuple[list[GroupPartitionView], list[str]]:
    """The group in each partition that answers; topics of which some don't."""
    names = list(topics)

    async def ask(name: str) -> tuple[list[GroupPartitionView], bool]:
        found, _ = await tried(lambda: visit.broker.figures.queue_stats(name), ASK_S)
        told = [one for one in found or [] if not one.stale]
        places = [one.groups[group] for one in told if group in one.groups]
        return places, len(told) >= visit.broker.topics.partition_count(name)

    answers = await asyncio.gather(*map(ask, names))
    silent = [name for name, (_, whole) in zip(names, answers, strict=True) if not whole]
    return [place for places, _ in answers for place in places], silent


async def _seen(visit: Visit, memberships: Sequence[MembershipView]) -> Sequence[MembershipView]:
    """Without groups that were in topics beyond the visitor's key, also where nobody is in them."""
    if visit.principal is None or visit.principal.is_everywhere:
        return memberships
    names = {view.name for view in await answered(lambda: visit.broker.groups.list_groups())}
    return [one for one in memberships if one.group in names]


def _row(membership: MembershipView, figures: list[GroupFigures]) -> GroupRow:
    return GroupRow(
        membership,
        len({*membership.topics, *(one.topic for one in figures)}),
        sum(one.lag for one in figures),
        max((one.lag_ms for one in figures), default=0),
        sum(one.in_flight for one in figures),
        sum(one.dead for one in figures),
        sum(one.halted for one in figures),
    )
