"""Find messages by whatever is known of them: id, producer's id, key, trace, topic, time, state."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from aiohttp import web

from goqueue.wire.errors import BadRequest, GoQueueError
from goqueue.wire.ids import MessageId, validate_topic_name
from node.api.search import FoundMessage, SearchFilter, SearchPage
from node.http.compat.trace_ids import place_of
from node.http.console import cells
from node.http.console.browse import parse_moment_ms
from node.http.console.parts import Visit, tried
from node.http.console.payload import Payload, look
from node.http.lookup.search import STATES, below_of, cursor_of
from node.http.messages.trace_context import is_trace_id
from node.http.request.call import validate_group_name

MATCHES_A_PAGE = 25
SEARCH_S = 8.0
MESSAGE_ID_BYTES_MAX = 256
KINDS = {"": "anything", "message_id": "message id", "key": "key", "trace_id": "trace id"}
FIELDS = ("by", "topic", "group", "state", "from", "to")


@dataclass(frozen=True, slots=True)
class Match:
    """A message that was found."""

    found: FoundMessage
    key: Payload
    value: Payload


async def show(visit: Visit) -> web.Response:
    """An id leads to its message at once, and so does all else that only one message has."""
    text = visit.query_text().strip()
    fields = {name: visit.query.get(name, "").strip()[:300] for name in FIELDS}
    is_asked = bool(text or any(fields.values()))
    pages: list[SearchPage] = []
    problems: list[str] = []
    if text and fields["by"] == "":
        known = _place(visit, text)
        if known is not None:
            return _lead_to(str(known))
    if is_asked:
        try:
            pages, problems = await _search(visit, text, fields)
        except GoQueueError as error:
            problems = [error.message]
    found = _merged(pages)
    missing = [one for page in pages for one in page.not_searched]
    following = pages[0].following if len(pages) == 1 else {}
    more = bool(following) or any(page.following for page in pages)
    if len(found) == 1 and text and not (more or missing or visit.query.get("next")):
        message = found[0].found.message
        return _lead_to(f"{message.topic}:{message.partition}:{message.offset}")
    topic = fields["topic"] or None
    return await visit.page(
        "search.html",
        text=text,
        fields=fields,
        kinds=KINDS,
        states=STATES,
        is_asked=is_asked,
        found=found,
        problems=problems,
        missing=missing,
        following=cursor_of(following, topic) if following else "",
        more=more,
    )


def _place(visit: Visit, text: str) -> MessageId | None:
    """Where the message is, of an id that says so itself."""
    try:
        return MessageId.parse(text)
    except GoQueueError:
        return (
            place_of(text.lower(), visit.broker.topics.list_topics()) if is_trace_id(text) else None
        )


async def _search(
    visit: Visit, text: str, fields: Mapping[str, str]
) -> tuple[list[SearchPage], list[str]]:
    """What each meaning of the text finds, and why one did not answer. Raises what is wrong with
    the fields."""
    topic = fields["topic"] or None
    topics = None if topic is None else [validate_topic_name(topic)]
    wanted = _narrowed(fields)
    meanings = _meanings(text, fields["by"], wanted)
    below = below_of(visit.query.get("next", ""), topic) if len(meanings) == 1 else None

    async def ask(which: SearchFilter) -> tuple[SearchPage | None, str]:
        return await tried(
            lambda: visit.broker.lookup.search(topics, which, below=below, limit=MATCHES_A_PAGE),
            SEARCH_S,
        )

    answers = await asyncio.gather(*map(ask, meanings))
    pages = [page for page, _ in answers if page is not None]
    return pages, list(dict.fromkeys(problem for _, problem in answers if problem))


def _narrowed(fields: Mapping[str, str]) -> SearchFilter:
    """What holds whatever the text means. Raises BadRequest, BadName."""
    state, group = fields["state"], fields["group"]
    if state and state not in STATES:
        raise BadRequest(f"state: {state[:40]!r} is none of {', '.join(STATES)}")
    if fields["by"] not in KINDS:
        raise BadRequest(f"by: {fields['by'][:40]!r} is none of {', '.join(filter(None, KINDS))}")
    return SearchFilter(
        from_ms=parse_moment_ms(fields["from"], "from") if fields["from"] else None,
        to_ms=parse_moment_ms(fields["to"], "to") if fields["to"] else None,
        group=validate_group_name(group) if group else None,
        states=[state] if state else [],
    )


def _meanings(text: str, by: str, wanted: SearchFilter) -> list[SearchFilter]:
    """What the text may be. Raises BadRequest where it can't be what it is said to be."""
    if not text:
        return [wanted]
    found: list[SearchFilter] = []
    if by == "trace_id" and not is_trace_id(text):
        raise BadRequest("a trace id is 32 hex digits")
    if by in ("", "trace_id") and is_trace_id(text):
        found.append(replace(wanted, trace_id=text.lower()))
    if by in ("", "message_id") and len(text.encode()) <= MESSAGE_ID_BYTES_MAX:
        found.append(replace(wanted, message_id=text))
    if by in ("", "key"):
        found.append(replace(wanted, key=text.encode()))
    return found


def _merged(pages: list[SearchPage]) -> list[Match]:
    """Each message once, newest first."""
    found = {
        (one.message.topic, one.message.partition, one.message.offset): one
        for page in pages
        for one in page.found
    }
    ordered = sorted(found.values(), key=lambda one: -one.message.time_ms)
    return [Match(one, look(one.message.key), _value(one)) for one in ordered]


def _value(found: FoundMessage) -> Payload:
    return look(None if found.message.is_null else bytes(found.message.value))


def _lead_to(where: str) -> web.Response:
    return web.Response(status=303, headers={"Location": cells.url("messages", where)})
