"""GoQueue's poll: whatever is there for a member, in partitions led anywhere, at one request.

What was granted to a client that hung up before it could read the answer is given back as if it
had not been delivered.
"""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct

from goqueue.wire.ids import OFFSET_MAX
from node.api.queue import QueuedMessage
from node.api.times import parse_duration_ms
from node.http.groups.consumer_identity import required_member
from node.http.queue.receive import granted, room_for
from node.http.queue.views import QueuedView, queued_views
from node.http.request.answers import told
from node.http.request.call import Call, either
from node.http.request.long_poll import long_poll

TIMEOUT_MS = 30_000
"""As GoQueue's server waits where nothing is said."""
EARLY_FROM_MS, EARLY_MS = 20_000, 500
"""A long wait ends so much before its time: GoQueue's clients ask for 30 s, and hang up after 30 s
without an answer."""
LIMIT = 100
LIMIT_MAX = 1000


class PollAnswer(Struct):
    """`messages_by_partition` holds the same messages by partition number (`topic:0` where they
    are of several topics), `next_offset` the offset after the last one of each."""

    group: str
    member_id: str
    messages: list[QueuedView]
    messages_by_partition: dict[str, list[QueuedView]]
    next_offset: dict[str, int]


async def poll(call: Call) -> web.Response:
    """GET /groups/{group}/poll: a sign of life, too."""
    group = call.group()
    member = required_member(call.query.get("member_id"))
    limit = _limit(call)
    polling = call.broker.polls.poll(
        group, member, generation=_generation(call), limit=limit, wait_s=_wait_s(call)
    )
    with room_for(call):
        found = await long_poll(call, polling) or []
    async with granted(call, group, found) as (messages, _):
        return await told(call, _answer(group, member, messages))


def _limit(call: Call) -> int:
    given = [
        call.query_int(name, LIMIT, 1, LIMIT_MAX) if call.query.get(name) else None
        for name in ("limit", "max_messages")
    ]
    return int(either(given[0], given[1], "limit", "max_messages") or LIMIT)


def _generation(call: Call) -> int | None:
    if not call.query.get("generation"):
        return None
    return call.query_int("generation", 0, 0, OFFSET_MAX)


def _wait_s(call: Call) -> float:
    text = call.query.get("timeout") or call.query.get("wait")
    wait_ms = TIMEOUT_MS if not text else parse_duration_ms(text, "timeout")
    wait_ms = min(wait_ms, round(call.limits.long_poll_s_max * 1000))
    if call.shared.stopping.is_set():
        return 0.0
    return (wait_ms - EARLY_MS if wait_ms >= EARLY_FROM_MS else wait_ms) / 1000


def _answer(group: str, member: str, found: list[QueuedMessage]) -> PollAnswer:
    views = queued_views(found)
    several = len({message.topic for message in found}) > 1
    by_partition: dict[str, list[QueuedView]] = {}
    for view in views:
        where = f"{view.topic}:{view.partition}" if several else str(view.partition)
        by_partition.setdefault(where, []).append(view)
    following = {where: max(v.offset for v in of) + 1 for where, of in by_partition.items()}
    return PollAnswer(group, member, views, by_partition, following)
