"""Why a message is not delivered, or not settled, now: `GET /messages/{id}/why`."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from delivery.lookup.verdict import Verdict
from goqueue.wire.ids import MessageId
from node.api.times import format_time
from node.api.traces import WhyView
from node.http.lookup.message_ref import find_message
from node.http.lookup.why_texts import estimate_text, reason_text
from node.http.request.call import Call, answer, validate_group_name


class WhyReason(Struct):
    """One reason: `code` and `attributes` for programs, `text` for people. `until` is when it ends
    by itself, where that is known."""

    code: str
    text: str
    until: str | None
    attributes: dict[str, Any]


class WhyGroup(Struct):
    """What holds for one group; the first reason is the decisive one. `deliverable`: a receive of
    who may would get the message now. `eta` estimates when it is delivered (again), by `eta_by`:
    delay, backoff, lease or rate; where nobody can say it is null, and `eta_text` says so."""

    group: str
    state: str
    deliverable: bool
    attempts: int
    reasons: list[WhyReason]
    eta: str | None
    eta_by: str | None
    eta_text: str


class WhyAnswer(Struct):
    """One message as of the log time `as_of`. `state` and `reasons` hold whatever the group;
    `groups` are those that have the topic, or the one asked about, without `more` that are left
    out. `leader` is null where nobody leads the partition: then all is as a replica last knew.
    `alike` are the older messages of the same id, where that is how it was asked for."""

    id: str
    message_id: str | None
    topic: str
    partition: int
    offset: int
    as_of: str | None
    leader: str | None
    state: str
    reasons: list[WhyReason]
    groups: list[WhyGroup]
    more: int
    alike: list[str] | UnsetType = UNSET


async def why(call: Call) -> web.Response:
    """GET /messages/{id}/why, for `group`, or for each group that has the topic."""
    wanted, alike = await find_message(call)
    group = call.query.get("group") or None
    if group is not None:
        validate_group_name(group)
    view = await call.broker.traces.message_why(
        wanted.topic, wanted.partition, wanted.offset, group
    )
    return answer(_answer(wanted, view, alike))


def _answer(wanted: MessageId, view: WhyView, alike: list[str]) -> WhyAnswer:
    return WhyAnswer(
        id=str(wanted),
        message_id=view.message_id,
        topic=wanted.topic,
        partition=wanted.partition,
        offset=wanted.offset,
        as_of=format_time(view.time_ms) if view.time_ms else None,
        leader=view.leader or None,
        state=view.message.state,
        reasons=_reasons(view.message, ""),
        groups=[_group(one.group, one.verdict) for one in view.groups],
        more=view.more,
        alike=alike or UNSET,
    )


def _group(name: str, verdict: Verdict) -> WhyGroup:
    return WhyGroup(
        group=name,
        state=verdict.state,
        deliverable=verdict.deliverable,
        attempts=verdict.attempts,
        reasons=_reasons(verdict, name),
        eta=format_time(verdict.eta_ms) if verdict.eta_ms else None,
        eta_by=verdict.eta_by or None,
        eta_text=estimate_text(verdict),
    )


def _reasons(verdict: Verdict, group: str) -> list[WhyReason]:
    return [
        WhyReason(
            reason.code,
            reason_text(reason, group),
            format_time(reason.until_ms) if reason.until_ms else None,
            dict(reason.facts),
        )
        for reason in verdict.reasons
    ]
