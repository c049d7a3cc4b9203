"""Is it alive, may it be sent work, what is it, and its figures."""

from __future__ import annotations

import platform
import time
from io import BytesIO
from typing import Any

from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from node.api.times import format_time, format_uptime
from node.http.request.call import Call, answer

SENT_AT_ONCE_BYTES_MAX = 1 << 20


class HealthAnswer(Struct):
    status: str
    timestamp: str


class LiveAnswer(Struct):
    """`pass` or `fail`; a failed process should be restarted."""

    status: str
    timestamp: str
    uptime: str
    message: str | UnsetType = UNSET


class CheckAnswer(Struct):
    status: str
    message: str
    latency: str


class BrokerSummary(Struct):
    node_id: str
    topic_count: int
    total_size: int


class ReadyAnswer(Struct):
    """`pass` or `fail`; a failed node should not be sent requests."""

    status: str
    timestamp: str
    uptime: str
    message: str | UnsetType = UNSET
    checks: dict[str, CheckAnswer] | UnsetType = UNSET
    broker: BrokerSummary | UnsetType = UNSET


class VersionAnswer(Struct):
    """`go_version` is where GoQueue's clients look for the runtime; here it is Python's. `level` is
    the cluster's finished feature level: what came with a higher one can't be used yet. `node_id`
    is the node that answers, as answers about partitions name their leaders."""

    version: str
    git_commit: str
    build_time: str
    go_version: str
    python_version: str
    level: int
    node_id: str


class StatsAnswer(Struct):
    """Figures of this node; `topic_stats` has GoQueue's capitalised names. `stale`: leaders did not
    confirm in time how many messages there are; `Stale` says of which topics."""

    node_id: str
    uptime: str
    uptime_seconds: float
    topics: int
    total_messages: int
    total_size_bytes: int
    topic_list: list[str]
    topic_stats: dict[str, dict[str, Any]]
    details: dict[str, Any]
    stale: bool


async def health(call: Call) -> web.Response:
    """GoQueue's oldest health route: the process answers."""
    return answer(HealthAnswer("ok", _now()))


async def live(call: Call) -> web.Response:
    fault = call.broker.node.alive()
    uptime = format_uptime(call.broker.node.uptime_s)
    if fault is None:
        return answer(LiveAnswer("pass", _now(), uptime))
    return answer(LiveAnswer("fail", _now(), uptime, fault), 503)


async def ready(call: Call) -> web.Response:
    broker = call.broker
    readiness = broker.node.ready()
    is_ready = readiness.ready and not call.shared.stopping.is_set()
    body = ReadyAnswer("pass" if is_ready else "fail", _now(), format_uptime(broker.node.uptime_s))
    if not is_ready:
        failed = [
            f"{name}: {c.message}" for name, c in readiness.checks.items() if c.status != "pass"
        ]
        body.message = "; ".join(failed) or "stopping"
    if call.query_flag("verbose"):
        body.checks = {
            name: CheckAnswer(check.status, check.message, f"{check.latency_ms:g}ms")
            for name, check in readiness.checks.items()
        }
        stats = broker.node.stats()
        size = sum(topic.size_bytes for topic in stats.topics.values())
        body.broker = BrokerSummary(broker.node.node_id, len(stats.topics), size)
    return answer(body, 200 if is_ready else 503)


async def version(call: Call) -> web.Response:
    view = call.broker.upgrade.version()
    python = platform.python_version()
    return answer(
        VersionAnswer(
            view.version,
            view.git_commit,
            view.build_time,
            f"python{python}",
            python,
            view.level,
            call.broker.node.node_id,
        )
    )


async def stats(call: Call) -> web.Response:
    view = await call.broker.node.confirmed_stats()
    topics = view.topics.values()
    return answer(
        StatsAnswer(
            node_id=call.broker.node.node_id,
            uptime=format_uptime(view.uptime_s),
            uptime_seconds=view.uptime_s,
            topics=len(view.topics),
            total_messages=sum(topic.messages for topic in topics),
            total_size_bytes=sum(topic.size_bytes for topic in topics),
            topic_list=sorted(view.topics),
            topic_stats={
                name: {
                    "Name": name,
                    "Partitions": topic.partitions,
                    "TotalMessages": topic.messages,
                    "TotalSize": topic.size_bytes,
                    "Stale": topic.stale,
                }
                for name, topic in view.topics.items()
            },
            details=dict(view.extra),
            stale=any(topic.stale for topic in topics),
        )
    )


async def metrics(call: Call) -> web.Response:
    accept = call.request.headers.get("Accept", "")
    body, content_type = await call.shared.metrics.look(accept)
    sent = body if len(body) <= SENT_AT_ONCE_BYTES_MAX else BytesIO(body)  # the latter in pieces
    return web.Response(body=sent, headers={"Content-Type": content_type})


def _now() -> str:
    return format_time(time.time_ns() // 1_000_000)
