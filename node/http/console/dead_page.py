"""Dead letters: who has some, why they died, and back with them, after a dry run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from goqueue.wire.errors import BadRequest
from goqueue.wire.ids import PARTITIONS_MAX
from node.api.dead_letters import DeadFilter, DeadMessage
from node.http.console.acting import require_may_act
from node.http.console.browse import parse_moment_ms
from node.http.console.census import GroupFigures
from node.http.console.forms import read_form
from node.http.console.paging import page_of
from node.http.console.parts import Visit, answered, tried
from node.http.console.payload import Payload, look
from node.http.queue.dead_letters import after_of

ROWS_A_PAGE = 50
LETTERS_A_PAGE = 25
JOBS_SHOWN = 10
ACTIONS = ("redrive", "purge")
FIELDS = ("reason", "key", "partition", "from", "to")
"""Of a filter, as forms and addresses have them."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter to look at."""

    dead: DeadMessage
    key: Payload
    value: Payload
    headers: list[tuple[str, Payload]]


async def show_all(visit: Visit) -> web.Response:
    """Every group and topic with dead letters, most first."""
    wanted, sweep = visit.query_text(), await visit.census.all()
    found: list[GroupFigures] = [
        figures
        for topic in sweep.topics
        for figures in topic.groups.values()
        if figures.dead and (wanted in figures.group or wanted in figures.topic)
    ]
    found.sort(key=lambda one: (-one.dead, one.group, one.topic))
    rows, where = page_of(found, visit.page_number(), ROWS_A_PAGE)
    return await visit.page("dead.html", rows=rows, where=where, sweep=sweep)


async def show(visit: Visit) -> web.Response:
    """One group's in one topic, filtered."""
    fields = {name: visit.query.get(name, "") for name in FIELDS}
    return await _letters(visit, fields, visit.query.get("after", ""))


async def act(visit: Visit) -> web.Response:
    """A dry run, or what one has shown. Raises CrossSite, ReadOnly, PlanExpired, BadRequest."""
    form = await read_form(visit)
    require_may_act(visit)
    group, topic = visit.group(), visit.topic()
    action = form.get("action", "")
    if action not in ACTIONS:
        raise BadRequest(f"action: {action[:40]!r} is neither redrive nor purge")
    fields = {name: form.get(name, "") for name in FIELDS}
    rate = _rate(form.get("rate", ""))
    which = filter_of(fields)
    what = (action, group, topic, rate, *fields.values())
    matched = await _matched(visit, action, which)
    outcome: dict[str, Any] = {"action": action, "matched": matched, "rate": rate, "done": False}
    if form.get("step") == "do":
        expected = form.get("matched", "")
        visit.parts.tokens.check_plan(form.get("plan", ""), *what, expected)
        if expected != str(matched):
            outcome["changed"] = expected
        else:
            outcome.update(await _do(visit, action, which, rate), done=True)
    outcome["plan"] = visit.parts.tokens.plan(*what, matched)
    return await _letters(visit, fields, "", outcome)


async def _do(visit: Visit, action: str, which: DeadFilter, rate: float) -> dict[str, Any]:
    group, topic, broker = visit.group(), visit.topic(), visit.broker
    if action == "purge":
        return {"purged": await broker.letters.purge(group, topic, which, dry_run=False)}
    job = await broker.redriving.redrive(group, topic, which, rate=rate, dry_run=False, force=False)
    return {"job": job}


async def _matched(visit: Visit, action: str, which: DeadFilter) -> int:
    group, topic, broker = visit.group(), visit.topic(), visit.broker
    if action == "purge":
        return await broker.letters.purge(group, topic, which, dry_run=True)
    view = await broker.redriving.redrive(group, topic, which, rate=0.0, dry_run=True, force=False)
    return view.matched


async def _letters(
    visit: Visit, fields: dict[str, str], after: str, outcome: dict[str, Any] | None = None
) -> web.Response:
    group, topic = visit.group(), visit.topic()
    problem, which = "", DeadFilter()
    try:
        which = filter_of(fields)
    except BadRequest as error:
        problem = error.message
    page, (jobs, _) = await asyncio.gather(
        answered(
            lambda: visit.broker.letters.dead_letters(
                group, topic, which, after=after_of(after), limit=LETTERS_A_PAGE
            )
        ),
        tried(lambda: visit.broker.redriving.redrives(group)),
    )
    return await visit.page(
        "dead_letters.html",
        headers={"Set-Cookie": visit.visitor_cookie()},
        group=group,
        topic=topic,
        letters=[_letter(one) for one in page.messages],
        page=page,
        following=None if page.following is None else "{}:{}".format(*page.following),
        fields=fields,
        is_filtered=any(fields.values()),
        problem=problem,
        jobs=[job for job in reversed(jobs or []) if job.topic == topic][:JOBS_SHOWN],
        outcome=outcome,
    )


def filter_of(fields: dict[str, str]) -> DeadFilter:
    """Raises BadRequest."""
    number = fields["partition"]
    is_number = number.isascii() and number.isdigit() and len(number) <= 10
    if number and not (is_number and int(number) <= PARTITIONS_MAX):
        raise BadRequest(f"partition: {number[:40]!r} is not a partition's number")
    return DeadFilter(
        reason=fields["reason"] or None,
        from_ms=parse_moment_ms(fields["from"], "from") if fields["from"] else None,
        to_ms=parse_moment_ms(fields["to"], "to") if fields["to"] else None,
        key=fields["key"].encode() or None,
        partition=int(number) if number else None,
    )


def _rate(text: str) -> float:
    """Messages a second; 0 is without a bound. Raises BadRequest."""
    if not text:
        return 0.0
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise BadRequest(f"rate: {text[:40]!r} is not a whole number of messages a second")
    return float(text)


def _letter(dead: DeadMessage) -> Letter:
    message = dead.message
    value = None if message.is_null else message.value
    headers = [(name, look(bytes(blob))) for name, blob in message.headers]
    return Letter(dead, look(message.key), look(value), headers)
