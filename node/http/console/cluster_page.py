"""The cluster: is it well and if not why, its brokers, what moves, and every partition."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from node.api.node import ClusterView, NodeView
from node.api.placement import BrokerView
from node.api.topics import PartitionView, TopicView
from node.http.admin.cluster import health_status
from node.http.console.cells import plural
from node.http.console.paging import paged
from node.http.console.parts import Visit, tried

PARTITIONS_A_PAGE = 50
AT_ONCE = 16
MOVES_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition; `problem` says what is wrong with it, `is_known` whether anybody told of it."""

    topic: str
    view: PartitionView
    problem: str
    is_known: bool


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker: what it is, from the cluster's state, and what it last said."""

    node: NodeView
    broker: BrokerView | None
    votes: bool


async def show(visit: Visit) -> web.Response:
    broker = visit.broker
    (brokers, no_brokers), (running, no_moves), (rows, where, unknown) = await asyncio.gather(
        tried(lambda: broker.placement.brokers()),
        tried(lambda: broker.placement.reassignments(running_only=True)),
        _partitions(visit),
    )
    view = broker.node.cluster_view()
    known = {one.id: one for one in brokers or ()}
    return await visit.page(
        "cluster.html",
        view=view,
        health=health_status(view),
        reasons=reasons(view),
        alive=sum(node.status == "alive" for node in view.nodes),
        brokers=[
            BrokerRow(node, known.get(node.node), node.node in view.voters) for node in view.nodes
        ],
        no_brokers=no_brokers,
        running=(running or [])[:MOVES_SHOWN_MAX],
        no_moves=no_moves,
        rows=rows,
        where=where,
        unknown=unknown,
    )


async def _partitions(visit: Visit) -> tuple[list[PartitionRow], object, list[str]]:
    """One page of them, of topics whose names hold what is searched for; which topics did not
    answer."""
    broker, wanted = visit.broker, visit.query_text()
    counts = [
        (name, broker.topics.partition_count(name))
        for name in broker.topics.list_topics()
        if wanted in name
    ]
    where = paged(sum(count for _, count in counts), visit.page_number(), PARTITIONS_A_PAGE)
    cuts: list[tuple[str, int, int]] = []
    begin, end = where.begin, where.begin + where.size
    for name, count in counts:
        if begin < count and end > 0:
            cuts.append((name, max(0, begin), min(count, end)))
        begin, end = begin - count, end - count
    rows: list[PartitionRow] = []
    unknown: list[str] = []
    for at in range(0, len(cuts), AT_ONCE):
        chunk = cuts[at : at + AT_ONCE]
        answers = await asyncio.gather(*(_topic(visit, name) for name, _, _ in chunk))
        for (name, first, last), (topic, problem) in zip(chunk, answers, strict=True):
            if topic is None:
                unknown.append(f"{name}: {problem}")
            else:
                rows += partition_rows(topic, topic.partitions[first:last])
    return rows, where, unknown


async def _topic(visit: Visit, name: str) -> tuple[TopicView | None, str]:
    return await tried(lambda: visit.broker.topics.topic(name))


def partition_rows(topic: TopicView, views: Sequence[PartitionView]) -> list[PartitionRow]:
    return [
        PartitionRow(topic.name, view, _problem(view), bool(view.isr) or view.leader is not None)
        for view in views
    ]


def _problem(view: PartitionView) -> str:
    if view.leader is None:
        return "no leader"
    if view.learners:
        return "learning"
    if len(view.isr) < max(len(view.replicas), len(view.voters)):
        return "behind"
    return ""


def reasons(view: ClusterView) -> list[str]:
    """Why it is not healthy, in words."""
    found = list(view.problems)
    if view.leaderless:
        found.append(f"{plural(view.leaderless, 'partition')} without a leader")
    if view.under_replicated:
        behind = plural(view.under_replicated, "partition")
        found.append(f"{behind} with fewer replicas in sync than wanted")
    return found
