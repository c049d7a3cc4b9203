"""Where is my message: its timeline as a picture, and why it is where it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from delivery.lookup.verdict import Verdict
from goqueue.wire.errors import NotFound
from goqueue.wire.ids import MessageId
from node.api.traces import WhyView
from node.http.console.browse import Row, rows_of
from node.http.console.parts import Visit, answered, tried
from node.http.console.timeline import draw, events_of
from node.http.lookup.why_texts import estimate_text, reason_text

EVENTS_MAX = 1000
"""In the table."""
STANDINGS_MAX = 50


@dataclass(frozen=True, slots=True)
class Standing:
    """A message with a group: the verdict, its reasons in words, and when it goes on."""

    group: str
    verdict: Verdict
    reasons: Sequence[str]
    estimate: str


async def show(visit: Visit) -> web.Response:
    """One message: what happened to it, and what it holds. Raises NotFound."""
    wanted = MessageId.parse(visit.params["id"])
    place = (wanted.topic, wanted.partition, wanted.offset)
    trace, (row, no_row), (why, no_why) = await asyncio.gather(
        answered(lambda: visit.broker.traces.message_trace(*place)),
        tried(lambda: _row(visit, wanted)),
        tried(lambda: visit.broker.traces.message_why(*place, None)),
    )
    return await visit.page(
        "message.html",
        id=wanted,
        trace=trace,
        events=events_of(trace.events[:EVENTS_MAX]),
        left_out=max(0, len(trace.events) - EVENTS_MAX),
        picture=draw(trace.events, time.time_ns() // 1_000_000),
        row=row,
        no_row=no_row,
        why=why,
        no_why=no_why,
        standings=[] if why is None else standings(why),
    )


def standings(why: WhyView) -> list[Standing]:
    """How the message stands with each group."""
    return [
        Standing(
            one.group,
            one.verdict,
            [reason_text(reason, one.group) for reason in one.verdict.reasons],
            estimate_text(one.verdict),
        )
        for one in why.groups[:STANDINGS_MAX]
    ]


async def _row(visit: Visit, wanted: MessageId) -> Row:
    found = await visit.broker.records.read(
        wanted.topic, wanted.partition, wanted.offset, max_records=1, max_bytes=1, wait_s=0
    )
    rows = await rows_of(found, wanted.offset, 1)
    if not rows or rows[0].view.offset != wanted.offset:
        raise NotFound("what it holds is not in the log any more", id=str(wanted))
    return rows[0]
