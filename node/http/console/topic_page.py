"""Topics with their rates and lanes, and one of them with all that is known of it."""

from __future__ import annotations

import asyncio

from aiohttp import web

from node.http.console.cluster_page import partition_rows
from node.http.console.paging import page_of
from node.http.console.parts import Visit, answered, tried
from node.http.request.call import answer

TOPICS_A_PAGE = 50
PARTITIONS_A_PAGE = 50


async def show_all(visit: Visit) -> web.Response:
    wanted = visit.query_text()
    names = [name for name in visit.broker.topics.list_topics() if wanted in name]
    shown, where = page_of(names, visit.page_number(), TOPICS_A_PAGE)
    figures = await visit.census.some(shown)
    return await visit.page("topics.html", names=shown, where=where, figures=figures)


async def show(visit: Visit) -> web.Response:
    name = visit.topic()
    topic, (figures, problem) = await asyncio.gather(
        answered(lambda: visit.broker.topics.topic(name)),
        tried(lambda: visit.census.topic(name)),
    )
    views, where = page_of(topic.partitions, visit.page_number(), PARTITIONS_A_PAGE)
    return await visit.page(
        "topic.html",
        topic=topic,
        figures=figures,
        problem=problem,
        rows=partition_rows(topic, views),
        where=where,
        groups=[]
        if figures is None
        else sorted(figures.groups.values(), key=lambda one: one.group),
        messages=sum(view.messages for view in topic.partitions),
        bytes=sum(view.size_bytes for view in topic.partitions),
        part="overview",
    )


async def rates(visit: Visit) -> web.Response:
    """Rates over the whole cluster as JSON: `points` are [time_ms, published, delivered, settled]
    in messages a second, oldest first; whichever nodes are asked, they fit together by time."""
    name = visit.topic()
    figures = await visit.census.topic(name)
    points = [
        [point.time_ms, point.published, point.delivered, point.settled]
        for point in visit.census.points(name)
    ]
    told = answer(
        {
            "topic": name,
            "points": points,
            "answered": figures.answered,
            "partitions": figures.partitions,
        }
    )
    told.headers["Cache-Control"] = "no-store"
    return told
